"""New tensors, and what is known of a tensor without looking at its values."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.graph.node import Node
from meganeura.graph.trace import current as current_trace
from meganeura.ops import elementwise as math
from meganeura.ops.dispatch import convert_to_node, operation
from meganeura.ops.index import iota
from meganeura.ops.movement_functions import static_arguments
from meganeura.ops.nodes import broadcast_to, cast, normalize_axis, reshape
from meganeura.ops.registry import make
from meganeura.symbolic import KerasTensor
from meganeura.tensor import Tensor, to_tensor
from meganeura.variable import Variable


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)


@static_arguments("shape")
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """A tensor of one repeated value, float32 unless told otherwise."""
    node = convert_to_node(fill_value, dtypes.standardize(dtype or "float32"))
    return broadcast_to(node, _shape(shape))


@static_arguments("shape")
def zeros(shape: Any, dtype: Any = "float32") -> Any:
    """A tensor of zeros."""
    return full(shape, 0, dtype or "float32")


@static_arguments("shape")
def ones(shape: Any, dtype: Any = "float32") -> Any:
    """A tensor of ones."""
    return full(shape, 1, dtype or "float32")


@operation
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """A tensor of one value, with the shape and dtype of x."""
    node = convert_to_node(x)
    return full(node.shape, fill_value, dtype or node.dtype)


@operation
def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Zeros with the shape and dtype of x."""
    return full_like(x, 0, dtype)


@operation
def ones_like(x: Any, dtype: Any = None) -> Any:
    """Ones with the shape and dtype of x."""
    return full_like(x, 1, dtype)


empty = zeros


@operation
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """start, start + step, ... below stop (from 0 where only one bound is given)."""
    if stop is None:
        start, stop = 0, start
    bounds = [v.item() if hasattr(v, "item") else v for v in (start, stop, step)]
    values = np.arange(*bounds)
    name = dtypes.standardize(dtype if dtype is not None else values.dtype)
    if not len(values):
        return full((0,), 0, name)
    ramp = iota((len(values),), 0, name)
    start, _, step = bounds
    if step != 1:
        ramp = math.multiply(ramp, step)
    return math.cast(math.add(ramp, start), name) if start else math.cast(ramp, name)


@operation
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` evenly spaced numbers from start to stop."""
    if axis != 0:
        raise ValueError("linspace is offered along axis 0")
    first, last = (convert_to_node(v, "float32") for v in (start, stop))
    parts = max(num - 1 if endpoint else num, 1)
    ramp = reshape(iota((num,), 0, "float32"), (num,) + (1,) * max(first.ndim, last.ndim))
    step = (last - first) / float(parts)
    values = first + ramp * step
    if endpoint and num > 1:  # what rounding would miss
        values = math.where(math.equal(ramp, float(num - 1)), last, values)
    values = values if dtype is None else math.cast(values, dtype)
    return (values, step) if retstep else values


@operation
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = "float32") -> Any:
    """Ones on the k-th diagonal of an (N, M) matrix, zeros elsewhere."""
    shape = (int(N), int(M if M is not None else N))
    hit = math.equal(iota(shape, 0) + k, iota(shape, 1))
    return math.cast(hit, dtype or "float32")


identity = eye


@operation
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = "float32") -> Any:
    """Ones at and below the k-th diagonal of an (N, M) matrix."""
    shape = (int(N), int(M if M is not None else N))
    return math.cast(math.less_equal(iota(shape, 1), iota(shape, 0) + k), dtype or "float32")


def _triangle(x: Any, k: int, lower: bool) -> Node:
    node = convert_to_node(x)
    if node.ndim < 2:
        raise ValueError(f"a triangle needs at least two dimensions, not the shape {node.shape}")
    rows, columns = node.shape[-2:]
    keep = tri(rows, columns, k if lower else k - 1, "bool")
    keep = keep if lower else math.logical_not(keep)
    return math.where(keep, node, zeros_like(node))


@operation
def tril(x: Any, k: int = 0) -> Any:
    """x with zeros above the k-th diagonal."""
    return _triangle(x, k, True)


@operation
def triu(x: Any, k: int = 0) -> Any:
    """x with zeros below the k-th diagonal."""
    return _triangle(x, k, False)


@operation
def diag(x: Any, k: int = 0) -> Any:
    """A matrix with x on its k-th diagonal, or the k-th diagonal of a matrix."""
    node = convert_to_node(x)
    if node.ndim != 1:
        return diagonal(node, k)
    size = node.shape[0] + abs(k)
    row, column = iota((size, size), 0), iota((size, size), 1)
    start = min(max(-k, 0), 0) if k >= 0 else -k
    values = make("take", node, math.clip(row - start, 0, max(node.shape[0] - 1, 0)), axis=0)
    return math.where(math.equal(row + k, column), values, zeros_like(values))


@operation
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonals of the matrices that axis1 and axis2 span, along a new last dimension."""
    from meganeura.ops.movement_functions import moveaxis

    node = convert_to_node(x)
    a, b = normalize_axis(axis1, node.ndim), normalize_axis(axis2, node.ndim)
    node = moveaxis(node, (a, b), (-2, -1))
    rows, columns = node.shape[-2:]
    row, column = max(-offset, 0), max(offset, 0)
    count = max(min(rows - row, columns - column), 0)
    flat = reshape(node, (*node.shape[:-2], rows * columns))
    index = np.arange(count, dtype=np.int32) * (columns + 1) + row * columns + column
    return make("take", flat, convert_to_node(index), axis=flat.ndim - 1)


@operation
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum of a diagonal."""
    from meganeura.ops.reduction_functions import sum

    return sum(diagonal(x, offset, axis1, axis2), axis=-1)


@operation
def meshgrid(*x: Any, indexing: str = "xy") -> list[Any]:
    """Coordinate matrices from coordinate vectors."""
    nodes = [convert_to_node(v) for v in x]
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing {indexing!r} is neither 'xy' nor 'ij'")
    order = list(range(len(nodes)))
    if indexing == "xy" and len(nodes) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(nodes)
    for node, at in zip(nodes, order, strict=True):
        shape[at] = node.size
    grids = []
    for node, at in zip(nodes, order, strict=True):
        view = [1] * len(nodes)
        view[at] = node.size
        grids.append(broadcast_to(reshape(node, view), shape))
    return grids


@operation
def one_hot(
    x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False
) -> Any:
    """1 at the index, 0 elsewhere, along a new dimension of num_classes; all 0 for others."""
    if sparse:
        raise ValueError("one_hot: sparse tensors are not offered")
    index = cast(convert_to_node(x), "int32")
    at = normalize_axis(axis, index.ndim + 1)
    column = reshape(index, (*index.shape[:at], 1, *index.shape[at:]))
    shape = [1] * column.ndim
    shape[at] = int(num_classes)
    return math.cast(math.equal(column, iota(tuple(shape), at)), dtype or "float32")


@operation
def multi_hot(
    inputs: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False
) -> Any:
    """1 at every index that occurs along dimension 1 (0 of a vector of indices)."""
    from meganeura.ops.reduction_functions import max

    index = convert_to_node(inputs)
    hits = one_hot(index, num_classes, axis, dtype, sparse)
    return max(hits, axis=1 if index.ndim > 1 else 0)


# --- what is known -----------------------------------------------------------------------------


def shape(x: Any) -> tuple[int | None, ...]:
    """The shape as a tuple; None stands for a length that a KerasTensor does not know."""
    if hasattr(x, "shape"):
        return tuple(x.shape)
    return np.shape(x)


def ndim(x: Any) -> int:
    """The number of dimensions."""
    return len(shape(x))


def size(x: Any) -> int:
    """The number of elements."""
    return int(np.prod([n for n in shape(x) if n is not None], dtype=np.int64))


def dtype(x: Any) -> str:
    """The name of the dtype."""
    return (
        x.dtype
        if isinstance(getattr(x, "dtype", None), str)
        else dtypes.standardize(np.asarray(x).dtype)
    )


def convert_to_tensor(x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None) -> Any:
    """x as a tensor: recorded in a trace, a device tensor outside, a KerasTensor as it is."""
    if sparse or ragged:
        raise ValueError("sparse and ragged tensors are not offered")
    name = None if dtype is None else dtypes.standardize(dtype)
    if isinstance(x, KerasTensor):
        return x if name in (None, x.dtype) else math.cast(x, name)
    if isinstance(x, Node) or current_trace() is not None:
        return convert_to_node(x, name)
    return to_tensor(x, name)


def convert_to_numpy(x: Any) -> np.ndarray:
    """A copy of the values as a NumPy array."""
    return np.asarray(x.numpy() if isinstance(x, (Tensor, Variable)) else x)


def copy(x: Any) -> Any:
    """The same values as another tensor."""
    return (
        convert_to_tensor(x)
        if not isinstance(x, (Tensor, Variable))
        else to_tensor(convert_to_numpy(x))
    )


array = convert_to_tensor
