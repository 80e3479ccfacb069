"""Parameter updates, and other sums with a scaled term."""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, p, rule

_STEP = both("multiply", "y", "r")
_NUMBER = ("(= k (kind r))", "(number k)", '(= "float32" (dtype_of k))')

RULES: list[Rule] = [
    rule(
        "subtraction by axpy",
        "x - r y as one fused multiply-add",
        [p("subtract", "x", t) for t in _STEP],
        p("axpy", "x", "y", p("negative", "r")),
        *_NUMBER,
    ),
    rule(
        "addition by axpy",
        "x + r y as one fused multiply-add",
        [t for step in _STEP for t in both("add", "x", step)],
        p("axpy", "x", "y", "r"),
        *_NUMBER,
    ),
]
