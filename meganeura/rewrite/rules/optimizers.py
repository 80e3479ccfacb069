"""Parameter updates.

Sums with a scaled term elsewhere are left as they are: the scheduler fuses the two operations
anyway, and the scaled term often has other readers.
"""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, p, rule

RULES: list[Rule] = [
    rule(
        "subtraction by axpy",
        "x - r y as one fused multiply-add",
        [p("subtract", "x", t) for t in both("multiply", "y", "r")],
        p("axpy", "x", "y", p("negative", "r")),
        "(= k (kind r))",
        "(number k)",
        '(= "float32" (dtype_of k))',
    ),
]
