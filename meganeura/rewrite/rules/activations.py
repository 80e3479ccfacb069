"""Activations recognised from the formulas that people write."""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, orders, p, rule, same_kind, scalar


def near(name: str, value: float) -> tuple[str, str]:
    return f"(< {name} {value + 2e-6})", f"(> {name} {value - 2e-6})"


def _exact_gelu() -> list[str]:
    """x (1 + erf(x / sqrt 2)) / 2 in the orders in which it is written."""
    inner = [*both("multiply", "x", scalar("c"))]
    bells = [t for i in inner for t in both("add", p("erf", i), scalar("1.0"))]
    halves = both("multiply", "x", scalar("0.5"))
    forms = orders("multiply", halves, bells)
    forms += [t for b in bells for m in both("multiply", "x", b) for t in both("multiply", m, scalar("0.5"))]
    half_bells = [t for b in bells for t in both("multiply", b, scalar("0.5"))]
    return forms + orders("multiply", ["x"], half_bells)


def _tanh_gelu() -> list[str]:
    cubes = [p("multiply", p("multiply", "x", "x"), "x"), p("multiply", "x", p("multiply", "x", "x"))]
    scaled = [t for c in cubes for t in both("multiply", c, scalar("d"))]
    sums = [t for s in scaled for t in both("add", "x", s)]
    inner = [t for s in sums for t in both("multiply", s, scalar("c"))]
    bells = [t for i in inner for t in both("add", p("tanh", i), scalar("1.0"))]
    halves = both("multiply", "x", scalar("0.5"))
    return orders("multiply", halves, bells) + [
        t for b in bells for m in both("multiply", "x", b) for t in both("multiply", m, scalar("0.5"))
    ]


RULES: list[Rule] = [
    rule("silu", "x sigmoid(x)", both("multiply", "x", p("sigmoid", "x")), p("silu", "x")),
    rule(
        "swiglu",
        "silu(g) u as one operation",
        both("multiply", p("silu", "g"), "u"),
        p("swiglu", "g", "u"),
        *same_kind("g", "u"),
    ),
    rule(
        "sigmoid",
        "1 / (1 + e^-x)",
        [p("divide", scalar("1.0"), t) for t in both("add", scalar("1.0"), p("exp", p("negative", "x")))],
        p("sigmoid", "x"),
        replaces=True,
    ),
    rule(
        "softplus",
        "ln(1 + e^x) without overflow",
        [p("log", t) for t in both("add", scalar("1.0"), p("exp", "x"))],
        p("softplus", "x"),
        replaces=True,
    ),
    rule("softplus by log1p", "ln(1 + e^x) without overflow", p("log1p", p("exp", "x")), p("softplus", "x"), replaces=True),
    rule(
        "exact gelu",
        "x (1 + erf(x / sqrt 2)) / 2",
        _exact_gelu(),
        p("gelu", "x", columns=("0",)),
        *near("c", 0.7071067811865476),
    ),
    rule(
        "divide by root two",
        "so that the formula of gelu is one",
        p("erf", p("divide", "x", scalar("c"))),
        p("erf", p("multiply", "x", scalar("0.7071067811865476"))),
        *near("c", 1.4142135623730951),
    ),
    rule(
        "tanh gelu",
        "the approximation of arXiv 1606.08415",
        _tanh_gelu(),
        p("gelu", "x", columns=("1",)),
        *near("c", 0.7978845608028654),
        *near("d", 0.044715),
    ),
    rule(
        "mask from the output",
        "relu(x) > 0 exactly where x > 0: only the output need be kept",
        p("less", scalar("0.0"), "x"),
        p("less", scalar("0.0"), "y"),
        f"(= y {p('relu', 'x')})",
    ),
]
