"""Matrix products, einsum, running products, scatter and resizing, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meganeura import ops
from meganeura.graph.autodiff import gradients
from meganeura.graph.trace import Trace

RANDOM = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


def value(x: Any) -> np.ndarray:
    return np.asarray(ops.convert_to_numpy(x))


def operations(build: Any, *shapes: tuple[int, ...]) -> list[str]:
    """The names of the nodes that a function of inputs of these shapes records."""
    with Trace() as trace:
        out = build(*(trace.input(shape, "float32") for shape in shapes))
    return [n.op for n in trace.graph([out]).nodes()]


# --- products ----------------------------------------------------------------------------------

PAIRS = [
    ((3,), (3,)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)), ((2, 4, 3), (3, 5)), ((4, 3), (5, 3, 2)),
    ((5, 1, 4, 3), (2, 3, 6)), ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((1, 3), (2, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_products_as_in_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = normal(*a), normal(*b)
    np.testing.assert_allclose(value(ops.matmul(x, y)), np.matmul(x, y), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(ops.dot(x, y)), np.dot(x, y), rtol=1e-5, atol=1e-6)
    z = normal(*b[:-1], a[-1])
    np.testing.assert_allclose(value(ops.inner(x, z)), np.inner(x, z), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [0, 1, 2, [[0], [1]], [[1, 2], [2, 0]], [-1, 0]])
def test_tensordot(axes: Any) -> None:
    x, y = normal(4, 3, 3), normal(3, 3, 3) if axes != [[0], [1]] else normal(3, 4, 2)
    expected = np.tensordot(x, y, axes)
    np.testing.assert_allclose(value(ops.tensordot(x, y, axes)), expected, rtol=1e-5, atol=1e-5)


def test_integers_are_multiplied_exactly() -> None:
    x = RANDOM.integers(-(2**12), 2**12, (3, 5)).astype("int32")
    y = RANDOM.integers(-(2**12), 2**12, (2, 5, 4)).astype("int32")
    out = value(ops.matmul(x, y))
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, x @ y)
    flags = np.array([[True, True], [False, True]])
    np.testing.assert_array_equal(value(ops.matmul(flags, flags)), flags.astype("int32") @ flags)


def test_a_weight_sees_one_tall_matrix() -> None:
    """Batches on the left fold into rows: one large product, not many small ones."""
    with Trace() as trace:
        out = ops.matmul(trace.input((5, 7, 3), "float32"), trace.input((3, 2), "float32"))
    (made,) = [n for n in trace.graph([out]).nodes() if n.op == "matmul"]
    assert made.shape == (35, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ops.matmul(normal(2, 3), normal(4, 5)), "3 columns on the left, 4 rows"),
        (lambda: ops.matmul(np.float32(2), normal(2)), "scalar"),
        (lambda: ops.matmul(normal(2, 3, 4), normal(3, 4, 5)), "cannot be broadcast"),
        (lambda: ops.vdot(normal(2), normal(3)), "different numbers of elements"),
        (lambda: ops.tensordot(normal(2, 3), normal(4, 3), 1), "do not fit"),
        (lambda: ops.tensordot(normal(2), normal(2), 2), "2 axes"),
        (lambda: ops.cross(normal(2), normal(2)), "length 3"),
    ],
)
def test_products_that_do_not_fit(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


# --- einsum ------------------------------------------------------------------------------------

EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ii->i", (3, 3)), ("ii", (3, 3)),
    ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("ba", (2, 3)), ("iii->i", (3, 3, 3)),
    ("iijj->ij", (2, 2, 3, 3)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)), ("bhqk,bkhd->bqhd", (2, 4, 3, 6), (2, 6, 4, 5)),
    ("...ij,jk->...ik", (2, 7, 3, 4), (4, 5)), ("i,j->ij", (3,), (4,)), ("i,i", (3,), (3,)),
    ("ij,ij->ij", (2, 3), (2, 3)), ("ij,ij->i", (2, 3), (2, 3)), ("ij,ij->", (2, 3), (2, 3)),
    ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)), ("a,ab,b->", (2,), (2, 3), (3,)),
    ("ijj->i", (2, 3, 3)), ("...i,...i->...", (4, 3), (2, 4, 3)), ("iji,j->i", (2, 3, 2), (3,)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)), ("abc,cd->dab", (2, 3, 4), (4, 5)),
    ("b...,b->...", (2, 3, 4), (2,)), ("...,...", (2, 3), (3,)), ("ik,kj->ij", (0, 3), (3, 2)),
    ("ij,j->ij", (2, 3), (3,)), ("abcd,de->abce", (2, 3, 2, 4), (4, 3)), (" i j , j k -> i k", (2, 3), (3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=[c[0] for c in EQUATIONS])
def test_einsum_as_in_numpy(case: Any) -> None:
    equation, *shapes = case
    arrays = [normal(*shape) for shape in shapes]
    expected = np.einsum(equation, *arrays)
    found = value(ops.einsum(equation, *arrays))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_einsum_is_one_product() -> None:
    """A contraction of two tensors is one matmul; a product without a sum is none."""
    names = operations(lambda q, k: ops.einsum("bqhd,bkhd->bhqk", q, k), (2, 3, 4, 5), (2, 6, 4, 5))
    assert names.count("matmul") == 1 and "sum" not in names and "multiply" not in names
    names = operations(lambda a, b: ops.einsum("i,j->ij", a, b), (3,), (4,))
    assert "matmul" not in names and names.count("multiply") == 1


@pytest.mark.parametrize(
    ("equation", "shapes", "words"),
    [
        ("ij,jk->ii", [(2, 3), (3, 4)], "repeated or unknown"),
        ("ij,jk->iz", [(2, 3), (3, 4)], "repeated or unknown"),
        ("ij,jk", [(2, 3), (4, 4)], "lengths 3 and 4"),
        ("ij", [(2, 3, 4)], "names 2 dimensions"),
        ("ij,jk", [(2, 3)], "names 2 tensors, and got 1"),
        ("ii->i", [(2, 3)], "lengths 2 and 3"),
    ],
)
def test_einsum_that_does_not_fit(equation: str, shapes: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ops.einsum(equation, *(normal(*s) for s in shapes))


# --- running sums and products, scatter --------------------------------------------------------


@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((3, 7), 1), ((4, 2), 0), ((3, 4), None)])
def test_running_sums_and_products(shape: tuple[int, ...], axis: int | None) -> None:
    x = normal(*shape)
    x.flat[1] = 0.0
    np.testing.assert_allclose(value(ops.cumsum(x, axis)), np.cumsum(x, axis), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        value(ops.cumprod(x, axis)), np.cumprod(x, axis), rtol=1e-5, atol=1e-6
    )


def test_running_products_of_nothing_and_of_integers() -> None:
    assert value(ops.cumprod(np.zeros((0, 3), "float32"), 0)).shape == (0, 3)
    x = np.arange(1, 8, dtype="int32")
    np.testing.assert_array_equal(value(ops.cumprod(x)), np.cumprod(x))
    np.testing.assert_array_equal(value(ops.cumsum(np.array([True, True, False]))), [1, 2, 2])
    with pytest.raises(ValueError, match="out of range"):
        ops.cumsum(x, axis=1)


def test_scatter_adds_wraps_and_drops() -> None:
    index = np.array([[0, 1], [2, -1], [0, 1], [0, 7], [-9, 0]])
    out = value(ops.scatter(index, np.float32([1, 2, 3, 4, 5]), (3, 4)))
    expected = np.zeros((3, 4), "float32")
    expected[0, 1], expected[2, 3] = 4, 2
    np.testing.assert_array_equal(out, expected)


def test_scatter_update_replaces_and_adds() -> None:
    x = np.arange(12, dtype="int32").reshape(4, 3)
    rows = np.array([[7, 8, 9], [1, 2, 3]], "int32")
    replaced, added = x.copy(), x.copy()
    replaced[[3, 1]] = rows
    added[[3, 1]] += rows
    np.testing.assert_array_equal(value(ops.scatter_update(x, [[3], [1]], rows)), replaced)
    np.testing.assert_array_equal(
        value(ops.scatter_update(x, [[3], [1]], rows, reduction="add")), added
    )
    with pytest.raises(ValueError, match="'max' is not offered"):
        ops.scatter_update(x, [[3], [1]], rows, reduction="max")
    with pytest.raises(ValueError, match="slices of shape"):
        ops.scatter_update(x, [[3], [1]], rows[:, :2])
    with pytest.raises(ValueError, match="must be integers"):
        ops.scatter_update(x, np.float32([[3], [1]]), rows)


def test_segment_sum_drops_what_is_outside() -> None:
    data, ids = normal(5, 2), np.array([0, 2, 0, -1, 3])
    expected = np.stack([data[0] + data[2], np.zeros(2), data[1]])
    np.testing.assert_allclose(value(ops.segment_sum(data, ids, 3)), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="num_segments"):
        ops.segment_sum(data, ids)


# --- resizing ----------------------------------------------------------------------------------


def test_resizing_by_hand() -> None:
    line = np.float32([0, 4]).reshape(1, 1, 2, 1)
    bilinear = value(ops.image.resize(line, (1, 4))).ravel()
    np.testing.assert_allclose(bilinear, [0, 1, 3, 4], atol=1e-6)
    nearest = value(ops.image.resize(np.arange(5).reshape(1, 1, 5, 1), (1, 3), "nearest")).ravel()
    np.testing.assert_array_equal(nearest, [0, 2, 4])
    halved = value(ops.image.resize(np.float32([0, 2, 4, 8]).reshape(1, 4, 1, 1), (2, 1))).ravel()
    np.testing.assert_allclose(halved, [1, 6], atol=1e-6)


@pytest.mark.parametrize(
    "interpolation", ["nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"]
)
@pytest.mark.parametrize("size", [(9, 4), (3, 13), (5, 7)])
def test_resizing_keeps_what_is_constant(interpolation: str, size: tuple[int, int]) -> None:
    """A constant image stays constant, batches and channels do not mix, both formats agree."""
    flat = np.broadcast_to(np.float32([3.0, -5.0]), (2, 5, 7, 2))
    out = value(ops.image.resize(flat, size, interpolation, antialias=True))
    np.testing.assert_allclose(
        out, np.broadcast_to(np.float32([3.0, -5.0]), (2, *size, 2)), rtol=1e-5
    )
    x = normal(2, 5, 7, 3)
    last = value(ops.image.resize(x, size, interpolation))
    first = ops.image.resize(
        x.transpose(0, 3, 1, 2), size, interpolation, data_format="channels_first"
    )
    np.testing.assert_allclose(value(first).transpose(0, 2, 3, 1), last, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        value(ops.image.resize(x[1], size, interpolation)), last[1], rtol=1e-5, atol=1e-6
    )


def test_cubic_weights_reproduce_a_parabola() -> None:
    x = np.arange(16, dtype="float32")
    out = value(ops.image.resize((x * x).reshape(1, 1, 16, 1), (1, 32), "bicubic")).ravel()
    place = (np.arange(32) + 0.5) / 2 - 0.5
    np.testing.assert_allclose(out[4:-4], (place * place)[4:-4], rtol=1e-5)


def test_resizing_bytes_and_proportions() -> None:
    image = RANDOM.integers(0, 256, (6, 8, 3)).astype("uint8")
    out = value(ops.image.resize(image, (13, 5), "bicubic"))
    assert out.dtype == np.uint8
    cropped = value(ops.image.resize(image, (3, 3), "nearest", crop_to_aspect_ratio=True))
    np.testing.assert_array_equal(cropped, image[1::2, 2:7:2])
    padded = ops.image.resize(image, (8, 8), "nearest", pad_to_aspect_ratio=True, fill_value=7)
    np.testing.assert_array_equal(value(padded)[1:7], image)
    assert (value(padded)[[0, 7]] == 7).all()


@pytest.mark.parametrize(
    ("shape", "arguments", "words"),
    [
        ((4, 4), {"size": (2, 2)}, "needs images of shape"),
        ((4, 4, 1), {"size": (2,)}, "two positive integers"),
        ((4, 4, 1), {"size": (2, 0)}, "two positive integers"),
        ((4, 4, 1), {"size": (2, 2), "interpolation": "area"}, "is not one of nearest"),
        ((4, 4, 1), {"size": (2, 2), "fill_mode": "wrap"}, "fill_mode 'wrap'"),
        ((0, 4, 1), {"size": (2, 2)}, "no pixels"),
    ],
)
def test_resizing_that_does_not_fit(shape: Any, arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ops.image.resize(np.zeros(shape, "float32"), **arguments)


def test_resizing_is_differentiable() -> None:
    """The gradient of the sum of a doubled image is four everywhere, with and without weights."""
    for interpolation in ("nearest", "bilinear"):
        with Trace() as trace:
            x = trace.input((1, 3, 3, 1), "float32")
            y = ops.image.resize(x, (6, 6), interpolation)
            (slope,) = gradients(y, [x])
        from meganeura.execution import compiled

        (found,) = compiled(trace.graph([slope]), optimize=False).run(
            [np.zeros((1, 3, 3, 1), "float32")], []
        )
        np.testing.assert_allclose(found, 4.0, rtol=1e-5)
