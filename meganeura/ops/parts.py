"""Products in parts: the scheduler makes them, so that a product of few outputs fills a large device.

out[p] is the sum over the terms from p * part_length on, part_length of them; the sum over p is the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura.graph.node import Node, Shape
from meganeura.ops.registry import REGISTRY, Op, Sample, register

#: Terms are shared out in multiples of this, which blocks of products take at once.
GRAIN = 16


def part_length(terms: int, parts: int) -> int:
    """Terms of each part; the last may have fewer."""
    return max(-(-terms // (parts * GRAIN)), 1) * GRAIN


def _matmul_terms(a: Shape, b: Shape, transpose_b: bool, **_: Any) -> tuple[np.ndarray, int]:
    terms = b[-1] if transpose_b else b[-2]
    number = np.arange(terms)
    return number if transpose_b else number[:, None], terms


def _conv_terms(x: Shape, kernel: Shape, **_: Any) -> tuple[np.ndarray, int]:
    terms = math.prod(kernel[:-1])
    return np.arange(terms).reshape(*kernel[:-1], 1), terms


def _input_gradient_terms(
    dy: Shape, kernel: Shape, strides: Any, dilation: Any, groups: int, **_: Any
) -> tuple[np.ndarray, int]:
    """A position is read through the taps of its residue, which are numbered among themselves."""
    steps = [s if d == 1 else 1 for s, d in zip(strides, dilation, strict=True)]
    each = kernel[-1] // groups
    number = np.zeros((*kernel[:-2], 1, 1), int)
    terms = 1
    for axis, (n, s) in enumerate(zip(kernel[:-2], steps, strict=True)):
        taps = -(-n // s)
        shape = [1] * len(kernel)
        shape[axis] = n
        number = number * taps + (np.arange(n) // s).reshape(shape)
        terms *= taps
    return number * each + np.arange(kernel[-1]) % each, terms * each


def _kernel_gradient_terms(x: Shape, dy: Shape, **_: Any) -> tuple[np.ndarray, int]:
    terms = math.prod(dy[:-1])
    return np.arange(terms).reshape(*dy[:-1], 1), terms


#: product -> the number of the term that each element of the second operand belongs to, and how many there are
_TERMS: dict[str, Callable[..., tuple[np.ndarray, int]]] = {
    "matmul": _matmul_terms,
    "conv": _conv_terms,
    "conv_input_gradient": _input_gradient_terms,
    "conv_kernel_gradient": _kernel_gradient_terms,
}


def _register(op: str) -> None:
    whole = REGISTRY[op]

    def infer(a: Node, b: Node, parts: int, **attributes: Any) -> tuple[Shape, str]:
        shape, _ = whole.infer(a, b, **attributes)
        if parts < 1:
            raise ValueError(f"{op} in {parts} parts; at least one is needed")
        return (parts, *shape), "float32"  # each has all digits, whatever their sum is rounded to

    def reference(a: Any, b: Any, parts: int, **attributes: Any) -> np.ndarray:
        number, terms = _TERMS[op](a.shape, b.shape, **attributes)
        part = number // part_length(terms, parts)
        zero = np.zeros((), b.dtype)
        return np.stack(
            [whole.reference(a, np.where(part == p, b, zero), **attributes) for p in range(parts)]
        )

    def samples(random: np.random.Generator) -> list[Sample]:
        assert whole.samples is not None
        found = [s for s in whole.samples(random) if len(s.inputs) == 2]
        return [
            Sample(s.inputs, {**s.attributes, "parts": 2 + i % 3}, gradient=False)
            for i, s in enumerate(found)
        ]

    register(Op(f"{op}_parts", "template", infer, reference, samples=samples))


for _name in _TERMS:
    _register(_name)
