"""Products of a few rows with a matrix, which is read once: the speed of memory is the limit."""

from __future__ import annotations

from meganeura.schedule.plan import Limits
from meganeura.schedule.shader_text import shader
from meganeura.schedule.templates.base import KernelBody, Product, ceil_div, fold, used

#: Workgroups that fill a large device.
_ENOUGH = 96


def by_columns(p: Product, limits: Limits) -> KernelBody:
    """Neighbouring columns are neighbours in memory: lanes go along them, slices along the terms."""
    width = 4 if p.b_vector else 1
    threads = min(256, limits.invocations)
    lanes = next(
        (n for n in (64 // width, 32 // width) if p.n * p.batch >= n * width * _ENOUGH), 16 // width
    )
    slices = threads // lanes
    kind, zero = ("vec4<f32>", "vec4<f32>()") if p.b_vector else ("f32", "0.0")
    store = (
        "put4(batch, row, column, total);"
        if p.b_vector and "put4" in p.functions
        else "\n".join(
            f"if (column + {q}u < {p.n}u) {{ put(batch, row, column + {q}u, total.{'xyzw'[q]}); }}"
            for q in range(4)
        )
        if p.b_vector
        else "put(batch, row, column, total);"
    )
    x, y = fold(ceil_div(p.n, lanes * width), limits)
    body = shader(
        "product_gemv", ROWS=p.m, LANES=lanes, WIDTH=width, SLICES=slices, ROW=x,
        SPAN=lanes * width, THREADS=threads, N=p.n, K=p.k,
        DECLARE="\n".join(f"var c{i} = {zero};" for i in range(p.m)),
        FETCH_B=f"fetch_b{'4' if p.b_vector else ''}(batch, k, column)",
        MULTIPLY="\n".join(
            f"c{i} = fma({kind}(fetch_a(batch, {i}u, k)), b, c{i});" for i in range(p.m)
        ),
        KEEP="\n".join(f"partial[{i * threads}u + thread] = c{i};" for i in range(p.m)),
        STORE=store,
    )  # fmt: skip
    memory = f"var<workgroup> partial: array<{kind}, {p.m * threads}>;"
    return KernelBody((threads, 1, 1), (x, y, p.batch), f"{memory}\n{used(p, body)}", body)


def by_terms(p: Product, limits: Limits) -> KernelBody:
    """Neighbouring terms are neighbours in memory: lanes go along them."""
    wide = p.b_vector and p.a_vector and p.a_along_terms
    width = 4 if wide else 1
    threads = min(256, limits.invocations)
    lanes, columns = _shares(p, width, threads)
    span = threads // lanes
    suffix = "4" if wide else ""
    multiply = "c{c} += dot(a{i}, b{j});" if wide else "c{c} = fma(a{i}, b{j}, c{c});"
    each = [(i * columns + j, i, j) for i in range(p.m) for j in range(columns)]
    fetched = [
        f"let b{j} = fetch_b{suffix}(batch, k, {f'min(first + {j}u, {p.n - 1}u)' if j else 'first'});"
        for j in range(columns)
    ] + [f"let a{i} = fetch_a{suffix}(batch, {i}u, k);" for i in range(p.m)]
    x, y = fold(ceil_div(p.n, span * columns), limits)
    body = shader(
        "product_dot", ROWS=p.m, LANES=lanes, WIDTH=width, STEP=lanes * width, ROW=x, SPAN=span,
        COLUMNS=columns, OUTPUTS=p.m * columns, THREADS=threads, N=p.n, K=p.k,
        DECLARE="\n".join(f"var c{c} = 0.0;" for c, _, _ in each),
        MULTIPLY="\n".join([*fetched, *(multiply.format(c=c, i=i, j=j) for c, i, j in each)]),
        KEEP="\n".join(f"partial[{c * threads}u + thread] = c{c};" for c, _, _ in each),
    )  # fmt: skip
    memory = f"var<workgroup> partial: array<f32, {len(each) * threads}>;"
    return KernelBody((threads, 1, 1), (x, y, p.batch), f"{memory}\n{used(p, body)}", body)


def _shares(p: Product, width: int, threads: int) -> tuple[int, int]:
    """How many lanes share the terms of a column, and how many columns they take at once.

    Of a packed table four values are a word or two: several columns at once have as many bytes under
    way as one column of float32 has, and read what they are multiplied with once.
    """

    def enough(lanes: int, columns: int) -> bool:
        return p.n * p.batch * lanes >= threads * _ENOUGH * columns

    if p.b_packed:
        busy = [n for n in (8, 16, 32) if n == 8 or n * width <= p.k]  # lanes that have work
        for lanes, columns in ((busy[-1], 4), (busy[-1], 2)):
            if enough(lanes, columns):
                return lanes, columns
    lanes = 8
    while lanes < 64 and not enough(lanes, 1):
        lanes *= 2
    return lanes, 1
