"""Parameter updates."""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, p, rule, same_kind

RULES: list[Rule] = [
    rule(
        "update by axpy",
        "p - r g as one fused multiply-add",
        [p("subtract", "w", t) for t in both("multiply", "g", "r")],
        p("axpy", "w", "g", p("negative", "r")),
        "(number (kind r))",
        *same_kind("w", "g"),
        "(= n (kind r))",
        facts=(f"(set (kind {p('negative', 'r')}) n)",),
    ),
]
