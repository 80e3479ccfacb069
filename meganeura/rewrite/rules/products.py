"""Matrix products and convolutions take in what stands before and after them."""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, p, rule, same_kind

_MATMUL = p("matmul", "x", "y", columns=("ta", "tb"))
_CONV = p("conv", "x", "w", rest="g")


def _fused(activation: str) -> str:
    return p("fused_matmul", "x", "y", "b", columns=("ta", "tb", f'"{activation}"'))


def _fused_conv(activation: str) -> str:
    return p("fused_conv", "x", "w", "b", columns=(f'"{activation}"',), rest="g")


#: Name in a fused product -> the pointwise pattern on z.
ACTIVATIONS = {
    "relu": p("relu", "z"),
    "sigmoid": p("sigmoid", "z"),
    "tanh": p("tanh", "z"),
    "silu": p("silu", "z"),
    "softplus": p("softplus", "z"),
    "gelu": p("gelu", "z", columns=("0",)),
    "gelu_tanh": p("gelu", "z", columns=("1",)),
}

RULES: list[Rule] = [
    rule(
        "transpose into the left operand",
        "products read transposed operands for nothing",
        p("matmul", p("transpose", "x", rest="a"), "y", columns=("ta", "tb")),
        p("matmul", "x", "y", columns=("(- 1 ta)", "tb")),
        "(swaps a)",
    ),
    rule(
        "transpose into the right operand",
        "products read transposed operands for nothing",
        p("matmul", "x", p("transpose", "y", rest="a"), columns=("ta", "tb")),
        p("matmul", "x", "y", columns=("ta", "(- 1 tb)")),
        "(swaps a)",
    ),
    rule(
        "transpose of a product",
        "(A B)^T = B^T A^T",
        p("transpose", _MATMUL, rest="a"),
        p("matmul", "y", "x", columns=("(- 1 tb)", "(- 1 ta)")),
        "(swaps a)",
    ),
    rule(
        "product and bias",
        "the bias is added before the product is stored",
        both("add", _MATMUL, "b"),
        _fused("linear"),
        "(vector (kind b))",
        *same_kind("root", _MATMUL),
    ),
    rule(
        "convolution and bias",
        "the bias is added before the convolution is stored",
        both("add", _CONV, "b"),
        _fused_conv("linear"),
        "(vector (kind b))",
        *same_kind("root", _CONV),
    ),
    rule(
        "bias after a reshape",
        "a reshape that keeps the last dimension lets the bias pass",
        both("add", p("reshape", "m", rest="a"), "b"),
        p("reshape", p("add", "m", "b"), rest="a"),
        f"(= m {_MATMUL})",
        "(vector (kind b))",
        f"(= q (kind {p('reshape', 'm', rest='a')}))",
        "(= q (kind root))",
        "(= u (kind m))",
        "(= l (last q))",
        "(= l (last u))",
        facts=(f"(set (kind {p('add', 'm', 'b')}) u)",),
    ),
    *[
        rule(
            f"{name} after a reshape",
            "pointwise work passes through reshapes",
            pattern.replace(" z ", f" {p('reshape', 'm', rest='a')} "),
            p("reshape", pattern.replace(" z ", " m "), rest="a"),
            f"(= m {_fused('linear')})",
            "(= u (kind m))",
            facts=(f"(set (kind {pattern.replace(' z ', ' m ')}) u)",),
        )
        for name, pattern in ACTIVATIONS.items()
    ],
    *[
        rule(
            f"product and {name}",
            "the activation is applied before the product is stored",
            pattern.replace(" z ", f" {_fused('linear')} "),
            _fused(name),
        )
        for name, pattern in ACTIVATIONS.items()
    ],
    *[
        rule(
            f"convolution and {name}",
            "the activation is applied before the convolution is stored",
            pattern.replace(" z ", f" {_fused_conv('linear')} "),
            _fused_conv(name),
        )
        for name, pattern in ACTIVATIONS.items()
    ],
    # Batch normalization in inference: a scale and a shift per channel.
    *[
        rule(
            f"scale into the weights of a {what}",
            "scaling a few weights instead of all outputs",
            both("multiply", product, "c"),
            scaled,
            "(vector (kind c))",
            *same_kind("root", product),
            "(= k (kind w))",
            facts=(f"(set (kind {p('multiply', 'w', 'c')}) k)",),
        )
        for what, product, scaled in (
            ("convolution", _CONV, p("conv", "x", p("multiply", "w", "c"), rest="g")),
            (
                "product",
                p("matmul", "x", "w", columns=("ta", "0")),
                p("matmul", "x", p("multiply", "w", "c"), columns=("ta", "0")),
            ),
        )
    ],
    *[
        rule(
            f"scale through the bias of a {what}",
            "(y + b) c = y c + b c",
            both("multiply", product, "c"),
            p("add", p("multiply", plain, "c"), p("multiply", "b", "c")),
            "(vector (kind c))",
            "(= q (kind root))",
            f"(= q (kind {product}))",
            "(= v (kind b))",
            facts=(
                f"(set (kind {plain}) q)",
                f"(set (kind {p('multiply', plain, 'c')}) q)",
                f"(set (kind {p('multiply', 'b', 'c')}) v)",
            ),
        )
        for what, product, plain in (
            ("convolution", _fused_conv("linear"), _CONV),
            ("product", _fused("linear"), _MATMUL),
        )
    ],
    *[
        rule(
            f"shift of a {what}",
            "subtracting per channel is a bias",
            p("subtract", product, "b"),
            p("add", product, p("negative", "b")),
            "(vector (kind b))",
            *same_kind("root", product),
            "(= v (kind b))",
            facts=(f"(set (kind {p('negative', 'b')}) v)",),
        )
        for what, product in (("convolution", _CONV), ("product", _MATMUL))
    ],
    *[
        rule(
            f"second shift of a {what}",
            "two biases are one",
            lhs,
            p("add", plain, p(op, "b", "d")),
            "(vector (kind b))",
            "(vector (kind d))",
            "(= q (kind root))",
            f"(= q (kind {fused}))",
            "(= v (kind b))",
            facts=(f"(set (kind {p(op, 'b', 'd')}) v)", f"(set (kind {plain}) q)"),
        )
        for what, fused, plain in (
            ("convolution", _fused_conv("linear"), _CONV),
            ("product", _fused("linear"), _MATMUL),
        )
        for op, lhs in (("add", both("add", fused, "d")), ("subtract", p("subtract", fused, "d")))
    ],
]
