"""Pooling: one invocation per output, or per input for the gradients, which gather in a fixed order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from meganeura.schedule.templates.base import (
    Context,
    KernelBody,
    ceil_div,
    fold_workgroups,
    template,
)
from meganeura.schedule.templates.convolution import _join, _names, digits


def _per_element(context: Context, shape: Any, names: list[str], lines: list[str]) -> KernelBody:
    count = math.prod(shape)
    workgroups, flat = fold_workgroups(ceil_div(count, 64), context.limits.workgroups)
    head = [
        f"let e = {flat} * 64u + thread;",
        f"if (e >= {count}u) {{ return; }}",
        digits("e", shape, names),
    ]
    return KernelBody((64, 1, 1), workgroups, "", "\n".join([*head, *lines]))


def _taps(a: dict[str, Any], lengths: Any) -> Iterator[tuple[int, str, str, list[str]]]:
    """For an output: each tap with statements, the test that it lies inside, and its place."""
    for index, tap in enumerate(itertools.product(*(range(k) for k in a["window"]))):
        steps, tests, places = [], [], []
        for d, (t, s, (low, high), n) in enumerate(
            zip(tap, a["strides"], a["padding"], lengths, strict=True)
        ):
            steps.append(f"let i{d} = o{d} * {s}u + {t}u - {low}u;")
            if low or high:
                tests.append(f"i{d} < {n}u")
            places.append(f"i{d}")
        yield index, " ".join(steps), " && ".join(tests) or "true", places


def _readers(a: dict[str, Any], lengths: Any) -> Iterator[tuple[int, str, str, list[str]]]:
    """For an input: each tap with the output that reads it there."""
    for index, tap in enumerate(itertools.product(*(range(k) for k in a["window"]))):
        steps, tests, places = [], [], []
        for d, (t, s, (low, _), n) in enumerate(
            zip(tap, a["strides"], a["padding"], lengths, strict=True)
        ):
            steps.append(f"let p{d} = i{d} + {low}u - {t}u; let o{d} = p{d} / {s}u;")
            tests.append(f"p{d} < 2147483648u && p{d} % {s}u == 0u && o{d} < {n}u")
            places.append(f"o{d}")
        yield index, " ".join(steps), " && ".join(tests), places


@template("max_pool", "max_pool_argmax")
def max_pool(context: Context) -> KernelBody:
    node, (x,) = context.node, context.inputs
    spatial = x.ndim - 2
    o = _names("o", spatial)
    lines = ["var best = mg_from_bits(0xff800000u); var at = -1i;"]
    for index, steps, test, places in _taps(node.attributes, x.shape[1:-1]):
        lines.append(
            f"{{ {steps} if ({test}) {{ let v = {context.load(0)}({_join('b', places, 'c')}); "
            f"if (at < 0i || ((v > best || mg_isnan(v)) && !mg_isnan(best))) {{ best = v; at = {index}i; }} }} }}"
        )
    value = "max(at, 0i)" if node.op == "max_pool_argmax" else "best"
    lines.append(f"{context.store}({_join('b', o, 'c', value)});")
    return _per_element(context, node.shape, ["b", *o, "c"], lines)


@template("sum_pool")
def sum_pool(context: Context) -> KernelBody:
    node, (x,) = context.node, context.inputs
    o = _names("o", x.ndim - 2)
    lines = ["var total = 0.0;"]
    for _, steps, test, places in _taps(node.attributes, x.shape[1:-1]):
        lines.append(
            f"{{ {steps} if ({test}) {{ total += {context.load(0)}({_join('b', places, 'c')}); }} }}"
        )
    lines.append(f"{context.store}({_join('b', o, 'c', 'total')});")
    return _per_element(context, node.shape, ["b", *o, "c"], lines)


@template("max_pool_gradient", "sum_pool_gradient")
def pool_gradient(context: Context) -> KernelBody:
    node = context.node
    dy = context.inputs[-1]
    i = _names("i", dy.ndim - 2)
    lines = ["var total = 0.0;"]
    for index, steps, test, places in _readers(node.attributes, dy.shape[1:-1]):
        where = _join("b", places, "c")
        if node.op == "max_pool_gradient":
            add = f"if ({context.load(0)}({where}) == {index}i) {{ total += {context.load(1)}({where}); }}"
        else:
            add = f"total += {context.load(0)}({where});"
        lines.append(f"{{ {steps} if ({test}) {{ {add} }} }}")
    lines.append(f"{context.store}({_join('b', i, 'c', 'total')});")
    return _per_element(context, node.shape, ["b", *i, "c"], lines)


@template("max_pool_gather")
def max_pool_gather(context: Context) -> KernelBody:
    node, (_, x) = context.node, context.inputs
    a = node.attributes
    o = _names("o", x.ndim - 2)
    t = _names("t", x.ndim - 2)
    lines = [
        f"let tap = u32({context.load(0)}({_join('b', o, 'c')}));",
        digits("tap", a["window"], t),
    ]
    tests, places = [], []
    for d, (s, (low, _), n) in enumerate(
        zip(a["strides"], a["padding"], x.shape[1:-1], strict=True)
    ):
        lines.append(f"let i{d} = o{d} * {s}u + t{d} - {low}u;")
        tests.append(f"i{d} < {n}u")
        places.append(f"i{d}")
    lines.append(
        f"var v = 0.0; if ({' && '.join(tests)}) {{ v = {context.load(1)}({_join('b', places, 'c')}); }}"
    )
    lines.append(f"{context.store}({_join('b', o, 'c', 'v')});")
    return _per_element(context, node.shape, ["b", *o, "c"], lines)
