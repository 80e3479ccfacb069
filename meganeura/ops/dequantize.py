"""The one primitive on packed tables: their values. Where it is read, a kernel reads the packed words."""

from __future__ import annotations

import numpy as np

from meganeura.graph.autodiff import zero_gradient
from meganeura.graph.node import Node, Shape
from meganeura.ops.registry import Op, Sample, register
from meganeura.quantization.formats import FORMATS, Packed, pack, unpack


def _infer(words: Node, *scales: Node, format: str) -> tuple[Shape, str]:
    kind = FORMATS[format]
    if words.ndim != 2 or words.dtype != "uint32":
        raise ValueError(
            f"dequantize: words are a table of uint32, and came as {words.dtype} of shape {words.shape}"
        )
    rows, columns = words.shape[0], words.shape[1] * 32 // kind.bits
    expected = [(kind.scales(rows, columns),)] if kind.halves else []
    found = [s.shape for s in scales]
    if found != expected or columns % kind.block or any(s.dtype != "uint32" for s in scales):
        raise ValueError(
            f"dequantize: words of shape {words.shape} as {format} need scales of shape "
            f"{', '.join(map(str, expected)) or 'none'}, uint32, in whole blocks of {kind.block} values, and "
            f"got {', '.join(f'{s.dtype}{list(s.shape)}' for s in scales) or 'none'}"
        )
    return (rows, columns), "float32"


def _reference(words: np.ndarray, *scales: np.ndarray, format: str) -> np.ndarray:
    return unpack(Packed(FORMATS[format], words, *(scales or (None,))))


def _samples(random: np.random.Generator) -> list[Sample]:
    found = []
    for kind in FORMATS.values():
        for rows, columns in ((3, 32), (1, 96), (5, 64), (0, 32)):
            table = random.standard_normal((rows, columns)).astype("float32")
            table *= np.float32(10.0) ** random.integers(-6, 4, (rows, 1)).astype("float32")
            packed = pack(kind, table)
            inputs = [packed.words] + ([] if packed.scales is None else [packed.scales])
            found.append(Sample(tuple(inputs), {"format": kind.name}, tolerance=0.0))
    return found


register(Op("dequantize", "index", _infer, _reference, zero_gradient, samples=_samples))
