"""Exponentials and logarithms in forms that neither overflow nor lose what is near zero.

They replace what was written, whatever they cost, so that a formula as it stands in a book is as
accurate as the library's own. The same rules run before differentiation (rewrite/stable.py), where
a logarithm of a probability that has underflowed to 0 would make its gradient NaN.

Left alone: probabilities that were clipped, or that had an epsilon added. Both change the result
on purpose.
"""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, p, rule, scalar

_E, _F = p("exp", "x"), p("exp", "y")
_ONE = scalar("1.0")
_SUM = p("sum", _E, rest="a")

#: The largest element along the summed dimensions, which the gradient need not know of: it cancels.
_TOP = p("stop_gradient", p("max", "x", rest="k"))
#: The same, 0 where it is infinite, so that -inf everywhere gives -inf and not NaN.
_FINITE_TOP = p("where", p("isfinite", _TOP), _TOP, scalar("0.0", "d"))


def _shifted(top: str) -> str:
    return p("exp", p("subtract", "x", top))


RULES: list[Rule] = [
    rule("log of exp", "ln e^x = x", p("log", _E), "x", replaces=True),
    rule(
        "log of a quotient with exp",
        "ln(e^x / s) = x - ln s",
        p("log", p("divide", _E, "s")),
        p("subtract", "x", p("log", "s")),
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
        p("log", p("subtract", _ONE, p("sigmoid", "x"))),
        p("negative", p("softplus", "x")),
        replaces=True,
    ),
    rule(
        "log of one minus sigmoid by log1p",
        "ln(1 + (-sigmoid(x))) = -softplus(x)",
        p("log1p", p("negative", p("sigmoid", "x"))),
        p("negative", p("softplus", "x")),
        replaces=True,
    ),
    rule(
        "softmax",
        "e^x / sum e^x with the largest x taken off first",
        p("divide", _E, _SUM),
        p("divide", _shifted(_TOP), p("sum", _shifted(_TOP), rest="a")),
        "(= k (keeping a))",
        "(= k a)",
        "(unshifted x)",
        replaces=True,
    ),
    rule(
        "log of a sum of exponentials",
        "m + ln sum e^(x - m) with the largest x as m",
        p("log", _SUM),
        p(
            "add",
            p("log", p("sum", _shifted(_FINITE_TOP), rest="a")),
            p("reshape", _FINITE_TOP, rest="s"),
        ),
        "(= k (keeping a))",
        "(= r (kind root))",
        "(= d (dtype_of r))",
        "(= s (to_shape r))",
        "(unshifted x)",
        replaces=True,
    ),
    rule(
        "log of two exponentials",
        "ln(e^x + e^y) = max(x, y) + softplus(-|x - y|)",
        p("log", p("add", _E, _F)),
        p(
            "add",
            p("maximum", "x", "y"),
            p(
                "softplus",
                p(
                    "negative",
                    p(
                        "where",
                        p("equal", "x", "y"),
                        scalar("0.0", "d"),
                        p("abs", p("subtract", "x", "y")),
                    ),
                ),
            ),
        ),
        "(= r (kind root))",
        "(= d (dtype_of r))",
        replaces=True,
    ),
]
