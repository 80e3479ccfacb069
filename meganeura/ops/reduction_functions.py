"""Reductions, norms and softmax, by their keras.ops names."""

from __future__ import annotations

import builtins
from typing import Any

from meganeura.graph.node import Node
from meganeura.ops import elementwise as math
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.nodes import cast, normalize_axes, normalize_axis, reshape
from meganeura.ops.registry import make


def _reduce(name: str, node: Node, axis: Any, keepdims: bool) -> Node:
    axes = normalize_axes(axis, node.ndim)
    if not axes:
        return node  # over nothing, as of a scalar
    return make(name, node, axes=axes, keepdims=bool(keepdims))


def _number(x: Any) -> Node:
    node = convert_to_node(x)
    return cast(node, "int32") if node.dtype in ("bool", "uint8") else node


def _wide(x: Any) -> tuple[Node, str]:
    """x as float32, and the dtype of the result: sums over half precision leave its range early."""
    (node,) = promote(x, floating=True)
    return cast(node, "float32"), node.dtype


def _count(node: Node, axis: Any) -> int:
    count = 1
    for a in normalize_axes(axis, node.ndim):
        count *= node.shape[a]
    return count


@operation
def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum over `axis` (all dimensions by default)."""
    return _reduce("sum", _number(x), axis, keepdims)


@operation
def prod(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """The product over `axis`."""
    out = _reduce("prod", _number(x), axis, keepdims)
    return out if dtype is None else math.cast(out, dtype)


@operation
def max(x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """The largest element over `axis`, NaN if one is; ties share the gradient."""
    out = _reduce("max", convert_to_node(x), axis, keepdims)
    return out if initial is None else math.maximum(out, initial)


@operation
def min(x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """The smallest element over `axis`, NaN if one is; ties share the gradient."""
    out = _reduce("min", convert_to_node(x), axis, keepdims)
    return out if initial is None else math.minimum(out, initial)


amax, amin = max, min


@operation
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The arithmetic mean over `axis`, added up in float32; NaN over nothing."""
    node, dtype = _wide(x)
    return cast(_mean(node, axis, keepdims), dtype)


def _mean(node: Node, axis: Any, keepdims: bool) -> Any:
    total = _reduce("sum", node, axis, keepdims)
    count = _count(node, axis)
    return math.divide(total, float(count)) if count == 0 else math.multiply(total, 1.0 / count)


@operation
def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """mean((x - mean(x))^2), the population variance, in two passes so that nothing cancels."""
    node, dtype = _wide(x)
    centred = math.subtract(node, _mean(node, axis, True))
    return cast(_mean(math.multiply(centred, centred), axis, keepdims), dtype)


@operation
def std(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The square root of the variance."""
    return math.sqrt(var(x, axis, keepdims))


@operation
def moments(x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False) -> Any:
    """(mean, variance) over `axes`."""
    return mean(x, axes, keepdims), var(x, axes, keepdims)


@operation
def any(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether one element is true (not 0)."""
    return _reduce("max", math.as_bool(x), axis, keepdims)


@operation
def all(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether every element is true (not 0)."""
    return _reduce("min", math.as_bool(x), axis, keepdims)


@operation
def count_nonzero(x: Any, axis: Any = None) -> Any:
    """How many elements are not 0."""
    return _reduce("sum", cast(math.as_bool(x), "int32"), axis, False)


def _arg(name: str, x: Any, axis: int | None, keepdims: bool) -> Node:
    node = convert_to_node(x)
    node = cast(node, "int32") if node.dtype == "bool" else node
    if axis is None:
        out = make(name, reshape(node, (node.size,)), axes=(0,), keepdims=False)
        return reshape(out, (1,) * node.ndim) if keepdims else out
    return make(name, node, axes=(normalize_axis(axis, node.ndim),), keepdims=bool(keepdims))


@operation
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the (first) largest element."""
    return _arg("argmax", x, axis, keepdims)


@operation
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the (first) smallest element."""
    return _arg("argmin", x, axis, keepdims)


@operation
def average(x: Any, axis: Any = None, weights: Any = None) -> Any:
    """The weighted mean: sum(x w) / sum(w)."""
    if weights is None:
        return mean(x, axis)
    node, w = promote(x, weights, floating=True)
    if w.ndim == 1 and node.ndim > 1:
        shape = [1] * node.ndim
        shape[normalize_axis(axis, node.ndim)] = w.shape[0]
        w = reshape(w, shape)
    w = make("broadcast_to", w, shape=node.shape) if w.shape != node.shape else w
    dtype, node, w = node.dtype, cast(node, "float32"), cast(w, "float32")
    return cast(math.divide(sum(math.multiply(node, w), axis), sum(w, axis)), dtype)


@operation
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """out = ln sum e^x, without overflow."""
    node, dtype = _wide(x)
    top = _finite_top(node, axis)
    total = math.log(sum(math.exp(math.subtract(node, top)), axis, True))
    out = cast(math.add(total, top), dtype)
    return out if keepdims else reshape(out, _reduce("sum", node, axis, False).shape)


def _finite_top(node: Node, axis: Any) -> Node:
    """The largest element, a constant to the gradient; 0 where it is infinite."""
    top = make("stop_gradient", _reduce("max", node, axis, True))
    return math.where(math.isfinite(top), top, 0.0)


@operation
def softmax(x: Any, axis: Any = -1) -> Any:
    """out = e^x / sum e^x over `axis` (one or several), without overflow."""
    node, dtype = _wide(x)
    axis = _softmax_axis(node, axis)
    top = make("stop_gradient", _reduce("max", node, axis, True))
    powers = math.exp(math.subtract(node, top))
    return cast(math.divide(powers, sum(powers, axis, True)), dtype)


@operation
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """out = x - ln sum e^x over `axis`."""
    node, dtype = _wide(x)
    axis = _softmax_axis(node, axis)
    top = make("stop_gradient", _reduce("max", node, axis, True))
    shifted = math.subtract(node, top)
    return cast(math.subtract(shifted, math.log(sum(math.exp(shifted), axis, True))), dtype)


def _softmax_axis(node: Node, axis: Any) -> Any:
    if axis is None:
        return tuple(range(node.ndim))
    return tuple(axis) if isinstance(axis, (list, tuple)) else axis


@operation
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm over `axis`: of vectors 2 (the default), 1, inf, -inf, 0 and any p; of matrices
    "fro" (the default), 1, inf, -1 and -inf. Without axis and order, of all elements."""
    node, dtype = _wide(x)
    return cast(_norm(node, ord, axis, keepdims), dtype)


def _norm(node: Node, ord: Any, axis: Any, keepdims: bool) -> Any:
    axes = normalize_axes(axis, node.ndim)
    if ord in (None, "fro") or ord == 2 and len(axes) == 1:
        return _safe_sqrt(sum(math.multiply(node, node), axis, keepdims))
    size = math.abs(node)
    if len(axes) == 2 and ord in _MATRIX_NORMS:
        add_along, outer = _MATRIX_NORMS[ord]
        both = axes if axis is None else [normalize_axis(a, node.ndim) for a in axis]
        out = outer(sum(size, both[add_along], True), both[1 - add_along], True)
        return out if keepdims else reshape(out, _reduce("sum", node, axis, False).shape)
    if len(axes) != 1:
        raise ValueError(
            f"norm of order {ord!r} over {len(axes)} dimensions is not offered; name one axis for the "
            "norm of vectors (the spectral and nuclear norms of matrices need singular values)"
        )
    if ord == 1:
        return sum(size, axis, keepdims)
    if ord == float("inf"):
        return max(size, axis, keepdims)
    if ord == -float("inf"):
        return min(size, axis, keepdims)
    if ord == 0:
        return sum(math.cast(math.not_equal(node, 0.0), node.dtype), axis, keepdims)
    if not isinstance(ord, (int, float)):
        raise ValueError(f"norm of order {ord!r} is not offered")
    return math.power(sum(math.power(size, float(ord)), axis, keepdims), 1.0 / ord)


#: order: (which of the two axes is added up, what is taken along the other)
_MATRIX_NORMS: dict[Any, Any] = {
    1: (0, max),
    -1: (0, min),
    float("inf"): (1, max),
    -float("inf"): (1, min),
}


def _safe_sqrt(x: Node) -> Node:
    """sqrt with the gradient 0 at 0: the subgradient of a norm that optimizers can live with."""
    zero = math.equal(x, 0.0)
    return math.where(zero, 0.0, math.sqrt(math.where(zero, 1.0, x)))


@operation
def normalize(x: Any, axis: Any = -1, order: Any = 2, epsilon: float | None = None) -> Any:
    """x / max(norm(x), epsilon)."""
    node, dtype = _wide(x)
    epsilon = 1e-7 if epsilon is None else epsilon
    if order == 2:
        total = sum(math.multiply(node, node), axis, True)
        return cast(math.multiply(node, math.rsqrt(math.maximum(total, epsilon**2))), dtype)
    return cast(math.divide(node, math.maximum(_norm(node, order, axis, True), epsilon)), dtype)


@operation
def in_top_k(targets: Any, predictions: Any, k: int, sorted: bool = True) -> Any:
    """Whether fewer than k predictions exceed the target's; false where that is not finite."""
    index, scores = cast(convert_to_node(targets), "int32"), convert_to_node(predictions)
    column = reshape(index, (*index.shape, 1))
    own = make("take_along_axis", scores, column, axis=scores.ndim - 1)
    above = sum(cast(math.greater(scores, own), "int32"), -1)
    inside = math.logical_and(math.greater_equal(index, 0), math.less(index, scores.shape[-1]))
    known = math.logical_and(inside, math.isfinite(reshape(own, index.shape)))
    return math.logical_and(math.less(above, builtins.int(k)), known)
