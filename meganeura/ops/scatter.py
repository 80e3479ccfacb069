"""Adding rows at indices, in a fixed order, and the functions built on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura.graph.node import Node, Shape
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.elementwise import cast, where
from meganeura.ops.nodes import reshape
from meganeura.ops.registry import Op, Sample, make, register


def _infer(indices: Node, updates: Node, size: int) -> tuple[Shape, str]:
    if indices.ndim != 1 or not updates.ndim or updates.shape[0] != indices.shape[0]:
        raise ValueError(
            f"scatter_add: indices of shape {indices.shape} do not fit updates of shape {updates.shape}"
        )
    if indices.dtype != "int32":
        raise ValueError(f"scatter_add needs int32 indices, and got {indices.dtype}")
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
    return [None, make("where", inside, rows, make("constant", value=0.0, dtype="float32"))]


register(Op("scatter_add", "template", _infer, _reference, _gradient, samples=_samples))


@operation
def segment_sum(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Any:
    """out[s] = the sum of the rows whose segment is s."""
    if num_segments is None:
        raise ValueError("segment_sum needs num_segments, since shapes here are static")
    rows, ids = promote(data)[0], cast(convert_to_node(segment_ids), "int32")
    return make("scatter_add", ids, rows, size=int(num_segments))


@operation
def scatter(indices: Any, values: Any, shape: Any) -> Any:
    """A tensor of zeros with `values` added at `indices` (..., dimensions indexed)."""
    index, rows = cast(convert_to_node(indices), "int32"), promote(values)[0]
    lengths = tuple(int(n) for n in shape)
    flat, size, rest = _flat(index, lengths)
    out = make("scatter_add", flat, reshape(rows, (flat.shape[0], *rest)), size=size)
    return reshape(out, lengths)


def _flat(index: Node, lengths: tuple[int, ...]) -> tuple[Node, int, tuple[int, ...]]:
    """Row-major indices of the leading dimensions that `index` addresses."""
    depth = index.shape[-1]
    position: Any = 0
    for i, length in enumerate(lengths[:depth]):
        part = index[..., i]
        position = position * length + where(part < 0, part + length, part)
    flat = reshape(convert_to_node(position), (index.size // max(depth, 1),))
    return flat, int(np.prod(lengths[:depth], dtype=np.int64)), lengths[depth:]


@operation
def scatter_update(inputs: Any, indices: Any, updates: Any, reduction: str | None = None) -> Any:
    """`inputs` with the rows at `indices` replaced, or with reduction="add" added to."""
    x, rows = promote(inputs, updates)
    index = cast(convert_to_node(indices), "int32")
    flat, size, rest = _flat(index, x.shape)
    rows = reshape(rows, (flat.shape[0], *rest))
    summed = reshape(make("scatter_add", flat, rows, size=size), x.shape)
    if reduction == "add":
        return x + summed
    if reduction is not None:
        raise ValueError(
            f"scatter_update: reduction {reduction!r} is not offered; use None or 'add'"
        )
    ones = make("broadcast_to", make("constant", value=1.0, dtype="float32"), shape=flat.shape)
    counts = make("scatter_add", flat, ones, size=size)
    counts = reshape(counts, (*x.shape[: index.shape[-1]], *[1] * len(rest)))
    # Repeated indices: the mean of equal rows is the row; differing ones have no defined winner.
    mean = summed / where(counts > 0.0, counts, 1.0)
    return where(counts > 0.0, cast(mean, x.dtype), x)
