"""Matrix products and convolutions take in what stands before and after them."""

from __future__ import annotations

from meganeura.rewrite.rules.rule import Rule, both, p, rule, same_kind

MATMUL = p("matmul", "x", "y", columns=("ta", "tb"))
CONV = p("conv", "x", "w", rest="g")


def fused_matmul(activation: str) -> str:
    return p("fused_matmul", "x", "y", "b", columns=("ta", "tb", f'"{activation}"'))


def fused_conv(activation: str) -> str:
    return p("fused_conv", "x", "w", "b", columns=(f'"{activation}"',), rest="g")


#: What it is called in reports -> without a bias, with one.
PRODUCTS = {"product": (MATMUL, fused_matmul), "convolution": (CONV, fused_conv)}

#: Activation in a fused product -> the operation and its columns.
ACTIVATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "relu": ("relu", ()),
    "sigmoid": ("sigmoid", ()),
    "tanh": ("tanh", ()),
    "silu": ("silu", ()),
    "softplus": ("softplus", ()),
    "gelu": ("gelu", ("0",)),
    "gelu_tanh": ("gelu", ("1",)),
}


def per_channel(vector: str, product: str) -> tuple[str, ...]:
    """Conditions: a value of shape (n,) where the product's last dimension has that length, so
    that broadcasting gives the product's own shape."""
    return (
        f"(= kv (kind {vector}))",
        "(= 1 (rank kv))",
        "(= n (last kv))",
        f"(= q (kind {product}))",
        "(= n (last q))",
    )


_TRANSPOSES: list[Rule] = [
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
        p("transpose", MATMUL, rest="a"),
        p("matmul", "y", "x", columns=("(- 1 tb)", "(- 1 ta)")),
        "(swaps a)",
    ),
]

_BIAS = [
    rule(
        f"{what} and bias",
        "the bias is added before the result is stored",
        both("add", plain, "b"),
        fused("linear"),
        *per_channel("b", plain),
    )
    for what, (plain, fused) in PRODUCTS.items()
]

#: A bias written with dimensions of length 1 in front, (1, ..., 1, n), where nothing made it so in
#: the graph: it becomes a vector by a reshape.
_ROWS = [
    rule(
        f"row and {what}",
        "a row of the last dimension is a vector",
        [p(op, *pair) for pair in pairs],
        p(op, plain, p("reshape", "b", rest="s")),
        "(= kb (kind b))",
        "(= s (vector_of kb))",
        "(= v (vector_kind kb))",
        *same_kind("root", plain),
        facts=(f"(set (kind {p('reshape', 'b', rest='s')}) v)",),
        quiet=True,
    )
    for what, (plain, _) in PRODUCTS.items()
    for op, pairs in (
        ("add", [(plain, "b"), ("b", plain)]),
        ("multiply", [(plain, "b"), ("b", plain)]),
        ("subtract", [(plain, "b")]),
    )
]

_ACTIVATED = [
    rule(
        f"{what} and {name}",
        "the activation is applied before the result is stored",
        p(op, fused("linear"), columns=columns),
        fused(name),
    )
    for what, (_, fused) in PRODUCTS.items()
    for name, (op, columns) in ACTIVATIONS.items()
]

#: Channels that are not last are a convolution with channels last, and a transpose.
_TURNED = p("transpose", "m", rest="a")
_TRANSPOSED = [
    *[
        rule(
            f"{op} after a transpose",
            "work per channel is done where the channels are last",
            both(op, _TURNED, "c") if op != "subtract" else p(op, _TURNED, "c"),
            p("transpose", p(op, "m", p("reshape", "c", rest="s")), rest="a"),
            f"(= m {producer})",
            "(= kc (kind c))",
            "(= s (channel a kc))",
            "(= q (kind m))",
            "(= v (vector_kind kc))",
            "(= n (last v))",
            "(= n (last q))",
            facts=(
                f"(set (kind {p('reshape', 'c', rest='s')}) v)",
                f"(set (kind {p(op, 'm', p('reshape', 'c', rest='s'))}) q)",
            ),
        )
        for producer in (CONV, fused_conv("linear"))
        for op in ("add", "subtract", "multiply")
    ],
    *[
        rule(
            f"{name} after a transpose",
            "pointwise work passes through a transpose",
            p(op, _TURNED, columns=columns),
            p("transpose", p(op, "m", columns=columns), rest="a"),
            f"(= m {producer})",
        )
        for producer in (CONV, fused_conv("linear"))
        for name, (op, columns) in ACTIVATIONS.items()
    ],
]

#: A product of more than two dimensions is a product of matrices and a reshape.
_VIEW = p("reshape", "m", rest="a")
_RESHAPED = [
    *[
        rule(
            f"{op} after a reshape",
            "work on the last dimension passes through a reshape that keeps it",
            both(op, _VIEW, "c") if op != "subtract" else p(op, _VIEW, "c"),
            p("reshape", p(op, "m", "c"), rest="a"),
            f"(= m {producer})",
            *per_channel("c", "m"),
            f"(= r (kind {_VIEW}))",
            "(= n (last r))",
            "(= r (kind root))",
            facts=(f"(set (kind {p(op, 'm', 'c')}) q)",),
        )
        for producer in (MATMUL, fused_matmul("linear"))
        for op in ("add", "subtract", "multiply")
    ],
    *[
        rule(
            f"{name} after a reshape",
            "pointwise work passes through a reshape",
            p(op, _VIEW, columns=columns),
            p("reshape", p(op, "m", columns=columns), rest="a"),
            f"(= m {fused_matmul('linear')})",
        )
        for name, (op, columns) in ACTIVATIONS.items()
    ],
]

RULES: list[Rule] = [*_TRANSPOSES, *_BIAS, *_ROWS, *_ACTIVATED, *_TRANSPOSED, *_RESHAPED]
