"""Batch normalisation in inference: shifts per channel are a bias.

The scale stays where it is: the product's kernel multiplies before it stores, which costs nothing,
while scaled weights would be computed anew at each run.
"""

from __future__ import annotations

from meganeura.rewrite.rules.products import PRODUCTS, per_channel
from meganeura.rewrite.rules.rule import Rule, both, p, rule


def _through_bias(what: str) -> list[Rule]:
    plain, with_bias = PRODUCTS[what]
    fused = with_bias("linear")

    def biased(bias: str) -> str:
        return fused.replace(" b ", f" {bias} ")

    return [
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


RULES: list[Rule] = [*_through_bias("convolution"), *_through_bias("product")]
