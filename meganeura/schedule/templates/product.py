"""The core of every product (matrix product and convolution): tiles, registers, or one output at a time."""

from __future__ import annotations

from dataclasses import replace

from meganeura.ops.parts import part_length
from meganeura.schedule.plan import Limits
from meganeura.schedule.shader_text import shader
from meganeura.schedule.templates import thin, tiles
from meganeura.schedule.templates.base import KernelBody, Product, ceil_div, fold, used


def lower(p: Product, limits: Limits) -> KernelBody:
    """Choose by shape and device."""
    if p.parts > 1:
        p = _in_parts(p)
    if p.m < 4 and p.n >= 16 and p.k >= 16 and not limits.software:
        return thin.by_columns(p, limits) if p.b_along_columns else thin.by_terms(p, limits)
    if p.n < 4 or p.m < 4:
        few = p.batch * p.m * p.n < 4096 and p.k >= 256 and not limits.software
        if few and p.a_along_terms and not p.b_along_columns:
            return _reduced(p, limits)
        return _direct(p, limits)
    return _registers(p) if limits.software else _block(p, limits)


def _in_parts(p: Product) -> Product:
    """Every part as a product of its own."""
    length = part_length(p.k, p.parts)
    functions = dict(p.functions)
    for name, text in p.functions.items():
        if not name.startswith("fetch"):
            continue
        kind = "vec4<f32>" if name.endswith("4") else "f32"
        order = "k, n" if name.startswith("fetch_b") else "m, k"
        own = order.replace("k", "term").replace(", ", ": u32, ")
        test = f"if (k >= {p.k}u) {{ return {kind}(); }} " if p.parts * length > p.k else ""
        functions[name] = (
            f"{text.replace(name, f'whole_{name}', 1)}\n"
            f"fn {name}(number: u32, {own}: u32) -> {kind} {{ let k = number % {p.parts}u * {length}u + term; "
            f"{test}return whole_{name}(number / {p.parts}u, {order}); }}"
        )
    terms = p.terms
    if terms:
        whole = terms.replace("terms_of", "whole_terms_of", 1)
        inner = f"min(whole_terms_of(number / {p.parts}u), {length}u)"
        terms = f"{whole}\nfn terms_of(number: u32) -> u32 {{ return {inner}; }}"
    return replace(p, batch=p.batch * p.parts, k=length, functions=functions, terms=terms, parts=1)


def _block(p: Product, limits: Limits) -> KernelBody:
    tile = tiles.choose(p.batch, p.m, p.n, p.k, limits)
    memory, body = tiles.block_text(
        p.m, p.n, p.k, tile,
        tiles.Operand("a", p.a_along_terms, p.a_vector),
        tiles.Operand("b", not p.b_along_columns, p.b_vector),
        "terms_of(batch)" if p.terms else f"{p.k}u",
        "put4" in p.functions,
    )  # fmt: skip
    size = (ceil_div(p.n, tile.bn), ceil_div(p.m, tile.bm), p.batch)
    return KernelBody((tile.threads, 1, 1), size, f"{memory}\n{p.terms}\n{used(p, body)}", body)


def _direct(p: Product, limits: Limits) -> KernelBody:
    count, threads = p.m * p.n, 64
    x, y = fold(ceil_div(count, threads), limits)
    add = "total = fma(fetch_a(batch, row, k), fetch_b(batch, k, column), total);"
    if _dots(p):
        add = "total += dot(fetch_a4(batch, row, k), fetch_b4(batch, k, column));"
    body = shader(
        "product_direct", ROW=x, THREADS=threads, COUNT=count, N=p.n, K=p.k,
        STEP=4 if _dots(p) else 1, ADD=add,
    )  # fmt: skip
    return KernelBody((threads, 1, 1), (x, y, p.batch), used(p, body), body)


def _dots(p: Product) -> bool:
    """Whether four neighbouring terms of a row and of a column are read at once."""
    return p.b_vector and not p.b_along_columns and p.a_vector and p.a_along_terms


def _reduced(p: Product, limits: Limits) -> KernelBody:
    lanes, count = 64, p.m * p.n
    x, y = fold(count, limits)
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
    declarations = f"var<workgroup> partial: array<f32, {lanes}>;\n{used(p, body)}"
    return KernelBody((lanes, 1, 1), (x, y, p.batch), declarations, body)


#: Outputs of one invocation on a software device, rows and columns, by the multiplications of the product
#: from which on they pay: there a load takes as long as a dozen multiplications, and more outputs share
#: it, but drivers need twice as long for each next kernel (1, 2 and 4 seconds for a convnet's step).
_REGISTERS = ((1 << 25, (8, 16)), (1 << 23, (8, 8)), (0, (4, 8)))


def _multiply(tm: int, tn: int, four: bool) -> list[str]:
    """One term of tm x tn outputs, or four."""
    quads = range(tn // 4)
    if four:
        lines = [f"let b{j} = fetch_b4(batch, k, n{j});" for j in range(tn)]
        for i in range(tm):
            lines.append(f"let a{i} = fetch_a4(batch, m{i}, k);")
            for j in quads:
                parts = ", ".join(f"dot(a{i}, b{4 * j + q})" for q in range(4))
                lines.append(f"c{i}_{j} += vec4<f32>({parts});")
        return lines
    lines = []
    for j in quads:
        parts = ", ".join(f"fetch_b(batch, k, n{4 * j + q})" for q in range(4))
        lines.append(f"let b{j} = vec4<f32>({parts});")
    for i in range(tm):
        lines.append(f"let a{i} = fetch_a(batch, m{i}, k);")
        lines += [f"c{i}_{j} = fma(vec4<f32>(a{i}), b{j}, c{i}_{j});" for j in quads]
    return lines


def _registers(p: Product) -> KernelBody:
    work = p.batch * p.m * p.n * p.k
    fitting = (tile for least, tile in _REGISTERS if work >= least and 4 * p.n >= 3 * tile[1])
    tm, tn = next(fitting, (8, 4))
    unpacking = p.b_packed and _dots(p)  # four values cost little more than one
    if unpacking:
        tm, tn = _REGISTERS[-1][1] if p.n >= 8 else (8, 4)
    rows, columns = ceil_div(p.m, tm), ceil_div(p.n, tn)
    # Lanes of one vector unit are one workgroup where there are few: each processor takes whole groups.
    threads = 32 if rows * columns * p.batch >= 2048 else 8
    quads = tn // 4
    declare = [f"var c{i}_{j} = vec4<f32>();" for i in range(tm) for j in range(quads)]
    declare += [f"let m{i} = min(row0 + {i}u, {p.m - 1}u);" for i in range(tm)]
    declare += [f"let n{j} = min(column0 + {j}u, {p.n - 1}u);" for j in range(tn)]
    gather = [f"c[{i * quads + j}] = c{i}_{j};" for i in range(tm) for j in range(quads)]
    body = shader(
        "product_registers", TM=tm, TN=tn, THREADS=threads, TILES=rows * columns, COLUMNS=columns,
        QUADS=quads, M=p.m, N=p.n, K=p.k, TERMS=4 if unpacking else 1, DECLARE="\n".join(declare),
        MULTIPLY="\n".join(_multiply(tm, tn, unpacking)), GATHER="\n".join(gather),
    )  # fmt: skip
    return KernelBody(
        (threads, 1, 1), (ceil_div(rows * columns, threads), 1, p.batch), used(p, body), body
    )
