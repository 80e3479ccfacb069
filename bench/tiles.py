"""Every size of block, and every number of parts, for the products that models are made of.

python bench/tiles.py [--only conv] [--most 40] [--json FILE]

What the estimate of schedule/templates/tiles.py is held against, and fitted to. Times are the device's own,
of the candidates with the best estimates.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import meganeura as mg
from meganeura.backend import backend_object
from meganeura.graph.node import Node
from meganeura.ops.registry import make
from meganeura.schedule.templates import tiles
from meganeura.schedule.templates.sizes import product_size

#: batch, rows, columns, terms
PRODUCTS = (
    (1, 4096, 4096, 4096), (1, 2048, 2048, 2048), (1, 1024, 1024, 1024), (1, 128, 576, 576), (1, 128, 576, 1536),
    (1, 128, 1536, 576), (1, 50, 720, 2048), (1, 50, 2048, 720), (1, 50, 960, 720), (1, 576, 1536, 128),
    (1, 720, 2048, 50), (1, 1500, 384, 384), (1, 1500, 384, 1536), (1, 1500, 1536, 384), (6, 1500, 1500, 64),
    (6, 1500, 64, 1500), (1, 32, 256, 784), (1, 128, 64, 1600), (1, 256, 256, 4096), (1, 128, 49152, 576),
)  # fmt: skip
#: ResNet-50 at batch 16: size, channels in, channels out, window, stride
CONVOLUTIONS = (
    (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1), (28, 128, 128, 3, 1),
    (28, 512, 128, 1, 1), (28, 128, 512, 1, 1), (14, 256, 256, 3, 1), (14, 256, 1024, 1, 1), (14, 1024, 256, 1, 1),
    (7, 512, 512, 3, 1), (7, 512, 2048, 1, 1), (7, 2048, 512, 1, 1), (56, 128, 128, 3, 2), (224, 3, 64, 7, 2),
)  # fmt: skip


def leaf(name: str, shape: tuple[int, ...]) -> Node:
    return Node("input", (), {"name": name}, shape, "float32")


def products() -> Iterator[tuple[str, Node]]:
    for batch, m, n, k in PRODUCTS:
        a, b = leaf("a", (batch, m, k)), leaf("b", (batch, k, n))
        yield (
            f"matmul {batch}x{m}x{n}x{k}",
            make("matmul", a, b, transpose_a=False, transpose_b=False),
        )
    for size, inner, outer, window, stride in CONVOLUTIONS:
        pad = window // 2
        out = (size + 2 * pad - window) // stride + 1
        shapes = ((16, size, size, inner), (window, window, inner, outer), (16, out, out, outer))
        x, w, y = (leaf(n, s) for n, s in zip("xwy", shapes, strict=True))
        a = {
            "strides": (stride, stride), "padding": ((pad, pad), (pad, pad)), "dilation": (1, 1), "groups": 1,
        }  # fmt: skip
        label = f"{size} {inner}>{outer} {window}x{window}/{stride}"
        yield f"conv {label}", make("conv", x, w, **a)
        yield f"conv-input {label}", make("conv_input_gradient", y, w, input_shape=x.shape, **a)
        yield f"conv-kernel {label}", make("conv_kernel_gradient", x, y, kernel_shape=w.shape, **a)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="comma-separated parts of names")
    parser.add_argument("--most", type=int, default=40, help="candidates of a product")
    parser.add_argument("--json", help="write the figures to this file as well")
    arguments = parser.parse_args()
    backend: Any = backend_object()
    print(mg.backend.describe())
    found: list[Any] = []
    for name, out in products():
        if not any(part in name for part in arguments.only.split(",")):
            continue
        size = product_size(out)
        kinds = [label for _, label in tiles.candidates(*size, backend.limits)][: arguments.most]
        times = backend.tuner.times(size, out, kinds)
        order = sorted(times.items(), key=lambda t: t[1])
        ratio = times[kinds[0]] / order[0][1]
        found.append({"name": name, "size": size, "chosen": kinds[0], "times": times})
        best = ", ".join(f"{label} {t / 1e3:.1f}" for label, t in order[:5])
        print(f"{name:30s} {size!s:26s} {kinds[0]:22s} {ratio:.2f} of the best: {best}", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
