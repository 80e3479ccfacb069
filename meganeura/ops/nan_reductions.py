"""Reductions that pass over NaN, by their keras.ops names."""

from __future__ import annotations

from typing import Any

from meganeura.ops import elementwise as math
from meganeura.ops import reduction_functions as reduce
from meganeura.ops.dispatch import operation, promote


def _known(x: Any, fill: float) -> tuple[Any, Any]:
    """x with `fill` for NaN, and which elements are numbers."""
    (node,) = promote(x, floating=True)
    missing = math.isnan(node)
    return math.where(missing, fill, node), math.logical_not(missing)


@operation
def nansum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The sum of what is not NaN; 0 where nothing is left."""
    return reduce.sum(_known(x, 0.0)[0], axis, keepdims)


@operation
def nanprod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The product of what is not NaN; 1 where nothing is left."""
    return reduce.prod(_known(x, 1.0)[0], axis, keepdims)


def _extreme(function: Any, x: Any, fill: float, axis: Any, keepdims: bool) -> Any:
    values, known = _known(x, fill)
    out = function(values, axis, keepdims)
    return math.where(reduce.any(known, axis, keepdims), out, float("nan"))


@operation
def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest of what is not NaN; NaN where nothing is left."""
    return _extreme(reduce.max, x, -float("inf"), axis, keepdims)


@operation
def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The smallest of what is not NaN; NaN where nothing is left."""
    return _extreme(reduce.min, x, float("inf"), axis, keepdims)


@operation
def nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The mean of what is not NaN; NaN where nothing is left."""
    values, known = _known(x, 0.0)
    count = reduce.sum(math.cast(known, "float32"), axis, keepdims)
    return math.divide(reduce.sum(values, axis, keepdims), count)


@operation
def nanvar(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The population variance of what is not NaN, in two passes."""
    (node,) = promote(x, floating=True)
    centred = math.subtract(node, nanmean(node, axis, True))
    return nanmean(math.multiply(centred, centred), axis, keepdims)


@operation
def nanstd(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The square root of nanvar."""
    return math.sqrt(nanvar(x, axis, keepdims))
