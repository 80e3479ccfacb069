"""Functions of NumPy's that join, split, turn and compare neighbours, by their keras.ops names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meganeura.ops import elementwise as math
from meganeura.ops import movement
from meganeura.ops import movement_functions as move
from meganeura.ops import reduction_functions as reduce
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.index import iota
from meganeura.ops.nodes import normalize_axis, reshape


@operation
def append(x1: Any, x2: Any, axis: int | None = None) -> Any:
    """x2 after x1 along `axis`; both in one dimension where that is None."""
    a, b = promote(x1, x2)
    if axis is None:
        a, b, axis = reshape(a, (a.size,)), reshape(b, (b.size,)), 0
    return move.concatenate([a, b], axis)


@operation
def hstack(xs: Sequence[Any]) -> Any:
    """Joined along the second dimension, vectors along their only one."""
    nodes = [reshape(n, (1,)) if n.ndim == 0 else n for n in promote(*xs)]
    return move.concatenate(nodes, 0 if nodes[0].ndim == 1 else 1)


@operation
def vstack(xs: Sequence[Any]) -> Any:
    """Joined along the first dimension, vectors as rows."""
    return move.concatenate([reshape(n, (1, n.size)) if n.ndim < 2 else n for n in promote(*xs)], 0)


@operation
def dstack(xs: Sequence[Any]) -> Any:
    """Joined along the third dimension, vectors and matrices as layers of depth 1."""
    shaped = []
    for n in promote(*xs):
        shape = (1, n.size, 1) if n.ndim < 2 else (*n.shape, 1) if n.ndim == 2 else n.shape
        shaped.append(reshape(n, shape))
    return move.concatenate(shaped, 2)


@operation
def hsplit(x: Any, indices_or_sections: Any) -> Any:
    """split along the second dimension, along the only one of a vector."""
    node = convert_to_node(x)
    return move.split(node, indices_or_sections, 0 if node.ndim == 1 else 1)


@operation
def vsplit(x: Any, indices_or_sections: Any) -> Any:
    """split along the first dimension."""
    return move.split(x, indices_or_sections, 0)


@operation
def dsplit(x: Any, indices_or_sections: Any) -> Any:
    """split along the third dimension."""
    return move.split(x, indices_or_sections, 2)


@operation
def fliplr(x: Any) -> Any:
    """The second dimension reversed."""
    return move.flip(x, 1)


@operation
def flipud(x: Any) -> Any:
    """The first dimension reversed."""
    return move.flip(x, 0)


@operation
def rot90(array: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """Turned by k right angles in the plane of two axes, from the first towards the second."""
    node = convert_to_node(array)
    first, second = (normalize_axis(a, node.ndim) for a in axes)
    if first == second:
        raise ValueError(f"rot90: the axes {tuple(axes)} of shape {node.shape} are the same")
    if k % 4 == 2:
        return move.flip(node, (first, second))
    if k % 4 == 1:
        return move.swapaxes(move.flip(node, second), first, second)
    return move.flip(move.swapaxes(node, first, second), second) if k % 4 else node


@operation
def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    """The differences of neighbours along `axis`, taken n times."""
    node = convert_to_node(a)
    at = normalize_axis(axis, node.ndim)
    if n < 0:
        raise ValueError(f"diff: n must be 0 or more, and is {n}")
    for _ in range(n):
        length = node.shape[at]
        if length < 2:
            return movement.cut(node, at, 0, 0)
        high, low = movement.cut(node, at, 1, length), movement.cut(node, at, 0, length - 1)
        node = math.not_equal(high, low) if node.dtype == "bool" else math.subtract(high, low)
    return node


@operation
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """The integral of y along `axis` by trapezoids, at the places x or `dx` apart."""
    (node,) = promote(y, floating=True)
    at = normalize_axis(axis, node.ndim)
    length = node.shape[at]
    middle = math.multiply(
        math.add(movement.cut(node, at, 1, length), movement.cut(node, at, 0, length - 1)), 0.5
    )
    if x is None:
        return math.multiply(reduce.sum(middle, at), dx)
    (places,) = promote(x, floating=True)
    if places.ndim == 1:
        steps = diff(places)
        shape = [1] * node.ndim
        shape[at] = length - 1
        return reduce.sum(math.multiply(middle, move.reshape(steps, shape)), at)
    return reduce.sum(math.multiply(middle, diff(places, 1, at)), at)


@operation
def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """max - min over `axis`."""
    return math.subtract(reduce.max(x, axis, keepdims), reduce.min(x, axis, keepdims))


@operation
def kron(x1: Any, x2: Any) -> Any:
    """The Kronecker product: each element of x1 times the whole of x2."""
    a, b = promote(x1, x2)
    rank = max(a.ndim, b.ndim)
    left = (*(1,) * (rank - a.ndim), *a.shape)
    right = (*(1,) * (rank - b.ndim), *b.shape)
    wide = math.multiply(
        reshape(a, tuple(n for length in left for n in (length, 1))),
        reshape(b, tuple(n for length in right for n in (1, length))),
    )
    return move.reshape(wide, [m * n for m, n in zip(left, right, strict=True)])


@operation
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Columns of powers of a vector, x^(N-1) first, or x^0 first where `increasing`."""
    node = convert_to_node(x)
    if node.ndim != 1:
        raise ValueError(f"vander wants a vector, and got the shape {node.shape}")
    count = node.shape[0] if N is None else N
    powers = [math.power(node, p) for p in range(count)]
    return move.stack(powers if increasing else powers[::-1], axis=1)


@operation
def diagflat(x: Any, k: int = 0) -> Any:
    """A square matrix with the elements of x on its k-th diagonal, 0 elsewhere."""
    node = convert_to_node(x)
    size = node.size + abs(k)
    row = movement.pad(reshape(node, (node.size,)), (max(k, 0),), (max(-k, 0),), 0)
    on = math.equal(iota((1, size), 1), math.add(iota((size, 1), 0), k))
    zero = math.cast(0, node.dtype)
    return math.where(on, reshape(row, (1, size)), zero)


@operation
def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element of x1 is among those of x2 (is not, where `invert`)."""
    a, b = promote(x1, x2)
    hit = math.equal(reshape(a, (*a.shape, 1)), reshape(b, (b.size,)))
    found = reduce.any(hit, -1)
    return math.logical_not(found) if invert else found


@operation
def allclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether all pairs differ by at most atol + rtol |x2|."""
    return reduce.all(math.isclose(x1, x2, rtol, atol, equal_nan))


@operation
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """For each element the choice of the first condition that holds, else `default`."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"select: {len(condlist)} conditions for {len(choicelist)} choices; give as many, at least one"
        )
    out = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        out = math.where(condition, choice, out)
    return out


@operation
def bincount(
    x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False, length: int | None = None
) -> Any:
    """How often each whole number from 0 to minlength - 1 occurs along the last axis, or the sum of its weights.

    The size of the result is `minlength`: it cannot depend on the values.
    """
    node = convert_to_node(x)
    if sparse:
        raise ValueError("bincount: sparse results are not offered")
    size = length or minlength
    if size < 1:
        raise ValueError("bincount needs minlength: the size of a result cannot depend on values")
    hit = math.equal(reshape(node, (*node.shape, 1)), iota((*(1,) * node.ndim, size), node.ndim))
    if weights is None:
        return reduce.sum(math.cast(hit, "int32"), -2)
    amount = convert_to_node(weights)
    return reduce.sum(math.where(hit, reshape(amount, (*amount.shape, 1)), 0), -2)
