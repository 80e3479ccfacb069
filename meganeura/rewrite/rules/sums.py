"""What does not vary along the dimensions that are summed need not be in the sum.

Gradients of means and variances are full of such sums: with the factor outside, what is left is often
a sum that there is already, and the factor need not be known before the elements are read.
"""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, p, rule, scalar

#: Half precision would overflow in a sum that is scaled afterwards.
_SINGLE = ("(= q (kind u))", '(= "float32" (dtype_of q))')
_SUM = p("sum", "u", rest="a")
_OTHER_SUM = p("sum", "u", rest="k")
#: So that other rules see the shape of a sum that a rule has made.
_KIND = (f"(set (kind {_SUM}) r)",)

#: Relations between values that these rules share.
RELATIONS = ("(relation part (T T i64))",)  # m = v sum(u) for a number v, u, the sum's attributes

RULES: list[Rule] = [
    rule(
        "factor out of a sum",
        "sum(u c) = c sum(u), where c is the same for all elements of a sum",
        [p("sum", t, rest="a") for t in both("multiply", "u", "c")],
        p("reshape", p("multiply", _OTHER_SUM, "c"), rest="s"),
        *_SINGLE,
        "(= f (kind c))",
        "(steady f q a k)",
        "(= r (kind root))",
        "(= s (to_shape r))",
        "(= i (reduced q k))",
        facts=(f"(set (kind {_OTHER_SUM}) i)",),
    ),
    rule(
        "sum of negatives",
        "sum(-u) = -sum(u)",
        p("sum", p("negative", "u"), rest="a"),
        p("negative", _SUM),
        "(= r (kind root))",
        facts=_KIND,
    ),
    rule(
        "sum of doubles",
        "sum(u + u) = sum(u) + sum(u)",
        p("sum", p("add", "u", "u"), rest="a"),
        p("add", _SUM, _SUM),
        *_SINGLE,
        "(= r (kind root))",
        facts=_KIND,
    ),
    rule(
        "part of a sum",
        "a mean, for instance",
        p("multiply", _OTHER_SUM, scalar("v")),
        None,
        facts=("(part root u k)",),
    ),
    rule(
        "part of a sum, reshaped",
        "a mean, for instance",
        p("reshape", "w", rest="t"),
        None,
        "(part w u k)",
        facts=("(part root u k)",),
    ),
    rule(
        "sum of deviations",
        "sum(u - v sum(u)) = sum(u) - n v sum(u), with no element read again: 0 up to rounding for v = 1 / n",
        p("sum", p("subtract", "u", "m"), rest="a"),
        p(
            "reshape",
            p("subtract", _OTHER_SUM, p("multiply", "m", scalar("(/ (to-f64 n) (to-f64 l))"))),
            rest="s",
        ),
        "(part m u k)",
        *_SINGLE,
        "(= f (kind m))",
        "(steady f q a k)",
        "(= r (kind root))",
        "(= n (size q))",
        "(= l (size r))",
        "(= s (to_shape r))",
    ),
]
