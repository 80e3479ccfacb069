"""ONNX operators that work element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.onnx.registry import HANDLERS, Call, dtype_of, floating, handles

Unary = Callable[[Any], Any]

_UNARY: dict[str, Unary] = {
    "Abs": ops.abs,
    "Acos": lambda x: np.pi / 2 - ops.arcsin(x),
    "Acosh": lambda x: ops.log(x + ops.sqrt(x * x - 1.0)),
    "Asin": ops.arcsin,
    "Asinh": lambda x: ops.sign(x) * ops.log(ops.abs(x) + ops.sqrt(x * x + 1.0)),
    "Atan": ops.arctan,
    "Atanh": lambda x: 0.5 * (ops.log1p(x) - ops.log1p(-x)),
    "Ceil": ops.ceil,
    "Cos": ops.cos,
    "Cosh": ops.cosh,
    "Erf": ops.erf,
    "Exp": ops.exp,
    "Floor": ops.floor,
    "HardSwish": lambda x: x * ops.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "Identity": lambda x: x,
    "IsNaN": ops.isnan,
    "Log": ops.log,
    "Mish": lambda x: x * ops.tanh(ops.softplus(x)),
    "Neg": ops.negative,
    "Not": ops.logical_not,
    "Reciprocal": lambda x: 1.0 / x,
    "Relu": lambda x: ops.maximum(x, 0),
    "Round": ops.round,
    "Sigmoid": ops.sigmoid,
    "Sign": ops.sign,
    "Sin": ops.sin,
    "Sinh": ops.sinh,
    "Softplus": ops.softplus,
    "Softsign": lambda x: x / (1.0 + ops.abs(x)),
    "Sqrt": ops.sqrt,
    "Tan": ops.tan,
    "Tanh": ops.tanh,
}

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": ops.add,
    "And": ops.logical_and,
    "Equal": ops.equal,
    "Greater": ops.greater,
    "GreaterOrEqual": ops.greater_equal,
    "Less": ops.less,
    "LessOrEqual": ops.less_equal,
    "Mul": ops.multiply,
    "Or": ops.logical_or,
    "Sub": ops.subtract,
    "Xor": ops.logical_xor,
}

_VARIADIC = {"Max": ops.maximum, "Min": ops.minimum, "Sum": ops.add}


def _install() -> None:
    for kind, unary in _UNARY.items():
        HANDLERS[kind] = lambda call, f=unary: f(call.tensor(0))
    for kind, binary in _BINARY.items():
        HANDLERS[kind] = lambda call, f=binary: f(*_aligned(call))
    for kind, fold in _VARIADIC.items():
        HANDLERS[kind] = lambda call, f=fold: functools.reduce(f, call.tensors())


def _aligned(call: Call) -> tuple[Any, Any]:
    """The two operands; before version 7 the second is aligned at `axis` of the first."""
    a, b = call.tensor(0), call.tensor(1)
    if call.opset < 7 and call.get("broadcast") and "axis" in call.attributes:
        after = len(a.shape) - call.get("axis") - len(b.shape)
        b = ops.reshape(b, (*b.shape, *([1] * after)))
    return a, b


_install()


@handles("Div")
def _div(call: Call) -> Any:
    a, b = _aligned(call)
    if "float" in dtype_of(a):
        return ops.divide(a, b)
    # ONNX integer division truncates towards zero.
    quotient = ops.floor_divide(ops.abs(a), ops.abs(b))
    if dtype_of(a).startswith("uint"):
        return quotient
    return quotient * ops.sign(a) * ops.sign(b)


@handles("Mod")
def _mod(call: Call) -> Any:
    a, b = call.tensor(0), call.tensor(1)
    if not call.get("fmod", 0):
        return ops.mod(a, b)
    return ops.sign(a) * ops.mod(ops.abs(a), ops.abs(b))


@handles("Pow")
def _pow(call: Call) -> Any:
    a, b = call.tensor(0), call.tensor(1)
    return ops.cast(ops.power(floating(a), floating(b)), dtype_of(a))


@handles("Mean")
def _mean(call: Call) -> Any:
    return functools.reduce(ops.add, call.tensors()) / float(len(call.inputs))


@handles("Where")
def _where(call: Call) -> Any:
    return ops.where(call.tensor(0), call.tensor(1), call.tensor(2))


@handles("Clip")
def _clip(call: Call) -> Any:
    x = call.tensor(0)
    low = call.tensor(1) if call.opset >= 11 else call.get("min")
    high = call.tensor(2) if call.opset >= 11 else call.get("max")
    if low is not None:
        x = ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


_TYPES = {1: "float32", 2: "uint8", 3: "int32", 5: "int32", 6: "int32", 7: "int32", 9: "bool",
          10: "float32", 11: "float32", 12: "uint32", 13: "uint32"}  # fmt: skip


def cast_to(call: Call, x: Any, code: int) -> Any:
    """Cast to an ONNX element type; 64-bit and half types become their 32-bit kin."""
    if code not in _TYPES:
        call.refuse(f"element type {code} is not offered (strings, complex, 8-bit floats)")
    return ops.cast(x, _TYPES[code])


@handles("Cast")
def _cast(call: Call) -> Any:
    return cast_to(call, call.tensor(0), call.get("to"))


@handles("CastLike")
def _cast_like(call: Call) -> Any:
    return ops.cast(call.tensor(0), dtype_of(call.tensor(1)))


@handles("IsInf")
def _is_inf(call: Call) -> Any:
    x = call.tensor(0)
    positive, negative = call.get("detect_positive", 1), call.get("detect_negative", 1)
    infinite = ops.isinf(x)
    if not positive:
        infinite = ops.logical_and(infinite, ops.less(x, 0.0))
    if not negative:
        infinite = ops.logical_and(infinite, ops.greater(x, 0.0))
    return infinite


@handles("BitShift")
def _shift(call: Call) -> Any:
    shift = ops.left_shift if call.get("direction") == "LEFT" else ops.right_shift
    return shift(call.tensor(0), call.tensor(1))


@handles("BitwiseAnd")
def _bitwise_and(call: Call) -> Any:
    return ops.bitwise_and(call.tensor(0), call.tensor(1))


@handles("BitwiseOr")
def _bitwise_or(call: Call) -> Any:
    return ops.bitwise_or(call.tensor(0), call.tensor(1))


@handles("BitwiseXor")
def _bitwise_xor(call: Call) -> Any:
    return ops.bitwise_xor(call.tensor(0), call.tensor(1))


@handles("BitwiseNot")
def _bitwise_not(call: Call) -> Any:
    return ops.bitwise_not(call.tensor(0))


@handles("Celu")
def _celu(call: Call) -> Any:
    x, alpha = call.tensor(0), call.get("alpha", 1.0)
    return ops.maximum(x, 0.0) + ops.minimum(0.0, alpha * ops.expm1(x / alpha))


@handles("Elu")
def _elu(call: Call) -> Any:
    x = call.tensor(0)
    return ops.where(x > 0, x, call.get("alpha", 1.0) * ops.expm1(ops.minimum(x, 0.0)))


@handles("Selu")
def _selu(call: Call) -> Any:
    x = call.tensor(0)
    alpha, gamma = call.get("alpha", 1.67326319217681884765625), call.get("gamma", 1.05070102214813)
    return gamma * ops.where(x > 0, x, alpha * ops.expm1(ops.minimum(x, 0.0)))


@handles("Gelu")
def _gelu(call: Call) -> Any:
    return ops.gelu(call.tensor(0), approximate=call.get("approximate", "none") == "tanh")


@handles("HardSigmoid")
def _hard_sigmoid(call: Call) -> Any:
    return ops.clip(call.tensor(0) * call.get("alpha", 0.2) + call.get("beta", 0.5), 0.0, 1.0)


@handles("LeakyRelu")
def _leaky_relu(call: Call) -> Any:
    x = call.tensor(0)
    return ops.where(x > 0, x, call.get("alpha", 0.01) * x)


@handles("PRelu")
def _prelu(call: Call) -> Any:
    x, slope = call.tensor(0), call.tensor(1)
    if call.opset < 7 and len(slope.shape) == 1 and slope.shape[0] > 1:
        slope = ops.reshape(slope, (-1, *([1] * (len(x.shape) - 2))))
    return ops.where(x > 0, x, slope * x)


@handles("Shrink")
def _shrink(call: Call) -> Any:
    x, bias, bound = call.tensor(0), call.get("bias", 0.0), call.get("lambd", 0.5)
    kept = ops.where(x > bound, floating(x) - bias, ops.zeros_like(floating(x)))
    return ops.cast(ops.where(x < -bound, floating(x) + bias, kept), dtype_of(x))


@handles("Swish")
def _swish(call: Call) -> Any:
    x = call.tensor(0)
    return x * ops.sigmoid(call.get("alpha", 1.0) * x)


@handles("ThresholdedRelu")
def _thresholded_relu(call: Call) -> Any:
    x = call.tensor(0)
    return ops.where(x > call.get("alpha", 1.0), x, ops.zeros_like(x))


@handles("Dropout")
def _dropout(call: Call) -> Any:
    x = call.tensor(0)
    if call.opset >= 12 and call.has(2) and bool(call.static(2)):
        ratio = float(call.static(1)) if call.has(1) else 0.5
        if ratio:
            call.refuse("dropout in training mode; export the model for inference")
    mask = ops.ones(x.shape, dtype="bool" if call.opset >= 10 else dtype_of(x))
    return (x, mask)[: call.outputs] if call.outputs > 1 else x
