"""Arithmetic on constants, done once at compile time.

Operations on constants that stand in the graph as written are computed by their NumPy reference
when it is loaded; these rules do it for constants that other rules bring together. They compute in
double precision, and only where float32 would neither overflow nor underflow.
"""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, p, rule, scalar

_A, _B = scalar("a"), scalar("b")


def _within(value: str) -> tuple[str, ...]:
    """Conditions: of a size that float32 holds to its full precision."""
    return (f"(= s (abs {value}))", "(< s 1e30)", "(> s 1e-30)")


def _folded(name: str, op: str, value: str) -> Rule:
    return rule(
        f"{name} constants",
        "known at compile time",
        p(op, _A, _B),
        scalar("v"),
        f"(= v {value})",
        *(_within("v") if op in ("multiply", "divide") else _within("v")[:2]),
    )


RULES: list[Rule] = [
    _folded("add", "add", "(+ a b)"),
    _folded("subtract", "subtract", "(- a b)"),
    _folded("multiply", "multiply", "(* a b)"),
    _folded("divide", "divide", "(/ a b)"),
    rule(
        "negate a constant",
        "known at compile time",
        p("negative", _A),
        scalar("(- 0.0 a)"),
        "(!= a 0.0)",
    ),
    rule(
        "merge factors",
        "two scalings are one",
        p("multiply", p("multiply", "x", _A), _B),
        p("multiply", "x", scalar("v")),
        "(= v (* a b))",
        *_within("v"),
    ),
    rule(
        "merge divisors",
        "a scaling of a quotient by a constant is one scaling",
        p("divide", p("multiply", "x", _A), _B),
        p("multiply", "x", scalar("v")),
        "(= v (/ a b))",
        *_within("v"),
    ),
    rule(
        "negate a product",
        "the sign moves into the factor",
        p("negative", p("multiply", "x", _A)),
        p("multiply", "x", scalar("(- 0.0 a)")),
        "(!= a 0.0)",
    ),
    rule(
        "scale a negative",
        "the sign moves into the factor",
        p("multiply", p("negative", "x"), _A),
        p("multiply", "x", scalar("(- 0.0 a)")),
        "(!= a 0.0)",
    ),
]
