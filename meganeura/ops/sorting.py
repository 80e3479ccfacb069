"""Order along an axis, as compositions: each element's place is the number of elements that come before it.

Counting compares each pair of a row, in kernels that keep nothing of the size of the pairs; ties keep their
order and NaN comes last, as in NumPy.
"""

from __future__ import annotations

from typing import Any

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node
from meganeura.ops import elementwise as math
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.index import iota
from meganeura.ops.nodes import cast, normalize_axis, reshape, transpose
from meganeura.ops.registry import make

#: Comparisons of pairs grow with the square of the length; beyond this they are refused.
LONGEST = 32768


def _order(x: Node, count: int, descending: bool) -> Node:
    """The positions along the last axis of the first `count` elements in order, int32."""
    length = x.shape[-1]
    if length > LONGEST:
        raise ValueError(
            f"sorting along an axis of {length} elements (shape {x.shape}) is not offered: at most {LONGEST}; "
            "sort with numpy outside the model, or in parts"
        )
    if x.dtype in ("bool", "uint8"):
        x = cast(x, "int32")
    rank, ndim = x.ndim + 1, x.ndim
    own, other = reshape(x, (*x.shape, 1)), reshape(x, (*x.shape[:-1], 1, length))
    at = iota((*(1,) * (ndim - 1), length, 1), rank - 2)
    place = iota((*(1,) * ndim, length), rank - 1)
    before = math.greater(other, own) if descending else math.less(other, own)
    tied = math.equal(other, own)
    if x.dtype in FLOATS:
        # NaN counts as the largest value: last in rising order, first in falling order
        own_nan, other_nan = math.isnan(own), math.isnan(other)
        first, second = (other_nan, own_nan) if descending else (own_nan, other_nan)
        before = math.logical_or(before, math.logical_and(first, math.logical_not(second)))
        tied = math.logical_or(tied, math.logical_and(own_nan, other_nan))
    before = math.logical_or(before, math.logical_and(tied, math.less(place, at)))
    ranks = make("sum", cast(before, "int32"), axes=(rank - 1,), keepdims=False)
    wanted = iota((*(1,) * (ndim - 1), count, 1), rank - 2)
    here = math.equal(reshape(ranks, (*x.shape[:-1], 1, length)), wanted)
    return make("sum", math.where(here, place, 0), axes=(rank - 1,), keepdims=False)


def _last(x: Any, axis: int | None) -> tuple[Node, int]:
    """x with the axis in question last, and that axis; all elements in a row where it is None."""
    node = convert_to_node(x)
    if axis is None:
        return reshape(node, (node.size,)), 0
    at = normalize_axis(axis, node.ndim)
    order = [a for a in range(node.ndim) if a != at] + [at]
    return transpose(node, order), at


def _back(x: Node, axis: int) -> Node:
    order = list(range(x.ndim - 1))
    order.insert(axis, x.ndim - 1)
    return transpose(x, order)


@operation
def argsort(x: Any, axis: int | None = -1) -> Any:
    """The positions that put x in rising order, int32; equal elements keep their order, NaN comes last."""
    node, at = _last(x, axis)
    return _back(_order(node, node.shape[-1], False), at)


@operation
def sort(x: Any, axis: int | None = -1) -> Any:
    """x in rising order along `axis`, NaN last; gradients go back to where the elements were."""
    node, at = _last(x, axis)
    return _back(sorted_rows(node), at)


def sorted_rows(node: Node) -> Node:
    """A node in rising order along its last axis."""
    order = _order(node, node.shape[-1], False)
    return make("take_along_axis", node, order, axis=node.ndim - 1)


@operation
def argpartition(x: Any, kth: int, axis: int | None = -1) -> Any:
    """Positions that put the elements below the k-th before it and the others after: here, all in order."""
    node, at = _last(x, axis)
    length = node.shape[-1]
    if not -length <= kth < length:
        raise ValueError(f"argpartition: kth={kth} is outside an axis of {length} elements")
    return _back(_order(node, length, False), at)


@operation
def top_k(x: Any, k: int, sorted: bool = True) -> Any:
    """(values, indices) of the k largest elements of the last axis, the largest first; the first of equals wins."""
    node = convert_to_node(x)
    if not node.ndim or not 0 <= k <= node.shape[-1]:
        raise ValueError(f"top_k: k={k} of a last axis of shape {node.shape}; it holds too few")
    order = _order(node, int(k), True)
    return make("take_along_axis", node, order, axis=node.ndim - 1), order


@operation
def searchsorted(sorted_sequence: Any, values: Any, side: str = "left") -> Any:
    """Where each value would be put into a rising sequence so that it stays in order, int32."""
    sequence, node = promote(sorted_sequence, values)
    if sequence.ndim != 1:
        raise ValueError(f"searchsorted: the sequence has shape {sequence.shape}, and must be flat")
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is 'left' or 'right', not {side!r}")
    column = reshape(node, (*node.shape, 1))
    below = math.less(sequence, column) if side == "left" else math.less_equal(sequence, column)
    if node.dtype in FLOATS:  # NaN is above all numbers
        above = math.logical_and(math.isnan(column), math.logical_not(math.isnan(sequence)))
        below = math.logical_or(below, above)
        if side == "right":
            below = math.logical_or(below, math.isnan(column))
    return make("sum", cast(below, "int32"), axes=(node.ndim,), keepdims=False)


@operation
def digitize(x: Any, bins: Any) -> Any:
    """The number of rising `bins` that are at most x, int32."""
    return searchsorted(bins, x, "right")


@operation
def quantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """The q-th quantiles (0 to 1) over `axis`, between neighbours by `method`; NaN where an element is."""
    (node,) = promote(x, floating=True)
    (share,) = promote(q, floating=True)
    axes = sorted_axes(axis, node.ndim)
    rest = [a for a in range(node.ndim) if a not in axes]
    moved = transpose(node, (*rest, *axes))
    lengths = tuple(node.shape[a] for a in rest)
    flat = reshape(moved, (*lengths, node.size // max(_product(lengths), 1)))
    count = flat.shape[-1]
    if not count:
        raise ValueError(f"quantile: there are no elements over axis {axis} of shape {node.shape}")
    rows = sorted_rows(flat)
    place = math.multiply(reshape(share, (share.size,)), float(count - 1))
    low, high = math.floor(place), math.ceil(place)
    picks = {
        "lower": low, "higher": high, "nearest": math.round(place), "linear": low, "midpoint": low,
    }  # fmt: skip
    if method not in picks:
        raise ValueError(f"quantile: method {method!r} is not one of {', '.join(picks)}")
    last = rows.ndim - 1
    out = make("take", rows, cast(picks[method], "int32"), axis=last)
    if method in ("linear", "midpoint"):
        upper = make("take", rows, cast(high, "int32"), axis=last)
        weight = math.subtract(place, low)
        if method == "midpoint":
            weight = math.where(math.greater(weight, 0.0), 0.5, 0.0)
        between = math.add(out, math.multiply(math.subtract(upper, out), weight))
        out = math.where(math.equal(weight, 0.0), out, between)
    unknown = math.isnan(make("slice", rows, **_end(rows)))
    out = math.where(unknown, float("nan"), out)
    out = transpose(out, (last, *range(last)))
    if keepdims:
        lengths = tuple(1 if a in axes else n for a, n in enumerate(node.shape))
    return reshape(out, (*share.shape, *lengths))


def _end(rows: Node) -> dict[str, Any]:
    """The slice that holds the last element of each row."""
    start = (*(0,) * (rows.ndim - 1), rows.shape[-1] - 1)
    return {"start": start, "stop": rows.shape, "step": (1,) * rows.ndim}


def _product(lengths: tuple[int, ...]) -> int:
    out = 1
    for n in lengths:
        out *= n
    return out


def sorted_axes(axis: Any, ndim: int) -> list[int]:
    """The dimensions that `axis` names, in rising order; all where it is None."""
    if axis is None:
        return list(range(ndim))
    given = axis if isinstance(axis, (list, tuple)) else [axis]
    found: set[int] = {normalize_axis(a, ndim) for a in given}
    return [a for a in range(ndim) if a in found]


@operation
def percentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """quantile(x, q / 100)."""
    (share,) = promote(q, floating=True)
    return quantile(x, math.divide(share, 100.0), axis, method, keepdims)


@operation
def median(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The middle element over `axis`, the mean of the two middle ones where their number is even."""
    return quantile(x, 0.5, axis, "linear", keepdims)
