"""Neutral elements, constants, and movement that moves nothing."""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, p, rule, same_kind, scalar

_X = ("x",)

RULES: list[Rule] = [
    rule("add zero", "x + 0 = x", both("add", "x", scalar("0.0")), "x", *same_kind("root", "x")),
    rule("subtract zero", "x - 0 = x", p("subtract", "x", scalar("0.0")), "x", *same_kind("root", "x")),
    rule("multiply by one", "x * 1 = x", both("multiply", "x", scalar("1.0")), "x", *same_kind("root", "x")),
    rule("divide by one", "x / 1 = x", p("divide", "x", scalar("1.0")), "x", *same_kind("root", "x")),
    rule("double negative", "-(-x) = x", p("negative", p("negative", "x")), "x"),
    rule("relu twice", "relu is idempotent", p("relu", p("relu", "x")), p("relu", "x")),
    rule("add constants", "known at compile time", p("add", scalar("a"), scalar("b")), scalar("(+ a b)")),
    rule("subtract constants", "known at compile time", p("subtract", scalar("a"), scalar("b")), scalar("(- a b)")),
    rule("multiply constants", "known at compile time", p("multiply", scalar("a"), scalar("b")), scalar("(* a b)")),
    rule("negate a constant", "known at compile time", p("negative", scalar("a")), scalar("(- 0.0 a)"), "(!= a 0.0)"),
    rule(
        "merge factors",
        "two scalings are one",
        [q for inner in both("multiply", "x", scalar("a")) for q in both("multiply", inner, scalar("b"))],
        p("multiply", "x", scalar("(* a b)")),
        *same_kind("root", "x"),
    ),
    rule(
        "negate a product",
        "the sign moves into the factor",
        [p("negative", t) for t in both("multiply", "x", scalar("a"))],
        p("multiply", "x", scalar("(- 0.0 a)")),
        "(!= a 0.0)",
        *same_kind("root", "x"),
    ),
    rule(
        "subtract a negative",
        "a - (-b) = a + b",
        p("subtract", "a", p("negative", "b")),
        p("add", "a", "b"),
    ),
    rule(
        "add a negative",
        "a + (-b) = a - b",
        both("add", "a", p("negative", "b")),
        p("subtract", "a", "b"),
    ),
    rule(
        "reshape twice",
        "only the last shape counts",
        p("reshape", p("reshape", "x", rest="a"), rest="b"),
        p("reshape", "x", rest="b"),
    ),
    rule("reshape to itself", "nothing changes", p("reshape", "x", rest="a"), "x", *same_kind("root", "x")),
    rule("broadcast to itself", "nothing changes", p("broadcast_to", "x", rest="a"), "x", *same_kind("root", "x")),
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
    rule("transpose nothing", "the identity permutation", p("transpose", "x", rest="a"), "x", "(identity a)"),
    rule(
        "transpose there and back",
        "the permutations cancel",
        p("transpose", p("transpose", "x", rest="a"), rest="b"),
        "x",
        "(= c (compose a b))",
        "(identity c)",
    ),
    *[
        rule(
            f"{op} a broadcast",
            "pointwise operations broadcast by themselves",
            both(op, "x", p("broadcast_to", "y", rest="a")),
            p(op, "x", "y"),
            *same_kind("root", "x"),
        )
        for op in ("add", "multiply")
    ],
]
