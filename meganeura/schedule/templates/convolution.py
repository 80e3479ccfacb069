"""Convolution and its gradients as products whose operands are gathered on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from meganeura.schedule.templates.base import (
    Context,
    KernelBody,
    Product,
    puts,
    result_shape,
    template,
)
from meganeura.schedule.templates.product import lower
from meganeura.schedule.templates.sizes import product_size, strided_steps


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


def _fetch(
    name: str, parameters: str, prelude: str, test: str, load: Callable[[str], str], vector: bool
) -> dict[str, str]:
    """fetch_NAME, and fetch_NAME4 where `vector`: nothing where the test fails, else what `load` gives for
    the name of the loading function's variant ("" or "4")."""
    found = {}
    for variant, kind, none in (("", "f32", "0.0"), ("4", "vec4<f32>", "vec4<f32>()")):
        if variant and not vector:
            continue
        value = load(variant)
        result = f"if ({test}) {{ return {value}; }} return {none};" if test else f"return {value};"
        found[f"fetch_{name}{variant}"] = (
            f"fn fetch_{name}{variant}(batch: u32, {parameters}) -> {kind} {{ {prelude} {result} }}"
        )
    return found


def _loader(context: Context, operand: int) -> Callable[[str], str]:
    names = {"": context.load(operand), "4": context.load4(operand)}
    return names.__getitem__


def _by_channel(context: Context, operand: int, channels: int) -> bool:
    """Whether four neighbouring channels, the first at a multiple of 4, may be read at once."""
    last = context.inputs[operand].ndim - 1
    return channels % 4 == 0 and context.vector_axis(operand) == last


@template("conv", "conv_parts")
def conv(context: Context) -> KernelBody:
    node, (x, kernel) = context.node, context.inputs
    a = node.attributes
    spatial = x.ndim - 2
    window, (per, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    each = outputs // a["groups"]
    out = result_shape(node)[1:-1]
    steps, test, places = _into_input(a, x.shape[1:-1])
    o, t = _names("o", spatial), _names("t", spatial)
    grouped = a["groups"] > 1
    channel = f"batch * {per}u + c" if grouped else "c"
    column = f"batch * {each}u + n" if grouped else "n"
    row, term = digits("m", (x.shape[0], *out), ["b", *o]), digits("k", (*window, per), [*t, "c"])
    load_x, load_kernel = _loader(context, 0), _loader(context, 1)
    a_vector, b_vector = _by_channel(context, 0, per), _by_channel(context, 1, each)
    functions = {
        **_fetch("a", "m: u32, k: u32", f"{row} {term} {steps}", test,
                 lambda v: f"{load_x(v)}({_join('b', places, channel)})", a_vector),
        **_fetch("b", "k: u32, n: u32", term, "",
                 lambda v: f"{load_kernel(v)}({_join(t, 'c', column)})", b_vector),
        **puts(context, each, row, _join("b", o, column)),
    }  # fmt: skip
    product = Product(
        *product_size(node), functions, a_vector=a_vector, b_vector=b_vector,
        parts=a.get("parts", 1),
    )  # fmt: skip
    return lower(product, context.limits)


@template("conv_input_gradient", "conv_input_gradient_parts")
def conv_input_gradient(context: Context) -> KernelBody:
    """Every input position gathers from the outputs that read it.

    With strides, a position is read through the taps of its own residue only: positions of one residue
    form a product of their own, of as many terms as they have taps.
    """
    node, (dy, kernel) = context.node, context.inputs
    a = node.attributes
    spatial = dy.ndim - 2
    window, (per, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    each = outputs // a["groups"]
    images, *lengths = result_shape(node)[:-1]
    steps = strided_steps(a)
    classes = math.prod(steps)
    i, t, u, w = (_names(name, spatial) for name in "ituw")
    residues = [f"h{d}" for d in range(spatial)]
    kind = f"let kind = batch % {classes}u; {digits('kind', steps, residues)}"
    start = [f"let group_ = batch / {classes}u;", kind] if classes > 1 else ["let group_ = batch;"]
    fewer = [-(-n // s) for n, s in zip(lengths, steps, strict=True)]
    taps = [-(-n // s) for n, s in zip(window, steps, strict=True)]
    rows = [*start, digits("m", (images, *fewer), ["b", *u])]
    terms = [digits("k", (*taps, each), [*w, "q"])]
    lines, tests, inside, valid, places = [], [], [], [], []
    for d, (stride, s, (low, _), dilation, n) in enumerate(
        zip(a["strides"], steps, a["padding"], a["dilation"], dy.shape[1:-1], strict=True)
    ):
        if s > 1:
            rows.append(f"let e{d} = u{d} + ({low + s - 1}u - h{d}) / {s}u;")
            rows.append(f"let i{d} = e{d} * {s}u + h{d} - {low}u;")
            terms.append(f"let t{d} = h{d} + w{d} * {s}u;")
            lines.append(f"let o{d} = e{d} - w{d};")
            if window[d] % s:
                valid.append(f"t{d} < {window[d]}u")
            if lengths[d] % s:
                inside.append(f"i{d} < {lengths[d]}u")
            tests.append(f"o{d} < {n}u")
        else:
            rows.append(f"let i{d} = u{d};")
            terms.append(f"let t{d} = w{d};")
            lines.append(f"let p{d} = i{d} + {low}u - t{d} * {dilation}u;")
            # Before the first output the difference wraps around, and the quotient is far outside.
            if stride > 1:
                lines.append(f"let o{d} = p{d} / {stride}u;")
                tests.append(f"p{d} < {0x80000000}u && p{d} % {stride}u == 0u && o{d} < {n}u")
            else:
                lines.append(f"let o{d} = p{d};")
                tests.append(f"o{d} < {n}u")
        places.append(f"o{d}")
    grouped = a["groups"] > 1
    output = f"group_ * {each}u + q" if grouped else "q"
    column = f"group_ * {per}u + n" if grouped else "n"
    row, term = " ".join(rows), " ".join(terms)
    load_dy, load_kernel = _loader(context, 0), _loader(context, 1)
    a_vector, b_vector = _by_channel(context, 0, each), _by_channel(context, 1, each)
    functions = {
        **_fetch("a", "m: u32, k: u32", f"{row} {term} {' '.join(lines)}",
                 " && ".join([*valid, *inside, *tests]),
                 lambda v: f"{load_dy(v)}({_join('b', places, output)})", a_vector),
        **_fetch("b", "k: u32, n: u32", f"{' '.join(start)} {term}", " && ".join(valid),
                 lambda v: f"{load_kernel(v)}({_join(t, 'n', output)})", b_vector),
        **puts(context, per, row, _join("b", i, column), " && ".join(inside)),
    }  # fmt: skip
    size = product_size(node)
    empty = [f"h{d} < {n}u" for d, (n, s) in enumerate(zip(window, steps, strict=True)) if n < s]
    product = Product(
        *size, functions,
        b_along_columns=False, a_vector=a_vector, b_vector=b_vector,
        terms=f"fn terms_of(batch: u32) -> u32 {{ {kind} return select(0u, {size[3]}u, {' && '.join(empty)}); }}"
        if empty else "",
        parts=a.get("parts", 1),
    )  # fmt: skip
    return lower(product, context.limits)


@template("conv_kernel_gradient", "conv_kernel_gradient_parts")
def conv_kernel_gradient(context: Context) -> KernelBody:
    node, (x, dy) = context.node, context.inputs
    a = node.attributes
    spatial = x.ndim - 2
    kernel = a["kernel_shape"]
    window, (per, outputs) = kernel[:-2], kernel[-2:]
    each = outputs // a["groups"]
    steps, test, places = _into_input(a, x.shape[1:-1])
    o, t = _names("o", spatial), _names("t", spatial)
    grouped = a["groups"] > 1
    channel = f"batch * {per}u + c" if grouped else "c"
    column = f"batch * {each}u + n" if grouped else "n"
    place = digits("k", dy.shape[:-1], ["b", *o])
    row = digits("m", (*window, per), [*t, "c"])
    load_x, load_dy = _loader(context, 0), _loader(context, 1)
    a_vector, b_vector = _by_channel(context, 0, per), _by_channel(context, 1, each)
    functions = {
        **_fetch("a", "m: u32, k: u32", f"{place} {row} {steps}", test,
                 lambda v: f"{load_x(v)}({_join('b', places, channel)})", a_vector),
        **_fetch("b", "k: u32, n: u32", place, "",
                 lambda v: f"{load_dy(v)}({_join('b', o, column)})", b_vector),
        **puts(context, each, row, _join(t, "c", column)),
    }  # fmt: skip
    product = Product(
        *product_size(node), functions,
        a_along_terms=False, a_vector=a_vector, b_vector=b_vector, parts=a.get("parts", 1),
    )  # fmt: skip
    return lower(product, context.limits)
