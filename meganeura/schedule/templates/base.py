"""What a kernel template is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from meganeura.graph.node import Node
from meganeura.schedule.plan import Limits


@dataclass
class KernelBody:
    """The text of a kernel without its bindings, load and store functions, and `main`."""

    workgroup_size: tuple[int, int, int]
    workgroups: tuple[int, int, int]
    declarations: str
    body: str


class Context(Protocol):
    """The view that a template has of its operands and its result: logical coordinates only."""

    node: Node
    inputs: list[Node]
    limits: Limits

    def load(self, operand: int) -> str: ...
    def vector_axis(self, operand: int) -> int | None: ...
    def load4(self, operand: int) -> str: ...
    def packed(self, operand: int) -> bool: ...

    store: str
    vector_store: bool
    store4: str


Lower = Callable[[Context], KernelBody]
TEMPLATES: dict[str, Lower] = {}


def template(*ops: str) -> Callable[[Lower], Lower]:
    """Register the lowering of these operations."""

    def register(function: Lower) -> Lower:
        for op in ops:
            TEMPLATES[op] = function
        return function

    return register


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def fold_workgroups(count: int, limit: int = 65535) -> tuple[tuple[int, int, int], str]:
    """A count of workgroups as a 2-D size within the limit, and the WGSL text of the flat number.

    Kernels guard against numbers past the count.
    """
    if count <= limit:
        return (count, 1, 1), "group.x"
    rows = ceil_div(count, limit)
    columns = ceil_div(count, rows)
    return (columns, rows, 1), f"(group.y * {columns}u + group.x)"


@dataclass
class Product:
    """out[b, m, n] = sum_k a[b, m, k] b[b, k, n].

    `functions` are WGSL functions by name: fetch_a(batch, row, term), fetch_b(batch, term, column) and
    put(batch, row, column, value). `a_along_terms` says that neighbouring terms of `a` are
    neighbours in memory (else neighbouring rows); `b_along_columns` likewise for `b`. Where
    `a_vector` or `b_vector` is set, the functions have fetch_a4 or fetch_b4 as well: four neighbours,
    the first at a multiple of 4. Where there is a put4, it takes four columns from a multiple of 4 on.
    """

    batch: int
    m: int
    n: int
    k: int
    functions: dict[str, str]
    a_along_terms: bool = True
    b_along_columns: bool = True
    a_vector: bool = False
    b_vector: bool = False
    #: whether four neighbours of `b` are few bytes
    b_packed: bool = False
    #: a function terms_of(batch), where some products of the batch have no terms: 0 or k
    terms: str = ""
    #: in how many parts the terms are summed up, each stored by itself; put is then called with the number of a
    #: part within all parts of the batch
    parts: int = 1


def result_shape(node: Node) -> tuple[int, ...]:
    """The shape of the product, of which the node may have several parts."""
    return node.shape[1:] if "parts" in node.attributes else node.shape


def puts(
    context: Context, columns: int, prelude: str, coordinates: str, test: str = ""
) -> dict[str, str]:
    """put, and put4 where the result may be stored in quads: they store at `coordinates`, if `test` holds."""
    found = {}
    number = "let batch = number;"
    if "parts" in context.node.attributes:
        parts = context.node.attributes["parts"]
        number = f"let batch = number / {parts}u;"
        coordinates = f"number % {parts}u, {coordinates}"
    for name, kind, store in (
        ("put", "f32", context.store),
        ("put4", "vec4<f32>", context.store4),
    ):
        if name == "put4" and (columns % 4 or not context.vector_store):
            continue
        statement = f"{store}({coordinates}, value);"
        statement = f"if ({test}) {{ {statement} }}" if test else statement
        found[name] = (
            f"fn {name}(number: u32, m: u32, n: u32, value: {kind}) {{ {number} {prelude} {statement} }}"
        )
    return found


def used(p: Product, body: str) -> str:
    """The functions that the body calls."""
    return "\n".join(text for name, text in p.functions.items() if f"{name}(" in body)


def fold(count: int, limits: Limits) -> tuple[int, int]:
    """Workgroups in x and y whose product is at least `count`."""
    if count <= limits.workgroups:
        return max(count, 1), 1
    rows = ceil_div(count, limits.workgroups)
    return ceil_div(count, rows), rows
