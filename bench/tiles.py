"""Every size of block, and every number of parts, for the products that models are made of.

python bench/tiles.py [--only conv] [--json FILE]

What the choices of schedule/templates/tiles.py are held against.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import meganeura as mg
from meganeura.backend import backend_object
from meganeura.backend.wgpu.executor import Pipelines, WgpuExecutable
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.schedule import schedule
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


def candidates(size: tuple[int, int, int, int], limits: Any) -> Iterator[tuple[tiles.Tile, int]]:
    """Blocks and parts that could be any good."""
    batch, m, n, k = size
    for tile, parts in itertools.product(tiles.TILES, (1, 2, 3, 4, 6, 8, 16, 32, 64)):
        blocks = batch * parts * -(-m // tile.bm) * -(-n // tile.bn)
        waste = -(-m // tile.bm) * tile.bm * -(-n // tile.bn) * tile.bn / (m * n)
        short = parts > 1 and k < parts * max(64, 16 * tile.slices)
        crowded = parts > 1 and blocks * tile.threads > 132 * 1024
        idle = blocks * tile.threads < 132 * 96
        if tile.fits(limits) and waste < 1.6 and not (short or crowded or idle):
            yield tile, parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    backend = backend_object()
    print(mg.backend.describe())
    found: list[Any] = []
    for name, out in products():
        if not any(part in name for part in arguments.only.split(",")):
            continue
        size = product_size(out)
        inputs = list(out.inputs)
        handles = [backend.allocate(x.shape, "float32") for x in inputs]
        target = backend.allocate(out.shape, "float32")
        default = tiles.choose(*size, backend.limits)
        default = (default, tiles.parts(*size, backend.limits))
        kinds = list(dict.fromkeys([default, *candidates(size, backend.limits)]))
        choose, parts = tiles.choose, tiles.parts
        plans = []
        try:
            for tile, count in kinds:
                tiles.choose = lambda *_, tile=tile: tile  # type: ignore[assignment, misc]
                tiles.parts = lambda *_, count=count: count  # type: ignore[assignment, misc]
                plans.append(schedule(Graph(inputs, [out], [], {}), backend.limits))
        finally:
            tiles.choose, tiles.parts = choose, parts
        pipelines = Pipelines(backend.device.handle, False)
        pipelines.get([kernel.wgsl for plan in plans for kernel in plan.kernels])
        executables = [
            WgpuExecutable(plan, backend.device.handle, backend.pool, pipelines, {})
            for plan in plans
        ]
        times = {}
        for (tile, count), executable in zip(kinds, executables, strict=True):
            steps = executable._bound([*handles, target])
            if not times:  # clocks fall while kernels are compiled
                begun = time.perf_counter()
                while time.perf_counter() - begun < 0.2:
                    backend.stream.record(steps, 5)
                    backend.synchronize()
            start = time.perf_counter()
            backend.stream.record(steps, 5)
            backend.synchronize()
            again = max(5, min(40, int(0.004 / ((time.perf_counter() - start) / 5))))
            best = []
            for _ in range(3):
                start = time.perf_counter()
                backend.stream.record(steps, again)
                backend.synchronize()
                best.append((time.perf_counter() - start) / again * 1e6)
            times[label(tile, count)] = min(best)
        del executables
        least = min(times.values())
        flops = 2.0 * size[0] * size[1] * size[2] * size[3]
        order = sorted(times.items(), key=lambda t: t[1])
        found.append({"name": name, "size": size, "chosen": label(*default), "times": times})
        mine = label(*default)
        best = ", ".join(f"{t} {v:.1f}" for t, v in order[:5])
        print(
            f"{name:30s} {size!s:26s} {mine:22s} {times[mine]:8.1f} us, {times[mine] / least:.2f} of the best "
            f"({flops / least / 1e6:.1f} TFLOP/s): {best}", flush=True,
        )  # fmt: skip
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found))


def label(tile: tiles.Tile, parts: int) -> str:
    return f"{tile.bm}x{tile.bn}x{tile.bk}:{tile.tm}x{tile.tn}/{tile.slices}/{parts}"


if __name__ == "__main__":
    main()
