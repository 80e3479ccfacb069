"""Small helpers for rules written on nodes: gradients and compositions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, Shape
from meganeura.ops.registry import make


def constant(value: float | int | bool, dtype: str = "float32") -> Node:
    return make("constant", value=value, dtype=dtype)


def cast(x: Node, dtype: str) -> Node:
    return x if x.dtype == dtype else make("cast", x, dtype=dtype)


def add(a: Node, b: Node | float) -> Node:
    return make("add", a, b if isinstance(b, Node) else constant(b, a.dtype))


def sub(a: Node | float, b: Node | float) -> Node:
    a, b = _pair(a, b)
    return make("subtract", a, b)


def mul(a: Node | float, b: Node | float) -> Node:
    a, b = _pair(a, b)
    return make("multiply", a, b)


def div(a: Node | float, b: Node | float) -> Node:
    a, b = _pair(a, b)
    return make("divide", a, b)


def neg(a: Node) -> Node:
    return make("negative", a)


def _pair(a: Any, b: Any) -> tuple[Node, Node]:
    if not isinstance(a, Node):
        a = constant(a, b.dtype)
    if not isinstance(b, Node):
        b = constant(b, a.dtype)
    return a, b


def where(condition: Node, a: Node | float, b: Node | float) -> Node:
    a, b = _pair(a, b)
    return make("where", condition, a, b)


def reshape(x: Node, shape: Sequence[int]) -> Node:
    return x if x.shape == tuple(shape) else make("reshape", x, shape=tuple(shape))


def broadcast_to(x: Node, shape: Sequence[int]) -> Node:
    return x if x.shape == tuple(shape) else make("broadcast_to", x, shape=tuple(shape))


def transpose(x: Node, axes: Sequence[int]) -> Node:
    return x if list(axes) == list(range(x.ndim)) else make("transpose", x, axes=tuple(axes))


def total(x: Node, axes: Sequence[int], keepdims: bool = False) -> Node:
    return make("sum", x, axes=tuple(axes), keepdims=keepdims) if axes else x


def running_product(x: Node, axis: int, exclusive: bool = False) -> Node:
    """out[i] = x[0] ... x[i] along an axis, or without x[i] itself where `exclusive`.

    Spans double in length at each step (Hillis and Steele), so there are log2(n) multiplications,
    no divisions, and nothing that a zero could spoil, in derivatives of any order as well.
    """
    length, step = x.shape[axis], 1
    x = _delayed(x, axis, 1) if exclusive and length else x
    while step < length:
        x = make("multiply", x, _delayed(x, axis, step))
        step *= 2
    return x


def _delayed(x: Node, axis: int, step: int) -> Node:
    """out[i] = x[i - step] along an axis, and ones before it."""
    stop, low = list(x.shape), [0] * x.ndim
    stop[axis] -= step
    low[axis] = step
    kept = make("slice", x, start=(0,) * x.ndim, stop=tuple(stop), step=(1,) * x.ndim)
    one = 1.0 if x.dtype in FLOATS else 1
    return make("pad", kept, low=tuple(low), high=(0,) * x.ndim, value=one)


def unbroadcast(x: Node, shape: Shape) -> Node:
    """Sum `x` down to `shape`, from which it could have been broadcast: broadcasting's transpose."""
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    axes = [i for i in range(x.ndim) if i < extra or (shape[i - extra] == 1 and x.shape[i] != 1)]
    return reshape(total(x, axes), shape)


def normalize_axis(axis: int, ndim: int, what: str = "axis") -> int:
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise TypeError(f"{what} must be an integer, not {axis!r}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{what} {axis} is out of range for a tensor of {ndim} dimensions")
    return int(axis) % ndim


def normalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """None (all), an integer, or several, as sorted non-negative axes without repetition."""
    if axis is None:
        return tuple(range(ndim))
    listed: list[Any] = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    axes = sorted(normalize_axis(a, ndim) for a in listed)
    if len(set(axes)) != len(axes):
        raise ValueError(f"axis {axis} names a dimension twice")
    return tuple(axes)
