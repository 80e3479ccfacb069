"""Functions that rearrange, join, split and select, by their keras.ops names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node
from meganeura.ops import movement
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.index import iota
from meganeura.ops.nodes import broadcast_to as _broadcast
from meganeura.ops.nodes import normalize_axes, normalize_axis
from meganeura.ops.nodes import reshape as _reshape
from meganeura.ops.nodes import transpose as _transpose
from meganeura.ops.registry import make
from meganeura.tensor import Tensor
from meganeura.variable import Variable


def static_arguments(*names: str) -> Callable[[Any], Any]:
    """An operation some of whose arguments are numbers, not tensors, even when given as arrays."""

    def decorate(function: Any) -> Any:
        places = [i for i, name in enumerate(signature(function).parameters) if name in names]
        call = operation(function)

        @functools.wraps(function)
        def outer(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            for i in places:
                if i < len(given):
                    given[i] = _plain(given[i])
            return call(*given, **{k: _plain(v) if k in names else v for k, v in kwargs.items()})

        return outer

    return decorate


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist() if isinstance(value, (np.ndarray, Tensor)) else value


def _lengths(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, (int, np.integer)):
        return (int(shape),)
    return tuple(int(n) for n in shape)


@static_arguments("newshape")
def reshape(x: Any, newshape: Any) -> Any:
    """The same elements in another shape; one length may be -1 and is worked out."""
    node = convert_to_node(x)
    shape = list(_lengths(newshape))
    if shape.count(-1) > 1:
        raise ValueError(f"reshape: only one length of {tuple(shape)} may be -1")
    if -1 in shape:
        known = int(np.prod([n for n in shape if n != -1], dtype=np.int64))
        if known == 0 or node.size % known:
            raise ValueError(
                f"reshape: {node.size} elements of shape {node.shape} do not fit {tuple(shape)}"
            )
        shape[shape.index(-1)] = node.size // known
    return _reshape(node, make_shape(shape, node))


def make_shape(shape: Sequence[int], node: Node) -> tuple[int, ...]:
    if int(np.prod(shape, dtype=np.int64)) != node.size or any(n < 0 for n in shape):
        raise ValueError(
            f"reshape: {node.size} elements of shape {node.shape} do not fit {tuple(shape)}"
        )
    return tuple(shape)


def reshape_method(x: Any, *shape: Any) -> Any:
    """`x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    return reshape(x, shape[0] if len(shape) == 1 else shape)


@operation
def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """The dimensions in another order, reversed by default."""
    node = convert_to_node(x)
    order = tuple(reversed(range(node.ndim))) if axes is None else axes
    if len(order) != node.ndim:
        raise ValueError(f"transpose: {len(order)} axes for a tensor of shape {node.shape}")
    return _transpose(node, [normalize_axis(a, node.ndim) for a in order])


@operation
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Two dimensions exchanged."""
    node = convert_to_node(x)
    order = list(range(node.ndim))
    a, b = normalize_axis(axis1, node.ndim), normalize_axis(axis2, node.ndim)
    order[a], order[b] = order[b], order[a]
    return _transpose(node, order)


@operation
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """Dimensions moved to other places; the others keep their order."""
    node = convert_to_node(x)
    sources = [normalize_axis(a, node.ndim) for a in _lengths(source)]
    destinations = [normalize_axis(a, node.ndim) for a in _lengths(destination)]
    order = [a for a in range(node.ndim) if a not in sources]
    for to, a in sorted(zip(destinations, sources, strict=True)):
        order.insert(to, a)
    return _transpose(node, order)


@operation
def expand_dims(x: Any, axis: Any) -> Any:
    """New dimensions of length 1 at `axis`."""
    node = convert_to_node(x)
    axes = _lengths(axis)
    total = node.ndim + len(axes)
    added = {normalize_axis(a, total) for a in axes}
    old = iter(node.shape)
    return _reshape(node, tuple(1 if i in added else next(old) for i in range(total)))


@operation
def squeeze(x: Any, axis: Any = None) -> Any:
    """Dimensions of length 1 removed: all, or those of `axis`."""
    node = convert_to_node(x)
    if axis is None:
        return _reshape(node, tuple(n for n in node.shape if n != 1))
    gone = normalize_axes(axis, node.ndim)
    if any(node.shape[a] != 1 for a in gone):
        raise ValueError(f"squeeze: axis {axis} of shape {node.shape} is not of length 1")
    return _reshape(node, tuple(n for i, n in enumerate(node.shape) if i not in gone))


@static_arguments("shape")
def broadcast_to(x: Any, shape: Any) -> Any:
    """x repeated along dimensions of length 1 and new leading ones."""
    return _broadcast(convert_to_node(x), _lengths(shape))


@operation
def ravel(x: Any) -> Any:
    """The elements in one dimension."""
    node = convert_to_node(x)
    return _reshape(node, (node.size,))


@operation
def concatenate(xs: Sequence[Any], axis: int = 0) -> Any:
    """Tensors joined along a dimension; all their other lengths agree."""
    nodes = _several("concatenate", xs)
    if len(nodes) == 1:
        return nodes[0]
    return make("concatenate", *nodes, axis=normalize_axis(axis, nodes[0].ndim))


def _several(what: str, xs: Sequence[Any]) -> list[Node]:
    listed = list(xs)
    if not listed:
        raise ValueError(f"{what} needs at least one tensor")
    return promote(*listed)


@operation
def stack(x: Sequence[Any], axis: int = 0) -> Any:
    """Tensors of one shape joined along a new dimension."""
    nodes = _several("stack", x)
    if any(n.shape != nodes[0].shape for n in nodes):
        raise ValueError(f"stack: the shapes {', '.join(str(n.shape) for n in nodes)} differ")
    at = normalize_axis(axis, nodes[0].ndim + 1)
    wide = [_reshape(n, (*n.shape[:at], 1, *n.shape[at:])) for n in nodes]
    return wide[0] if len(wide) == 1 else make("concatenate", *wide, axis=at)


@operation
def unstack(x: Any, num: int | None = None, axis: int = 0) -> list[Any]:
    """The slices along a dimension, which is dropped."""
    node = convert_to_node(x)
    at = normalize_axis(axis, node.ndim)
    if num is not None and num != node.shape[at]:
        raise ValueError(
            f"unstack: axis {axis} of shape {node.shape} holds {node.shape[at]}, not {num}"
        )
    rest = (*node.shape[:at], *node.shape[at + 1 :])
    return [_reshape(movement.cut(node, at, i, i + 1), rest) for i in range(node.shape[at])]


@static_arguments("indices_or_sections")
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Equal parts (an integer), or the parts between the given indices."""
    node = convert_to_node(x)
    at = normalize_axis(axis, node.ndim)
    length = node.shape[at]
    if isinstance(indices_or_sections, (int, np.integer)):
        parts = int(indices_or_sections)
        if parts < 1 or length % parts:
            raise ValueError(
                f"split: axis {axis} of shape {node.shape} cannot be split in {parts} equal parts"
            )
        bounds = [length // parts * i for i in range(parts + 1)]
    else:
        bounds = [0, *(min(max(int(i), 0), length) for i in indices_or_sections), length]
    return [
        movement.cut(node, at, a, max(a, b)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)
    ]


@operation
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """As split, but the first parts are one longer where the length is no multiple of their number."""
    if not isinstance(indices_or_sections, (int, np.integer)):
        return split(x, indices_or_sections, axis)
    node, parts = convert_to_node(x), int(indices_or_sections)
    if parts < 1:
        raise ValueError(f"array_split needs at least one part, not {parts}")
    length = node.shape[normalize_axis(axis, node.ndim)]
    short, longer = divmod(length, parts)
    sizes = [short + 1] * longer + [short] * (parts - longer)
    return split(node, np.cumsum(sizes)[:-1].tolist(), axis)


@operation
def flip(x: Any, axis: Any = None) -> Any:
    """The order of elements reversed along `axis` (all dimensions by default)."""
    node = convert_to_node(x)
    return make("flip", node, axes=normalize_axes(axis, node.ndim))


@static_arguments("pad_width")
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    """x with a border: constant, reflect, symmetric or edge; widths as (before, after) pairs."""
    node = convert_to_node(x)
    pairs = _pairs(pad_width, node)
    if mode == "constant":
        low, high = zip(*pairs, strict=True) if pairs else ((), ())
        return movement.pad(node, low, high, constant_values if constant_values is not None else 0)
    if constant_values is not None:
        raise ValueError(f"pad: constant_values goes with mode='constant', not {mode!r}")
    if mode not in ("reflect", "symmetric", "edge"):
        raise ValueError(f"pad: mode {mode!r} is not one of constant, reflect, symmetric, edge")
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            index = _border(mode, node.shape[axis], before, after)
            node = make("take", node, convert_to_node(index), axis=axis)
    return node


def _pairs(pad_width: Any, node: Node) -> list[tuple[int, int]]:
    if isinstance(pad_width, (int, np.integer)):
        return [(int(pad_width), int(pad_width))] * node.ndim
    listed = list(pad_width)
    if len(listed) == 2 and all(isinstance(n, (int, np.integer)) for n in listed):
        return [(int(listed[0]), int(listed[1]))] * node.ndim
    pairs = [_lengths(p) for p in listed]
    pairs = [p * 2 if len(p) == 1 else p for p in pairs]
    pairs = pairs * node.ndim if len(pairs) == 1 else pairs
    if len(pairs) != node.ndim:
        raise ValueError(f"pad: {len(pairs)} widths for a tensor of shape {node.shape}")
    return [(a, b) for a, b in pairs]


def _border(mode: str, length: int, low: int, high: int) -> np.ndarray:
    """Which element each place of a padded dimension shows."""
    place = np.arange(-low, length + high)
    if mode == "edge" or length == 1:
        return np.clip(place, 0, length - 1).astype(np.int32)
    period = 2 * length if mode == "symmetric" else 2 * length - 2
    place = np.mod(place, period)
    mirror = period - 1 - place if mode == "symmetric" else period - place
    return np.where(place < length, place, mirror).astype(np.int32)


@static_arguments("repeats")
def tile(x: Any, repeats: Any) -> Any:
    """The whole of x repeated along each dimension."""
    node = convert_to_node(x)
    counts = list(_lengths(repeats))
    counts = [1] * (node.ndim - len(counts)) + counts
    shape = [1] * (len(counts) - node.ndim) + list(node.shape)
    wide = _reshape(node, [n for length in shape for n in (1, length)])
    wide = _broadcast(
        wide, [n for c, length in zip(counts, shape, strict=True) for n in (c, length)]
    )
    return _reshape(wide, [c * length for c, length in zip(counts, shape, strict=True)])


@static_arguments("repeats")
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element repeated along a dimension, a fixed number of times or one per element."""
    node = convert_to_node(x)
    if axis is None:
        node, axis = _reshape(node, (node.size,)), 0
    at = normalize_axis(axis, node.ndim)
    counts = np.asarray(repeats)
    if counts.size == 1:
        times = int(counts.ravel()[0])
        wide = _reshape(node, (*node.shape[: at + 1], 1, *node.shape[at + 1 :]))
        wide = _broadcast(wide, (*node.shape[: at + 1], times, *node.shape[at + 1 :]))
        return _reshape(wide, (*node.shape[:at], node.shape[at] * times, *node.shape[at + 1 :]))
    index = np.repeat(np.arange(node.shape[at], dtype=np.int32), counts)
    return make("take", node, convert_to_node(index), axis=at)


@operation
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved along a dimension, those that leave at the end coming back at the front."""
    node = convert_to_node(x)
    if axis is None:
        return _reshape(_rolled(_reshape(node, (node.size,)), int(shift), 0), node.shape)
    axes = [normalize_axis(a, node.ndim) for a in _lengths(axis)]
    shifts = _lengths(shift)
    for s, at in zip(shifts * len(axes) if len(shifts) == 1 else shifts, axes, strict=True):
        node = _rolled(node, s, at)
    return node


def _rolled(node: Node, shift: int, axis: int) -> Node:
    length = node.shape[axis]
    if not length or shift % length == 0:
        return node
    at = length - shift % length
    parts = movement.cut(node, axis, at, length), movement.cut(node, axis, 0, at)
    return make("concatenate", *parts, axis=axis)


@static_arguments("shape")
def slice(inputs: Any, start_indices: Any, shape: Any) -> Any:
    """The block of the given shape that begins at start_indices; a length of -1 means to the end.

    Starts may be computed at run time; the block is then moved inside where it would stick out.
    """
    node = convert_to_node(inputs)
    starts, lengths = _starts(start_indices), list(_lengths(shape))
    if not len(starts) == len(lengths) == node.ndim:
        raise ValueError(f"slice: {len(starts)} starts and {len(lengths)} lengths for {node.shape}")
    for axis, (start, n) in enumerate(zip(starts, node.shape, strict=True)):
        if isinstance(start, int):
            length = n - start if lengths[axis] == -1 else lengths[axis]
            if start < 0 or length < 0 or start + length > n:
                raise ValueError(
                    f"slice: {length} elements from {start} on do not lie in axis {axis} of the "
                    f"shape {node.shape}"
                )
            node = movement.cut(node, axis, start, start + length)
        elif not 0 <= lengths[axis] <= n:
            raise ValueError(
                f"slice: a start known only at run time needs a length from 0 to {n} for axis {axis} "
                f"of the shape {node.shape}, not {lengths[axis]}"
            )
        elif lengths[axis] < n:  # a block as long as the dimension can only begin at 0
            first = _held(start, 0, n - lengths[axis])
            index = make("add", iota((lengths[axis],), 0), first)
            node = make("take", node, index, axis=axis)
    return node


def _starts(value: Any) -> list[Any]:
    """Each start as an integer, or as a node where it is computed."""
    if isinstance(value, (Node, Tensor, Variable)):
        node = convert_to_node(value)
        value = unstack(node) if node.ndim else [node]
    elif isinstance(value, (int, np.integer)):
        value = [value]
    return [
        make("cast", _reshape(convert_to_node(v), ()), dtype="int32")
        if isinstance(v, (Node, Tensor, Variable))
        else int(v)
        for v in value
    ]


def _held(x: Node, low: int, high: int) -> Node:
    bounds = (make("constant", value=v, dtype="int32") for v in (low, high))
    return make("minimum", make("maximum", x, next(bounds)), next(bounds))


@operation
def slice_update(inputs: Any, start_indices: Any, updates: Any) -> Any:
    """inputs with the block at start_indices replaced by updates.

    Starts may be computed at run time; the block is then moved inside where it would stick out.
    """
    node, block = promote(inputs, updates)
    starts = _starts(start_indices)
    if not len(starts) == block.ndim == node.ndim:
        raise ValueError(
            f"slice_update: {len(starts)} starts and updates of shape {block.shape} for {node.shape}"
        )
    if not all(isinstance(start, int) for start in starts):
        return _update_at(node, block, starts)
    start = tuple(starts)
    high = [n - a - b for n, a, b in zip(node.shape, start, block.shape, strict=True)]
    if min((*start, *high), default=0) < 0:
        raise ValueError(f"slice_update: {block.shape} at {start} does not fit in {node.shape}")
    ones = make("constant", value=True, dtype="bool")
    inside = movement.pad(_broadcast(ones, block.shape), start, high, False)
    return make("where", inside, movement.pad(block, start, high), node)


def _update_at(node: Node, block: Node, starts: Sequence[Any]) -> Node:
    """Every element looks whether it lies in the block, and where."""
    inside = make("constant", value=True, dtype="bool")
    for axis, (start, n, length) in enumerate(zip(starts, node.shape, block.shape, strict=True)):
        if length > n:
            raise ValueError(f"slice_update: {block.shape} does not fit in {node.shape}")
        if length == n:
            continue
        first = _held(convert_to_node(start, "int32"), 0, n - length)
        place = make("subtract", iota((n,), 0), first)
        block = make("take", block, _held(place, 0, max(length - 1, 0)), axis=axis)
        view = (n,) + (1,) * (node.ndim - 1 - axis)
        low = make("constant", value=-1, dtype="int32")
        high = make("constant", value=length, dtype="int32")
        hit = make("logical_and", make("less", low, place), make("less", place, high))
        inside = make("logical_and", inside, _reshape(hit, view))
    return make("where", inside, block, node)


@operation
def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """The slices of x at the indices along a dimension; negative indices count from the end."""
    node, index = convert_to_node(x), _index(indices)
    if axis is None:
        node, axis = _reshape(node, (node.size,)), 0
    return make("take", node, index, axis=normalize_axis(axis, node.ndim))


@operation
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Any:
    """out[.., i, ..] = x[.., indices[.., i, ..], ..]: an index for every element."""
    node, index = convert_to_node(x), _index(indices)
    if axis is None:
        node, index = _reshape(node, (node.size,)), _reshape(index, (index.size,))
        axis = 0
    at = normalize_axis(axis, node.ndim)
    if node.ndim == index.ndim:  # the other dimensions broadcast
        try:
            pairs = [
                (1, 1) if i == at else p
                for i, p in enumerate(zip(node.shape, index.shape, strict=True))
            ]
            others = np.broadcast_shapes(*zip(*pairs, strict=True))
        except ValueError:
            raise ValueError(
                f"take_along_axis: shapes {node.shape} and {index.shape} do not fit"
            ) from None
        node = _broadcast(node, [node.shape[i] if i == at else n for i, n in enumerate(others)])
        index = _broadcast(index, [index.shape[i] if i == at else n for i, n in enumerate(others)])
    return make("take_along_axis", node, index, axis=at)


def _index(indices: Any) -> Node:
    node = convert_to_node(indices)
    return make("cast", node, dtype="int32") if node.dtype in ("bool", *FLOATS) else node
