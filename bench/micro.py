"""Single operations here and in PyTorch, in one run, against what the device can do at best.

python bench/micro.py [--only matmul,conv] [--json FILE]

The floor is the larger of bytes / the best copy and arithmetic / the best product measured in the same run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import meganeura as mg
from meganeura.backend import backend_object
from meganeura.graph.node import Graph, Node
from meganeura.graph.trace import Trace
from meganeura.tensor import to_tensor

#: batch 16: (size, channels in, channels out, window, stride) of ResNet-50
CONVOLUTIONS = (
    (224, 3, 64, 7, 2), (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1),
    (28, 128, 128, 3, 1), (14, 256, 256, 3, 1), (7, 512, 512, 3, 1), (56, 128, 128, 3, 2),
)  # fmt: skip
PRODUCTS = (
    (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (128, 576, 1536), (128, 1536, 576),
    (50, 720, 2048), (576, 1536, 128), (1500, 384, 1536), (1, 1536, 576), (1, 576, 1536),
    (128, 49152, 576), (1, 49152, 576),
)  # fmt: skip


@dataclass
class Case:
    name: str
    inputs: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    flops: float
    bytes: float


def _cases() -> list[Case]:
    from meganeura import ops
    from meganeura.ops.registry import make

    def torch_name(path: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            import torch

            found: Any = torch
            for part in path.split("."):
                found = getattr(found, part)
            return found(*args, **kwargs)

        return call

    found = []
    for m, n, k in PRODUCTS:
        shapes = ((m, k), (k, n))
        size = 4.0 * (m * k + k * n + m * n)
        found.append(
            Case(
                f"matmul {m}x{n}x{k}",
                shapes,
                ops.matmul,
                torch_name("matmul"),
                2.0 * m * n * k,
                size,
            )
        )
    conv = torch_name("nn.functional.conv2d")
    for size, inner, outer, window, stride in CONVOLUTIONS:
        pad = window // 2
        out = (size + 2 * pad - window) // stride + 1
        x, w, y = (16, size, size, inner), (window, window, inner, outer), (16, out, out, outer)
        flops = 2.0 * math.prod(y) * window * window * inner
        moved = 4.0 * sum(map(math.prod, (x, w, y)))
        attributes = {
            "strides": (stride, stride), "padding": ((pad, pad), (pad, pad)), "dilation": (1, 1), "groups": 1,
        }  # fmt: skip
        label = f"{size}x{size} {inner}>{outer} {window}x{window}/{stride}"

        def forward(a: Node, b: Node, attributes: Any = attributes) -> Node:
            return make("conv", a, b, **attributes)

        def into_input(a: Node, b: Node, attributes: Any = attributes, x: Any = x) -> Node:
            return make("conv_input_gradient", a, b, input_shape=x, **attributes)

        def into_kernel(a: Node, b: Node, attributes: Any = attributes, w: Any = w) -> Node:
            return make("conv_kernel_gradient", a, b, kernel_shape=w, **attributes)

        def first(a: Any) -> Any:
            return a.permute(0, 3, 1, 2)

        def kernel(b: Any) -> Any:
            return b.permute(3, 2, 0, 1)

        def peer(a: Any, b: Any, stride: int = stride, pad: int = pad) -> Any:
            return conv(first(a), kernel(b), stride=stride, padding=pad)

        def peer_input(a: Any, b: Any, x: Any = x, stride: int = stride, pad: int = pad) -> Any:
            shape = (x[0], x[3], x[1], x[2])
            return torch_name("nn.grad.conv2d_input")(shape, kernel(b), first(a), stride, pad)

        def peer_kernel(a: Any, b: Any, w: Any = w, stride: int = stride, pad: int = pad) -> Any:
            shape = (w[3], w[2], w[0], w[1])
            return torch_name("nn.grad.conv2d_weight")(first(a), shape, first(b), stride, pad)

        found += [
            Case(f"conv {label}", (x, w), forward, peer, flops, moved),
            Case(f"conv-input {label}", (y, w), into_input, peer_input, flops, moved),
            Case(f"conv-kernel {label}", (x, y), into_kernel, peer_kernel, flops, moved),
        ]

    def layer_norm(x: Any) -> Any:
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        return centred * ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + 1e-5)

    wide = (8192, 4096)
    n = float(math.prod(wide))
    norm = torch_name("nn.functional.layer_norm")
    heads = (4, 12, 1024, 64)
    found += [
        Case("copy x * 2", (wide,), lambda x: ops.multiply(x, 2.0), lambda x: x * 2.0, n, 8 * n),
        Case("softmax", (wide,), lambda x: ops.softmax(x), lambda x: x.softmax(-1), 5 * n, 8 * n),
        Case(
            "layer norm", (wide,),
            layer_norm,
            lambda x: norm(x, (wide[1],)), 8 * n, 8 * n,
        ),
        Case("sum of all", (wide,), lambda x: ops.sum(x), lambda x: x.sum(), n, 4 * n),
        Case("sum of rows", (wide,), lambda x: ops.sum(x, axis=1), lambda x: x.sum(1), n, 4 * n),
        Case("sum of columns", (wide,), lambda x: ops.sum(x, axis=0), lambda x: x.sum(0), n, 4 * n),
        Case("gelu(x) + y", (wide, wide), lambda x, y: ops.gelu(x, approximate=False) + y,
             lambda x, y: torch_name("nn.functional.gelu")(x) + y, 20 * n, 12 * n),
        Case("transpose", (wide,), lambda x: ops.transpose(x), lambda x: x.t().contiguous(), 0, 8 * n),
        Case(
            "attention 4x12x1024x64", (heads,) * 3,
            lambda q, k, v: ops.matmul(ops.softmax(ops.matmul(q, ops.swapaxes(k, 2, 3)) * 0.125), v),
            torch_name("nn.functional.scaled_dot_product_attention"),
            4.0 * 4 * 12 * 1024 * 1024 * 64, 16.0 * math.prod(heads),
        ),
    ]  # fmt: skip
    return found


def ours(case: Case) -> tuple[float, int]:
    """Milliseconds (the median of five blocks) and dispatches."""
    backend = backend_object()
    random = np.random.default_rng(0)
    tensors = [to_tensor(random.standard_normal(s).astype("float32")) for s in case.inputs]
    with Trace() as trace:
        nodes = [trace.input(t.shape, t.dtype, f"x{i}") for i, t in enumerate(tensors)]
        out = case.ours(*nodes)
    executable = backend.compile(Graph(nodes, [out], [], {}))
    del trace
    handles = [t.handle for t in tensors]

    def block(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            executable.run(handles, [])
        backend.synchronize()
        return (time.perf_counter() - start) / count

    return _median(block), int(executable.report()["dispatches"])


def theirs(case: Case) -> float:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    tensors = [torch.randn(*s, device=device) for s in case.inputs]

    def block(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            case.theirs(*tensors)
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    with torch.no_grad():
        return _median(block)


def _median(block: Callable[[int], float]) -> float:
    block(1)
    once = min(block(2), block(2))
    count = max(3, min(100, int(0.02 / max(once, 1e-6))))
    return sorted(block(count) for _ in range(5))[2] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="comma-separated parts of names")
    parser.add_argument("--json", help="write the figures to this file as well")
    arguments = parser.parse_args()
    cases = [c for c in _cases() if any(p in c.name for p in arguments.only.split(","))]
    torch = importlib.util.find_spec("torch") is not None
    print(
        f"meganeura {mg.__version__} on {mg.backend.describe()}"
        + (", beside PyTorch" if torch else "")
    )
    rows: list[dict[str, Any]] = []
    for case in cases:
        milliseconds, dispatches = ours(case)
        row = {"name": case.name, "ours": milliseconds, "dispatches": dispatches,
               "gflops": case.flops / milliseconds / 1e6, "gbytes": case.bytes / milliseconds / 1e6}  # fmt: skip
        if torch:
            row["torch"] = theirs(case)
        rows.append(row)
    speed = max(
        (max(r["gflops"], c.flops / r.get("torch", math.inf) / 1e6))
        for r, c in zip(rows, cases, strict=True)
    )
    copy = max(
        (max(r["gbytes"], c.bytes / r.get("torch", math.inf) / 1e6))
        for r, c in zip(rows, cases, strict=True)
    )
    print(
        f"{'operation':32s} {'ms':>9s} {'GFLOP/s':>9s} {'GB/s':>7s} {'kernels':>7s} "
        f"{'torch ms':>9s} {'ratio':>6s} {'of floor':>8s}"
    )
    for row, case in zip(rows, cases, strict=True):
        floor = max(case.flops / speed, case.bytes / copy) / 1e6
        peer = f"{row['torch']:9.4f} {row['ours'] / row['torch']:6.2f}" if torch else " " * 16
        print(
            f"{row['name']:32s} {row['ours']:9.4f} {row['gflops']:9.0f} {row['gbytes']:7.0f} {row['dispatches']:7d} "
            f"{peer} {floor / row['ours']:8.2f}"
        )
    if arguments.json:
        text = {
            "device": mg.backend.describe(),
            "command": " ".join(["python", *sys.argv]),
            "rows": rows,
        }
        Path(arguments.json).write_text(json.dumps(text, indent=1))


if __name__ == "__main__":
    main()
