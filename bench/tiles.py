"""Every size of block for the products that models are made of: what the choice of tiles is held against.

python bench/tiles.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import meganeura as mg
from meganeura.backend import backend_object
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.schedule.templates import tiles

#: batch, rows, columns, terms
SHAPES = (
    (1, 1024, 1024, 1024), (1, 2048, 2048, 2048), (1, 128, 576, 576), (1, 128, 576, 1536), (1, 128, 1536, 576),
    (1, 50, 720, 2048), (1, 50, 2048, 720), (1, 50, 960, 720), (1, 576, 1536, 128), (1, 720, 2048, 50),
    (1, 1500, 384, 384), (1, 1500, 384, 1536), (1, 1500, 1536, 384), (6, 1500, 1500, 64), (6, 1500, 64, 1500),
    (1, 784, 512, 4608), (1, 3136, 256, 2304), (1, 12544, 128, 1152), (1, 50176, 64, 576), (1, 50176, 256, 64),
    (1, 256, 256, 2304), (1, 1024, 128, 1152), (1, 4096, 64, 576), (1, 32, 128, 784), (1, 128, 64, 1600),
    (4, 50, 720, 512), (2, 128, 576, 768), (8, 128, 576, 6144),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    backend = backend_object()
    print(mg.backend.describe())
    chosen = tiles.choose
    usable = [t for t in tiles.TILES if t.fits(backend.limits)]
    found: list[Any] = []
    for shape in SHAPES:
        batch, m, n, k = shape
        nodes = [
            Node("input", (), {"name": str(i)}, s, "float32")
            for i, s in enumerate(((batch, m, k), (batch, k, n)))
        ]
        out = make("matmul", *nodes, transpose_a=False, transpose_b=False)
        handles = [backend.allocate(x.shape, "float32") for x in nodes]
        default = chosen(*shape, backend.limits)
        times = {}
        for tile in usable:
            tiles.choose = lambda *_, tile=tile: tile  # type: ignore[misc]
            executable = backend.compile(Graph(nodes, [out], [], {}), False)
            buffer = backend.allocate(out.shape, "float32")
            steps = executable._bound([*handles, buffer])
            backend.stream.record(steps, 3)
            backend.synchronize()
            best = []
            for _ in range(3):
                start = time.perf_counter()
                backend.stream.record(steps, 20)
                backend.synchronize()
                best.append((time.perf_counter() - start) / 20 * 1e6)
            times[f"{tile.bm}x{tile.bn}/{tile.slices}"] = min(best)
        name = f"{default.bm}x{default.bn}/{default.slices}"
        least = min(times.values())
        found.append({"shape": shape, "chosen": name, "times": times})
        order = sorted(times.items(), key=lambda t: t[1])
        print(
            f"{shape!s:24s} chosen {name:10s} {times[name]:8.1f} us, {times[name] / least:.2f} of the best: "
            + ", ".join(f"{t} {v:.1f}" for t, v in order[:6]), flush=True,
        )  # fmt: skip
    tiles.choose = chosen
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
