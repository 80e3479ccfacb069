"""Pointwise primitives: out[i] = f(a[i], b[i], ...), with NumPy's broadcasting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS, INTEGERS
from meganeura.graph.autodiff import zero_gradient
from meganeura.graph.node import Node, Shape
from meganeura.ops.nodes import add, cast, constant, div, mul, neg, sub, unbroadcast, where
from meganeura.ops.references import erf, floor_divide, gelu, mod, power, select, sigmoid, softplus
from meganeura.ops.registry import GradientRule, Op, Sample, make, register

Rule = Callable[[Node, Node], Node]


# --- shape and dtype rules ---------------------------------------------------------------------


_broadcast = functools.lru_cache(4096)(np.broadcast_shapes)


def broadcast_shapes(*nodes: Node, what: str) -> Shape:
    try:
        return _broadcast(*[n.shape for n in nodes])
    except ValueError:
        shapes = " and ".join(str(n.shape) for n in nodes)
        raise ValueError(f"{what}: shapes {shapes} cannot be broadcast together") from None


def _infer(name: str, result: str | None = None, kinds: Sequence[str] = ()) -> Callable[..., Any]:
    """Inputs of one dtype (one of `kinds` where given), broadcast; `result` is the dtype out."""

    def infer(*nodes: Node, **_: Any) -> tuple[Shape, str]:
        first = nodes[0].dtype
        for node in nodes:
            if node.dtype != first or (kinds and node.dtype not in kinds):
                wanted = f"one dtype of {', '.join(kinds)}" if kinds else "inputs of one dtype"
                found = ", ".join(n.dtype for n in nodes)
                raise ValueError(f"{name} needs {wanted}, and got {found}")
        return broadcast_shapes(*nodes, what=name), result or first

    return infer


_FLOAT = FLOATS
_NUMBER = (*FLOATS, *INTEGERS)
_SAMPLED = ("float32", *INTEGERS)  # half precision is checked with the same samples, rounded
_INTEGER = INTEGERS


# --- samples for the registry-driven test ------------------------------------------------------

_SPECIAL = np.array([0.0, -0.0, 1, -1, 10, -10, 1000, -1000, np.inf, -np.inf, np.nan], "float32")


def _unary_samples(low: float, high: float, smooth: bool = True, special: bool = True) -> Any:
    def samples(random: np.random.Generator) -> list[Sample]:
        def draw(*shape: int) -> np.ndarray:
            return random.uniform(low, high, shape).astype("float32")

        found = [
            Sample((draw(*shape),), {}, gradient=smooth)
            for shape in ((3, 5), (), (0, 4), (1,), (7, 1, 33))
        ]
        if special:
            found.append(Sample((_SPECIAL,), {}, gradient=False))
        return found

    return samples


def _binary_samples(
    low: float, high: float, smooth: bool = True, dtypes: Sequence[str] = ("float32",)
) -> Any:
    def samples(random: np.random.Generator) -> list[Sample]:
        found = []
        for dtype in dtypes:
            for a, b in (
                ((3, 5), (3, 5)),
                ((2, 3, 4), (3, 1)),
                ((), (5,)),
                ((0, 3), (3,)),
                ((1,), (1,)),
            ):
                pair: tuple[Any, ...] = tuple(random.uniform(low, high, s) for s in (a, b))
                if dtype == "bool":
                    pair = tuple(p > (low + high) / 2 for p in pair)
                elif dtype not in FLOATS:
                    pair = tuple(np.round(np.abs(p) if dtype[0] == "u" else p) for p in pair)
                arrays = tuple(p.astype(dtype) for p in pair)
                found.append(Sample(arrays, {}, gradient=smooth and dtype == "float32"))
        return found

    return samples


# --- unary -------------------------------------------------------------------------------------


def _chain(derivative: Callable[[Node, Node], Node]) -> GradientRule:
    """The gradient of one input: upstream * derivative(node, input)."""
    return lambda node, g: [mul(g, derivative(node, node.inputs[0]))]


def _call(op: str) -> Callable[[Node], Node]:
    return lambda x: make(op, x)


def _sigmoid_node(x: Node) -> Node:
    return make("sigmoid", x)


def _gelu_derivative(node: Node, x: Node) -> Node:
    if node.attributes["approximate"]:
        c = math.sqrt(2 / math.pi)
        x2 = mul(x, x)
        t = make("tanh", mul(mul(x, c), add(mul(x2, 0.044715), 1.0)))
        inner = mul(add(mul(x2, 3 * 0.044715), 1.0), c)
        return add(mul(add(t, 1.0), 0.5), mul(mul(mul(x, 0.5), sub(1.0, mul(t, t))), inner))
    cdf = mul(add(make("erf", mul(x, math.sqrt(0.5))), 1.0), 0.5)
    density = mul(make("exp", mul(mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return add(cdf, mul(x, density))


def _silu_derivative(node: Node, x: Node) -> Node:
    s = _sigmoid_node(x)
    return mul(s, add(mul(x, sub(1.0, s)), 1.0))


def _step(node: Node, x: Node) -> Node:
    return cast(make("less", constant(0.0, x.dtype), x), x.dtype)


#: name: (NumPy, WGSL, derivative or None for zero, samples' range, smooth there)
_FLOAT_UNARY: dict[str, tuple[Any, str, Any, tuple[float, float], bool]] = {
    "sqrt": (np.sqrt, "sqrt({0})", lambda n, x: div(0.5, n), (0.1, 9), True),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "inverseSqrt({0})", lambda n, x: mul(mul(n, mul(n, n)), -0.5), (0.1, 9), True),
    "exp": (np.exp, "exp({0})", lambda n, x: n, (-3, 3), True),
    "expm1": (np.expm1, "mg_expm1({0})", lambda n, x: add(n, 1.0), (-3, 3), True),
    "log": (np.log, "log({0})", lambda n, x: div(1.0, x), (0.1, 9), True),
    "log1p": (np.log1p, "mg_log1p({0})", lambda n, x: div(1.0, add(x, 1.0)), (-0.8, 9), True),
    "sin": (np.sin, "mg_sin({0})", lambda n, x: make("cos", x), (-3, 3), True),
    "cos": (np.cos, "mg_cos({0})", lambda n, x: neg(make("sin", x)), (-3, 3), True),
    "tan": (np.tan, "mg_tan({0})", lambda n, x: add(mul(n, n), 1.0), (-1.2, 1.2), True),
    "sinh": (np.sinh, "mg_sinh({0})", lambda n, x: make("cosh", x), (-3, 3), True),
    "cosh": (np.cosh, "mg_cosh({0})", lambda n, x: make("sinh", x), (-3, 3), True),
    "tanh": (np.tanh, "mg_tanh({0})", lambda n, x: sub(1.0, mul(n, n)), (-3, 3), True),
    "arcsin": (np.arcsin, "mg_asin({0})", lambda n, x: make("rsqrt", sub(1.0, mul(x, x))), (-0.9, 0.9), True),
    "arccos": (np.arccos, "mg_acos({0})", lambda n, x: neg(make("rsqrt", sub(1.0, mul(x, x)))), (-0.9, 0.9), True),
    "arctan": (np.arctan, "mg_atan({0})", lambda n, x: div(1.0, add(mul(x, x), 1.0)), (-3, 3), True),
    "sigmoid": (sigmoid, "mg_sigmoid({0})", lambda n, x: mul(n, sub(1.0, n)), (-4, 4), True),
    "erf": (erf, "mg_erf({0})", lambda n, x: mul(make("exp", neg(mul(x, x))), 2 / math.sqrt(math.pi)), (-3, 3), True),
    "silu": (lambda x: x * sigmoid(x), "mg_silu({0})", _silu_derivative, (-4, 4), True),
    "softplus": (softplus, "mg_softplus({0})", lambda n, x: _sigmoid_node(x), (-4, 4), True),
    "floor": (np.floor, "floor({0})", None, (-5, 5), False),
    "ceil": (np.ceil, "ceil({0})", None, (-5, 5), False),
    "round": (np.round, "round({0})", None, (-5, 5), False),
}  # fmt: skip

#: Trigonometry of large arguments and arcs at the ends of their range depend on the driver.
_NO_SPECIAL = ("sin", "cos", "tan", "arcsin", "arccos", "sinh", "cosh", "expm1", "silu")

for _name, (_numpy, _wgsl, _derivative, _range, _smooth) in _FLOAT_UNARY.items():
    register(
        Op(
            _name,
            "pointwise",
            _infer(_name, kinds=_FLOAT),
            _numpy,
            _chain(_derivative) if _derivative else zero_gradient,
            _wgsl,
            _unary_samples(*_range, smooth=_smooth, special=_name not in _NO_SPECIAL),
        )
    )

register(
    Op(
        "gelu",
        "pointwise",
        _infer("gelu", kinds=_FLOAT),
        gelu,
        _chain(_gelu_derivative),
        lambda operands, dtypes, node: (
            f"mg_gelu_tanh({operands[0]})"
            if node.attributes["approximate"]
            else f"mg_gelu({operands[0]})"
        ),
        lambda random: [
            Sample((random.uniform(-4, 4, shape).astype("float32"),), {"approximate": a})
            for a in (True, False)
            for shape in ((3, 5), (1,), (0, 2))
        ],
    )
)


def _relu_gradient(node: Node, g: Node) -> list[Node | None]:
    (x,) = node.inputs
    return [where(make("less", constant(0.0, x.dtype), x), g, 0.0)]


register(
    Op(
        "relu",
        "pointwise",
        _infer("relu", kinds=_NUMBER),
        lambda x: np.maximum(x, np.zeros((), x.dtype)),
        _relu_gradient,
        lambda operands, dtypes, node: {
            "float32": "mg_relu({0})", "int32": "max({0}, 0i)",
        }.get(dtypes[0], "{0}").format(*operands),
        _unary_samples(0.1, 3),
    )
)  # fmt: skip


def _signed(name: str, numpy: Any, floats: str, ints: str, rule: Any, smooth: bool = True) -> None:
    """A primitive on floats and signed integers; unsigned ones go through the integer text."""

    def wgsl(operands: list[str], dtypes: list[str], node: Node) -> str:
        text = floats if dtypes[0] == "float32" else ints
        if dtypes[0] in ("uint32", "uint8"):
            table = {"abs": "{0}", "sign": "select(1u, 0u, {0} == 0u)", "negative": "(~{0} + 1u)"}
            text = table[name] + (" & 255u" if dtypes[0] == "uint8" and name == "negative" else "")
        return f"({text})".format(*operands)

    register(
        Op(
            name,
            "pointwise",
            _infer(name, kinds=_NUMBER),
            numpy,
            rule,
            wgsl,
            _unary_samples(0.1, 3, smooth=smooth),
        )
    )


_signed("negative", np.negative, "-({0})", "-({0})", lambda node, g: [neg(g)])
_signed("abs", np.abs, "abs({0})", "abs({0})", _chain(lambda n, x: make("sign", x)))
_signed("sign", np.sign, "mg_sign({0})", "sign({0})", zero_gradient, smooth=False)


def _test(name: str, numpy: Any, wgsl: str) -> None:
    register(
        Op(
            name,
            "pointwise",
            _infer(name, "bool", _FLOAT),
            numpy,
            zero_gradient,
            wgsl,
            _unary_samples(-2, 2, smooth=False),
        )
    )


_test("isnan", np.isnan, "mg_isnan({0})")
_test("isfinite", np.isfinite, "mg_isfinite({0})")

register(
    Op(
        "logical_not",
        "pointwise",
        _infer("logical_not", "bool", ("bool",)),
        np.logical_not,
        zero_gradient,
        "!({0})",
        lambda random: [
            Sample((random.uniform(0, 1, shape) > 0.5,), {}, gradient=False)
            for shape in ((3, 5), (1,), (0, 2))
        ],
    )
)
register(
    Op(
        "bitwise_not",
        "pointwise",
        _infer("bitwise_not", kinds=_INTEGER),
        np.invert,
        zero_gradient,
        lambda operands, dtypes, node: (
            f"(~{operands[0]}{' & 255u' if dtypes[0] == 'uint8' else ''})"
        ),
        lambda random: [
            Sample((np.arange(low, high, dtype="int32").astype(dtype),), {}, gradient=False)
            for dtype in _INTEGER
            for low, high in ((-4, 5), (3, 4), (0, 0))
        ],
    )
)

#: What a value is while it is computed with: half precision is how values lie in memory.
WGSL_TYPES = {
    "float32": "f32", "float16": "f32", "int32": "i32", "uint32": "u32", "uint8": "u32", "bool": "bool",
}  # fmt: skip


def _cast_wgsl(operands: list[str], dtypes: list[str], node: Node) -> str:
    target = node.attributes["dtype"]
    if target == "uint8":
        inner = operands[0] if dtypes[0] != "float32" else f"i32({operands[0]})"
        return f"(u32({inner}) & 255u)"
    if target == "float16":  # asked for by name, so that what float16 cannot hold is seen at once
        return f"mg_rounded(f32({operands[0]}))"
    return f"{WGSL_TYPES[target]}({operands[0]})"


def _cast_reference(x: np.ndarray, dtype: str) -> np.ndarray:
    if dtype in FLOATS and x.dtype == np.float64:
        return x  # double precision evaluation stays so
    if x.dtype.kind == "f" and dtype in ("uint8", "uint32"):
        return np.trunc(np.nan_to_num(x)).astype(np.int64).astype(dtype)
    return x.astype(dtype)


register(
    Op(
        "cast",
        "pointwise",
        lambda x, dtype: (x.shape, dtype),
        _cast_reference,
        lambda node, g: [
            cast(g, node.inputs[0].dtype)
            if node.inputs[0].dtype in FLOATS and node.dtype in FLOATS
            else None
        ],
        _cast_wgsl,
        lambda random: (
            [
                Sample((random.uniform(0, 9, (4, 3)).astype(a),), {"dtype": b}, gradient=a == b)
                for a in ("float32", "int32", "uint8", "bool", "uint32")
                for b in ("float32", "int32", "uint8", "bool", "uint32")
            ]
            + [
                Sample((np.full(shape, -2.75, "float32"),), {"dtype": b}, gradient=False)
                for shape in ((1,), (0, 2))
                for b in ("float32", "int32", "bool")
            ]
        ),
    )
)
register(
    Op(
        "stop_gradient",
        "pointwise",
        lambda x: (x.shape, x.dtype),
        lambda x: x,
        zero_gradient,
        "{0}",
        lambda random: [
            Sample((random.uniform(0, 9, shape).astype("float32"),), {}, gradient=False)
            for shape in ((4, 3), (1,), (0, 2))
        ],
    )
)


# --- binary ------------------------------------------------------------------------------------


def _both(left: Rule | None, right: Rule | None) -> GradientRule:
    """Gradients of two broadcast inputs: each rule gives upstream * partial derivative."""

    def rule(node: Node, g: Node) -> list[Node | None]:
        found: list[Node | None] = []
        for x, part in zip(node.inputs, (left, right), strict=True):
            found.append(unbroadcast(part(node, g), x.shape) if part else None)
        return found

    return rule


def _arithmetic(texts: dict[str, str]) -> Callable[..., str]:
    """WGSL by dtype; bytes wrap at 256."""

    def wgsl(operands: list[str], dtypes: list[str], node: Node) -> str:
        text = texts.get(dtypes[0]) or texts["uint32" if dtypes[0] == "uint8" else "any"]
        text = f"({text})".format(*operands)
        return f"({text} & 255u)" if dtypes[0] == "uint8" else text

    return wgsl


def _prefer(node: Node, g: Node, own: int) -> Node:
    """Maximum's gradient: to the input that was chosen, half to each at a tie."""
    a, b = node.inputs
    mine, other = (a, b) if own == 0 else (b, a)
    # Between the operands, which one kernel computes, and not with a result that another one rounded.
    pair = (other, mine) if node.op == "maximum" else (mine, other)
    win, tie = make("less_equal", *pair), make("equal", mine, other)
    return where(win, where(tie, mul(g, 0.5), g), 0.0)


def _power_base(node: Node, g: Node) -> Node:
    a, b = node.inputs
    slope = mul(b, make("power", a, sub(b, 1.0)))
    return mul(g, where(make("equal", b, constant(0.0, b.dtype)), 0.0, slope))


def _power_exponent(node: Node, g: Node) -> Node:
    a, _ = node.inputs
    positive = make("less", constant(0.0, a.dtype), a)
    return mul(g, where(positive, mul(node, make("log", where(positive, a, 1.0))), 0.0))


def _hypotenuse(node: Node) -> Node:
    """x^2 + y^2, and 1 at the origin, where the angle's gradient is taken to be 0."""
    a, b = node.inputs
    total = add(mul(a, a), mul(b, b))
    return where(make("equal", total, constant(0.0, total.dtype)), 1.0, total)


def _mod_samples(random: np.random.Generator) -> list[Sample]:
    def draw(low: float, high: float) -> np.ndarray:
        return random.uniform(low, high, (3, 5)).astype("float32")

    divisor = draw(1, 3)  # and a dividend that stays clear of its multiples, where mod jumps
    dividend = divisor * (np.floor(draw(-4, 4)) + draw(0.2, 0.8))
    return [
        *_binary_samples(-9, 9, smooth=False, dtypes=("float32", "int32", "uint32"))(random),
        Sample((dividend, divisor), {}),
        Sample((dividend, -divisor), {}),
    ]


_N = _NUMBER
#: name: (NumPy, WGSL by dtype, gradient rule, kinds, samples)
_BINARY: dict[str, tuple[Any, dict[str, str], GradientRule, Sequence[str], Any]] = {
    "add": (np.add, {"any": "{0} + {1}", "uint32": "{0} + {1}"},
            _both(lambda n, g: g, lambda n, g: g), _N, _binary_samples(-3, 3, dtypes=_SAMPLED)),
    "subtract": (np.subtract, {"any": "{0} - {1}", "uint32": "{0} - {1}"},
                 _both(lambda n, g: g, lambda n, g: neg(g)), _N, _binary_samples(-3, 3, dtypes=("float32", "int32"))),
    "multiply": (np.multiply, {"any": "{0} * {1}", "uint32": "{0} * {1}"},
                 _both(lambda n, g: mul(g, n.inputs[1]), lambda n, g: mul(g, n.inputs[0])),
                 _N, _binary_samples(-3, 3, dtypes=_SAMPLED)),
    "divide": (np.divide, {"any": "{0} / {1}"},
               _both(lambda n, g: div(g, n.inputs[1]), lambda n, g: neg(div(mul(g, n), n.inputs[1]))),
               _FLOAT, _binary_samples(0.5, 3)),
    "floor_divide": (floor_divide, {"float32": "mg_float_div({0}, {1})", "any": "mg_int_div({0}, {1})",
                                     "uint32": "mg_uint_div({0}, {1})"},
                     zero_gradient, _N, _binary_samples(0.5, 9, smooth=False, dtypes=("float32", "int32", "uint32"))),
    "mod": (mod, {"float32": "mg_float_mod({0}, {1})", "any": "mg_int_mod({0}, {1})",
                      "uint32": "mg_uint_mod({0}, {1})"},
            _both(lambda n, g: g, lambda n, g: neg(mul(g, make("floor_divide", *n.inputs)))),
            _N, _mod_samples),
    "power": (power, {"float32": "mg_pow({0}, {1})", "any": "mg_int_pow({0}, {1})",
                      "uint32": "mg_uint_pow({0}, {1})"},
              _both(_power_base, _power_exponent), _N, _binary_samples(0.5, 3, dtypes=("float32", "int32"))),
    "maximum": (np.maximum, {"float32": "mg_max({0}, {1})", "any": "max({0}, {1})", "uint32": "max({0}, {1})"},
                _both(lambda n, g: _prefer(n, g, 0), lambda n, g: _prefer(n, g, 1)), _N,
                _binary_samples(-3, 3, dtypes=_SAMPLED)),
    "minimum": (np.minimum, {"float32": "mg_min({0}, {1})", "any": "min({0}, {1})", "uint32": "min({0}, {1})"},
                _both(lambda n, g: _prefer(n, g, 0), lambda n, g: _prefer(n, g, 1)), _N,
                _binary_samples(-3, 3, dtypes=_SAMPLED)),
    "arctan2": (np.arctan2, {"any": "mg_atan2({0}, {1})"},
                _both(lambda n, g: div(mul(g, n.inputs[1]), _hypotenuse(n)),
                      lambda n, g: neg(div(mul(g, n.inputs[0]), _hypotenuse(n)))),
                _FLOAT, _binary_samples(0.5, 3)),
    "bitwise_and": (np.bitwise_and, {"any": "{0} & {1}", "uint32": "{0} & {1}"}, zero_gradient, _INTEGER,
                    _binary_samples(0, 99, dtypes=_INTEGER)),
    "bitwise_or": (np.bitwise_or, {"any": "{0} | {1}", "uint32": "{0} | {1}"}, zero_gradient, _INTEGER,
                   _binary_samples(0, 99, dtypes=_INTEGER)),
    "bitwise_xor": (np.bitwise_xor, {"any": "{0} ^ {1}", "uint32": "{0} ^ {1}"}, zero_gradient, _INTEGER,
                    _binary_samples(0, 99, dtypes=_INTEGER)),
    # WGSL takes a shift modulo 32; NumPy shifts everything out.
    "left_shift": (np.left_shift, {"any": "select({0} << (u32({1}) & 31u), 0, u32({1}) > 31u)",
                                   "uint32": "select({0} << ({1} & 31u), 0u, {1} > 31u)"},
                   zero_gradient, _INTEGER, _binary_samples(0, 40, dtypes=_INTEGER)),
    "right_shift": (np.right_shift, {"any": "{0} >> min(u32({1}), 31u)",
                                     "uint32": "select({0} >> ({1} & 31u), 0u, {1} > 31u)"},
                    zero_gradient, _INTEGER, _binary_samples(0, 40, dtypes=_INTEGER)),
}  # fmt: skip

for _name, (_numpy, _texts, _rule, _kinds, _samples) in _BINARY.items():
    register(
        Op(
            _name,
            "pointwise",
            _infer(_name, kinds=_kinds),
            _numpy,
            _rule,
            _arithmetic(_texts),
            _samples,
        )
    )

_COMPARISONS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<="}
for _name, _sign in _COMPARISONS.items():
    _kinds = (*_NUMBER, "bool") if "equal" in _name and "less" not in _name else _NUMBER
    register(
        Op(
            _name,
            "pointwise",
            _infer(_name, "bool", _kinds),
            getattr(np, _name),
            zero_gradient,
            # Drivers take `!=` for ordered: false where one is NaN.
            "!({0} == {1})" if _name == "not_equal" else f"({{0}} {_sign} {{1}})",
            _binary_samples(-2, 2, smooth=False, dtypes=_SAMPLED),
        )
    )
for _name, _sign in {"logical_and": "&&", "logical_or": "||"}.items():
    register(
        Op(
            _name,
            "pointwise",
            _infer(_name, "bool", ("bool",)),
            getattr(np, _name),
            zero_gradient,
            f"({{0}} {_sign} {{1}})",
            _binary_samples(-2, 2, smooth=False, dtypes=("bool",)),
        )
    )


def _where_infer(condition: Node, x1: Node, x2: Node) -> tuple[Shape, str]:
    if condition.dtype != "bool":
        raise ValueError(f"where needs a bool condition, and got {condition.dtype}")
    if x1.dtype != x2.dtype:
        raise ValueError(f"where needs values of one dtype, and got {x1.dtype}, {x2.dtype}")
    return broadcast_shapes(condition, x1, x2, what="where"), x1.dtype


def _where_gradient(node: Node, g: Node) -> list[Node | None]:
    condition, x1, x2 = node.inputs
    return [
        None,
        unbroadcast(where(condition, g, 0.0), x1.shape),
        unbroadcast(where(condition, 0.0, g), x2.shape),
    ]


def _where_samples(random: np.random.Generator) -> list[Sample]:
    found = []
    for shapes in (
        ((3, 5), (3, 5), (3, 5)),
        ((3, 1), (5,), ()),
        ((0,), (1,), ()),
        ((1,), (), (1,)),
    ):
        condition = random.uniform(0, 1, shapes[0]) > 0.5
        values = [random.uniform(-3, 3, s).astype("float32") for s in shapes[1:]]
        found.append(Sample((condition, *values), {}))
    return found


register(
    Op(
        "where",
        "pointwise",
        _where_infer,
        select,
        _where_gradient,
        "select({2}, {1}, {0})",
        _where_samples,
    )
)
