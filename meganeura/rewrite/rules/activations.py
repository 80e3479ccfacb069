"""Activations recognised from the formulas that people write, and masks taken from their results.

Constants stand on the right here: identities.py has brought them there.
"""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, near, p, rule, scalar

#: Relations between values that several rules share.
RELATIONS = (
    "(relation tanh_argument (T T))",  # u = sqrt(2 / pi) (x + 0.044715 x^3), x
    "(relation bell (T T))",  # b = 1 + erf(x / sqrt 2), x
    "(relation tanh_bell (T T))",  # b = 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)), x
)

_HALF, _ONE = scalar("0.5"), scalar("1.0")
_CUBES = [p("multiply", p("multiply", "x", "x"), "x"), p("multiply", "x", p("multiply", "x", "x"))]
_SQUARE = p("multiply", "x", "x")
_SIGMA = p("sigmoid", "x")

_SCALED_SQUARES = [
    p("multiply", _SQUARE, scalar("d")),
    *both("multiply", "x", p("multiply", "x", scalar("d"))),
]
_SCALED_CUBES = [
    *[p("multiply", c, scalar("d")) for c in _CUBES],
    *[t for square in _SCALED_SQUARES for t in both("multiply", "x", square)],
]

#: x + d x^3 as a sum, or as a product.
_SUMS = [
    *[t for cube in _SCALED_CUBES for t in both("add", "x", cube)],
    *[t for square in _SCALED_SQUARES for t in both("multiply", "x", p("add", square, _ONE))],
]


def _gelu(name: str, reason: str, bell: str, approximate: str) -> Rule:
    """x b / 2, in every order of the factors, where b is known to be the bell of x."""
    forms = [
        *both("multiply", p("multiply", "x", _HALF), "b"),
        *both("multiply", "x", p("multiply", "b", _HALF)),
        *[p("multiply", t, _HALF) for t in both("multiply", "x", "b")],
        *[p("divide", t, scalar("2.0")) for t in both("multiply", "x", "b")],
    ]
    return rule(name, reason, forms, p("gelu", "x", columns=(approximate,)), f"({bell} b x)")


RULES: list[Rule] = [
    rule("silu", "x sigmoid(x)", both("multiply", "x", _SIGMA), p("silu", "x")),
    rule(
        "silu as a quotient",
        "x / (1 + e^-x)",
        p("divide", "x", p("add", p("exp", p("negative", "x")), _ONE)),
        p("silu", "x"),
        replaces=True,
    ),
    rule(
        "swiglu",
        "silu(g) u as one operation",
        both("multiply", p("silu", "g"), "u"),
        p("swiglu", "g", "u"),
    ),
    rule(
        "sigmoid",
        "1 / (1 + e^-x)",
        p("divide", _ONE, p("add", p("exp", p("negative", "x")), _ONE)),
        _SIGMA,
        replaces=True,
    ),
    rule(
        "sigmoid of the exponential",
        "e^x / (1 + e^x)",
        p("divide", p("exp", "x"), p("add", p("exp", "x"), _ONE)),
        _SIGMA,
        replaces=True,
    ),
    rule(
        "softplus",
        "ln(1 + e^x) without overflow",
        [p("log", p("add", p("exp", "x"), _ONE)), p("log1p", p("exp", "x"))],
        p("softplus", "x"),
        replaces=True,
    ),
    rule(
        "bell",
        "1 + erf(x / sqrt 2)",
        p("add", p("erf", p("multiply", "x", scalar("c"))), _ONE),
        None,
        *near("c", 0.7071067811865476),
        facts=("(bell root x)",),
    ),
    rule(
        "bell by a quotient",
        "1 + erf(x / sqrt 2)",
        p("add", p("erf", p("divide", "x", scalar("c"))), _ONE),
        None,
        *near("c", 1.4142135623730951),
        facts=("(bell root x)",),
    ),
    rule(
        "argument of tanh",
        "sqrt(2 / pi) (x + 0.044715 x^3)",
        [p("multiply", t, scalar("c")) for t in _SUMS],
        None,
        *near("c", 0.7978845608028654),
        *near("d", 0.044715),
        facts=("(tanh_argument root x)",),
    ),
    rule(
        "argument of tanh, scaled first",
        "sqrt(2 / pi) x (1 + 0.044715 x^2)",
        [
            t
            for square in _SCALED_SQUARES
            for t in both("multiply", p("multiply", "x", scalar("c")), p("add", square, _ONE))
        ],
        None,
        *near("c", 0.7978845608028654),
        *near("d", 0.044715),
        facts=("(tanh_argument root x)",),
    ),
    rule(
        "bell by tanh",
        "1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))",
        p("add", p("tanh", "u"), _ONE),
        None,
        "(tanh_argument u x)",
        facts=("(tanh_bell root x)",),
    ),
    _gelu("exact gelu", "x (1 + erf(x / sqrt 2)) / 2", "bell", "0"),
    _gelu("tanh gelu", "the approximation of arXiv 1606.08415", "tanh_bell", "1"),
    rule(
        "tanh by exponentials",
        "(e^x - e^-x) / (e^x + e^-x)",
        [
            p("divide", p("subtract", p("exp", "x"), p("exp", p("negative", "x"))), t)
            for t in both("add", p("exp", "x"), p("exp", p("negative", "x")))
        ],
        p("tanh", "x"),
        replaces=True,
    ),
    rule(
        "mask from the output",
        "relu(x) > 0 exactly where x > 0: only the output need be kept",
        p("less", scalar("0.0"), "x"),
        p("less", scalar("0.0"), "y"),
        f"(= y {p('relu', 'x')})",
    ),
]
