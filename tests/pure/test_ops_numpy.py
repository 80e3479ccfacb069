"""Sorting, quantiles, rearrangements and rarer functions against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as special

from meganeura import ops
from meganeura.execution import run_traced
from meganeura.graph.autodiff import gradients
from meganeura.tensor import to_tensor

NAN, INFINITY = float("nan"), float("inf")
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(2, 7, 3)).astype("float32")
TIES = RANDOM.integers(-2, 3, size=(4, 9)).astype("int32")
ODD = np.array([[3.0, NAN, -INFINITY, 1.0], [INFINITY, 1.0, NAN, NAN]], "float32")
M = np.arange(12, dtype="float32").reshape(3, 4)
V = np.array([-2.5, -0.0, 0.0, 0.5, 1.0, 3.5], "float32")
W = np.array([2.0, -1.5, 0.0, 0.5, -3.0, 1.0], "float32")


@pytest.mark.parametrize("axis", [-1, 0, 1, None])
@pytest.mark.parametrize("x", [X, TIES, ODD, TIES > 0])
def test_sorting(x: Any, axis: Any) -> None:
    np.testing.assert_array_equal(np.asarray(ops.sort(x, axis)), np.sort(x, axis))
    found = np.asarray(ops.argsort(x, axis))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, np.argsort(x, axis, kind="stable"))


def test_top_k_takes_the_first_of_equals() -> None:
    values, indices = ops.top_k(TIES, 4)
    expected = np.argsort(-TIES, -1, kind="stable")[:, :4]
    np.testing.assert_array_equal(np.asarray(indices), expected)
    np.testing.assert_array_equal(np.asarray(values), np.take_along_axis(TIES, expected, -1))
    with pytest.raises(ValueError, match="k=10"):
        ops.top_k(TIES, 10)


def test_long_axes_are_refused() -> None:
    with pytest.raises(ValueError, match="32769 elements"):
        ops.sort(np.zeros(32769, "float32"))


def test_gradients_go_back_to_where_the_elements_were() -> None:
    def weighted(x: Any) -> Any:
        total = ops.sum(ops.multiply(ops.sort(x), np.array([1.0, 2.0, 3.0], "float32")))
        return gradients([total], [x])

    (found,) = run_traced(weighted, [to_tensor(np.array([5.0, -1.0, 2.0], "float32"))])
    np.testing.assert_array_equal(np.asarray(found), [3.0, 1.0, 2.0])


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("axis", [None, 1, (0, -1)])
def test_quantiles(axis: Any, method: Any) -> None:
    for q in (0.25, [0.0, 0.3, 1.0]):
        for keepdims in (False, True):
            found = np.asarray(ops.quantile(X, q, axis, method, keepdims))
            expected = np.quantile(X, q, axis, method=method, keepdims=keepdims)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        np.asarray(ops.percentile(X, 40, axis)), np.percentile(X, 40, axis), rtol=1e-5
    )


def test_medians() -> None:
    np.testing.assert_allclose(np.asarray(ops.median(X, 1)), np.median(X, 1), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(ops.median(ODD, 0)), [INFINITY, NAN, NAN, NAN])


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side: Any) -> None:
    sequence = np.array([-1.0, 0.0, 0.0, 2.0, INFINITY], "float32")
    values = np.array([[-5.0, 0.0], [2.0, NAN]], "float32")
    found = np.asarray(ops.searchsorted(sequence, values, side))
    np.testing.assert_array_equal(found, np.searchsorted(sequence, values, side))
    np.testing.assert_array_equal(
        np.asarray(ops.digitize(V, [-1.0, 0.0, 1.0])), np.digitize(V, [-1.0, 0.0, 1.0])
    )


POINTWISE: dict[str, Callable[..., Any]] = {
    "fabs": np.fabs, "deg2rad": np.deg2rad, "rad2deg": np.rad2deg, "exp2": np.exp2, "cbrt": np.cbrt,
    "trunc": np.trunc, "sinc": np.sinc, "erfc": special.erfc, "isposinf": np.isposinf,
    "isneginf": np.isneginf, "isreal": np.isreal, "real": np.real, "conj": np.conj,
}  # fmt: skip


@pytest.mark.parametrize("name", POINTWISE)
def test_one_input(name: str) -> None:
    found, expected = np.asarray(getattr(ops, name)(V)), POINTWISE[name](V.astype("float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


PAIRS: dict[str, Callable[..., Any]] = {
    "fmax": np.fmax, "fmin": np.fmin, "heaviside": np.heaviside, "hypot": np.hypot,
    "logaddexp2": np.logaddexp2, "fmod": np.fmod,
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_two_inputs(name: str) -> None:
    second = np.where(W == 0, 1.0, W).astype("float32") if name == "fmod" else W
    found = np.asarray(getattr(ops, name)(V, second))
    expected = PAIRS[name](V.astype("float64"), second.astype("float64"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_edges() -> None:
    pair = np.array([NAN, 1.0, NAN], "float32"), np.array([2.0, NAN, NAN], "float32")
    for name in ("fmax", "fmin"):
        np.testing.assert_array_equal(np.asarray(getattr(ops, name)(*pair)), [2.0, 1.0, NAN])
    np.testing.assert_array_equal(np.asarray(ops.divide_no_nan(V, W))[2], 0.0)
    np.testing.assert_allclose(np.asarray(ops.hypot(3e30, 4e30)), 5e30, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(ops.ldexp([1.5, 3.0], [2, -1])), [6.0, 1.5])
    a, b = np.array([12, 0, -18, 1836311903]), np.array([18, 7, 12, 1134903170])
    np.testing.assert_array_equal(np.asarray(ops.gcd(a, b)), np.gcd(a, b))
    found = np.asarray(ops.saturate_cast(np.array([-5.0, 3.7, 300.0], "float32"), "uint8"))
    np.testing.assert_array_equal(found, [0, 3, 255])
    assert found.dtype == np.uint8


PLAIN: list[tuple[str, tuple[Any, ...]]] = [
    *((name, ([a, a + 1],)) for name in ("hstack", "vstack", "dstack") for a in (V, M, X)),
    ("append", (M, V)), ("append", (M, M, 1)), ("fliplr", (M,)), ("flipud", (M,)),
    *(("rot90", (M, k)) for k in range(-1, 5)), ("rot90", (X, 1, (2, 0))),
    ("diff", (X,)), ("diff", (X, 2, 1)), ("diff", (TIES > 0,)), ("trapezoid", (M,)),
    ("trapezoid", (M, np.array([0.0, 1.0, 3.0, 4.0]))), ("trapezoid", (M, None, 0.5, 0)),
    ("ptp", (M, 1)), ("kron", (M, V)), ("kron", (V, M[:2])), ("vander", (V, 3)),
    ("diagflat", (V,)), ("diagflat", (M, -2)), ("diagflat", (V, 1)), ("isin", (TIES, [0, 2])),
    ("allclose", (V, V + 1e-7)), ("select", ([V > 1, V > 0], [V, W], 7.0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), PLAIN)
def test_like_numpy(name: str, arguments: tuple[Any, ...]) -> None:
    found, expected = getattr(ops, name)(*arguments), getattr(np, name)(*arguments)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["hsplit", "vsplit", "dsplit"])
def test_splits(name: str) -> None:
    x = np.arange(48, dtype="float32").reshape(2, 4, 6)
    for found, expected in zip(getattr(ops, name)(x, 2), getattr(np, name)(x, 2), strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_counts() -> None:
    labels = np.array([0, 3, 3, 1, 9])
    np.testing.assert_array_equal(np.asarray(ops.bincount(labels, minlength=5)), [1, 1, 0, 2, 0])
    found = ops.bincount(labels, np.arange(5.0), minlength=4)
    np.testing.assert_array_equal(np.asarray(found), [0, 3, 0, 3])
    with pytest.raises(ValueError, match="minlength"):
        ops.bincount(labels)


@pytest.mark.parametrize(
    "name", ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd"]
)
def test_reductions_pass_over_nan(name: str) -> None:
    x = np.array([[-1.0, NAN, -2.0], [NAN, 4.0, 5.0]], "float32")
    for axis in (None, 0, 1):
        found = np.asarray(getattr(ops, name)(x, axis=axis))
        np.testing.assert_allclose(found, getattr(np, name)(x, axis=axis), rtol=1e-5)
    nothing = np.asarray(getattr(ops, name)(np.array([NAN, NAN], "float32")))
    expected = {"nansum": 0.0, "nanprod": 1.0}.get(name, NAN)
    np.testing.assert_array_equal(nothing, expected)
