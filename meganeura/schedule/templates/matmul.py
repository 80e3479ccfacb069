"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.schedule.templates.base import (
    Context,
    KernelBody,
    Product,
    puts,
    result_shape,
    template,
)
from meganeura.schedule.templates.product import lower
from meganeura.schedule.templates.sizes import product_size


def _batch(shape: Sequence[int], batch: Sequence[int]) -> list[str]:
    """The batch coordinates of an operand that broadcasts to `batch`."""
    found, stride = [], 1
    texts: list[str] = []
    for n in reversed(batch):
        texts.append(f"((batch / {stride}u) % {n}u)" if n > 1 else "0u")
        stride *= n
    texts.reverse()
    for n, text in zip(shape, texts[len(batch) - len(shape) :], strict=True):
        found.append("0u" if n == 1 else text)
    return found


@template("matmul", "matmul_parts")
def matmul(context: Context) -> KernelBody:
    node = context.node
    a, b = context.inputs
    ta, tb = node.attributes["transpose_a"], node.attributes["transpose_b"]
    *batch, _, n = result_shape(node)

    def call(name: str, shape: Sequence[int], pair: str) -> str:
        return f"{name}({', '.join([*_batch(shape[:-2], batch), pair])})"

    at_a, at_b = "t, r" if ta else "r, t", "c, t" if tb else "t, c"
    functions = puts(context, n, "", ", ".join([*_batch(batch, batch), "m, n"]))
    for name, x, at, operand in (("a", a, at_a, 0), ("b", b, at_b, 1)):
        order = "r: u32, t: u32" if name == "a" else "t: u32, c: u32"
        for suffix, kind, load in (("", "f32", context.load), ("4", "vec4<f32>", context.load4)):
            functions[f"fetch_{name}{suffix}"] = (
                f"fn fetch_{name}{suffix}(batch: u32, {order}) -> {kind} {{ "
                f"return {call(load(operand), x.shape, at)}; }}"
            )
    along_a, along_b = context.vector_axis(0), context.vector_axis(1)
    last_a, last_b = along_a in (None, a.ndim - 1), along_b in (None, b.ndim - 1)
    product = Product(
        *product_size(node), functions,
        a_along_terms=last_a != ta, b_along_columns=last_b != tb,
        a_vector=along_a is not None, b_vector=along_b is not None,
        b_packed=context.packed(1),
        parts=node.attributes.get("parts", 1),
    )  # fmt: skip
    return lower(product, context.limits)
