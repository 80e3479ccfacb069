"""Python's operators, installed on every kind of tensor, so that `x * 2 + y[0]` means the ops."""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node
from meganeura.graph.operand import Operand
from meganeura.ops import elementwise as math
from meganeura.ops import movement_functions, reduction_functions
from meganeura.ops.dispatch import concretize, convert_to_node, operation
from meganeura.ops.movement import cut
from meganeura.ops.registry import make
from meganeura.tensor import Tensor
from meganeura.variable import Variable


@operation
def get_item(x: Any, key: Any) -> Any:
    """`x[key]` with integers, slices, None, Ellipsis, and integer arrays; masks are refused."""
    node = convert_to_node(x)
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [k.item() if isinstance(k, np.generic) else k for k in keys]
    taken = builtins.sum(1 for k in keys if k is not None and k is not Ellipsis)
    if taken > node.ndim:
        raise IndexError(f"{taken} indices for a tensor of shape {node.shape}")
    if builtins.sum(1 for k in keys if k is Ellipsis) > 1:
        raise IndexError("an index can hold one Ellipsis only")
    if Ellipsis not in [k for k in keys if k is Ellipsis]:
        keys.append(Ellipsis)
    at = next(i for i, k in enumerate(keys) if k is Ellipsis)
    keys[at : at + 1] = [slice(None)] * (node.ndim - taken)
    return _index(node, keys)


def _index(node: Node, keys: list[Any]) -> Node:
    start, stop, step, flips = [], [], [], []
    shape: list[int] = []
    arrays: list[tuple[int, Any]] = []
    axis = 0
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        length = node.shape[axis]
        if isinstance(k, slice):
            a, b, s = k.indices(length)
            if s < 0:  # the same elements forwards, then turned around
                count = len(range(a, b, s))
                flips.append(len(shape))
                a, b, s = (a + (count - 1) * s, a + 1, -s) if count else (0, 0, 1)
            shape.append(len(range(a, b, s)))
            a, b = (a, b) if shape[-1] else (0, 0)
        elif isinstance(k, int) and not isinstance(k, bool):
            if not -length <= k < length:
                raise IndexError(f"index {k} is out of range for axis {axis} of length {length}")
            a, b, s = k % length, k % length + 1, 1
        else:
            array = convert_to_node(k)
            if array.dtype == "bool":
                raise IndexError(
                    "indexing by a mask has a result whose shape depends on the data, which a graph "
                    "of static shapes cannot hold; use where, or NumPy"
                )
            if array.dtype in FLOATS:
                raise IndexError(f"an index must be of integers, not {array.dtype}")
            arrays.append((len(shape), array))
            shape.append(length)
            a, b, s = 0, length, 1
        start.append(a)
        stop.append(b)
        step.append(s)
        axis += 1
    if (tuple(start), tuple(stop)) != ((0,) * node.ndim, node.shape) or builtins.max(
        step, default=1
    ) > 1:
        node = make("slice", node, start=tuple(start), stop=tuple(stop), step=tuple(step))
    if node.shape != tuple(shape):
        node = make("reshape", node, shape=tuple(shape))
    if flips:
        node = make("flip", node, axes=tuple(flips))
    if len(arrays) == 1:
        where, array = arrays[0]
        return make("take", node, array, axis=where)
    return _gather(node, arrays) if arrays else node


def _gather(node: Node, arrays: list[tuple[int, Any]]) -> Node:
    """Several index arrays at once, on neighbouring axes: one flat index over those axes."""
    axes = [a for a, _ in arrays]
    first, count = axes[0], len(axes)
    if axes != list(range(first, first + count)):
        raise IndexError("index arrays must be on neighbouring axes; use take twice otherwise")
    lengths = node.shape[first : first + count]
    flat: Any = 0
    for length, (_, array) in zip(lengths, arrays, strict=True):
        wrapped = math.where(math.less(array, 0), math.add(array, length), array)
        flat = math.add(math.multiply(flat, length), wrapped)
    merged = int(np.prod(lengths))
    shape = (*node.shape[:first], merged, *node.shape[first + count :])
    return make("take", make("reshape", node, shape=shape), convert_to_node(flat), axis=first)


def _iterate(x: Any) -> Iterator[Any]:
    if not x.shape:
        raise TypeError("a 0-d tensor cannot be iterated over")
    if isinstance(x, Node):
        rest = x.shape[1:]
        return iter([make("reshape", cut(x, 0, i, i + 1), shape=rest) for i in range(x.shape[0])])
    return iter([get_item(x, i) for i in range(x.shape[0])])


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": math.add,
    "sub": math.subtract,
    "mul": math.multiply,
    "truediv": math.divide,
    "floordiv": math.floor_divide,
    "mod": math.mod,
    "pow": math.power,
    "and": lambda a, b: _logic(a, b, math.logical_and, math.bitwise_and),
    "or": lambda a, b: _logic(a, b, math.logical_or, math.bitwise_or),
    "xor": lambda a, b: _logic(a, b, math.logical_xor, math.bitwise_xor),
    "matmul": lambda a, b: _matmul(a, b),
}

_COMPARISON: dict[str, Callable[[Any, Any], Any]] = {
    "lt": math.less,
    "le": math.less_equal,
    "gt": math.greater,
    "ge": math.greater_equal,
    "ne": math.not_equal,
    "eq": math.equal,
}

_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": math.negative,
    "abs": math.abs,
    "pos": lambda x: x,
    "invert": lambda x: math.logical_not(x) if x.dtype == "bool" else math.bitwise_not(x),
}


_METHODS: dict[str, Callable[..., Any]] = {
    "astype": math.cast,
    "reshape": movement_functions.reshape_method,
    "sum": reduction_functions.sum,
    "mean": reduction_functions.mean,
    "max": reduction_functions.max,
    "min": reduction_functions.min,
}


def _logic(a: Any, b: Any, logical: Callable[..., Any], bitwise: Callable[..., Any]) -> Any:
    kind = a.dtype if hasattr(a, "dtype") else b.dtype
    return logical(a, b) if str(kind) == "bool" else bitwise(a, b)


def _matmul(a: Any, b: Any) -> Any:
    from meganeura.ops.matmul import matmul

    return matmul(a, b)


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(b, a)


def _apply(x: Any, function: Callable[[Any], Any]) -> Any:
    return function(x)


def _install(kind: Any) -> None:
    for name, function in _BINARY.items():
        setattr(kind, f"__{name}__", _method(function))
        setattr(kind, f"__r{name}__", _method(_swapped(function)))
    # Equality is the tensors' too; identity keeps working as a key, since the hash stays.
    for name, function in _COMPARISON.items():
        setattr(kind, f"__{name}__", _method(function))
    kind.__hash__ = object.__hash__
    for name, unary in _UNARY.items():
        setattr(kind, f"__{name}__", functools.partialmethod(_apply, unary))
    kind.__getitem__ = get_item
    kind.T = property(movement_functions.transpose)
    for name, method in _METHODS.items():
        setattr(kind, name, method)


def _method(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """None and strings are no operands: let Python say so, as for numbers."""

    def method(self: Any, other: Any) -> Any:
        if other is None or isinstance(other, (str, dict, set)):
            return NotImplemented
        return function(self, other)

    return method


def _length(x: Any) -> int:
    if not x.shape:
        raise TypeError("len() of a 0-d tensor")
    return int(x.shape[0])


def _concretely(what: str, make: Callable[..., Any]) -> Callable[..., Any]:
    """A method that makes `make` of the node's value, where it has one while it is recorded."""
    return lambda node, *args, **kwargs: make(concretize(node, what), *args, **kwargs)


def _as_dtype(value: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    return value if dtype is None else value.astype(dtype)


_install(Operand)

_kind: Any
for _kind in (Tensor, Node, Variable):
    _kind.__iter__ = _iterate
    _kind.__len__ = _length
_kind = Node
_kind.__bool__ = _concretely("the truth value", bool)
_kind.__float__ = _concretely("the value", float)
_kind.__int__ = _concretely("the value", int)
_kind.__index__ = _concretely("the value", operator.index)
_kind.__array__ = _kind.numpy = _concretely("the value", _as_dtype)
_kind.item = _concretely("the value", lambda value: value.item())
