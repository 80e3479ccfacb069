"""Reshaping, joining, selecting, creating and indexing against NumPy, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import ops
from meganeura.execution import run_traced
from meganeura.graph.autodiff import gradients
from meganeura.tensor import to_tensor

X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")
M = np.random.default_rng(2).normal(size=(5, 4)).astype("float32")
V = np.arange(1, 8, dtype="float32")
I = np.array([[0, -1, 2, 2]])  # noqa: E741
W, W4, W5 = ((1, 0), (0, 2)), ((4, 2), (3, 1)), ((5, 2), (3, 1))


def leaves(tree: Any) -> list[Any]:
    return [x for part in tree for x in leaves(part)] if isinstance(tree, (list, tuple)) else [tree]


#: name of the case: (array, the operation, the same in NumPy)
CASES: dict[str, tuple[np.ndarray, Callable[[Any], Any], Callable[[np.ndarray], Any]]] = {
    "reshape": (X, lambda x: ops.reshape(x, (4, 6)), lambda x: x.reshape(4, 6)),
    "reshape -1": (X, lambda x: ops.reshape(x, (-1, 2)), lambda x: x.reshape(-1, 2)),
    "reshape by array": (X, lambda x: ops.reshape(x, np.array([3, 8])), lambda x: x.reshape(3, 8)),
    "ravel": (X, ops.ravel, np.ravel),
    "transpose": (X, ops.transpose, np.transpose),
    "transpose axes": (X, lambda x: ops.transpose(x, (1, -1, 0)), lambda x: x.transpose(1, 2, 0)),
    "swapaxes": (X, lambda x: ops.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1)),
    "moveaxis": (X, lambda x: ops.moveaxis(x, (0, 1), (-1, 0)), lambda x: np.moveaxis(x, (0, 1), (-1, 0))),
    "expand_dims": (X, lambda x: ops.expand_dims(x, (0, -1)), lambda x: np.expand_dims(x, (0, -1))),
    "squeeze": (X[:, :1], ops.squeeze, np.squeeze),
    "squeeze axis": (X[:1, :1], lambda x: ops.squeeze(x, 1), lambda x: x.squeeze(1)),
    "broadcast_to": (X[:, :1], lambda x: ops.broadcast_to(x, (3, 2, 5, 4)), lambda x: np.broadcast_to(x, (3, 2, 5, 4))),
    "concatenate": (X, lambda x: ops.concatenate([x, x[:, :1]], 1), lambda x: np.concatenate([x, x[:, :1]], 1)),
    "stack": (X, lambda x: ops.stack([x, 2 * x], -1), lambda x: np.stack([x, 2 * x], -1)),
    "unstack": (X, lambda x: ops.unstack(x, axis=1), lambda x: [x[:, i] for i in range(3)]),
    "split": (X, lambda x: ops.split(x, 2, -1), lambda x: np.split(x, 2, -1)),
    "split at": (X, lambda x: ops.split(x, [1, 3], -1), lambda x: np.split(x, [1, 3], -1)),
    "array_split": (V, lambda x: ops.array_split(x, 3), lambda x: np.array_split(x, 3)),
    "flip": (X, ops.flip, np.flip),
    "flip axes": (X, lambda x: ops.flip(x, (0, -1)), lambda x: np.flip(x, (0, -1))),
    "tile": (X, lambda x: ops.tile(x, (2, 1, 1, 3)), lambda x: np.tile(x, (2, 1, 1, 3))),
    "repeat": (X, lambda x: ops.repeat(x, 2), lambda x: np.repeat(x, 2)),
    "repeat axis": (X, lambda x: ops.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1)),
    "repeat each": (X, lambda x: ops.repeat(x, np.array([2, 0, 1]), 1), lambda x: np.repeat(x, [2, 0, 1], 1)),
    "roll": (X, lambda x: ops.roll(x, 5), lambda x: np.roll(x, 5)),
    "roll axes": (X, lambda x: ops.roll(x, (1, -2), (0, 2)), lambda x: np.roll(x, (1, -2), (0, 2))),
    "pad": (M, lambda x: ops.pad(x, W, constant_values=3.0), lambda x: np.pad(x, W, constant_values=3)),
    "pad one": (M, lambda x: ops.pad(x, 2), lambda x: np.pad(x, 2)),
    "pad pair": (M, lambda x: ops.pad(x, (1, 2)), lambda x: np.pad(x, (1, 2))),
    "pad reflect": (M, lambda x: ops.pad(x, W4, "reflect"), lambda x: np.pad(x, W4, "reflect")),
    "pad symmetric": (M, lambda x: ops.pad(x, W5, "symmetric"), lambda x: np.pad(x, W5, "symmetric")),
    "pad edge": (M, lambda x: ops.pad(x, W5, "edge"), lambda x: np.pad(x, W5, "edge")),
    "slice": (X, lambda x: ops.slice(x, (0, 1, 1), (2, 2, -1)), lambda x: x[:, 1:3, 1:]),
    "slice_update": (M, lambda x: ops.slice_update(x, (1, 2), x[:2, :2]), lambda x: update(x, 1, 2)),
    "take": (M, lambda x: ops.take(x, [[0, -1], [2, 2]], 0), lambda x: np.take(x, [[0, -1], [2, 2]], 0)),
    "take flat": (M, lambda x: ops.take(x, [19, 0, -2]), lambda x: np.take(x, [19, 0, -2])),
    "take_along_axis": (M, lambda x: ops.take_along_axis(x, I, 0), lambda x: np.take_along_axis(x, I, 0)),
    "diag": (V, lambda x: ops.diag(x, -2), lambda x: np.diag(x, -2)),
    "diag above": (V, lambda x: ops.diag(x, 3), lambda x: np.diag(x, 3)),
    "diag of matrix": (M, lambda x: ops.diag(x, -1), lambda x: np.diag(x, -1)),
    "diagonal": (X, lambda x: ops.diagonal(x, 1, 1, 2), lambda x: np.diagonal(x, 1, 1, 2)),
    "trace": (X, lambda x: ops.trace(x, -1, 2, 0), lambda x: np.trace(x, -1, 2, 0)),
    "tril": (X, lambda x: ops.tril(x, 1), lambda x: np.tril(x, 1)),
    "triu": (X, lambda x: ops.triu(x, -1), lambda x: np.triu(x, -1)),
    "meshgrid": (V, lambda x: ops.meshgrid(x, x[:3], x[:2]), lambda x: np.meshgrid(x, x[:3], x[:2])),
    "meshgrid ij": (V, lambda x: ops.meshgrid(x, x[:3], indexing="ij"), lambda x: np.meshgrid(x, x[:3], indexing="ij")),
    "linspace": (M, lambda x: ops.linspace(x[0], x[1], 5), lambda x: np.linspace(x[0], x[1], 5, dtype="float32")),
    "T": (M, lambda x: x.T, lambda x: x.T),
    "method reshape": (M, lambda x: x.reshape(2, -1), lambda x: x.reshape(2, -1)),
    # indexing
    "[1]": (X, lambda x: x[1], lambda x: x[1]),
    "[-1, ..., 2]": (X, lambda x: x[-1, ..., 2], lambda x: x[-1, ..., 2]),
    "[..., None]": (X, lambda x: x[..., None], lambda x: x[..., None]),
    "[:, None, 1:]": (X, lambda x: x[:, None, 1:], lambda x: x[:, None, 1:]),
    "[:, ::2]": (X, lambda x: x[:, ::2], lambda x: x[:, ::2]),
    "[:, ::-1]": (X, lambda x: x[:, ::-1], lambda x: x[:, ::-1]),
    "[::-1, 2:0:-1, -1:-4:-2]": (X, lambda x: x[::-1, 2:0:-1, -1:-4:-2], lambda x: x[::-1, 2:0:-1, -1:-4:-2]),
    "[5:]": (X, lambda x: x[5:], lambda x: x[5:]),
    "[2:1]": (X, lambda x: x[2:1], lambda x: x[2:1]),
    "[:, [0, 2, 0]]": (X, lambda x: x[:, [0, 2, 0]], lambda x: x[:, [0, 2, 0]]),
    "[[[0], [-1]], 1:]": (X, lambda x: x[[[0], [-1]], 1:], lambda x: x[[[0], [-1]], 1:]),
    "[rows, columns]": (X, lambda x: x[[0, 1, 1], [2, -1, 0]], lambda x: x[[0, 1, 1], [2, -1, 0]]),
    "[0, array]": (X, lambda x: x[0, [2, 0]], lambda x: x[0, [2, 0]]),
    "[numpy integer]": (X, lambda x: x[np.int64(1)], lambda x: x[1]),
    "[()]": (X, lambda x: x[()], lambda x: x[()]),
    "iteration": (X, lambda x: list(x), lambda x: list(x)),
}  # fmt: skip


def update(x: np.ndarray, row: int, column: int) -> np.ndarray:
    out = x.copy()
    out[row : row + 2, column : column + 2] = x[:2, :2]
    return out


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str) -> None:
    x, ours, numpys = CASES[name]
    found, expected = leaves(ours(to_tensor(x))), leaves(numpys(x))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == "float32"
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_transpose(name: str) -> None:
    """These are linear: <w, f(e_i)> over the unit vectors e_i is the gradient of <w, f(x)>."""
    x, ours, numpys = CASES[name]
    random = np.random.default_rng(3)
    weights = [random.normal(size=np.shape(y)).astype("float32") for y in leaves(numpys(x))]

    def differentiate(node: Any) -> list[Any]:
        parts = [ops.sum(y * w) for y, w in zip(leaves(ours(node)), weights, strict=True)]
        return gradients([ops.stack(parts)], [node]) if parts else []

    (found,) = run_traced(differentiate, [to_tensor(x)])
    zero = leaves(numpys(np.zeros_like(x)))
    expected = np.zeros(x.size)
    for i in range(x.size):
        unit = np.zeros(x.size, "float32")
        unit[i] = 1
        moved = leaves(numpys(unit.reshape(x.shape)))
        expected[i] = sum(
            float(((a - z) * w).sum()) for a, z, w in zip(moved, zero, weights, strict=True)
        )
    np.testing.assert_allclose(found.numpy().ravel(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (4, 3), (-3, 99)])
def test_slices_whose_place_is_computed(start: tuple[int, int]) -> None:
    """A start known at run time only: the block moves inside where it would stick out."""
    place = np.array(start, "int32")
    a, b = min(max(start[0], 0), 3), min(max(start[1], 0), 1)
    np.testing.assert_array_equal(ops.slice(M, place, (2, 3)).numpy(), M[a : a + 2, b : b + 3])
    expected = M.copy()
    expected[a : a + 2, b : b + 3] = 7
    block = np.full((2, 3), 7, "float32")
    np.testing.assert_array_equal(ops.slice_update(M, place, block).numpy(), expected)
    mixed = ops.slice_update(M, [to_tensor(np.int32(start[0])), 0], np.full((2, 4), 7, "float32"))
    expected = M.copy()
    expected[a : a + 2] = 7
    np.testing.assert_array_equal(mixed.numpy(), expected)


def test_indices_outside_are_held_at_the_ends_and_so_is_their_gradient() -> None:
    index = np.array([-99, 99, 1], "int32")
    np.testing.assert_array_equal(ops.take(V, index).numpy(), [1, 7, 2])

    def differentiate(x: Any) -> Any:
        return gradients(ops.sum(ops.take(x, index) * np.array([1, 2, 4], "float32")), [x])

    np.testing.assert_array_equal(
        run_traced(differentiate, [to_tensor(V)])[0].numpy(), [1, 4, 0, 0, 0, 0, 2]
    )


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("arange", (5,)), ("arange", (2, 9)), ("arange", (2, 9, 3)), ("arange", (9, 2, -2)),
        ("arange", (3, 3)), ("arange", (0.5, 2.5, 0.25)), ("linspace", (0, 1, 7)),
        ("linspace", (0.0, 1.0, 5, False)), ("linspace", (3, 4, 1)), ("eye", (3,)), ("eye", (3, 5, 1)),
        ("eye", (4, 2, -1)), ("identity", (3,)), ("tri", (3, 4, -1)), ("tri", (3, 4, 1)),
        ("zeros", ((2, 3),)), ("ones", ((2, 0),)), ("full", ((2, 2), 7.5)),
    ],
)  # fmt: skip
def test_creation(name: str, arguments: tuple[Any, ...]) -> None:
    found, expected = getattr(ops, name)(*arguments), getattr(np, name)(*arguments)
    assert found.dtype == ("int32" if expected.dtype.kind == "i" else "float32")
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_creation_of_a_dtype_and_like_another() -> None:
    assert ops.zeros(3).shape == (3,) and ops.ones((2,), "int32").dtype == "int32"
    assert ops.full((2,), 1).dtype == "float32" and ops.full((2,), 1, "bool").numpy().all()
    whole = np.array([[1, 2]], "int32")
    assert (
        ops.zeros_like(whole).dtype == "int32"
        and ops.ones_like(whole, "float32").dtype == "float32"
    )
    assert ops.full_like(whole, 2.9).numpy().tolist() == [[2, 2]]
    assert ops.linspace(0, 1, 11).numpy()[-1] == 1.0
    assert ops.arange(4, dtype="float32").dtype == "float32"
    first, step = ops.linspace(0, 1, 5, retstep=True)
    assert first.shape == (5,) and float(step.numpy()) == 0.25


def test_one_hot_and_multi_hot() -> None:
    found = ops.one_hot(np.array([0, 2, -1, 3]), 3)
    np.testing.assert_array_equal(found.numpy(), [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    assert ops.one_hot(np.zeros((2, 5), "int32"), 3, axis=1).shape == (2, 3, 5)
    assert ops.one_hot(np.array([1]), 2, dtype="bool").dtype == "bool"
    np.testing.assert_array_equal(
        ops.multi_hot(np.array([[0, 2], [1, 1]]), 3).numpy(), [[1, 0, 1], [0, 1, 0]]
    )


def test_conversion() -> None:
    assert ops.shape(np.zeros((2, 3))) == (2, 3) and ops.ndim(X) == 3 and ops.size(X) == 24
    assert ops.convert_to_tensor([1, 2]).dtype == "int32" and ops.convert_to_tensor(1.5).shape == ()
    assert ops.convert_to_tensor(X, "int32").dtype == "int32"
    tensor = to_tensor(X)
    assert ops.is_tensor(tensor) and not ops.is_tensor(X)
    np.testing.assert_array_equal(ops.convert_to_numpy(tensor), X)
    assert ops.copy(tensor) is not tensor
    with pytest.raises(ValueError, match="do not fit int32"):
        ops.convert_to_tensor(np.array([2**40]))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ops.reshape(X, (5, 5)), "24 elements"),
        (lambda: ops.reshape(X, (-1, 7)), "24 elements"),
        (lambda: ops.reshape(X, (-1, -1)), "only one length"),
        (lambda: ops.transpose(X, (0, 1)), "2 axes"),
        (lambda: ops.transpose(X, (0, 0, 1)), "permutation"),
        (lambda: ops.squeeze(X, 0), "not of length 1"),
        (lambda: ops.broadcast_to(X, (2, 3, 5)), "cannot be broadcast"),
        (lambda: ops.concatenate([X, M]), "differ elsewhere"),
        (lambda: ops.concatenate([]), "at least one tensor"),
        (lambda: ops.stack([X, X[:1]]), "differ"),
        (lambda: ops.split(X, 3, -1), "equal parts"),
        (lambda: ops.pad(X, ((1, 1),) * 2), "2 widths"),
        (lambda: ops.pad(X, 1, "wrap"), "not one of constant"),
        (lambda: ops.slice(X, (0, 0, 3), (1, 1, 2)), "do not lie in axis 2"),
        (lambda: ops.take(X, [0.5, 1.5], 5), "out of range"),
        (lambda: ops.take_along_axis(M, np.zeros((2, 3), "int32"), 0), "do not fit"),
        (lambda: ops.expand_dims(X, 9), "out of range"),
        (lambda: ops.sum(X, axis=(0, 0)), "twice"),
        (lambda: ops.tril(V), "two dimensions"),
        (lambda: ops.unstack(X, 5), "holds 2, not 5"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "key, message",
    [
        (5, "out of range"), ((0, 0, 0, 0), "4 indices"), ((..., ...), "one Ellipsis"), ([0.5], "integers"),
        (np.ones((2, 3, 4), bool), "mask"), (([0], slice(None), [0]), "neighbouring"), (True, "mask"),
    ],
)  # fmt: skip
def test_wrong_indices_are_named(key: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        to_tensor(X)[key]
