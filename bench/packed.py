"""Products of one row, or a few, with tables in float32 and packed: microseconds, and the bytes read in a second.

python bench/packed.py [--bytes 400e6] [--json FILE]

Each format has as many tables as make up `--bytes`, more than a cache holds, 64 at most, and all are read in one
plan. A dash: the device binds no table so large.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import meganeura as mg
from meganeura import ops
from meganeura.backend import backend_object
from meganeura.execution import compiled
from meganeura.graph.trace import Trace
from meganeura.quantization.formats import FORMATS, Packed
from meganeura.quantization.variable import PackedVariable
from meganeura.variable import Variable

#: (rows, inputs, outputs): LLaMA 7B's, SmolLM2-135M's.
SHAPES = ((1, 4096, 4096), (1, 4096, 11008), (1, 11008, 4096), (2, 4096, 4096), (16, 4096, 4096),
          (1, 576, 1536), (1, 1536, 576), (1, 576, 49152))  # fmt: skip


def table(kind: str, inputs: int, outputs: int, random: np.random.Generator) -> Variable:
    """A table of numbers about 1: of packed ones the bits are drawn, which is quicker than packing."""
    if kind == "float32":
        return Variable(random.standard_normal((outputs, inputs), dtype="float32"))
    format = FORMATS[kind]
    made = PackedVariable(format, (outputs, inputs), (1,))
    words = random.integers(0, 1 << 32, (outputs, format.words(inputs)), "uint32")
    if kind == "f16":
        words = words & np.uint32(0xBFFFBFFF)  # no exponent of infinity
    scales = np.full(format.scales(outputs, inputs), 0x2C002C00, "uint32")  # 1/16 twice
    made.assign_packed(Packed(format, words, scales if format.halves else None))
    return made


def measure(kind: str, shape: tuple[int, int, int], least: float) -> dict[str, float]:
    rows, inputs, outputs = shape
    random = np.random.default_rng(0)
    first = table(kind, inputs, outputs, random)
    count = max(1, min(round(least / first.nbytes), 64))
    tables = [first, *(table(kind, inputs, outputs, random) for _ in range(count - 1))]
    x = Variable(random.standard_normal((rows, inputs), dtype="float32"))
    total = Variable(np.zeros((rows, outputs), "float32"))
    with Trace() as trace:
        products = [ops.matmul(x, ops.transpose(t)) for t in tables]
        # a use of all of them that is no work to speak of
        total.assign(ops.sum(ops.stack([p[:, :1] for p in products]), axis=0) + total)
    executable = compiled(trace.graph([]))
    handles = [v.handle for v in trace.variables]

    def block(times: int) -> float:
        start = time.perf_counter()
        executable.run_many([], handles, times)
        backend_object().synchronize()
        return (time.perf_counter() - start) / times

    once = min(block(1), block(2))
    times = max(2, min(100, int(0.02 / once)))
    seconds = statistics.median(block(times) for _ in range(5)) / count
    return {"us": seconds * 1e6, "gb_per_second": first.nbytes / seconds / 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=float, default=400e6, help="of the tables of one format")
    parser.add_argument("--json", help="write the figures to this file as well")
    arguments = parser.parse_args()
    kinds = ("float32", *FORMATS)
    print(f"meganeura {mg.__version__} on {mg.backend.describe()}: microseconds (GB/s)")
    print(f"{'rows x inputs x outputs':>24s}" + "".join(f"{k:>18s}" for k in kinds))
    figures: dict[str, Any] = {}
    for shape in SHAPES:
        name = "x".join(map(str, shape))
        print(f"{name:>24s}", end="", flush=True)
        for kind in kinds:
            try:
                found = measure(kind, shape, arguments.bytes)
            except ValueError:
                print(f"{'-':>18s}", end="", flush=True)
                continue
            figures.setdefault(name, {})[kind] = found
            cell = f"{found['us']:.1f} ({found['gb_per_second']:.0f})"
            print(f"{cell:>18s}", end="", flush=True)
        print()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
