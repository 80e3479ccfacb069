"""Matrix products: the primitive `matmul`, and the contractions that lower to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, Shape
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.nodes import (
    broadcast_to,
    cast,
    mul,
    normalize_axis,
    reshape,
    total,
    transpose,
    unbroadcast,
)
from meganeura.ops.registry import Op, Sample, make, register

# --- the primitive -----------------------------------------------------------------------------


def _swapped(shape: Shape, swap: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if swap else shape


def _infer(a: Node, b: Node, transpose_a: bool, transpose_b: bool) -> tuple[Shape, str]:
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(f"matmul needs two dimensions or more, and got {a.shape} and {b.shape}")
    if a.dtype not in FLOATS or a.dtype != b.dtype:
        raise ValueError(
            f"matmul computes with floats of one dtype, and got {a.dtype} and {b.dtype}"
        )
    return _checked_shape(_swapped(a.shape, transpose_a), _swapped(b.shape, transpose_b)), a.dtype


def _checked_shape(left: Shape, right: Shape) -> Shape:
    if left[-1] != right[-2]:
        raise ValueError(
            f"matmul: the shapes {left} and {right} do not fit: {left[-1]} columns on the left, "
            f"{right[-2]} rows on the right"
        )
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        raise ValueError(f"matmul: the batches of {left} and {right} cannot be broadcast") from None
    return (*batch, left[-2], right[-1])


def _reference(a: np.ndarray, b: np.ndarray, transpose_a: bool, transpose_b: bool) -> np.ndarray:
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    b = np.swapaxes(b, -1, -2) if transpose_b else b
    return np.matmul(a, b)


def product(a: Node, b: Node, transpose_a: bool = False, transpose_b: bool = False) -> Node:
    """The product of matrices: the primitive for floats, exact sums of products for integers."""
    if a.dtype == b.dtype and a.dtype in FLOATS:
        return make("matmul", a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    _checked_shape(_swapped(a.shape, transpose_a), _swapped(b.shape, transpose_b))
    a = _swapped_node(a) if transpose_a else a
    b = _swapped_node(b) if transpose_b else b
    wide = mul(reshape(a, (*a.shape, 1)), reshape(b, (*b.shape[:-2], 1, *b.shape[-2:])))
    return total(wide, (wide.ndim - 2,))


def _swapped_node(x: Node) -> Node:
    return transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _gradient(node: Node, g: Node) -> list[Node | None]:
    a, b = node.inputs
    ta, tb = node.attributes["transpose_a"], node.attributes["transpose_b"]
    da = product(b, g, tb, True) if ta else product(g, b, False, not tb)
    db = product(g, a, True, ta) if tb else product(a, g, not ta, False)
    return [_unbatch(da, a), _unbatch(db, b)]


def _unbatch(gradient: Node, like: Node) -> Node:
    return unbroadcast(gradient, like.shape)


def _samples(random: np.random.Generator) -> list[Sample]:
    found = []
    for a, b, ta, tb in (
        ((3, 4), (4, 5), False, False),
        ((4, 3), (5, 4), True, True),
        ((4, 3), (4, 5), True, False),
        ((3, 4), (5, 4), False, True),
        ((2, 3, 4), (4, 5), False, False),
        ((1, 2, 3, 4), (3, 1, 4, 2), False, False),
        ((5, 2, 4, 3), (2, 4, 6), True, False),
        ((1, 70), (70, 33), False, False),
        ((65, 17), (17, 67), False, False),
        ((130, 33), (131, 33), False, True),
        ((1, 1), (1, 1), False, False),
        ((0, 3), (3, 2), False, False),
        ((2, 0), (0, 3), False, False),
    ):
        arrays = tuple(random.standard_normal(s).astype("float32") for s in (a, b))
        attributes = {"transpose_a": ta, "transpose_b": tb}
        found.append(Sample(arrays, attributes, gradient=arrays[0].size < 200))
    return found


register(Op("matmul", "template", _infer, _reference, _gradient, samples=_samples))


# --- the functions -----------------------------------------------------------------------------


def _operands(*values: Any) -> list[Node]:
    """The values as nodes of one dtype that sums of products exist for: a float, int32 or uint32."""
    nodes = promote(*values)
    narrow = nodes[0].dtype in ("bool", "uint8")
    return [cast(n, "int32") for n in nodes] if narrow else nodes


@operation
def matmul(x1: Any, x2: Any) -> Any:
    """The matrix product: out[..., i, j] = sum_k x1[..., i, k] x2[..., k, j].

    Batches (leading dimensions) broadcast as in NumPy; a vector on the left is a row, on the right
    a column, and loses its extra dimension again. Integers are multiplied exactly, in int32 or
    uint32. Raises ValueError where the lengths do not fit, and for scalars.
    """
    a, b = _operands(x1, x2)
    if not a.ndim or not b.ndim:
        raise ValueError(f"matmul: a scalar has no matrix product; shapes {a.shape} and {b.shape}")
    row, column = a.ndim == 1, b.ndim == 1
    a = reshape(a, (1, *a.shape)) if row else a
    b = reshape(b, (*b.shape, 1)) if column else b
    # A matrix on the right sees one tall matrix on the left: batches fold into its rows.
    if a.ndim > 2 and b.ndim == 2:
        flat = product(reshape(a, (int(np.prod(a.shape[:-1])), a.shape[-1])), b)
        out = reshape(flat, (*a.shape[:-1], b.shape[-1]))
    else:
        out = product(a, b)
    if row:
        out = reshape(out, (*out.shape[:-2], out.shape[-1]))
    return reshape(out, out.shape[:-1]) if column else out


@operation
def dot(x1: Any, x2: Any) -> Any:
    """out[i.., j..] = sum_k x1[i.., k] x2[.., k, j]: the last dimension with the second to last.

    Scalars multiply. Raises ValueError where the lengths do not fit.
    """
    a, b = _operands(x1, x2)
    if not a.ndim or not b.ndim:
        return make("multiply", a, b)
    return tensordot(a, b, axes=[[a.ndim - 1], [max(b.ndim - 2, 0)]])


@operation
def vdot(x1: Any, x2: Any) -> Any:
    """sum_i x1[i] x2[i] over all elements of both, flattened: a scalar.

    Raises ValueError where the numbers of elements differ.
    """
    a, b = _operands(x1, x2)
    if a.size != b.size:
        raise ValueError(f"vdot: {a.shape} and {b.shape} have different numbers of elements")
    return matmul(reshape(a, (a.size,)), reshape(b, (b.size,)))


@operation
def inner(x1: Any, x2: Any) -> Any:
    """out[i.., j..] = sum_k x1[i.., k] x2[j.., k]; scalars multiply.

    Raises ValueError where the last dimensions differ.
    """
    a, b = _operands(x1, x2)
    if not a.ndim or not b.ndim:
        return make("multiply", a, b)
    return tensordot(a, b, axes=[[a.ndim - 1], [b.ndim - 1]])


@operation
def outer(x1: Any, x2: Any) -> Any:
    """out[i, j] = x1[i] x2[j] of the flattened tensors."""
    a, b = promote(x1, x2)
    return make("multiply", reshape(a, (a.size, 1)), reshape(b, (1, b.size)))


@operation
def tensordot(x1: Any, x2: Any, axes: Any = 2) -> Any:
    """The sum of products over `axes`; the dimensions of x1 that are left, then those of x2.

    `axes` is a number n (the last n dimensions of x1 with the first n of x2), or a pair of axes or
    of lists of axes. Raises ValueError where their lengths do not fit.
    """
    a, b = _operands(x1, x2)
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ValueError(f"tensordot: {axes} axes of the shapes {a.shape} and {b.shape}")
        left = list(range(a.ndim - int(axes), a.ndim))
        right = list(range(int(axes)))
    else:
        pair: list[list[Any]] = [[n] if isinstance(n, (int, np.integer)) else list(n) for n in axes]
        left = [normalize_axis(n, a.ndim) for n in pair[0]]
        right = [normalize_axis(n, b.ndim) for n in pair[1]]
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ValueError(f"tensordot: axes {axes} of shapes {a.shape} and {b.shape} do not fit")
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [i for i in range(b.ndim) if i not in right]
    m, n = [a.shape[i] for i in rows], [b.shape[i] for i in columns]
    k = int(np.prod([a.shape[i] for i in left], dtype=np.int64))
    flat_a = reshape(transpose(a, [*rows, *left]), (int(np.prod(m, dtype=np.int64)), k))
    flat_b = reshape(transpose(b, [*right, *columns]), (k, int(np.prod(n, dtype=np.int64))))
    return reshape(product(flat_a, flat_b), (*m, *n))


# --- einsum ------------------------------------------------------------------------------------


def _labels(equation: str, nodes: Sequence[Node]) -> tuple[list[str], str]:
    """Input and output labels with `...` spelt out in capitals that nobody uses."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(nodes):
        raise ValueError(f"einsum: {equation!r} names {len(terms)} tensors, and got {len(nodes)}")
    used = set(equation)
    free = [c for c in map(chr, range(0x391, 0x3C9)) if c not in used]
    widest = 0
    for term, node in zip(terms, nodes, strict=True):
        if "..." in term:
            widest = max(widest, node.ndim - len(term) + 3)
        elif len(term) != node.ndim:
            raise ValueError(
                f"einsum: {term!r} names {len(term)} dimensions of the shape {node.shape}"
            )
    dots = "".join(free[:widest])

    def expand(term: str, ndim: int | None) -> str:
        if "..." not in term:
            return term
        count = widest if ndim is None else ndim - len(term) + 3
        return term.replace("...", dots[widest - count :])

    inputs = [expand(t, n.ndim) for t, n in zip(terms, nodes, strict=True)]
    if not arrow:
        letters = sorted({c for t in inputs for c in t if c not in dots})
        right = ("..." if widest else "") + "".join(
            c for c in letters if sum(t.count(c) for t in inputs) == 1
        )
    return inputs, expand(right, None)


def _tidy(node: Node, term: str, kept: set[str]) -> tuple[Node, str]:
    """Take diagonals of repeated labels, and sum over labels that nobody else needs."""
    from meganeura.ops.creation import diagonal

    for label in dict.fromkeys(term):
        while term.count(label) > 1:
            first = term.index(label)
            second = term.index(label, first + 1)
            node = diagonal(node, 0, first, second)
            term = "".join(c for i, c in enumerate(term) if i not in (first, second)) + label
    axes = [i for i, c in enumerate(term) if c not in kept]
    return total(node, axes), "".join(c for c in term if c in kept)


def _contract(a: Node, ta: str, b: Node, tb: str, kept: set[str]) -> tuple[Node, str]:
    """One pair: batch labels in both and kept, summed labels in both and not kept."""
    batch = [c for c in ta if c in tb and c in kept]
    inner_labels = [c for c in ta if c in tb and c not in kept]
    rows = [c for c in ta if c not in tb]
    columns = [c for c in tb if c not in ta]
    size = {c: n for t, x in ((ta, a), (tb, b)) for c, n in zip(t, x.shape, strict=True) if n != 1}
    size = {c: size.get(c, 1) for c in ta + tb}
    a = transpose(a, [ta.index(c) for c in [*batch, *rows, *inner_labels]])
    b = transpose(b, [tb.index(c) for c in [*batch, *inner_labels, *columns]])
    count = len(batch)

    def block(x: Node, first: Sequence[str], second: Sequence[str]) -> Node:
        labels = [*first, *second]
        x = broadcast_to(x, (*x.shape[:count], *(size[c] for c in labels)))
        lengths = [int(np.prod([size[c] for c in p], dtype=np.int64)) for p in (first, second)]
        return reshape(x, (*x.shape[:count], *lengths))

    if not inner_labels:  # a product without a sum
        wide_a = reshape(a, (*a.shape, *[1] * len(columns)))
        wide_b = reshape(b, (*b.shape[:count], *[1] * len(rows), *b.shape[count:]))
        return mul(wide_a, wide_b), "".join([*batch, *rows, *columns])
    out = product(block(a, rows, inner_labels), block(b, inner_labels, columns))
    shape = (*out.shape[:-2], *(size[c] for c in rows), *(size[c] for c in columns))
    return reshape(out, shape), "".join([*batch, *rows, *columns])


@operation
def einsum(subscripts: str, *operands: Any) -> Any:
    """Sums of products by labelled dimensions, as in NumPy: "ij,jk->ik" is the matrix product.

    Repeated labels take diagonals, labels missing from the output are summed over, "..." stands
    for dimensions that broadcast, and without "->" the output is what occurs once, in order.
    Operands are taken two at a time from the left, and each pair becomes one matrix product (or a
    plain multiplication where nothing is summed). Raises ValueError where the labels do not fit.
    """
    nodes = _operands(*operands)
    terms, output = _labels(subscripts, nodes)
    for c in output:
        if output.count(c) > 1 or not any(c in t for t in terms):
            raise ValueError(
                f"einsum: the output label {c!r} of {subscripts!r} is repeated or unknown"
            )
    work = list(zip(nodes, terms, strict=True))
    lengths: dict[str, int] = {}
    for node, term in work:
        for c, n in zip(term, node.shape, strict=True):
            if n != 1 and lengths.setdefault(c, n) != n:
                raise ValueError(
                    f"einsum: label {c!r} of {subscripts!r} has the lengths {lengths[c]} and {n}"
                )
    for i, (node, term) in enumerate(work):
        others = {c for j, (_, t) in enumerate(work) if j != i for c in t}
        work[i] = _tidy(node, term, others | set(output))
    while len(work) > 1:
        (a, ta), (b, tb) = work[:2]
        kept = set(output) | {c for _, t in work[2:] for c in t}
        work[:2] = [_contract(a, ta, b, tb, kept)]
    node, term = _tidy(*work[0], set(output))
    out = transpose(node, [term.index(c) for c in output])
    return broadcast_to(out, [lengths.get(c, 1) for c in output])


@operation
def cross(x1: Any, x2: Any) -> Any:
    """The cross product x1 x x2 of vectors of length 3 along the last dimension."""
    from meganeura.ops.movement_functions import concatenate, roll

    a, b = convert_to_node(x1), convert_to_node(x2)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(f"cross needs vectors of length 3, and got {a.shape} and {b.shape}")
    out = a * roll(b, -1, -1) - roll(a, -1, -1) * b
    return concatenate([out[..., 1:], out[..., :1]], axis=-1)
