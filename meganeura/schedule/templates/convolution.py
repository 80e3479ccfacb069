"""Convolution and its gradients as products whose operands are gathered on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meganeura.schedule.templates.base import Context, KernelBody, template
from meganeura.schedule.templates.product import Product, lower


def digits(text: str, lengths: Sequence[int], names: Sequence[str]) -> str:
    """`let` statements that take a row-major number apart."""
    lengths = [max(n, 1) for n in lengths]  # of nothing, no element is ever asked for
    lines, stride = [], math.prod(lengths)
    for name, n in zip(names, lengths, strict=True):
        stride //= n
        if n == 1:
            lines.append(f"let {name} = 0u;")
        elif stride * n == math.prod(lengths) and name == names[0]:
            lines.append(
                f"let {name} = {text} / {stride}u;" if stride > 1 else f"let {name} = {text};"
            )
        else:
            inner = f"({text} / {stride}u)" if stride > 1 else text
            lines.append(f"let {name} = {inner} % {n}u;")
    return " ".join(lines)


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def _into_input(a: dict[str, Any], lengths: Sequence[int]) -> tuple[str, str, list[str]]:
    """From output position o and tap t to the input position i: statements, the test that it is inside
    (empty where it always is), and its names."""
    lines, tests, places = [], [], []
    for d, (s, (low, high), dilation, n) in enumerate(
        zip(a["strides"], a["padding"], a["dilation"], lengths, strict=True)
    ):
        at = f"o{d} * {s}u + t{d} * {dilation}u"
        if low or high:
            lines.append(f"let i{d} = {at} - {low}u;")
            tests.append(f"i{d} < {n}u")
        else:
            lines.append(f"let i{d} = {at};")
        places.append(f"i{d}")
    return " ".join(lines), " && ".join(tests), places


def _join(*parts: Any) -> str:
    flat: list[str] = []
    for p in parts:
        flat += [p] if isinstance(p, str) else list(p)
    return ", ".join(flat)


@template("conv")
def conv(context: Context) -> KernelBody:
    node, (x, kernel) = context.node, context.inputs
    a = node.attributes
    spatial = x.ndim - 2
    window, (per, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    each = outputs // a["groups"]
    out = node.shape[1:-1]
    steps, test, places = _into_input(a, x.shape[1:-1])
    o, t = _names("o", spatial), _names("t", spatial)
    grouped = a["groups"] > 1
    channel = f"batch * {per}u + c" if grouped else "c"
    column = f"batch * {each}u + n" if grouped else "n"
    value = f"{context.load(0)}({_join('b', places, channel)})"
    fetch = f"if ({test}) {{ return {value}; }} return 0.0;" if test else f"return {value};"
    functions = f"""fn fetch_a(batch: u32, m: u32, k: u32) -> f32 {{
{digits("m", (x.shape[0], *out), ["b", *o])} {digits("k", (*window, per), [*t, "c"])} {steps}
{fetch}
}}
fn fetch_b(batch: u32, k: u32, n: u32) -> f32 {{
{digits("k", (*window, per), [*t, "c"])}
return {context.load(1)}({_join(t, "c", column)});
}}
fn put(batch: u32, m: u32, n: u32, value: f32) {{
{digits("m", (x.shape[0], *out), ["b", *o])}
{context.store}({_join("b", o, column, "value")});
}}"""
    m, k = x.shape[0] * math.prod(out), math.prod(window) * per
    return lower(Product(a["groups"], m, each, k, functions), context.limits)


@template("conv_input_gradient")
def conv_input_gradient(context: Context) -> KernelBody:
    """Every input position gathers from the outputs that read it."""
    node, (dy, kernel) = context.node, context.inputs
    a = node.attributes
    spatial = dy.ndim - 2
    window, (per, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    each = outputs // a["groups"]
    lengths = node.shape[1:-1]
    i, t = _names("i", spatial), _names("t", spatial)
    lines, tests, places = [], [], []
    for d, (s, (low, _), dilation, n) in enumerate(
        zip(a["strides"], a["padding"], a["dilation"], dy.shape[1:-1], strict=True)
    ):
        lines.append(f"let p{d} = i{d} + {low}u - t{d} * {dilation}u;")
        # Before the first output the difference wraps around, and the quotient is far outside.
        if s > 1:
            lines.append(f"let o{d} = p{d} / {s}u;")
            tests.append(f"p{d} < {0x80000000}u && p{d} % {s}u == 0u && o{d} < {n}u")
        else:
            lines.append(f"let o{d} = p{d};")
            tests.append(f"o{d} < {n}u")
        places.append(f"o{d}")
    grouped = a["groups"] > 1
    output = f"batch * {each}u + q" if grouped else "q"
    column = f"batch * {per}u + n" if grouped else "n"
    functions = f"""fn fetch_a(batch: u32, m: u32, k: u32) -> f32 {{
{digits("m", (node.shape[0], *lengths), ["b", *i])} {digits("k", (*window, each), [*t, "q"])} {" ".join(lines)}
if ({" && ".join(tests)}) {{ return {context.load(0)}({_join("b", places, output)}); }}
return 0.0;
}}
fn fetch_b(batch: u32, k: u32, n: u32) -> f32 {{
{digits("k", (*window, each), [*t, "q"])}
return {context.load(1)}({_join(t, "n", output)});
}}
fn put(batch: u32, m: u32, n: u32, value: f32) {{
{digits("m", (node.shape[0], *lengths), ["b", *i])}
{context.store}({_join("b", i, column, "value")});
}}"""
    m, k = node.shape[0] * math.prod(lengths), math.prod(window) * each
    product = Product(a["groups"], m, per, k, functions, b_along_columns=False)
    return lower(product, context.limits)


@template("conv_kernel_gradient")
def conv_kernel_gradient(context: Context) -> KernelBody:
    node, (x, dy) = context.node, context.inputs
    return _kernel_gradient(context, x.shape, dy.shape, node.attributes, 1)


@template("conv_kernel_gradient_parts")
def conv_kernel_gradient_parts(context: Context) -> KernelBody:
    """The sum over output positions in `parts` parts, which a second kernel adds up."""
    node, (x, dy) = context.node, context.inputs
    return _kernel_gradient(context, x.shape, dy.shape, node.attributes, node.attributes["parts"])


def _kernel_gradient(
    context: Context, x: Sequence[int], dy: Sequence[int], a: dict[str, Any], parts: int
) -> KernelBody:
    spatial = len(x) - 2
    kernel = a["kernel_shape"]
    window, (per, outputs) = kernel[:-2], kernel[-2:]
    each = outputs // a["groups"]
    steps, test, places = _into_input(a, x[1:-1])
    o, t = _names("o", spatial), _names("t", spatial)
    positions = dy[0] * math.prod(dy[1:-1])
    length = -(-positions // parts)
    grouped = a["groups"] > 1
    group = f"(batch / {parts}u)" if parts > 1 else "batch"
    channel = f"{group} * {per}u + c" if grouped else "c"
    column = f"{group} * {each}u + n" if grouped else "n"
    term = (
        f"let p = (batch % {parts}u) * {length}u + k; if (p >= {positions}u) {{ return 0.0; }}"
        if parts > 1
        else "let p = k;"
    )
    value = f"{context.load(0)}({_join('b', places, channel)})"
    fetch = f"if ({test}) {{ return {value}; }} return 0.0;" if test else f"return {value};"
    part = [f"batch % {parts}u"] if parts > 1 else []
    functions = f"""fn fetch_a(batch: u32, m: u32, k: u32) -> f32 {{
{term} {digits("p", (dy[0], *dy[1:-1]), ["b", *o])} {digits("m", (*window, per), [*t, "c"])} {steps}
{fetch}
}}
fn fetch_b(batch: u32, k: u32, n: u32) -> f32 {{
{term} {digits("p", (dy[0], *dy[1:-1]), ["b", *o])}
return {context.load(1)}({_join("b", o, column)});
}}
fn put(batch: u32, m: u32, n: u32, value: f32) {{
{digits("m", (*window, per), [*t, "c"])}
{context.store}({_join(part, t, "c", column, "value")});
}}"""
    m = math.prod(window) * per
    product = Product(a["groups"] * parts, m, each, length, functions, a_along_terms=False)
    return lower(product, context.limits)
