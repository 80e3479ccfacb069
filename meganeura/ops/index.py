"""Index primitives: values selected by integer tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura.graph.node import Node, Shape
from meganeura.ops.nodes import cast, reshape, transpose, where
from meganeura.ops.registry import Op, Sample, make, register


def _wrapped(index: np.ndarray, length: int) -> np.ndarray:
    """Negative indices count from the end, once; what is still outside is clamped."""
    index = index.astype(np.int64)
    return np.clip(np.where(index < 0, index + length, index), 0, max(length - 1, 0))


def _wrapped_node(index: Node, length: int) -> Node:
    """The same on nodes, so that a gradient returns to where the value came from."""
    zero = make("constant", value=0, dtype=index.dtype)
    last = make("constant", value=max(length - 1, 0), dtype=index.dtype)
    shifted = make("add", index, make("constant", value=length, dtype=index.dtype))
    wrapped = where(make("less", index, zero), shifted, index)
    return make("minimum", make("maximum", wrapped, zero), last)


def _check_index(name: str, index: Node) -> None:
    if index.dtype not in ("int32", "uint32", "uint8"):
        raise ValueError(f"{name} needs integer indices, and got {index.dtype}")


# --- take --------------------------------------------------------------------------------------


def _take_infer(x: Node, indices: Node, axis: int) -> tuple[Shape, str]:
    _check_index("take", indices)
    if not x.shape[axis] and indices.size:
        raise ValueError(f"take: axis {axis} of shape {x.shape} holds nothing to take from")
    return (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype


def _take_reference(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    return np.take(x, _wrapped(indices, x.shape[axis]), axis=axis)


def _take_gradient(node: Node, g: Node) -> list[Node | None]:
    """Rows of the upstream gradient added up at the positions that they were taken from."""
    x, indices = node.inputs
    axis, count = node.attributes["axis"], indices.ndim
    flat = reshape(_wrapped_node(cast(indices, "int32"), x.shape[axis]), (indices.size,))
    middle = range(axis, axis + count)
    others = [a for a in range(g.ndim) if a not in middle]
    rest = tuple(g.shape[a] for a in others)
    rows = reshape(transpose(g, (*middle, *others)), (indices.size, *rest))
    summed = make("scatter_add", flat, rows, size=x.shape[axis])
    back = (*range(1, axis + 1), 0, *range(axis + 1, x.ndim))
    return [transpose(summed, back), None]


def _take_samples(random: np.random.Generator) -> list[Sample]:
    found = []
    for shape, index, axis in (
        ((7, 3), (4,), 0),
        ((2, 5, 3), (2, 2), 1),
        ((4, 6), (), 1),
        ((5,), (0,), 0),
        ((1,), (1,), 0),
        ((3, 0), (2,), 0),
    ):
        indices = random.integers(-shape[axis], shape[axis], index).astype("int32")
        x = random.standard_normal(shape).astype("float32")
        found.append(Sample((x, indices), {"axis": axis}))
    outside = np.array([-9, 9, 0], "int32")
    found.append(Sample((np.arange(4, dtype="float32"), outside), {"axis": 0}))
    return found


register(Op("take", "index", _take_infer, _take_reference, _take_gradient, samples=_take_samples))


# --- take_along_axis ---------------------------------------------------------------------------


def _along_infer(x: Node, indices: Node, axis: int) -> tuple[Shape, str]:
    _check_index("take_along_axis", indices)
    same = x.ndim == indices.ndim and all(
        a == b for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)) if i != axis
    )
    if not same:
        raise ValueError(
            f"take_along_axis: indices of shape {indices.shape} must equal the shape {x.shape} "
            f"but for axis {axis}"
        )
    return indices.shape, x.dtype


def _along_reference(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    return np.take_along_axis(x, _wrapped(indices, x.shape[axis]), axis)


def _along_gradient(node: Node, g: Node) -> list[Node | None]:
    """Added up by comparing positions: dx[.., p, ..] = sum_i g[.., i, ..] (index[.., i, ..] == p)."""
    x, indices = node.inputs
    axis = node.attributes["axis"]
    length = x.shape[axis]
    index = _wrapped_node(cast(indices, "int32"), length)
    wide = (*indices.shape[: axis + 1], 1, *indices.shape[axis + 1 :])
    shape = [1] * (x.ndim + 1)
    shape[axis + 1] = length
    position = make("iota", shape=tuple(shape), axis=axis + 1, dtype="int32")
    hit = make("equal", reshape(index, wide), position)
    picked = where(hit, reshape(g, wide), 0.0)
    return [make("sum", picked, axes=(axis,), keepdims=False), None]


def _along_samples(random: np.random.Generator) -> list[Sample]:
    found = []
    for shape, count, axis in (
        ((3, 5), 2, 1),
        ((4, 2, 3), 6, 0),
        ((6,), 1, 0),
        ((1,), 1, 0),
        ((0, 4), 2, 1),
    ):
        index = (*shape[:axis], count, *shape[axis + 1 :])
        indices = random.integers(-shape[axis], shape[axis], index).astype("int32")
        found.append(
            Sample((random.standard_normal(shape).astype("float32"), indices), {"axis": axis})
        )
    return found


register(
    Op(
        "take_along_axis",
        "index",
        _along_infer,
        _along_reference,
        _along_gradient,
        samples=_along_samples,
    )
)


def iota(shape: Any, axis: int, dtype: str = "int32") -> Node:
    return make("iota", shape=tuple(shape), axis=axis, dtype=dtype)
