"""Products by size: what a matrix product, a convolution and its gradients come to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meganeura.graph.node import Node, Shape
from meganeura.schedule.templates.base import ceil_div

#: batch, rows, columns, terms
Size = tuple[int, int, int, int]


def strided_steps(a: dict[str, Any]) -> list[int]:
    """The strides by whose residues positions of the input form products of their own. Taps that are dilated
    as well meet residues in no simple order: they are tried one by one."""
    return [s if d == 1 else 1 for s, d in zip(a["strides"], a["dilation"], strict=True)]


def _matmul(a: Shape, b: Shape, shape: Shape, attributes: dict[str, Any]) -> Size:
    terms = a[-2] if attributes["transpose_a"] else a[-1]
    return math.prod(shape[:-2]), shape[-2], shape[-1], terms


def _conv(x: Shape, kernel: Shape, shape: Shape, a: dict[str, Any]) -> Size:
    groups = a["groups"]
    return groups, math.prod(shape[:-1]), shape[-1] // groups, math.prod(kernel[:-1])


def _input_gradient(dy: Shape, kernel: Shape, shape: Shape, a: dict[str, Any]) -> Size:
    steps = strided_steps(a)
    rows = math.prod(ceil_div(n, s) for n, s in zip(shape[1:-1], steps, strict=True))
    taps = math.prod(ceil_div(n, s) for n, s in zip(kernel[:-2], steps, strict=True))
    each = kernel[-1] // a["groups"]
    return a["groups"] * math.prod(steps), shape[0] * rows, kernel[-2], taps * each


def _kernel_gradient(x: Shape, dy: Shape, shape: Shape, a: dict[str, Any]) -> Size:
    groups = a["groups"]
    return groups, math.prod(shape[:-1]), shape[-1] // groups, math.prod(dy[:-1])


_SIZES: dict[str, Callable[[Shape, Shape, Shape, dict[str, Any]], Size]] = {
    "matmul": _matmul,
    "conv": _conv,
    "conv_input_gradient": _input_gradient,
    "conv_kernel_gradient": _kernel_gradient,
}


def is_product(node: Node) -> bool:
    """Whether it is a product, with a bias or without; products in parts are not counted."""
    return node.op.removeprefix("fused_") in _SIZES


def product_size(node: Node) -> Size:
    """The size of a product, with a bias or without, whole or in parts."""
    rule = _SIZES[node.op.removeprefix("fused_").removesuffix("_parts")]
    a, b, *_ = node.inputs
    shape = node.shape[1:] if "parts" in node.attributes else node.shape
    return rule(a.shape, b.shape, shape, node.attributes)
