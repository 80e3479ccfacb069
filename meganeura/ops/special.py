"""Less common pointwise functions by their keras.ops names, composed of the common ones."""

from __future__ import annotations

import math as numbers
from typing import Any

from meganeura.dtypes import FLOATS
from meganeura.ops import elementwise as math
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.nodes import cast


@operation
def fabs(x: Any) -> Any:
    """out = |x| in float32."""
    return math.abs(*promote(x, floating=True))


@operation
def deg2rad(x: Any) -> Any:
    """out = x pi / 180."""
    return math.multiply(*promote(x, numbers.pi / 180, floating=True))


@operation
def rad2deg(x: Any) -> Any:
    """out = x 180 / pi."""
    return math.multiply(*promote(x, 180 / numbers.pi, floating=True))


@operation
def exp2(x: Any) -> Any:
    """out = 2^x."""
    return math.power(2.0, *promote(x, floating=True))


@operation
def cbrt(x: Any) -> Any:
    """The real cube root, with the sign of x."""
    (node,) = promote(x, floating=True)
    return math.multiply(math.sign(node), math.power(math.abs(node), 1.0 / 3.0))


@operation
def trunc(x: Any) -> Any:
    """x without its fraction; whole numbers stay as they are."""
    node = convert_to_node(x)
    if node.dtype not in FLOATS:
        return node
    return math.where(math.less(node, 0.0), math.ceil(node), math.floor(node))


@operation
def fmod(x1: Any, x2: Any) -> Any:
    """The remainder of x1 / x2 with the sign of x1 (mod has the divisor's)."""
    a, b = promote(x1, x2)
    rest = math.mod(math.abs(a), math.abs(b))
    return math.where(math.less(a, 0), math.negative(rest), rest)


@operation
def fmax(x1: Any, x2: Any) -> Any:
    """The larger of two elements, the other where one is NaN."""
    a, b = promote(x1, x2)
    if a.dtype not in FLOATS:
        return math.maximum(a, b)
    return math.where(math.isnan(a), b, math.where(math.isnan(b), a, math.maximum(a, b)))


@operation
def fmin(x1: Any, x2: Any) -> Any:
    """The smaller of two elements, the other where one is NaN."""
    a, b = promote(x1, x2)
    if a.dtype not in FLOATS:
        return math.minimum(a, b)
    return math.where(math.isnan(a), b, math.where(math.isnan(b), a, math.minimum(a, b)))


@operation
def heaviside(x1: Any, x2: Any) -> Any:
    """0 below 0, 1 above, x2 at 0."""
    a, b = promote(x1, x2, floating=True)
    step = math.where(math.less(a, 0.0), 0.0, math.where(math.greater(a, 0.0), 1.0, b))
    return math.where(math.isnan(a), a, step)


@operation
def hypot(x1: Any, x2: Any) -> Any:
    """sqrt(x1^2 + x2^2), scaled so that squares do not overflow."""
    a, b = (math.abs(v) for v in promote(x1, x2, floating=True))
    large, small = math.maximum(a, b), math.minimum(a, b)
    zero = math.equal(large, 0.0)
    ratio = math.divide(small, math.where(zero, 1.0, large))
    out = math.multiply(large, math.sqrt(math.add(1.0, math.multiply(ratio, ratio))))
    return math.where(math.isinf(large), float("inf"), out)


@operation
def divide_no_nan(x1: Any, x2: Any) -> Any:
    """x1 / x2, and 0 where x2 is 0."""
    a, b = promote(x1, x2, floating=True)
    zero = math.equal(b, 0.0)
    return math.where(zero, 0.0, math.divide(a, math.where(zero, 1.0, b)))


@operation
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), and 1 at 0."""
    (node,) = promote(x, floating=True)
    zero = math.equal(node, 0.0)
    angle = math.multiply(math.where(zero, 1.0, node), numbers.pi)
    return math.where(zero, 1.0, math.divide(math.sin(angle), angle))


@operation
def erfc(x: Any) -> Any:
    """1 - erf(x); above about 4 it is 0 in float32."""
    return math.subtract(1.0, math.erf(x))


@operation
def logaddexp2(x1: Any, x2: Any) -> Any:
    """log2(2^x1 + 2^x2), without overflow."""
    a, b = promote(x1, x2, floating=True)
    scale = numbers.log(2.0)
    total = math.logaddexp(math.multiply(a, scale), math.multiply(b, scale))
    return math.divide(total, scale)


@operation
def ldexp(x1: Any, x2: Any) -> Any:
    """x1 times 2^x2."""
    (a,) = promote(x1, floating=True)
    return math.multiply(a, exp2(x2))


@operation
def isposinf(x: Any) -> Any:
    """Whether each element is +infinity."""
    return math.equal(*promote(x, float("inf"), floating=True))


@operation
def isneginf(x: Any) -> Any:
    """Whether each element is -infinity."""
    return math.equal(*promote(x, -float("inf"), floating=True))


@operation
def isreal(x: Any) -> Any:
    """True for each element: there are no complex tensors."""
    node = convert_to_node(x)
    return math.logical_or(math.equal(node, node), True)


@operation
def real(x: Any) -> Any:
    """x itself: there are no complex tensors."""
    return convert_to_node(x)


@operation
def conjugate(x: Any) -> Any:
    """x itself: there are no complex tensors."""
    return convert_to_node(x)


conj = conjugate


@operation
def gcd(x1: Any, x2: Any) -> Any:
    """The greatest common divisor of whole numbers, by 47 steps of Euclid: as many as 32 bits can need."""
    a, b = promote(x1, x2)
    if a.dtype in FLOATS:
        raise ValueError(f"gcd wants integers, and got {a.dtype}")
    a, b = math.abs(cast(a, "int32")), math.abs(cast(b, "int32"))
    for _ in range(47):
        done = math.equal(b, 0)
        a, b = (
            math.where(done, a, b),
            math.where(done, 0, math.mod(a, math.where(done, 1, b))),
        )
    return a


@operation
def saturate_cast(x: Any, dtype: Any) -> Any:
    """x in another dtype, moved to that dtype's nearest value where it does not fit."""
    ends = {"uint8": (0, 255), "int32": (-(2**31), 2**31 - 128), "uint32": (0, 2**32 - 256)}
    if str(dtype) in ends and convert_to_node(x).dtype in FLOATS:
        x = math.clip(x, *(float(end) for end in ends[str(dtype)]))
    elif str(dtype) == "uint8":
        x = math.clip(x, 0, 255)
    return math.cast(x, dtype)
