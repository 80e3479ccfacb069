"""Batch normalisation in inference: a scale and a shift per channel move into the weights.

Scaling some weights costs less than scaling every output. In training the scale depends on the
outputs themselves, so there the cost decides against it.
"""

from __future__ import annotations

from meganeura.rewrite.rules.products import CONV, PRODUCTS, per_channel
from meganeura.rewrite.rules.rule import Rule, both, p, rule

_SCALED = p("multiply", "w", "c")

_SCALE = [
    rule(
        f"scale into the weights of a {what}",
        "scaling a few weights instead of all outputs",
        both("multiply", product, "c"),
        scaled,
        *per_channel("c", product),
        "(= k (kind w))",
        "(= n (last k))",
        facts=(f"(set (kind {_SCALED}) k)",),
    )
    for what, product, scaled in (
        ("convolution", CONV, p("conv", "x", _SCALED, rest="g")),
        (
            "product",
            p("matmul", "x", "w", columns=("ta", "0")),
            p("matmul", "x", _SCALED, columns=("ta", "0")),
        ),
    )
]


def _through_bias(what: str) -> list[Rule]:
    plain, with_bias = PRODUCTS[what]
    fused = with_bias("linear")

    def biased(bias: str) -> str:
        return fused.replace(" b ", f" {bias} ")

    same = ("(= kb (kind b))", "(= n (last kb))")  # (m,) and (n,) have one kind by now
    return [
        rule(
            f"scale through the bias of a {what}",
            "(y + b) c = y c + b c",
            both("multiply", fused, "c"),
            p("add", p("multiply", plain, "c"), p("multiply", "b", "c")),
            *per_channel("c", fused),
            *same,
            facts=(
                f"(set (kind {plain}) q)",
                f"(set (kind {p('multiply', plain, 'c')}) q)",
                f"(set (kind {p('multiply', 'b', 'c')}) kb)",
            ),
        ),
        rule(
            f"shift of a {what}",
            "subtracting per channel is a bias",
            p("subtract", plain, "b"),
            biased(p("negative", "b")),
            *per_channel("b", plain),
        ),
        rule(
            f"second bias of a {what}",
            "two biases are one",
            both("add", fused, "c"),
            biased(p("add", "b", "c")),
            *per_channel("c", fused),
        ),
        rule(
            f"shift of a biased {what}",
            "a bias less a shift is a bias",
            p("subtract", fused, "c"),
            biased(p("subtract", "b", "c")),
            *per_channel("c", fused),
        ),
    ]


RULES: list[Rule] = [*_SCALE, *_through_bias("convolution"), *_through_bias("product")]
