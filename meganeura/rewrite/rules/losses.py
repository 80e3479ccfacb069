"""Logarithms of probabilities in forms that neither overflow nor lose what is near zero.

They replace what was written, whatever the cost. Clipped probabilities are left alone, since
clipping changes the result.
"""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, p, rule, scalar

RULES: list[Rule] = [
    rule("log of exp", "ln e^x = x", p("log", p("exp", "x")), "x", replaces=True),
    rule(
        "log of softmax",
        "ln(e^z / s) = z - ln s",
        p("log", p("divide", p("exp", "z"), "s")),
        p("subtract", "z", p("log", "s")),
        replaces=True,
    ),
    rule(
        "log of sigmoid",
        "ln sigmoid(x) = -softplus(-x)",
        p("log", p("sigmoid", "x")),
        p("negative", p("softplus", p("negative", "x"))),
        replaces=True,
    ),
    rule(
        "log of one minus sigmoid",
        "ln(1 - sigmoid(x)) = -softplus(x)",
        p("log", p("subtract", scalar("1.0"), p("sigmoid", "x"))),
        p("negative", p("softplus", "x")),
        replaces=True,
    ),
    rule(
        "log of a sum of exponentials",
        "m + ln sum e^(x - m) with the largest m",
        p("log", p("sum", p("exp", "x"), rest="a")),
        p(
            "add",
            p("log", p("sum", p("exp", p("subtract", "x", p("max", "x", rest="k"))), rest="a")),
            p("reshape", p("max", "x", rest="k"), rest="s"),
        ),
        "(= k (keeping a))",
        "(= s (reshape_to (kind root)))",
        "(unshifted x)",
        replaces=True,
    ),
]
