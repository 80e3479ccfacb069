"""Movement primitives: out[i] = a[map(i)], with no arithmetic, and usually no kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, Shape
from meganeura.ops.nodes import reshape, transpose, unbroadcast
from meganeura.ops.registry import Op, Sample, make, register


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype("float32")


# --- reshape -----------------------------------------------------------------------------------


def _reshape_infer(x: Node, shape: Shape) -> tuple[Shape, str]:
    if math.prod(shape) != x.size or (shape and min(shape) < 0):
        raise ValueError(f"reshape: {x.size} elements of shape {x.shape} do not fit {tuple(shape)}")
    return tuple(shape), x.dtype


register(
    Op(
        "reshape",
        "movement",
        _reshape_infer,
        lambda x, shape: np.reshape(x, shape),
        lambda node, g: [reshape(g, node.inputs[0].shape)],
        samples=lambda random: [
            Sample((_normal(random, *a),), {"shape": b})
            for a, b in (
                ((2, 6), (3, 4)),
                ((5,), (1, 5, 1)),
                ((), (1, 1)),
                ((0, 3), (3, 0)),
                ((4, 3, 2), (24,)),
            )
        ],
    )
)


# --- transpose ---------------------------------------------------------------------------------


def _transpose_infer(x: Node, axes: Sequence[int]) -> tuple[Shape, str]:
    if sorted(axes) != list(range(x.ndim)):
        raise ValueError(f"transpose: axes {tuple(axes)} are no permutation of {x.ndim} dimensions")
    return tuple(x.shape[a] for a in axes), x.dtype


def _transpose_gradient(node: Node, g: Node) -> list[Node | None]:
    return [transpose(g, tuple(int(a) for a in np.argsort(node.attributes["axes"])))]


register(
    Op(
        "transpose",
        "movement",
        _transpose_infer,
        lambda x, axes: np.transpose(x, axes),
        _transpose_gradient,
        samples=lambda random: [
            Sample((_normal(random, *a),), {"axes": b})
            for a, b in (
                ((2, 3), (1, 0)),
                ((2, 3, 4), (2, 0, 1)),
                ((1, 5, 1, 7), (3, 1, 0, 2)),
                ((0, 2), (1, 0)),
                ((1, 1), (1, 0)),
            )
        ],
    )
)


# --- recompute ---------------------------------------------------------------------------------

register(
    Op(
        "recompute",  # x, read when `after` is known: what hangs on it is not what hangs on x
        "movement",
        lambda x, after: (x.shape, x.dtype),
        lambda x, after: x,
        lambda node, g: [g, None],
        samples=lambda random: [
            Sample((_normal(random, *a), _normal(random, *b)), {})
            for a, b in (((3, 4), (2,)), ((), ()), ((5,), (5,)), ((0, 2), (1,)))
        ],
    )
)

# --- broadcast_to ------------------------------------------------------------------------------


def _broadcast_infer(x: Node, shape: Shape) -> tuple[Shape, str]:
    try:
        fits = np.broadcast_shapes(x.shape, tuple(shape)) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"broadcast_to: the shape {x.shape} cannot be broadcast to {tuple(shape)}")
    return tuple(shape), x.dtype


register(
    Op(
        "broadcast_to",
        "movement",
        _broadcast_infer,
        lambda x, shape: np.broadcast_to(x, shape),
        lambda node, g: [unbroadcast(g, node.inputs[0].shape)],
        samples=lambda random: [
            Sample((_normal(random, *a),), {"shape": b})
            for a, b in (
                ((3, 1), (3, 4)),
                ((), (2, 2)),
                ((4,), (2, 3, 4)),
                ((1, 1), (1, 1)),
                ((1, 3), (0, 3)),
                ((0,), (2, 0)),
            )
        ],
    )
)


# --- slice -------------------------------------------------------------------------------------


def _slice_infer(
    x: Node, start: Sequence[int], stop: Sequence[int], step: Sequence[int]
) -> tuple[Shape, str]:
    if not len(start) == len(stop) == len(step) == x.ndim:
        raise ValueError(f"slice: {len(start)} ranges for a tensor of shape {x.shape}")
    shape = []
    for length, a, b, s in zip(x.shape, start, stop, step, strict=True):
        if not (0 <= a <= length and 0 <= b <= length and s >= 1):
            raise ValueError(
                f"slice {a}:{b}:{s} is out of range for a dimension of length {length}"
            )
        shape.append(max(0, -(-(b - a) // s)))
    return tuple(shape), x.dtype


def _slice_gradient(node: Node, g: Node) -> list[Node | None]:
    """Zeros between the steps, then zeros around."""
    x, attributes = node.inputs[0], node.attributes
    for axis, step in enumerate(attributes["step"]):
        if step > 1 and g.shape[axis]:
            g = _spread(g, axis, step)
    low, high = [], []
    for length, start, got in zip(x.shape, attributes["start"], g.shape, strict=True):
        low.append(start if got else 0)
        high.append(length - start - got if got else length)
    return [pad(g, low, high)]


def _spread(x: Node, axis: int, step: int) -> Node:
    """x[..., i, ...] at position i * step, zeros between: (n - 1) * step + 1 positions."""
    n = x.shape[axis]
    wide = reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    high = [0] * wide.ndim
    high[axis + 1] = step - 1
    wide = pad(wide, [0] * wide.ndim, high)
    wide = reshape(wide, (*x.shape[:axis], n * step, *x.shape[axis + 1 :]))
    return cut(wide, axis, 0, (n - 1) * step + 1)


def cut(x: Node, axis: int, start: int, stop: int) -> Node:
    """x[..., start:stop, ...] along one axis."""
    starts, stops = [0] * x.ndim, list(x.shape)
    starts[axis], stops[axis] = start, stop
    if starts == [0] * x.ndim and tuple(stops) == x.shape:
        return x
    return make("slice", x, start=tuple(starts), stop=tuple(stops), step=(1,) * x.ndim)


def _slice_reference(x: np.ndarray, start: Any, stop: Any, step: Any) -> np.ndarray:
    return x[tuple(slice(a, b, s) for a, b, s in zip(start, stop, step, strict=True))]


register(
    Op(
        "slice",
        "movement",
        _slice_infer,
        _slice_reference,
        _slice_gradient,
        samples=lambda random: [
            Sample((_normal(random, *shape),), {"start": a, "stop": b, "step": s})
            for shape, a, b, s in (
                ((5, 7), (1, 0), (4, 7), (1, 1)),
                ((5, 7), (0, 1), (5, 6), (2, 3)),
                ((9,), (2,), (9,), (4,)),
                ((3, 4), (1, 2), (1, 4), (1, 1)),
                ((2, 3, 4), (1, 1, 1), (2, 2, 2), (1, 1, 1)),
                ((1,), (0,), (1,), (1,)),
                ((0, 3), (0, 1), (0, 3), (1, 2)),
            )
        ],
    )
)


# --- flip --------------------------------------------------------------------------------------

register(
    Op(
        "flip",
        "movement",
        lambda x, axes: (x.shape, x.dtype),
        lambda x, axes: np.flip(x, axes),
        lambda node, g: [make("flip", g, axes=node.attributes["axes"])],
        samples=lambda random: [
            Sample((_normal(random, *a),), {"axes": b})
            for a, b in (((5,), (0,)), ((2, 3, 4), (0, 2)), ((1, 1), (1,)), ((0, 3), (1,)))
        ],
    )
)


# --- pad ---------------------------------------------------------------------------------------


def pad(x: Node, low: Sequence[int], high: Sequence[int], value: float | int | bool = 0) -> Node:
    if not any(low) and not any(high):
        return x
    cast = float if x.dtype in FLOATS else bool if x.dtype == "bool" else int
    return make("pad", x, low=tuple(low), high=tuple(high), value=cast(value))


def _pad_infer(x: Node, low: Sequence[int], high: Sequence[int], value: Any) -> tuple[Shape, str]:
    if len(low) != x.ndim or len(high) != x.ndim or min((*low, *high), default=0) < 0:
        raise ValueError(
            f"pad: widths {tuple(low)} and {tuple(high)} do not fit the shape {x.shape}"
        )
    return tuple(n + a + b for n, a, b in zip(x.shape, low, high, strict=True)), x.dtype


def _pad_gradient(node: Node, g: Node) -> list[Node | None]:
    low, shape = node.attributes["low"], node.inputs[0].shape
    stop = tuple(a + n for a, n in zip(low, shape, strict=True))
    return [make("slice", g, start=tuple(low), stop=stop, step=(1,) * len(shape))]


register(
    Op(
        "pad",
        "movement",
        _pad_infer,
        lambda x, low, high, value: np.pad(
            x, list(zip(low, high, strict=True)), constant_values=value
        ),
        _pad_gradient,
        samples=lambda random: [
            Sample((_normal(random, *shape),), {"low": a, "high": b, "value": v})
            for shape, a, b, v in (
                ((3, 4), (1, 0), (0, 2), 0.0),
                ((5,), (2,), (3,), -1.5),
                ((2, 1, 3), (0, 1, 1), (1, 0, 2), 2.0),
                ((0, 2), (1, 0), (1, 0), 3.0),
                ((1,), (0,), (1,), 0.5),
                ((1,), (0,), (0,), 0.5),
            )
        ],
    )
)


# --- concatenate -------------------------------------------------------------------------------


def _concatenate_infer(*xs: Node, axis: int) -> tuple[Shape, str]:
    first = xs[0]
    for x in xs[1:]:
        same = x.ndim == first.ndim and all(
            a == b for i, (a, b) in enumerate(zip(x.shape, first.shape, strict=True)) if i != axis
        )
        if not same:
            shapes = ", ".join(str(v.shape) for v in xs)
            raise ValueError(f"concatenate along axis {axis}: the shapes {shapes} differ elsewhere")
        if x.dtype != first.dtype:
            raise ValueError(f"concatenate needs one dtype, and got {first.dtype} and {x.dtype}")
    total = sum(x.shape[axis] for x in xs)
    return (*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype


def _concatenate_gradient(node: Node, g: Node) -> list[Node | None]:
    axis, at, parts = node.attributes["axis"], 0, []
    for x in node.inputs:
        parts.append(cut(g, axis, at, at + x.shape[axis]))
        at += x.shape[axis]
    return list(parts)


register(
    Op(
        "concatenate",
        "movement",
        _concatenate_infer,
        lambda *xs, axis: np.concatenate(xs, axis),
        _concatenate_gradient,
        samples=lambda random: [
            Sample(tuple(_normal(random, *s) for s in shapes), {"axis": axis})
            for shapes, axis in (
                (((2, 3), (2, 5)), 1),
                (((1, 4), (2, 4), (3, 4)), 0),
                (((5,), (0,), (2,)), 0),
                (((3, 1, 2),), 1),
                (((1,), (1,)), 0),
                (((1,), (0,)), 0),
            )
        ],
    )
)
