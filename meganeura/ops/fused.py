"""Operations that only the rewriter makes: a product with its bias and activation, and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, Shape
from meganeura.ops.convolution import conv_reference, output_shape
from meganeura.ops.matmul import _infer as _matmul_infer
from meganeura.ops.matmul import _reference as _matmul_reference
from meganeura.ops.pointwise import _infer as pointwise_infer
from meganeura.ops.pointwise import gelu, sigmoid, softplus
from meganeura.ops.registry import Op, Sample, make, register

#: Activations that a product can end with: name -> (NumPy, the pointwise op and its attributes).
ACTIVATIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str | None, dict[str, Any]]] = {
    "linear": (lambda x: x, None, {}),
    "relu": (lambda x: np.maximum(x, np.zeros((), x.dtype)), "relu", {}),
    "sigmoid": (sigmoid, "sigmoid", {}),
    "tanh": (np.tanh, "tanh", {}),
    "silu": (lambda x: x * sigmoid(x), "silu", {}),
    "gelu": (lambda x: gelu(x, False), "gelu", {"approximate": False}),
    "gelu_tanh": (lambda x: gelu(x, True), "gelu", {"approximate": True}),
    "softplus": (softplus, "softplus", {}),
}


def unfused(node: Node) -> tuple[Node, Callable[[Node], Node]]:
    """A product without its bias and activation, and what adds them; any other node as it is."""
    if node.op not in ("fused_matmul", "fused_conv"):
        return node, lambda value: value
    *operands, bias = node.inputs
    _, op, extra = ACTIVATIONS[node.attributes["activation"]]

    def finish(value: Node) -> Node:
        out = make("add", value, bias)
        return out if op is None else make(op, out, **extra)

    attributes = {k: v for k, v in node.attributes.items() if k != "activation"}
    return make(node.op.removeprefix("fused_"), *operands, **attributes), finish


def _bias(bias: Node, channels: int, activation: str) -> None:
    if bias.shape != (channels,) or activation not in ACTIVATIONS:
        raise ValueError(
            f"a bias of shape {bias.shape} with {activation!r} does not fit {channels} channels"
        )


def _fused_matmul_infer(
    a: Node, b: Node, bias: Node, transpose_a: bool, transpose_b: bool, activation: str
) -> Any:
    shape, dtype = _matmul_infer(a, b, transpose_a, transpose_b)
    _bias(bias, shape[-1], activation)
    return shape, dtype


def _fused_conv_infer(
    x: Node,
    kernel: Node,
    bias: Node,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    activation: str,
) -> Any:
    shape: Shape = output_shape(x.shape, kernel.shape, strides, padding, dilation, groups)
    _bias(bias, shape[-1], activation)
    return shape, x.dtype


def _fused_matmul(
    a: Any, b: Any, bias: Any, transpose_a: bool, transpose_b: bool, activation: str
) -> np.ndarray:
    return ACTIVATIONS[activation][0](_matmul_reference(a, b, transpose_a, transpose_b) + bias)


def _fused_conv(x: Any, kernel: Any, bias: Any, activation: str, **geometry: Any) -> np.ndarray:
    return ACTIVATIONS[activation][0](conv_reference(x, kernel, **geometry) + bias)


def _matmul_samples(random: np.random.Generator) -> list[Sample]:
    found = []
    for a, b, ta, tb in (
        ((5, 7), (7, 9), False, False),
        ((7, 5), (9, 7), True, True),
        ((2, 3, 4), (4, 6), False, False),
        ((3, 2, 5), (3, 4, 5), False, True),
        ((65, 33), (33, 70), False, False),
        ((1, 1), (1, 1), False, False),
        ((0, 3), (3, 2), False, False),
    ):
        for activation in ACTIVATIONS:
            arrays = [random.standard_normal(s).astype("float32") for s in (a, b)]
            columns = b[-2] if tb else b[-1]
            bias = random.standard_normal(columns).astype("float32")
            attributes = {"transpose_a": ta, "transpose_b": tb, "activation": activation}
            found.append(Sample((*arrays, bias), attributes, gradient=False))
    return found


def _conv_samples(random: np.random.Generator) -> list[Sample]:
    found = []
    wide = ((2, 6, 5, 3), (3, 3, 3, 7), (1, 2), ((1, 1), (0, 1)), (1, 1), 1)
    cases: list[tuple[Any, str]] = [(wide, activation) for activation in ACTIVATIONS]
    for case in (
        ((1, 7, 6, 4), (3, 2, 2, 6), (1, 1), ((0, 1), (1, 0)), (1, 2), 2),
        ((2, 5, 5, 3), (3, 3, 1, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 3),
        ((2, 9, 3), (4, 3, 5), (2,), ((1, 2),), (1,), 1),
        ((1, 3, 4, 3, 2), (2, 2, 2, 2, 3), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1), 1),
        ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
        ((0, 5, 5, 2), (3, 3, 2, 4), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ):
        cases.append((case, "silu"))
    for (x, kernel, strides, padding, dilation, groups), activation in cases:
        shapes = (x, kernel, (kernel[-1],))
        arrays = tuple(random.standard_normal(s).astype("float32") for s in shapes)
        attributes = {
            "strides": strides,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "activation": activation,
        }
        found.append(Sample(arrays, attributes, gradient=False))
    return found


register(
    Op("fused_matmul", "template", _fused_matmul_infer, _fused_matmul, samples=_matmul_samples)
)
register(Op("fused_conv", "template", _fused_conv_infer, _fused_conv, samples=_conv_samples))


def _pair(random: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            tuple(random.standard_normal(s).astype("float32") for s in shapes), {}, gradient=False
        )
        for shapes in (((3, 4), (3, 4)), ((5,), (2, 5)), ((1,), (1,)), ((0, 3), (3,)))
    ]


def _triple(random: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            tuple(random.standard_normal(s).astype("float32") for s in shapes), {}, gradient=False
        )
        for shapes in (
            ((3, 4), (3, 4), ()),
            ((5,), (5,), (5,)),
            ((1,), (1,), ()),
            ((0, 2), (2,), (1,)),
        )
    ]


register(
    Op(
        "swiglu",
        "pointwise",
        pointwise_infer("swiglu", kinds=FLOATS),
        lambda g, u: g * sigmoid(g) * u,
        wgsl="(mg_silu({0}) * {1})",
        samples=_pair,
    )
)
register(
    Op(
        "axpy",
        "pointwise",
        pointwise_infer("axpy", kinds=FLOATS),
        lambda x, y, alpha: x + alpha * y,
        wgsl="fma({2}, {1}, {0})",
        samples=_triple,
    )
)


# --- made by the scheduler only ----------------------------------------------------------------


def _attend_infer(x: Node, v: Node, *_: Node, transpose_v: bool, **__: bool) -> tuple[Shape, str]:
    weights = Node("input", (), {}, x.shape, v.dtype)  # x may be scores of more digits
    return _matmul_infer(weights, v, transpose_a=False, transpose_b=transpose_v)


def _attend(x: Any, v: Any, *_: Any, transpose_v: bool, **__: bool) -> Any:
    """softmax(x) v. Where q, k and a stand-in for their product are given as well, x is made of it."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True, initial=-np.inf))
    return np.matmul(
        e / np.sum(e, axis=-1, keepdims=True), np.swapaxes(v, -1, -2) if transpose_v else v
    )


def _attend_samples(random: np.random.Generator) -> list[Sample]:
    found = []
    for x, v, turned in (
        ((5, 7), (7, 3), False),
        ((2, 3, 9, 70), (2, 1, 5, 70), True),
        ((1, 1), (1, 1), False),
        ((2, 4, 130), (2, 130, 66), False),
    ):
        arrays = tuple(random.standard_normal(s).astype("float32") for s in (x, v))
        flags = {"transpose_v": turned, "transpose_q": False, "transpose_k": False}
        found.append(Sample(arrays, flags, gradient=False))
    return found


register(Op("attend", "template", _attend_infer, _attend, samples=_attend_samples))
