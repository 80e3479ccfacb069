"""Generators: values that depend on the coordinates alone, or on a seed and the coordinates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meganeura.graph.autodiff import zero_gradient
from meganeura.graph.node import Node, Shape
from meganeura.ops.registry import Op, Sample, register


def _iota_reference(shape: Sequence[int], axis: int, dtype: str) -> np.ndarray:
    view = [1] * len(shape)
    view[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis], dtype=dtype).reshape(view), shape)


def _iota_infer(shape: Sequence[int], axis: int, dtype: str) -> tuple[Shape, str]:
    if not 0 <= axis < len(shape):
        raise ValueError(f"iota: axis {axis} is out of range for the shape {tuple(shape)}")
    return tuple(shape), dtype


register(
    Op(
        "iota",
        "generator",
        _iota_infer,
        _iota_reference,
        zero_gradient,
        samples=lambda random: [
            Sample((), {"shape": s, "axis": a, "dtype": d}, gradient=False)
            for s, a, d in (
                ((5,), 0, "int32"),
                ((3, 4), 0, "float32"),
                ((2, 3, 4), 2, "int32"),
                ((0,), 0, "int32"),
                ((1,), 0, "uint32"),
            )
        ],
    )
)


def philox(seed: np.ndarray, count: int) -> np.ndarray:
    """`count` words of Philox 4x32-10 (Salmon et al., SC 2011) with the two words of `seed` as key.

    Word i is word i % 4 of the block with the counter (i // 4, 0, 0, 0).
    """
    blocks = -(-count // 4)
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    c0 = np.arange(blocks, dtype=np.uint64)
    c1, c2, c3 = (np.zeros(blocks, np.uint64) for _ in range(3))
    k0, k1 = (np.uint64(word) for word in seed)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & low, (p0 >> shift) ^ c3 ^ k1, p0 & low
        k0 = np.uint64((int(k0) + 0x9E3779B9) & 0xFFFFFFFF)
        k1 = np.uint64((int(k1) + 0xBB67AE85) & 0xFFFFFFFF)
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32).ravel()[:count]


def _bits_infer(seed: Node, shape: Sequence[int]) -> tuple[Shape, str]:
    if seed.shape != (2,) or seed.dtype != "uint32":
        raise ValueError(
            f"random_bits needs a seed of shape (2,) and dtype uint32, and got {seed.shape} {seed.dtype}"
        )
    return tuple(shape), "uint32"


register(
    Op(
        "random_bits",
        "generator",
        _bits_infer,
        lambda seed, shape: philox(seed, int(np.prod(shape, dtype=np.int64))).reshape(shape),
        zero_gradient,
        samples=lambda random: [
            Sample((np.array(seed, "uint32"),), {"shape": shape}, gradient=False)
            for seed, shape in (
                ((1, 2), (7, 3)),
                ((0, 0), (4,)),
                ((2**32 - 1, 5), (2, 2, 9)),
                ((3, 4), (0,)),
                ((7, 0), (1,)),
            )
        ],
    )
)
