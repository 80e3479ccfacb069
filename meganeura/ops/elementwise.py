"""Pointwise functions by their keras.ops names (https://keras.io/api/ops)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.nodes import normalize_axis
from meganeura.ops.registry import make


def _float(x: Any) -> Node:
    return promote(x, floating=True)[0]


def _unary(name: str, floating: bool, summary: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        (node,) = promote(x, floating=floating)
        if node.dtype == "bool":
            if name in ("abs", "sign"):  # no and yes are 0 and 1
                return node
            node = make("cast", node, dtype="int32")
        return make(name, node)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    return operation(function)


def _rounding(name: str, summary: str) -> Callable[[Any], Any]:
    """Integers are whole already; Keras gives them back as floats."""

    def function(x: Any) -> Any:
        node = convert_to_node(x)
        return make(name, node) if node.dtype in FLOATS else make("cast", node, dtype="float32")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    return operation(function)


#: What arithmetic on two bools is, in NumPy and Keras.
_OF_BOOLS = {
    "add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and",
}  # fmt: skip


def _binary(name: str, summary: str, floating: bool = False) -> Callable[[Any, Any], Any]:
    def function(x1: Any, x2: Any) -> Any:
        a, b = promote(x1, x2, floating=floating)
        if a.dtype == "bool" and name in _OF_BOOLS:
            return make(_OF_BOOLS[name], a, b)
        if a.dtype == "bool":
            a, b = (make("cast", v, dtype="int32") for v in (a, b))
        return make(name, a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    return operation(function)


negative = _unary("negative", False, "out = -x.")
abs = _unary("abs", False, "out = |x|; its gradient at 0 is 0.")
sign = _unary("sign", False, "out = -1, 0 or 1.")
sqrt = _unary("sqrt", True, "out = sqrt(x); NaN below 0.")
rsqrt = _unary("rsqrt", True, "out = 1 / sqrt(x).")
exp = _unary("exp", True, "out = e^x.")
expm1 = _unary("expm1", True, "out = e^x - 1, accurate near 0.")
log = _unary("log", True, "out = ln x; -inf at 0, NaN below.")
log1p = _unary("log1p", True, "out = ln(1 + x), accurate near 0.")
sin = _unary("sin", True, "out = sin x, x in radians.")
cos = _unary("cos", True, "out = cos x, x in radians.")
tan = _unary("tan", True, "out = tan x, x in radians.")
sinh = _unary("sinh", True, "out = (e^x - e^-x) / 2.")
cosh = _unary("cosh", True, "out = (e^x + e^-x) / 2.")
tanh = _unary("tanh", True, "out = (e^x - e^-x) / (e^x + e^-x).")
arcsin = _unary("arcsin", True, "The angle in [-pi/2, pi/2] whose sine is x.")
arccos = _unary("arccos", True, "The angle in [0, pi] whose cosine is x.")
arctan = _unary("arctan", True, "The angle in (-pi/2, pi/2) whose tangent is x.")
sigmoid = _unary("sigmoid", True, "out = 1 / (1 + e^-x).")
erf = _unary("erf", True, "out = 2/sqrt(pi) times the integral of e^-t^2 from 0 to x.")
silu = _unary("silu", True, "out = x / (1 + e^-x).")
softplus = _unary("softplus", True, "out = ln(1 + e^x).")
isnan = _unary("isnan", True, "Whether each element is NaN.")
isfinite = _unary("isfinite", True, "Whether each element is neither NaN nor infinite.")
floor = _rounding("floor", "The largest whole number not above x.")
ceil = _rounding("ceil", "The smallest whole number not below x.")
absolute = abs
swish = silu

add = _binary("add", "out = x1 + x2, broadcasting.")
subtract = _binary("subtract", "out = x1 - x2, broadcasting.")
multiply = _binary("multiply", "out = x1 * x2, broadcasting.")
divide = _binary("divide", "out = x1 / x2 as a float, broadcasting.", floating=True)
floor_divide = _binary("floor_divide", "out = floor(x1 / x2); 0 for a whole number over 0.")
mod = _binary("mod", "out = x1 - floor(x1 / x2) x2: the sign is the divisor's.")
maximum = _binary(
    "maximum", "The larger of x1 and x2, NaN if either is; a tie halves the gradient."
)
minimum = _binary(
    "minimum", "The smaller of x1 and x2, NaN if either is; a tie halves the gradient."
)
arctan2 = _binary("arctan2", "The angle of the point (x2, x1) in (-pi, pi].", floating=True)
true_divide = divide

#: Whole exponents up to this are products, which are exact where exp and log are not.
_LARGEST_PRODUCT = 8


@operation
def power(x1: Any, x2: Any) -> Any:
    """out = x1^x2; a negative base has a power where the exponent is whole, else NaN."""
    if isinstance(x2, (int, float)) and not isinstance(x2, bool) and float(x2).is_integer():
        exponent = int(x2)
        base = promote(x1, floating=isinstance(x2, float) or exponent < 0)[0]
        if 0 < exponent <= _LARGEST_PRODUCT and base.dtype != "bool":
            return _product(base, exponent)
        if -_LARGEST_PRODUCT <= exponent < 0:
            one = make("constant", value=1.0, dtype=base.dtype)
            return make("divide", one, _product(base, -exponent))
    a, b = promote(x1, x2)
    return make("power", a, b)


def _product(x: Node, exponent: int) -> Node:
    """x^exponent by squaring."""
    out = None
    while exponent:
        if exponent & 1:
            out = x if out is None else make("multiply", out, x)
        exponent >>= 1
        if exponent:
            x = make("multiply", x, x)
    assert out is not None
    return out


@operation
def square(x: Any) -> Any:
    """out = x^2."""
    (node,) = promote(x)
    if node.dtype == "bool":
        node = make("cast", node, dtype="int32")
    return make("multiply", node, node)


@operation
def reciprocal(x: Any) -> Any:
    """out = 1 / x."""
    return divide(1.0, x)


@operation
def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return multiply(log(x), 1 / math.log(2))


@operation
def log10(x: Any) -> Any:
    """The logarithm to base 10."""
    return multiply(log(x), 1 / math.log(10))


@operation
def logaddexp(x1: Any, x2: Any) -> Any:
    """out = ln(e^x1 + e^x2), without overflow."""
    a, b = promote(x1, x2, floating=True)
    apart = where(equal(a, b), 0.0, abs(a - b))  # equal infinities are 0 apart, not NaN
    return maximum(a, b) + softplus(negative(apart))


@operation
def arcsinh(x: Any) -> Any:
    """The inverse of sinh."""
    x = _float(x)
    below = x < 0.0
    a = where(below, negative(x), x)  # not abs, whose gradient at 0 is 0
    far = a > 1e9  # where a^2 would overflow; each branch sees only what suits it
    inner = where(far, 1.0, a)
    near = log1p(inner + inner * inner / (1.0 + sqrt(inner * inner + 1.0)))
    out = where(far, log(where(far, a, 1.0)) + math.log(2.0), near)
    return where(below, negative(out), out)


@operation
def arccosh(x: Any) -> Any:
    """The inverse of cosh, for x >= 1."""
    x = _float(x)
    far = x > 1e9
    inner = where(far, 2.0, x)
    near = log(inner + sqrt(inner - 1.0) * sqrt(inner + 1.0))
    return where(far, log(where(far, x, 1.0)) + math.log(2.0), near)


@operation
def arctanh(x: Any) -> Any:
    """The inverse of tanh, for |x| < 1."""
    x = _float(x)
    return 0.5 * (log1p(x) - log1p(negative(x)))


@operation
def round(x: Any, decimals: int = 0) -> Any:
    """The nearest number with that many decimals; halves go to the even neighbour."""
    node = convert_to_node(x)
    if node.dtype not in FLOATS:
        return node
    if not decimals:
        return make("round", node)
    scale = 10.0**decimals
    return make("round", node * scale) / scale


@operation
def isinf(x: Any) -> Any:
    """Whether each element is infinite."""
    node = _float(x)
    return logical_and(logical_not(isfinite(node)), logical_not(isnan(node)))


@operation
def isclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether |x1 - x2| <= atol + rtol |x2|, or both are the same infinity."""
    a, b = promote(x1, x2, floating=True)
    close = logical_or(abs(a - b) <= atol + rtol * abs(b), equal(a, b))
    close = logical_and(close, logical_or(isfinite(b), equal(a, b)))
    return logical_or(close, logical_and(isnan(a), isnan(b))) if equal_nan else close


@operation
def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """NaN and infinities replaced: by 0 and the largest finite numbers, unless told otherwise."""
    node = convert_to_node(x)
    if node.dtype not in FLOATS:
        return node
    top = float(np.finfo(node.dtype).max)
    node = where(equal(node, math.inf), top if posinf is None else posinf, node)
    node = where(equal(node, -math.inf), -top if neginf is None else neginf, node)
    return where(isnan(node), nan, node)


@operation
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """x held between x_min and x_max."""
    return minimum(maximum(x, x_min), x_max)


@operation
def cast(x: Any, dtype: Any) -> Any:
    """x converted to `dtype`; float to integer truncates towards 0."""
    name = dtypes.standardize(dtype)
    node = convert_to_node(x)
    return node if node.dtype == name else make("cast", node, dtype=name)


@operation
def stop_gradient(variable: Any) -> Any:
    """The same values, through which no gradient flows."""
    return make("stop_gradient", convert_to_node(variable))


# --- comparisons and logic ---------------------------------------------------------------------


def _comparison(name: str, op: str, swap: bool, summary: str) -> Callable[[Any, Any], Any]:
    def function(x1: Any, x2: Any) -> Any:
        a, b = promote(x1, x2)
        if a.dtype == "bool" and "equal" != op != "not_equal":
            a, b = (make("cast", v, dtype="int32") for v in (a, b))
        return make(op, b, a) if swap else make(op, a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    return operation(function)


equal = _comparison("equal", "equal", False, "Whether x1 = x2.")
not_equal = _comparison(
    "not_equal", "not_equal", False, "Whether x1 and x2 differ; NaN differs from NaN."
)
less = _comparison("less", "less", False, "Whether x1 < x2.")
less_equal = _comparison("less_equal", "less_equal", False, "Whether x1 <= x2.")
greater = _comparison("greater", "less", True, "Whether x1 > x2.")
greater_equal = _comparison("greater_equal", "less_equal", True, "Whether x1 >= x2.")


def as_bool(x: Any) -> Node:
    node = convert_to_node(x)
    if node.dtype == "bool":
        return node
    return make("not_equal", node, make("constant", value=0, dtype=node.dtype))


@operation
def logical_and(x1: Any, x2: Any) -> Any:
    """x1 and x2, element by element; numbers count as true where they are not 0."""
    return make("logical_and", as_bool(x1), as_bool(x2))


@operation
def logical_or(x1: Any, x2: Any) -> Any:
    """x1 or x2, element by element."""
    return make("logical_or", as_bool(x1), as_bool(x2))


@operation
def logical_xor(x1: Any, x2: Any) -> Any:
    """Either x1 or x2, but not both, element by element."""
    return make("not_equal", as_bool(x1), as_bool(x2))


@operation
def logical_not(x: Any) -> Any:
    """Not x, element by element."""
    return make("logical_not", as_bool(x))


@operation
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """x1 where the condition holds, x2 elsewhere; the three broadcast together."""
    if x1 is None or x2 is None:
        raise ValueError(
            "where(condition) alone has a result whose shape depends on the data, which a graph of "
            "static shapes cannot hold; give x1 and x2, or use NumPy"
        )
    a, b = promote(x1, x2)
    return make("where", as_bool(condition), a, b)


@operation
def bitwise_not(x: Any) -> Any:
    """Every bit turned over."""
    return make("bitwise_not", convert_to_node(x))


bitwise_invert = bitwise_not


def _bits(name: str, summary: str) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        a, b = promote(x, y)
        return make(name, a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    return operation(function)


bitwise_and = _bits("bitwise_and", "x and y, bit by bit.")
bitwise_or = _bits("bitwise_or", "x or y, bit by bit.")
bitwise_xor = _bits("bitwise_xor", "x exclusive-or y, bit by bit.")
left_shift = bitwise_left_shift = _bits("left_shift", "x moved left by y bits.")
right_shift = bitwise_right_shift = _bits("right_shift", "x moved right by y bits.")


# --- activations -------------------------------------------------------------------------------


@operation
def relu(x: Any) -> Any:
    """out = max(x, 0); its gradient at 0 is 0."""
    return make("relu", promote(x)[0])


@operation
def relu6(x: Any) -> Any:
    """out = min(max(x, 0), 6)."""
    return minimum(relu(x), 6)


@operation
def gelu(x: Any, approximate: bool = True) -> Any:
    """out = x P(X <= x) for a standard normal X (arXiv 1606.08415), or its tanh approximation."""
    return make("gelu", _float(x), approximate=bool(approximate))


@operation
def softsign(x: Any) -> Any:
    """out = x / (1 + |x|)."""
    x = _float(x)
    return x / (1.0 + abs(x))


@operation
def elu(x: Any, alpha: float = 1.0) -> Any:
    """out = x above 0, alpha (e^x - 1) below (arXiv 1511.07289)."""
    x = _float(x)
    return where(x > 0.0, x, alpha * expm1(where(x > 0.0, 0.0, x)))


@operation
def selu(x: Any) -> Any:
    """out = scale * elu(x, alpha) with the constants of arXiv 1706.02515."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


@operation
def celu(x: Any, alpha: float = 1.0) -> Any:
    """out = max(x, 0) + min(0, alpha (e^(x / alpha) - 1)) (arXiv 1704.07483)."""
    x = _float(x)
    return maximum(x, 0.0) + alpha * expm1(minimum(x, 0.0) / alpha)


@operation
def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """out = x above 0, negative_slope * x below."""
    x = _float(x)
    return where(x > 0.0, x, negative_slope * x)


@operation
def hard_sigmoid(x: Any) -> Any:
    """out = x / 6 + 1/2, held between 0 and 1."""
    return clip(_float(x) * (1 / 6) + 0.5, 0.0, 1.0)


@operation
def hard_silu(x: Any) -> Any:
    """out = x * hard_sigmoid(x) (arXiv 1905.02244)."""
    x = _float(x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@operation
def glu(x: Any, axis: int = -1) -> Any:
    """out = a * sigmoid(b), a and b being the halves of x along `axis` (arXiv 1612.08083)."""
    from meganeura.ops.movement_functions import split

    node = _float(x)
    at = normalize_axis(axis, node.ndim)
    if node.shape[at] % 2:
        raise ValueError(
            f"glu: axis {axis} of shape {node.shape} must have an even length, to be cut in halves"
        )
    a, b = split(node, 2, at)
    return a * sigmoid(b)


@operation
def log_sigmoid(x: Any) -> Any:
    """out = ln(1 / (1 + e^-x)) = -softplus(-x)."""
    return negative(softplus(negative(_float(x))))


@operation
def mish(x: Any) -> Any:
    """out = x tanh(softplus(x)) (arXiv 1908.08681)."""
    x = _float(x)
    return x * tanh(softplus(x))


@operation
def hard_tanh(x: Any) -> Any:
    """x held between -1 and 1."""
    return clip(_float(x), -1.0, 1.0)


@operation
def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x where |x| > threshold, else 0."""
    x = _float(x)
    return where(abs(x) <= threshold, 0.0, x)


@operation
def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x moved towards 0 by threshold, and 0 where it would pass it."""
    x = _float(x)
    return x - clip(x, -threshold, threshold)


@operation
def tanh_shrink(x: Any) -> Any:
    """out = x - tanh(x)."""
    x = _float(x)
    return x - tanh(x)


@operation
def squareplus(x: Any, b: float = 4) -> Any:
    """out = (x + sqrt(x^2 + b)) / 2 (arXiv 2112.11687), without cancellation below 0."""
    x = _float(x)
    below = x < 0.0
    total = where(below, negative(x), x) + sqrt(x * x + float(b))
    return where(below, 0.5 * b / total, total * 0.5)


@operation
def sparse_plus(x: Any) -> Any:
    """0 below -1, x above 1, (x + 1)^2 / 4 between."""
    x = _float(x)
    return where(x <= -1.0, 0.0, where(x < 1.0, 0.25 * square(x + 1.0), x))


@operation
def sparse_sigmoid(x: Any) -> Any:
    """0 below -1, 1 above 1, (x + 1) / 2 between."""
    return clip(0.5 * (_float(x) + 1.0), 0.0, 1.0)


@operation
def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """x where x > threshold, else default_value."""
    x = _float(x)
    return where(x > threshold, x, default_value)
