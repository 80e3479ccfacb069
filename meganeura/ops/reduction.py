"""Reduction primitives over attributes["axes"]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura.graph.autodiff import zero_gradient
from meganeura.graph.node import Node, Shape
from meganeura.ops.nodes import broadcast_to, cast, div, mul, reshape, where
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
        ((2, 3, 2, 5), (1, 3), True),
    ):
        x = random.uniform(low, 3, shape).astype("float32")
        found.append(Sample((x,), {"axes": axes, "keepdims": keep}, gradient=smooth))
    return found


def _sum_samples(random: np.random.Generator) -> list[Sample]:
    empty = Sample((np.zeros((0, 3), "float32"),), {"axes": (0,), "keepdims": False})
    whole = Sample((np.arange(12, dtype="int32").reshape(3, 4),), {"axes": (1,), "keepdims": False})
    return [*_samples(random), empty, whole]


register(
    Op(
        "sum",
        "reduction",
        _infer("sum", ("float32", "int32", "uint32"), empty=True),
        lambda x, axes, keepdims: np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
        lambda node, g: [expand(node, g, node.inputs[0])],
        samples=_sum_samples,
    )
)


def _extreme_gradient(node: Node, g: Node) -> list[Node | None]:
    """Shared evenly among the elements that tie for the extreme."""
    x = node.inputs[0]
    hit = cast(make("equal", x, expand(node, node, x)), "float32")
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
            _infer(_name, ("float32", "int32", "uint32", "uint8", "bool"), empty=False),
            lambda x, axes, keepdims, f=_function: f(x, axis=axes, keepdims=keepdims),
            _extreme_gradient,
            samples=_extreme_samples,
        )
    )


def _prod_gradient(node: Node, g: Node) -> list[Node | None]:
    """The product of the others: prod / x, and where there are zeros, of the non-zero ones."""
    x, axes = node.inputs[0], node.attributes["axes"]
    zero = make("equal", x, make("constant", value=0.0, dtype="float32"))
    safe = where(zero, 1.0, x)
    others = make("prod", safe, axes=axes, keepdims=False)
    zeros = make("sum", cast(zero, "float32"), axes=axes, keepdims=False)
    count = expand(node, zeros, x)
    one = make("constant", value=1.0, dtype="float32")
    none = make("constant", value=0.0, dtype="float32")
    only = make("logical_and", zero, make("equal", count, one))
    all_finite = make("equal", count, none)
    product = expand(node, others, x)
    partial = where(all_finite, div(product, safe), where(only, product, 0.0))
    return [mul(expand(node, g, x), partial)]


register(
    Op(
        "prod",
        "reduction",
        _infer("prod", ("float32", "int32", "uint32"), empty=True),
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
        return _infer(name, ("float32", "int32", "uint32", "uint8"), False, "int32")(
            x, axes, keepdims
        )

    def samples(random: np.random.Generator) -> list[Sample]:
        found = []
        for shape, axis, keep in (
            ((4, 5), 1, False),
            ((3, 300), 1, True),
            ((5, 2, 3), 0, False),
            ((1,), 0, False),
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
