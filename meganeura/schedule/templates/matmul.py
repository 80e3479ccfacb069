"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.schedule.templates.base import Context, KernelBody, template
from meganeura.schedule.templates.product import Product, lower


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


@template("matmul")
def matmul(context: Context) -> KernelBody:
    node = context.node
    a, b = context.inputs
    ta, tb = node.attributes["transpose_a"], node.attributes["transpose_b"]
    *batch, m, n = node.shape
    k = a.shape[-2] if ta else a.shape[-1]
    count = 1
    for length in batch:
        count *= length

    def call(name: str, shape: Sequence[int], pair: str) -> str:
        return f"{name}({', '.join([*_batch(shape[:-2], batch), pair])})"

    fetch_a = call(context.load(0), a.shape, "t, r" if ta else "r, t")
    fetch_b = call(context.load(1), b.shape, "c, t" if tb else "t, c")
    coordinates = ", ".join([*_batch(batch, batch), "r, c, value"])
    functions = f"""fn fetch_a(batch: u32, r: u32, t: u32) -> f32 {{ return {fetch_a}; }}
fn fetch_b(batch: u32, t: u32, c: u32) -> f32 {{ return {fetch_b}; }}
fn put(batch: u32, r: u32, c: u32, value: f32) {{ {context.store}({coordinates}); }}"""
    product = Product(count, m, n, k, functions, a_along_terms=not ta, b_along_columns=not tb)
    return lower(product, context.limits)
