"""Neutral elements, and operations that undo each other.

x * 0 is left alone: it is NaN where x is infinite or NaN.
"""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, p, rule, same_kind, scalar

_ROOT = same_kind("root", "x")
_ZERO, _ONE = scalar("0.0", "d"), scalar("1.0", "d")  # of any dtype

RULES: list[Rule] = [
    *[
        rule(
            "constant on the right",
            "so that other rules need look on one side only",
            p(op, p("constant", columns=("v", "d"), rest="r"), "x"),
            p(op, "x", p("constant", columns=("v", "d"), rest="r")),
            quiet=True,
        )
        for op in ("add", "multiply", "maximum", "minimum")
    ],
    rule("add zero", "x + 0 = x", p("add", "x", _ZERO), "x"),
    rule("subtract zero", "x - 0 = x", p("subtract", "x", _ZERO), "x"),
    rule("subtract from zero", "0 - x = -x", p("subtract", _ZERO, "x"), p("negative", "x")),
    rule("multiply by one", "x * 1 = x", p("multiply", "x", _ONE), "x"),
    rule("divide by one", "x / 1 = x", p("divide", "x", _ONE), "x"),
    rule(
        "multiply by minus one",
        "x * -1 = -x",
        p("multiply", "x", scalar("-1.0")),
        p("negative", "x"),
    ),
    rule("power of one", "x^1 = x", p("power", "x", _ONE), "x"),
    rule("power of two", "x^2 = x x", p("power", "x", scalar("2.0", "d")), p("multiply", "x", "x")),
    rule(
        "reciprocal root", "1 / sqrt x", p("divide", scalar("1.0"), p("sqrt", "x")), p("rsqrt", "x")
    ),
    rule("double negative", "-(-x) = x", p("negative", p("negative", "x")), "x"),
    rule(
        "subtract a negative",
        "x - (-y) = x + y",
        p("subtract", "x", p("negative", "y")),
        p("add", "x", "y"),
    ),
    rule(
        "add a negative",
        "x + (-y) = x - y",
        both("add", "x", p("negative", "y")),
        p("subtract", "x", "y"),
    ),
    rule(
        "negate a difference",
        "-(x - y) = y - x",
        p("negative", p("subtract", "x", "y")),
        p("subtract", "y", "x"),
    ),
    rule(
        "product of negatives",
        "(-x) (-y) = x y",
        p("multiply", p("negative", "x"), p("negative", "y")),
        p("multiply", "x", "y"),
    ),
    rule("relu twice", "relu is idempotent", p("relu", p("relu", "x")), p("relu", "x")),
    rule(
        "maximum with zero", "max(x, 0) = relu x", p("maximum", "x", scalar("0.0")), p("relu", "x")
    ),
    rule("absolute value twice", "| |x| | = |x|", p("abs", p("abs", "x")), p("abs", "x")),
    rule(
        "absolute value of a negative",
        "|-x| = |x|, where there is a sign",
        p("abs", p("negative", "x")),
        p("abs", "x"),
        "(= k (kind x))",
        '(= "float32" (dtype_of k))',
    ),
    rule("not twice", "not not x = x", p("logical_not", p("logical_not", "x")), "x"),
    rule("stopped gradient", "differentiation is over", p("stop_gradient", "x"), "x", quiet=True),
    rule("cast to itself", "nothing changes", p("cast", "x", columns=("d",)), "x", *_ROOT),
    rule(
        "cast twice",
        "the first one loses nothing, so it can be left out",
        p("cast", p("cast", "x", columns=("d",)), columns=("e",)),
        p("cast", "x", columns=("e",)),
        "(= k (kind x))",
        "(= f (dtype_of k))",
        "(lossless f d)",
    ),
    rule("choose between equals", "both branches are x", p("where", "c", "x", "x"), "x", *_ROOT),
    rule(
        "choose twice by one condition",
        "the inner choice is known",
        p("where", "c", "x", p("where", "c", "z", "y")),
        p("where", "c", "x", "y"),
        "(= q (kind root))",
        "(= q (kind y))",
    ),
]
