"""Movement that moves nothing, movement twice, and broadcasts that operations do by themselves."""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, p, rule, same_kind

_ROOT = same_kind("root", "x")
_BROADCAST = p("broadcast_to", "y", rest="a")
_VIEW = p("reshape", "y", rest="a")

#: Operations on two values of one dtype that broadcast.
_PAIRS = (
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "mod", "floor_divide",
    "equal", "not_equal", "less", "less_equal", "logical_and", "logical_or",
)  # fmt: skip

#: Operations on one value, which may as well be done before a broadcast.
_SINGLES = (
    "negative", "abs", "sqrt", "rsqrt", "exp", "log", "log1p", "expm1", "tanh", "sigmoid", "relu",
    "silu", "softplus", "erf", "logical_not", "isfinite", "isnan",
)  # fmt: skip


def _absorbed(op: str) -> list[Rule]:
    """An operand that is a broadcast, or has dimensions of length 1 in front, is used as it is."""
    found = []
    for name, view, when in (
        ("a broadcast", _BROADCAST, ()),
        (
            "leading ones",
            _VIEW,
            ("(= l (kind y))", f"(= q (kind {_VIEW}))", "(leads l q)"),
        ),
    ):
        for left, right in ((("x", view), ("x", "y")), ((view, "x"), ("y", "x"))):
            # the other operand has the shape of the result already, so that nothing narrows
            shape = ("(= r (kind x))", "(= u (shape_of r))")
            widest = ("(= v (kind root))", "(= u (shape_of v))")
            found.append(
                rule(
                    f"{name} into {op}",
                    "pointwise operations broadcast by themselves",
                    p(op, *left),
                    p(op, *right),
                    *shape,
                    *widest,
                    *when,
                )
            )
    return found


#: Those without which the formulas of losses.py would not be recognised.
FOR_STABLE = ("reduction that keeps", "a broadcast into divide", "a broadcast into add")

RULES: list[Rule] = [
    rule("reshape to itself", "nothing changes", p("reshape", "x", rest="a"), "x", *_ROOT),
    rule("broadcast to itself", "nothing changes", p("broadcast_to", "x", rest="a"), "x", *_ROOT),
    rule("slice of everything", "nothing changes", p("slice", "x", rest="a"), "x", *_ROOT),
    rule("pad by nothing", "nothing changes", p("pad", "x", rest="a"), "x", *_ROOT),
    rule("concatenate one", "nothing changes", p("concatenate", "x", rest="a"), "x"),
    rule(
        "flip twice", "the order is as before", p("flip", p("flip", "x", rest="a"), rest="a"), "x"
    ),
    rule(
        "reshape twice",
        "only the last shape counts",
        p("reshape", p("reshape", "x", rest="a"), rest="b"),
        p("reshape", "x", rest="b"),
    ),
    rule(
        "broadcast twice",
        "only the last shape counts",
        p("broadcast_to", p("broadcast_to", "x", rest="a"), rest="b"),
        p("broadcast_to", "x", rest="b"),
    ),
    rule(
        "transpose twice",
        "two permutations are one",
        p("transpose", p("transpose", "x", rest="a"), rest="b"),
        p("transpose", "x", rest="c"),
        "(= c (compose a b))",
    ),
    rule(
        "transpose nothing",
        "the identity permutation",
        p("transpose", "x", rest="a"),
        "x",
        "(stays a)",
    ),
    rule(
        "transpose there and back",
        "the permutations cancel",
        p("transpose", p("transpose", "x", rest="a"), rest="b"),
        "x",
        "(= c (compose a b))",
        "(stays c)",
    ),
    rule(
        "transpose of ones",
        "moving dimensions of length 1 is a reshape",
        p("transpose", "x", rest="a"),
        p("reshape", "x", rest="s"),
        "(= k (kind x))",
        "(moves_ones k a)",
        "(= r (kind root))",
        "(= s (to_shape r))",
    ),
    *[
        rule(
            f"{op} of one number",
            "a number everywhere stays that number",
            p(op, p("broadcast_to", "x", rest="a"), rest="b"),
            p("broadcast_to", "x", rest="s"),
            "(= k (kind x))",
            "(number k)",
            "(= r (kind root))",
            "(= s (to_shape r))",
        )
        for op in ("reshape", "transpose")
    ],
    rule(
        "reshape a number",
        "a number with dimensions of length 1 is a broadcast of it",
        p("reshape", "x", rest="a"),
        p("broadcast_to", "x", rest="s"),
        "(= k (kind x))",
        "(number k)",
        "(= r (kind root))",
        "(= s (to_shape r))",
    ),
    *[
        rule(
            "reduction that keeps",
            "a reduction and a reshape that puts its dimensions back are one reduction",
            p("reshape", p(op, "x", rest="a"), rest="b"),
            p(op, "x", rest="c"),
            "(= k (kind x))",
            "(= b (kept_shape k a))",
            "(= c (keeping a))",
            quiet=True,
        )
        for op in ("sum", "max", "min", "prod")
    ],
    *[
        rule(
            f"{op} of nothing",
            "every dimension that is reduced has the length 1",
            p(op, "x", rest="a"),
            p("reshape", "x", rest="s"),
            "(= k (kind x))",
            "(= r (kind root))",
            "(= n (size k))",
            "(= n (size r))",
            "(= s (to_shape r))",
        )
        for op in ("sum", "max", "min", "prod")
    ],
    *[r for op in _PAIRS for r in _absorbed(op)],
    *[
        rule(
            f"{op} before a broadcast",
            "fewer elements to compute",
            p(op, p("broadcast_to", "x", rest="a")),
            p("broadcast_to", p(op, "x"), rest="a"),
        )
        for op in _SINGLES
    ],
    *[
        rule(
            f"{op} with a number before a broadcast",
            "fewer elements to compute",
            p(op, *pair),
            p("broadcast_to", p(op, "x", "y"), rest="a"),
            f"(= k (kind {number}))",
            "(number k)",
        )
        for op in _PAIRS
        for number, pair in (
            ("y", (p("broadcast_to", "x", rest="a"), "y")),
            ("x", ("x", p("broadcast_to", "y", rest="a"))),
        )
    ],
    *[
        rule(
            "a broadcast into where",
            "pointwise operations broadcast by themselves",
            p("where", *(_BROADCAST if i == at else v for i, v in enumerate("cxz"))),
            p("where", *("y" if i == at else v for i, v in enumerate("cxz"))),
            "(= r (kind root))",
            "(= u (shape_of r))",
            f"(= q (kind {'cxz'[full]}))",
            "(= u (shape_of q))",
        )
        for at in (0, 1, 2)
        for full in (0, 1, 2)
        if at != full
    ],
]
