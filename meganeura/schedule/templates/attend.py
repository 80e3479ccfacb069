"""Attention over few keys: scores, softmax and weighted sum in one kernel, with no scores in memory.

A workgroup has a few queries and keeps their scores for all keys; so each key and value is read once
for all of them. On software adapters an invocation has one query and no barrier is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from meganeura.ops.registry import REGISTRY
from meganeura.schedule.plan import Limits
from meganeura.schedule.templates.base import (
    Context,
    KernelBody,
    ceil_div,
    fold_workgroups,
    template,
)

LANES = 64
#: Keys, at most: of more than that, products with tiles read each one less often.
LARGEST = 512
_EXP = str(REGISTRY["exp"].wgsl)


def queries_of(limits: Limits, queries: int, keys: int, width: int) -> int:
    """How many queries a workgroup takes: 8, 4, 2 or 1; 0 where it is not the way."""
    if keys > LARGEST:
        return 0
    if limits.software:
        return 1
    count = 8
    while count and 4 * (count * (keys + width) + LANES) > limits.workgroup_bytes:
        count //= 2
    while count > 1 and count // 2 >= queries:
        count //= 2
    return count


def _digits(flat: str, shape: Sequence[int]) -> list[str]:
    found, stride = [], 1
    for n in reversed(shape):
        found.append("0u" if n == 1 else f"(({flat} / {stride}u) % {n}u)")
        stride *= n
    return found[::-1]


def _spread(shape: Sequence[int], batch: Sequence[int]) -> list[str]:
    """Batch coordinates of an operand that broadcasts to `batch`."""
    texts = _digits("batch", batch)[len(batch) - len(shape) :]
    return ["0u" if n == 1 else text for n, text in zip(shape, texts, strict=True)]


@template("attend")
def attend(context: Context) -> KernelBody:
    node = context.node
    x, v = context.inputs[:2]
    scored = len(context.inputs) > 2
    *batch, queries, width = node.shape
    keys, a = x.shape[-1], node.attributes
    depth = 1

    def call(name: str, shape: Sequence[int], among: Sequence[int], *last: str) -> str:
        return f"{name}({', '.join([*_spread(shape[:-2], among), *last])})"

    lines = []
    if scored:
        q, k, score = context.inputs[2:]
        depth = q.shape[-2] if a["transpose_q"] else q.shape[-1]
        among = score.shape[:-2]
        lines += [
            "fn fetch_q(batch: u32, r: u32, t: u32) -> f32 { return "
            + call(
                context.load(2), q.shape, among, *(("t", "r") if a["transpose_q"] else ("r", "t"))
            )
            + "; }",
            "fn fetch_k(batch: u32, t: u32, n: u32) -> f32 { return "
            + call(
                context.load(3), k.shape, among, *(("n", "t") if a["transpose_k"] else ("t", "n"))
            )
            + "; }",
        ]
    weigh = call(context.load(0), x.shape, x.shape[:-2], "r", "n", *(("s",) if scored else ()))
    fetch = call(context.load(1), v.shape, batch, *(("d", "n") if a["transpose_v"] else ("n", "d")))
    place = ", ".join([*_digits("batch", batch), "r", "d", "value"])
    lines += [
        f"fn weigh(batch: u32, r: u32, n: u32, s: f32) -> f32 {{ return {weigh}; }}",
        f"fn fetch_v(batch: u32, n: u32, d: u32) -> f32 {{ return {fetch}; }}",
        f"fn put(batch: u32, r: u32, d: u32, value: f32) {{ {context.store}({place}); }}",
    ]
    count = math.prod(batch)
    sizes = {"M": queries, "N": keys, "D": depth if scored else 0, "V": width}
    if context.limits.software:
        return _alone(count, sizes, lines, context.limits)
    rows = queries_of(context.limits, queries, keys, sizes["D"])
    return _together(count, rows, sizes, lines, context.limits)


def _alone(count: int, s: dict[str, int], lines: list[str], limits: Limits) -> KernelBody:
    threads = 32
    some = ", ".join(f"fetch_v(batch, n, at.{c})" for c in "xyzw")
    workgroups, flat = fold_workgroups(ceil_div(count * s["M"], threads), limits.workgroups)
    body = f"""let e = {flat} * {threads}u + thread;
if (e >= {count * s["M"]}u) {{ return; }}
let batch = e / {s["M"]}u;
let r = e % {s["M"]}u;
var w: array<f32, {s["N"]}>;
var top = mg_from_bits(0xff800000u);
for (var n = 0u; n < {s["N"]}u; n += 4u) {{
let last = vec4<u32>({s["N"] - 1}u);
let at = min(vec4<u32>(n, n + 1u, n + 2u, n + 3u), last);
var dot = vec4<f32>();
{_dot(s)}
for (var i = 0u; i < 4u; i++) {{
let x = weigh(batch, r, at[i], dot[i]);
w[at[i]] = x;
top = mg_max(top, x);
}}
}}
var total = 0.0;
for (var n = 0u; n < {s["N"]}u; n++) {{
let x = w[n] - top;
let y = {_EXP.format("x")};
w[n] = y;
total += y;
}}
for (var d = 0u; d < {s["V"]}u; d += 4u) {{
let at = min(vec4<u32>(d, d + 1u, d + 2u, d + 3u), vec4<u32>({s["V"] - 1}u));
var sum = vec4<f32>();
for (var n = 0u; n < {s["N"]}u; n++) {{
let some = vec4<f32>({some});
sum = fma(vec4<f32>(w[n]), some, sum);
}}
for (var i = 0u; i < 4u; i++) {{
if (d + i < {s["V"]}u) {{ put(batch, r, d + i, sum[i] / total); }}
}}
}}"""
    return KernelBody((threads, 1, 1), workgroups, "\n".join(lines), body)


def _dot(s: dict[str, int]) -> str:
    if not s["D"]:
        return ""
    some = ", ".join(f"fetch_k(batch, t, at.{c})" for c in "xyzw")
    return f"""for (var t = 0u; t < {s["D"]}u; t++) {{
dot = fma(vec4<f32>(fetch_q(batch, r, t)), vec4<f32>({some}), dot);
}}"""


def _together(
    count: int, rows: int, s: dict[str, int], lines: list[str], limits: Limits
) -> KernelBody:
    blocks, each = ceil_div(s["M"], rows), LANES // rows
    workgroups, flat = fold_workgroups(count * blocks, limits.workgroups)
    memory = [
        f"var<workgroup> weights: array<f32, {rows * s['N']}>;",
        f"var<workgroup> partial: array<f32, {LANES}>;",
    ]
    rest = [f"let r{i} = min(row0 + {i}u, {s['M'] - 1}u);" for i in range(rows)]
    score = [f"var s{i} = 0.0;" for i in range(rows)]
    stage = ""
    if s["D"]:
        memory.append(f"var<workgroup> asked: array<f32, {rows * s['D']}>;")
        stage = f"""for (var e = thread; e < {rows * s["D"]}u; e += {LANES}u) {{
asked[e] = fetch_q(batch, min(row0 + e / {s["D"]}u, {s["M"] - 1}u), e % {s["D"]}u);
}}
workgroupBarrier();"""
        score += [f"for (var t = 0u; t < {s['D']}u; t++) {{", "let key = fetch_k(batch, t, n);"]
        score += [f"s{i} = fma(asked[{i * s['D']}u + t], key, s{i});" for i in range(rows)] + ["}"]
    score += [f"weights[{i * s['N']}u + n] = weigh(batch, r{i}, n, s{i});" for i in range(rows)]
    totals = []
    for i in range(rows):
        totals.append(f"var total{i} = 0.0;")
        totals.append(
            f"for (var i = 0u; i < {each}u; i++) {{ total{i} += partial[{i * each}u + i]; }}"
        )
    sums = [f"var a{i} = 0.0;" for i in range(rows)]
    adding = [f"a{i} = fma(weights[{i * s['N']}u + n], some, a{i});" for i in range(rows)]
    puts = [
        f"if (row0 + {i}u < {s['M']}u) {{ put(batch, row0 + {i}u, d, a{i} / total{i}); }}"
        for i in range(rows)
    ]
    newline = "\n"
    body = f"""let unit = {flat};
if (unit >= {count * blocks}u) {{ return; }}
let batch = unit / {blocks}u;
let row0 = (unit % {blocks}u) * {rows}u;
{newline.join(rest)}
{stage}
for (var n = thread; n < {s["N"]}u; n += {LANES}u) {{
{newline.join(score)}
}}
workgroupBarrier();
let row = thread / {each}u;
let lane = thread % {each}u;
var top = mg_from_bits(0xff800000u);
for (var n = lane; n < {s["N"]}u; n += {each}u) {{ top = mg_max(top, weights[row * {s["N"]}u + n]); }}
partial[thread] = top;
workgroupBarrier();
for (var i = 0u; i < {each}u; i++) {{ top = mg_max(top, partial[row * {each}u + i]); }}
workgroupBarrier();
var some_total = 0.0;
for (var n = lane; n < {s["N"]}u; n += {each}u) {{
let x = weights[row * {s["N"]}u + n] - top;
let y = {_EXP.format("x")};
weights[row * {s["N"]}u + n] = y;
some_total += y;
}}
partial[thread] = some_total;
workgroupBarrier();
{newline.join(totals)}
for (var d = thread; d < {s["V"]}u; d += {LANES}u) {{
{newline.join(sums)}
for (var n = 0u; n < {s["N"]}u; n++) {{
let some = fetch_v(batch, n, d);
{newline.join(adding)}
}}
{newline.join(puts)}
}}"""
    return KernelBody((LANES, 1, 1), workgroups, "\n".join([*memory, *lines]), body)
