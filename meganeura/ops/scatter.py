"""Adding rows at indices, in a fixed order, and the functions built on it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, Shape
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.elementwise import less, less_equal, logical_and, maximum, where
from meganeura.ops.movement import cut
from meganeura.ops.nodes import add, broadcast_to, cast, mul, reshape
from meganeura.ops.registry import Op, Sample, make, register


def _infer(indices: Node, updates: Node, size: int) -> tuple[Shape, str]:
    if indices.ndim != 1 or not updates.ndim or updates.shape[0] != indices.shape[0]:
        raise ValueError(
            f"scatter_add: indices of shape {indices.shape} do not fit updates of shape "
            f"{updates.shape}; expected (n,) and (n, ...)"
        )
    if indices.dtype != "int32":
        raise ValueError(f"scatter_add needs int32 indices, and got {indices.dtype}")
    if updates.dtype not in (*FLOATS, "int32", "uint32"):
        raise ValueError(f"scatter_add adds floats, int32 or uint32, and got {updates.dtype}")
    return (size, *updates.shape[1:]), updates.dtype


def _reference(indices: np.ndarray, updates: np.ndarray, size: int) -> np.ndarray:
    out = np.zeros((size, *updates.shape[1:]), updates.dtype)
    inside = (indices >= 0) & (indices < size)
    np.add.at(out, indices[inside], updates[inside])
    return out


def _samples(random: np.random.Generator) -> list[Sample]:
    found = []
    for count, rest, size in (
        (9, (3,), 5),
        (4, (), 6),
        (33, (2, 2), 7),
        (1, (1,), 1),
        (0, (3,), 2),
        (300, (5,), 40),
    ):
        indices = random.integers(-1, size + 1, (count,)).astype("int32")
        updates = random.standard_normal((count, *rest)).astype("float32")
        found.append(Sample((indices, updates), {"size": size}, gradient=count < 100))
    whole = np.array([[5, -1], [7, 2], [1, 1]], "int32")
    found.append(Sample((np.array([1, 1, 0], "int32"), whole), {"size": 3}, gradient=False))
    return found


def _gradient(node: Node, g: Node) -> list[Node | None]:
    indices, updates = node.inputs
    size = node.attributes["size"]
    if not size or not indices.size:
        return [None, None]
    rows = make("take", g, indices, axis=0)
    zero = make("constant", value=0, dtype="int32")
    end = make("constant", value=size, dtype="int32")
    below = make("less_equal", zero, indices)
    inside = make("logical_and", below, make("less", indices, end))
    inside = reshape(inside, (indices.size, *[1] * (updates.ndim - 1)))
    return [None, make("where", inside, rows, make("constant", value=0.0, dtype=g.dtype))]


register(Op("scatter_add", "template", _infer, _reference, _gradient, samples=_samples))


# --- the functions -----------------------------------------------------------------------------


def _summable(x: Node) -> Node:
    """Bools and bytes are added up in int32."""
    return cast(x, "int32") if x.dtype in ("bool", "uint8") else x


def _indices(name: str, value: Any) -> Node:
    node = convert_to_node(value)
    if node.dtype not in ("int32", "uint32", "uint8"):
        raise ValueError(f"{name}: indices must be integers, and got {node.dtype}")
    return cast(node, "int32")


@operation
def segment_sum(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Any:
    """out[s] = the sum of the rows data[i] with segment_ids[i] = s.

    data (n, ...), segment_ids (n,) integers, out (num_segments, ...). Rows with ids outside of
    0 .. num_segments - 1 are dropped. `sorted` is a hint that is not needed here. Raises
    ValueError without num_segments: the shape of the result must be known beforehand.
    """
    if num_segments is None:
        raise ValueError("segment_sum needs num_segments, since shapes here are static")
    (rows,) = promote(data)
    ids = _indices("segment_sum", segment_ids)
    return make("scatter_add", ids, _summable(rows), size=int(num_segments))


@operation
def scatter(indices: Any, values: Any, shape: Any) -> Any:
    """Zeros of `shape` with `values` added at `indices`; values at equal indices add up.

    indices (..., depth) addresses the first `depth` dimensions of the result, negative indices
    count from the end, and what is out of range is dropped; values (..., *shape[depth:]).
    """
    lengths = tuple(int(n) for n in shape)
    (rows,) = promote(values)
    flat, size, rest = _flat("scatter", _indices("scatter", indices), lengths)
    rows = _rows("scatter", _summable(rows), flat, rest)
    return reshape(make("scatter_add", flat, rows, size=size), lengths)


@operation
def scatter_update(inputs: Any, indices: Any, updates: Any, reduction: str | None = None) -> Any:
    """`inputs` with the elements or slices at `indices` replaced, or with "add" added to.

    indices (..., depth) addresses the first `depth` dimensions of the inputs (n, ...), updates
    (..., *inputs.shape[depth:]). Where different updates are given for one index, their mean is
    taken. Raises ValueError for another reduction, and for shapes that do not fit.
    """
    if reduction not in (None, "add"):
        raise ValueError(
            f"scatter_update: reduction {reduction!r} is not offered; use None or 'add'"
        )
    x, rows = promote(inputs, updates)
    dtype = x.dtype
    x, rows = _summable(x), _summable(rows)
    index = _indices("scatter_update", indices)
    flat, size, rest = _flat("scatter_update", index, x.shape)
    rows = _rows("scatter_update", rows, flat, rest)
    summed = reshape(make("scatter_add", flat, rows, size=size), x.shape)
    if reduction == "add":
        return cast(add(x, summed), dtype)
    one = make("constant", value=1, dtype="int32")
    counts = make("scatter_add", flat, broadcast_to(one, flat.shape), size=size)
    counts = reshape(counts, (*x.shape[: index.shape[-1]], *[1] * len(rest)))
    divide = "divide" if x.dtype in FLOATS else "floor_divide"
    mean = make(divide, summed, cast(maximum(counts, 1), x.dtype))  # one update each: exact
    return cast(where(less(0, counts), mean, x), dtype)


def _rows(name: str, values: Node, flat: Node, rest: Shape) -> Node:
    """One row for each index, of the dimensions that the indices leave."""
    shape = (flat.shape[0], *rest)
    if values.size != math.prod(shape):
        raise ValueError(
            f"{name}: {flat.shape[0]} indices of slices of shape {rest} need values of as many "
            f"elements, and got the shape {values.shape}"
        )
    return reshape(values, shape)


def _flat(name: str, index: Node, lengths: Shape) -> tuple[Node, int, Shape]:
    """Row-major positions in the dimensions that `index` (..., depth) addresses; -1 outside."""
    if not index.ndim or not 1 <= index.shape[-1] <= len(lengths):
        raise ValueError(
            f"{name}: indices of shape {index.shape} do not address a tensor of shape {lengths}; "
            "their last dimension holds one index for each of its leading dimensions"
        )
    depth = index.shape[-1]
    rows = reshape(index, (index.size // depth, depth))
    position: Any = None
    inside: Any = None
    for i, length in enumerate(lengths[:depth]):
        part = reshape(cut(rows, 1, i, i + 1), (rows.shape[0],))
        part = where(less(part, 0), add(part, length), part)
        fits = logical_and(less_equal(0, part), less(part, length))
        inside = fits if inside is None else logical_and(inside, fits)
        position = part if position is None else add(mul(position, length), part)
    return where(inside, position, -1), math.prod(lengths[:depth]), lengths[depth:]
