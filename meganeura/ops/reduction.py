"""Reduction primitives over attributes["axes"]."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS, INTEGERS
from meganeura.graph.autodiff import zero_gradient
from meganeura.graph.node import Node, Shape
from meganeura.ops.nodes import broadcast_to, cast, div, mul, reshape, running_product, transpose
from meganeura.ops.registry import Op, Sample, make, register


def _reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def _infer(name: str, kinds: Sequence[str], empty: bool, result: str | None = None) -> Any:
    def infer(x: Node, axes: Sequence[int], keepdims: bool) -> tuple[Shape, str]:
        if x.dtype not in kinds:
            raise ValueError(f"{name} needs one of {', '.join(kinds)}, and got {x.dtype}")
        if any(not 0 <= a < x.ndim for a in axes):
            raise ValueError(f"{name}: axes {tuple(axes)} are out of range for the shape {x.shape}")
        shape = _reduced_shape(x.shape, axes, keepdims)
        if not empty and any(x.shape[a] == 0 for a in axes) and 0 not in shape:
            raise ValueError(f"{name} of nothing: the shape {x.shape} is empty along {tuple(axes)}")
        return shape, result or x.dtype

    return infer


def expand(node: Node, value: Node, like: Node) -> Node:
    """A reduction's result, or its gradient, broadcast back over the axes that it lost."""
    kept = _reduced_shape(like.shape, node.attributes["axes"], True)
    return broadcast_to(reshape(value, kept), like.shape)


def _samples(random: np.random.Generator, low: float = -3, smooth: bool = True) -> list[Sample]:
    found = []
    for shape, axes, keep in (
        ((4, 5), (1,), False),
        ((4, 5), (0,), True),
        ((2, 3, 4), (0, 2), False),
        ((37, 3), (0, 1), False),
        ((3, 300), (1,), False),
        ((300, 3), (0,), False),
        ((6,), (), False),
        ((1, 1), (0,), False),
        ((0, 3), (1,), False),
        ((2, 3, 2, 5), (1, 3), True),
    ):
        x = random.uniform(low, 3, shape).astype("float32")
        found.append(Sample((x,), {"axes": axes, "keepdims": keep}, gradient=smooth))
    return found


def _sum_samples(random: np.random.Generator) -> list[Sample]:
    empty = Sample((np.zeros((0, 3), "float32"),), {"axes": (0,), "keepdims": False})
    whole = np.arange(12, dtype="int32").reshape(3, 4)
    return [
        *_samples(random),
        empty,
        Sample((whole,), {"axes": (1,), "keepdims": False}, gradient=False),
    ]


#: Rows that are added up are made at least this long, for NumPy adds them one by one.
_LONG_ROW = 1024


def _sum_reference(x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
    """Runs of neighbouring axes one after another, the first ones first, for these are sums of whole rows."""
    kept = _reduced_shape(x.shape, axes, keepdims)
    if not x.size or not axes:
        return np.sum(x, axis=tuple(axes), keepdims=keepdims, dtype=x.dtype)
    shape = list(x.shape)
    for first, last in _runs(axes):
        before, after = math.prod(shape[:first]), math.prod(shape[last + 1 :])
        count = math.prod(shape[first : last + 1])
        x = x.reshape(before, count, after)
        fold = math.gcd(count, max(1, _LONG_ROW // after)) if 1 < after < _LONG_ROW else 1
        if fold > 1:
            x = np.sum(x.reshape(before, count // fold, fold * after), axis=1, dtype=x.dtype)
            x = x.reshape(before, fold, after)
        x = np.sum(x, axis=1, dtype=x.dtype)
        shape[first : last + 1] = [1] * (last + 1 - first)
    return x.reshape(kept)


def _runs(axes: Sequence[int]) -> list[tuple[int, int]]:
    """The first and last of neighbouring axes."""
    found: list[tuple[int, int]] = []
    for axis in sorted(axes):
        if found and found[-1][1] == axis - 1:
            found[-1] = (found[-1][0], axis)
        else:
            found.append((axis, axis))
    return found


register(
    Op(
        "sum",
        "reduction",
        _infer("sum", (*FLOATS, "int32", "uint32"), empty=True),
        _sum_reference,
        lambda node, g: [expand(node, g, node.inputs[0])],
        samples=_sum_samples,
    )
)


def _extreme_gradient(node: Node, g: Node) -> list[Node | None]:
    """Shared evenly among the elements that tie for the extreme."""
    x = node.inputs[0]
    hit = cast(make("equal", x, expand(node, node, x)), x.dtype)
    ties = make("sum", hit, axes=node.attributes["axes"], keepdims=False)
    share = div(reshape(g, ties.shape), ties)
    return [mul(hit, expand(node, share, x))]


def _extreme_samples(random: np.random.Generator) -> list[Sample]:
    odd = np.array([[1, np.nan, 2], [-np.inf, -np.inf, -np.inf], [np.inf, 0, 1]], "float32")
    flags = random.uniform(0, 1, (3, 4)) > 0.6
    return [
        *_samples(random),
        Sample((odd,), {"axes": (1,), "keepdims": False}, gradient=False),
        Sample((flags,), {"axes": (1,), "keepdims": False}, gradient=False),
        Sample(
            (np.array([[3, -7, 3]], "int32"),), {"axes": (1,), "keepdims": False}, gradient=False
        ),
    ]


for _name, _function in {"max": np.max, "min": np.min}.items():
    register(
        Op(
            _name,
            "reduction",
            _infer(_name, (*FLOATS, *INTEGERS, "bool"), empty=False),
            lambda x, axes, keepdims, f=_function: f(x, axis=axes, keepdims=keepdims),
            _extreme_gradient,
            samples=_extreme_samples,
        )
    )


def _prod_gradient(node: Node, g: Node) -> list[Node | None]:
    """The product of the others: of those before, times those after. Zeros need no special case."""
    x, axes = node.inputs[0], node.attributes["axes"]
    kept = [a for a in range(x.ndim) if a not in axes]
    order = (*kept, *axes)
    moved = transpose(x, order)
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    rows = reshape(moved, (*(x.shape[a] for a in kept), count))
    axis = len(kept)
    before = running_product(rows, axis, exclusive=True)
    backwards = running_product(make("flip", rows, axes=(axis,)), axis, exclusive=True)
    others = mul(before, make("flip", backwards, axes=(axis,)))
    back = tuple(int(a) for a in np.argsort(order))
    return [mul(expand(node, g, x), transpose(reshape(others, moved.shape), back))]


register(
    Op(
        "prod",
        "reduction",
        _infer("prod", (*FLOATS, "int32", "uint32"), empty=True),
        lambda x, axes, keepdims: np.prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
        _prod_gradient,
        samples=lambda random: [
            *[s for s in _samples(random, low=0.5) if s.inputs[0].size < 100],
            Sample(
                (np.array([[2, 0, 3], [0, 0, 1], [1, 2, 3]], "float32"),),
                {"axes": (1,), "keepdims": False},
            ),
        ],
    )
)


def _arg(name: str, function: Callable[..., Any]) -> None:
    def infer(x: Node, axes: Sequence[int], keepdims: bool) -> tuple[Shape, str]:
        if len(axes) != 1:
            raise ValueError(f"{name} works along one axis, and got {tuple(axes)}")
        return _infer(name, (*FLOATS, *INTEGERS), False, "int32")(x, axes, keepdims)

    def samples(random: np.random.Generator) -> list[Sample]:
        found = []
        for shape, axis, keep in (
            ((4, 5), 1, False),
            ((3, 300), 1, True),
            ((5, 2, 3), 0, False),
            ((1,), 0, False),
            ((0, 3), 1, False),
        ):
            x = np.round(random.uniform(-3, 3, shape)).astype("float32")  # ties
            found.append(Sample((x,), {"axes": (axis,), "keepdims": keep}, gradient=False))
        odd = np.array([[1, np.nan, 2, np.nan], [-np.inf, -np.inf, -np.inf, -np.inf]], "float32")
        found.append(Sample((odd,), {"axes": (1,), "keepdims": False}, gradient=False))
        return found

    register(
        Op(
            name,
            "reduction",
            infer,
            lambda x, axes, keepdims: function(x, axis=axes[0], keepdims=keepdims).astype(np.int32),
            zero_gradient,
            samples=samples,
        )
    )


_arg("argmax", np.argmax)
_arg("argmin", np.argmin)
