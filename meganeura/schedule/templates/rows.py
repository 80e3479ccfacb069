"""Adding rows at indices, and running sums: serial in one dimension, so that the order is fixed."""

from __future__ import annotations

import math

from meganeura.ops.pointwise import WGSL_TYPES
from meganeura.schedule.templates.base import (
    Context,
    KernelBody,
    ceil_div,
    fold_workgroups,
    template,
)
from meganeura.schedule.templates.convolution import _join, _names, digits
from meganeura.schedule.writer import computed

_ZERO = {"float32": "0.0", "int32": "0i", "uint32": "0u"}


@template("scatter_add")
def scatter_add(context: Context) -> KernelBody:
    """Each output element looks through the indices, in order, for its row."""
    node, (indices, updates) = context.node, context.inputs
    rest = _names("c", updates.ndim - 1)
    count = math.prod(node.shape)
    workgroups, flat = fold_workgroups(ceil_div(count, 64), context.limits.workgroups)
    body = f"""let e = {flat} * 64u + thread;
if (e >= {count}u) {{ return; }}
{digits("e", node.shape, ["row", *rest])}
var total = {_ZERO[computed(node.dtype)]};
for (var s = 0u; s < {indices.shape[0]}u; s++) {{
if ({context.load(0)}(s) == i32(row)) {{ total += {context.load(1)}({_join("s", rest)}); }}
}}
{context.store}({_join("row", rest, "total")});"""
    return KernelBody((64, 1, 1), workgroups, "", body)


@template("cumsum")
def cumsum(context: Context) -> KernelBody:
    """One invocation walks along one row."""
    node, (x,) = context.node, context.inputs
    axis, reverse = node.attributes["axis"], node.attributes["reverse"]
    names = _names("c", x.ndim)
    others = [n for i, n in enumerate(x.shape) if i != axis]
    count = math.prod(others)
    kept = [n for i, n in enumerate(names) if i != axis]
    workgroups, flat = fold_workgroups(ceil_div(count, 64), context.limits.workgroups)
    place = f"{x.shape[axis] - 1}u - s" if reverse else "s"
    body = f"""let e = {flat} * 64u + thread;
if (e >= {count}u) {{ return; }}
{digits("e", others, kept) if others else ""}
var total = {WGSL_TYPES[x.dtype]}();
for (var s = 0u; s < {x.shape[axis]}u; s++) {{
let {names[axis]} = {place};
total += {context.load(0)}({_join(names)});
{context.store}({_join(names, "total")});
}}"""
    return KernelBody((64, 1, 1), workgroups, "", body)
