"""The core of every product (matrix product and convolution): tiles, registers, or one output at a time."""

from __future__ import annotations

from dataclasses import dataclass

from meganeura.schedule.plan import Limits
from meganeura.schedule.shader_text import shader
from meganeura.schedule.templates.base import KernelBody, ceil_div


@dataclass(frozen=True)
class Product:
    """out[b, m, n] = sum_k a[b, m, k] b[b, k, n].

    `functions` is WGSL that defines fetch_a(batch, row, term), fetch_b(batch, term, column) and
    put(batch, row, column, value). `a_along_terms` says that neighbouring terms of `a` are
    neighbours in memory (else neighbouring rows); `b_along_columns` likewise for `b`.
    """

    batch: int
    m: int
    n: int
    k: int
    functions: str
    a_along_terms: bool = True
    b_along_columns: bool = True


def lower(p: Product, limits: Limits) -> KernelBody:
    """Choose by shape and device."""
    if p.n < 4 or p.m < 4:
        few = p.batch * p.m * p.n < 4096 and p.k >= 256 and not limits.software
        if few and p.a_along_terms and not p.b_along_columns:
            return _reduced(p, limits)
        return _direct(p, limits)
    return _registers(p) if limits.software else _tiled(p, limits)


def _fold(count: int, limits: Limits) -> tuple[int, int]:
    """Workgroups in x and y whose product is at least `count`."""
    if count <= limits.workgroups:
        return max(count, 1), 1
    rows = ceil_div(count, limits.workgroups)
    return ceil_div(count, rows), rows


def _direct(p: Product, limits: Limits) -> KernelBody:
    count, threads = p.m * p.n, 64
    x, y = _fold(ceil_div(count, threads), limits)
    body = shader("product_direct", ROW=x, THREADS=threads, COUNT=count, N=p.n, K=p.k)
    return KernelBody((threads, 1, 1), (x, y, p.batch), p.functions, body)


def _reduced(p: Product, limits: Limits) -> KernelBody:
    lanes, count = 64, p.m * p.n
    x, y = _fold(count, limits)
    tree = []
    half = lanes // 2
    while half:
        tree.append(
            f"if (thread < {half}u) {{ partial[thread] += partial[thread + {half}u]; }} workgroupBarrier();"
        )
        half //= 2
    body = shader(
        "product_reduced", ROW=x, LANES=lanes, COUNT=count, N=p.n, K=p.k, TREE="\n".join(tree)
    )
    declarations = f"var<workgroup> partial: array<f32, {lanes}>;\n{p.functions}"
    return KernelBody((lanes, 1, 1), (x, y, p.batch), declarations, body)


def _registers(p: Product) -> KernelBody:
    tm, tn = (4, 8) if p.n >= 8 else (8, 4)
    rows, columns = ceil_div(p.m, tm), ceil_div(p.n, tn)
    threads = 32
    declare = [f"var c{i}_{j} = vec4<f32>();" for i in range(tm) for j in range(tn // 4)]
    declare += [f"let m{i} = min(row0 + {i}u, {p.m - 1}u);" for i in range(tm)]
    declare += [f"let n{j} = min(column0 + {j}u, {p.n - 1}u);" for j in range(tn)]
    multiply = []
    for j in range(tn // 4):
        parts = ", ".join(f"fetch_b(batch, k, n{4 * j + q})" for q in range(4))
        multiply.append(f"let b{j} = vec4<f32>({parts});")
    for i in range(tm):
        multiply.append(f"let a{i} = fetch_a(batch, m{i}, k);")
        multiply += [f"c{i}_{j} = fma(vec4<f32>(a{i}), b{j}, c{i}_{j});" for j in range(tn // 4)]
    store = []
    for i in range(tm):
        inner = [
            f"if (column0 + {j}u < {p.n}u) "
            f"{{ put(batch, row0 + {i}u, column0 + {j}u, c{i}_{j // 4}.{'xyzw'[j % 4]}); }}"
            for j in range(tn)
        ]
        store += [f"if (row0 + {i}u < {p.m}u) {{", *inner, "}"]
    body = shader(
        "product_registers", TM=tm, TN=tn, THREADS=threads, TILES=rows * columns, COLUMNS=columns, K=p.k,
        DECLARE="\n".join(declare), MULTIPLY="\n".join(multiply), STORE="\n".join(store),
    )  # fmt: skip
    return KernelBody(
        (threads, 1, 1), (ceil_div(rows * columns, threads), 1, p.batch), p.functions, body
    )


def _tiled(p: Product, limits: Limits) -> KernelBody:
    """Square-ish blocks; smaller ones where there would be too few to fill the device."""
    choices = (
        ((128, 128, 8), (64, 64, 4), (32, 32, 2)) if limits.invocations >= 256 else ((32, 32, 2),)
    )
    bm, bn, t = choices[-1]
    for bm_, bn_, t_ in choices:
        if ceil_div(p.m, bm_) * ceil_div(p.n, bn_) * p.batch >= 132:
            bm, bn, t = bm_, bn_, t_
            break
    bk = 16 if t > 2 else 32
    threads = (bm // t) * (bn // t)
    tx = bn // t
    wide = t >= 4
    load = [
        *_stage("a", p.a_along_terms, bm, bk, threads, "row0", p.m, p.k),
        *_stage("b", not p.b_along_columns, bn, bk, threads, "column0", p.n, p.k),
    ]
    if wide:
        chunks = t // 4
        declare = [f"var c{i}_{j} = vec4<f32>();" for i in range(t) for j in range(chunks)]
        multiply = _wide_multiply(bm, bn, bk, t, chunks)
        rows = [f"row0 + {i // 4 * (bm // chunks)}u + ty * 4u + {i % 4}u" for i in range(t)]
        columns = [f"column0 + {j // 4 * (bn // chunks)}u + tx * 4u + {j % 4}u" for j in range(t)]
        values = [[f"c{i}_{j // 4}.{'xyzw'[j % 4]}" for j in range(t)] for i in range(t)]
        memory = (
            f"var<workgroup> a_tile: array<vec4<f32>, {bk * bm // 4}>;\n"
            f"var<workgroup> b_tile: array<vec4<f32>, {bk * bn // 4}>;"
        )
    else:
        declare = [f"var c{i}_{j} = 0.0;" for i in range(t) for j in range(t)]
        multiply = [f"for (var k = 0u; k < {bk}u; k++) {{"]
        multiply += [f"let a{i} = a_tile[k * {bm}u + ty * {t}u + {i}u];" for i in range(t)]
        multiply += [f"let b{j} = b_tile[k * {bn}u + tx * {t}u + {j}u];" for j in range(t)]
        multiply += [
            f"c{i}_{j} = fma(a{i}, b{j}, c{i}_{j});" for i in range(t) for j in range(t)
        ] + ["}"]
        rows = [f"row0 + ty * {t}u + {i}u" for i in range(t)]
        columns = [f"column0 + tx * {t}u + {j}u" for j in range(t)]
        values = [[f"c{i}_{j}" for j in range(t)] for i in range(t)]
        memory = f"var<workgroup> a_tile: array<f32, {bk * bm}>;\nvar<workgroup> b_tile: array<f32, {bk * bn}>;"
    store = []
    for i, row in enumerate(rows):
        store.append(f"{{ let row = {row}; if (row < {p.m}u) {{")
        store += [
            f"{{ let column = {column}; if (column < {p.n}u) {{ put(batch, row, column, {values[i][j]}); }} }}"
            for j, column in enumerate(columns)
        ]
        store.append("} }")
    body = shader(
        "product_tiled", BM=bm, BN=bn, BK=bk, TX=tx, K=p.k, DECLARE="\n".join(declare),
        LOAD="\n".join(load if not wide else [x.replace("@", "v") for x in load]),
        MULTIPLY="\n".join(multiply), STORE="\n".join(store),
    )  # fmt: skip
    size = (ceil_div(p.n, bn), ceil_div(p.m, bm), p.batch)
    return KernelBody((threads, 1, 1), size, f"{memory}\n{p.functions}", body)


def _wide_multiply(bm: int, bn: int, bk: int, t: int, chunks: int) -> list[str]:
    lines = []
    for k in range(bk):
        lines.append("{")
        lines += [
            f"let a{i} = a_tile[{k * bm // 4 + i * (bm // chunks) // 4}u + ty];"
            for i in range(chunks)
        ]
        lines += [
            f"let b{j} = b_tile[{k * bn // 4 + j * (bn // chunks) // 4}u + tx];"
            for j in range(chunks)
        ]
        lines += [
            f"c{i}_{j} = fma(vec4<f32>(a{i // 4}.{'xyzw'[i % 4]}), b{j}, c{i}_{j});"
            for i in range(t)
            for j in range(chunks)
        ]
        lines.append("}")
    return lines


def _stage(
    name: str, along_terms: bool, block: int, bk: int, threads: int, start: str, limit: int, k: int
) -> list[str]:
    """Copy one operand's tile: neighbouring threads read neighbours in memory."""
    lines = []
    vector = threads == 256 and block >= 64
    for q in range(ceil_div(block * bk, threads)):
        element = f"(thread + {q * threads}u)"
        inner, outer = (f"{element} % {bk}u", f"{element} / {bk}u") if along_terms else (
            f"{element} / {block}u", f"{element} % {block}u"
        )  # fmt: skip
        fetch = (
            f"fetch_a(batch, {start} + o, k0 + t)"
            if name == "a"
            else f"fetch_b(batch, k0 + t, {start} + o)"
        )
        place = (
            f"{name}_tile[t * {block // 4}u + o / 4u][o % 4u]"
            if vector
            else f"{name}_tile[t * {block}u + o]"
        )
        lines.append(
            f"{{ let t = {inner}; let o = {outer}; var e = 0.0; "
            f"if ({start} + o < {limit}u && k0 + t < {k}u) {{ e = {fetch}; }} {place} = e; }}"
        )
    return lines
