"""Reductions, norms, softmax and cross-entropies against NumPy, SciPy and closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as special

from meganeura import ops
from meganeura.execution import run_traced
from meganeura.graph.autodiff import gradients
from meganeura.tensor import to_tensor

X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")
M = np.random.default_rng(2).normal(size=(5, 4)).astype("float32")
NAN, INFINITY = math.nan, math.inf

NUMPY: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "amax": np.max, "amin": np.min,
    "prod": np.prod, "var": np.var, "std": np.std, "any": np.any, "all": np.all,
    "logsumexp": special.logsumexp,
}  # fmt: skip


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, -1), (0, 1, 2)])
@pytest.mark.parametrize("name", NUMPY)
def test_over_axes(name: str, axis: Any, keepdims: bool) -> None:
    for x in (X, np.round(X).astype("int32"), X > 0):
        expected = np.asarray(NUMPY[name](x.astype("float64"), axis=axis, keepdims=keepdims))
        found = getattr(ops, name)(x, axis=axis, keepdims=keepdims)
        assert found.shape == expected.shape
        if name in ("mean", "var", "std", "logsumexp"):
            assert found.dtype == "float32"
        elif name in ("any", "all"):
            assert found.dtype == "bool"
        elif x.dtype != bool:
            assert found.dtype == str(x.dtype)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_of_nothing() -> None:
    empty = np.zeros((0, 3), "float32")
    assert ops.sum(empty, axis=0).numpy().tolist() == [0, 0, 0]
    assert ops.prod(empty, axis=0).numpy().tolist() == [1, 1, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        assert np.isnan(ops.mean(empty).numpy())
    with pytest.raises(ValueError, match="max of nothing"):
        ops.max(empty, axis=0)
    assert ops.max(empty, axis=1).shape == (0,)


def test_where_the_largest_is() -> None:
    x = np.array([[1, 3, 3], [NAN, 0, NAN], [-INFINITY, -INFINITY, -INFINITY]], "float32")
    assert ops.argmax(x, axis=1).numpy().tolist() == [1, 0, 0]
    assert ops.argmin(x, axis=1).numpy().tolist() == [0, 0, 0]
    assert ops.argmax(M).numpy() == np.argmax(M) and ops.argmax(M).dtype == "int32"
    assert ops.argmax(M, keepdims=True).shape == (1, 1)
    assert ops.argmin(M, axis=-1, keepdims=True).shape == (5, 1)
    assert ops.max(M, initial=99.0).numpy() == 99 and ops.min(M, initial=-99.0).numpy() == -99


def test_counting_and_averages() -> None:
    x = np.array([[0, 1, 2], [0, 0, 5]], "int32")
    assert ops.count_nonzero(x).numpy() == 3
    assert ops.count_nonzero(x, axis=0).numpy().tolist() == [0, 1, 2]
    weights = np.array([1, 2, 3, 4], "float32")
    np.testing.assert_allclose(
        ops.average(M, 1, weights).numpy(), np.average(M, 1, weights), rtol=1e-5
    )
    np.testing.assert_allclose(
        ops.average(M, weights=np.abs(M)).numpy(), np.average(M, weights=np.abs(M)), rtol=1e-5
    )
    mean, variance = ops.moments(X, [0, 1], keepdims=True)
    np.testing.assert_allclose(mean.numpy(), X.mean((0, 1), keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance.numpy(), X.var((0, 1), keepdims=True), rtol=1e-5)


def test_variance_does_not_cancel() -> None:
    x = np.float32(10000) + np.random.default_rng(3).normal(size=1000).astype("float32")
    np.testing.assert_allclose(ops.var(x).numpy(), x.astype("float64").var(), rtol=1e-4)


@pytest.mark.parametrize("order", [None, 1, 2, 3, 0, INFINITY, -INFINITY])
def test_norms_of_vectors(order: Any) -> None:
    np.testing.assert_allclose(
        ops.norm(M, order, axis=1).numpy(), np.linalg.norm(M, order, axis=1), rtol=1e-5
    )
    assert ops.norm(M, order, axis=0, keepdims=True).shape == (1, 4)


@pytest.mark.parametrize("order", [None, "fro", 1, -1, INFINITY, -INFINITY])
def test_norms_of_matrices(order: Any) -> None:
    np.testing.assert_allclose(ops.norm(M, order).numpy(), np.linalg.norm(M, order), rtol=1e-5)
    for axis in ((1, 2), (2, 0), (-1, -2)):
        np.testing.assert_allclose(
            ops.norm(X, order, axis=axis).numpy(), np.linalg.norm(X, order, axis=axis), rtol=1e-5
        )
        assert (
            ops.norm(X, order, axis, True).numpy().shape
            == np.linalg.norm(X, order, axis, True).shape
        )


def test_norms_that_need_singular_values_are_refused() -> None:
    for order in (2, "nuc"):
        with pytest.raises(ValueError, match="singular values"):
            ops.norm(M, order)


def test_normalize() -> None:
    for order in (1, 2, 3):
        expected = M / np.linalg.norm(M, order, axis=1, keepdims=True)
        np.testing.assert_allclose(ops.normalize(M, order=order).numpy(), expected, rtol=1e-5)
    assert not ops.normalize(np.zeros((2, 3), "float32")).numpy().any()
    np.testing.assert_allclose(
        ops.normalize(np.array([3.0, 4.0]), epsilon=50.0).numpy(), [0.06, 0.08], rtol=1e-6
    )


@pytest.mark.parametrize("axis", [-1, 0, (0, 1), (0, -1), None])
def test_softmax(axis: Any) -> None:
    for x in (X, X * 300):
        np.testing.assert_allclose(
            ops.softmax(x, axis).numpy(), special.softmax(x, axis), rtol=1e-4, atol=1e-7
        )
        np.testing.assert_allclose(
            ops.log_softmax(x, axis).numpy(),
            special.log_softmax(x.astype("float64"), axis),
            rtol=1e-5,
            atol=1e-5,
        )


def test_softmax_of_extremes() -> None:
    x = np.array([1000, -1000, 0, -INFINITY], "float32")
    assert ops.softmax(x).numpy().tolist() == [1, 0, 0, 0]
    assert ops.log_softmax(x).numpy().tolist() == [0, -2000, -1000, -INFINITY]
    assert ops.logsumexp(np.array([1000, 1000], "float32")).numpy() == pytest.approx(
        1000 + math.log(2)
    )
    infinite = np.full(3, -INFINITY, "float32")
    with np.errstate(divide="ignore"):
        assert ops.logsumexp(infinite).numpy() == -INFINITY
        assert ops.logsumexp(-infinite).numpy() == INFINITY


def slope(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    def differentiate(*nodes: Any) -> Any:
        y = function(*nodes)
        return gradients(ops.sum(y * weight(y.shape)), list(nodes))

    with np.errstate(all="ignore"):
        return [
            t.numpy()
            for t in run_traced(
                differentiate, [to_tensor(np.asarray(a, "float32")) for a in arrays]
            )
        ]


def weight(shape: tuple[int, ...]) -> np.ndarray:
    """Upstream gradients that differ from element to element."""
    return np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape).astype("float32")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.sum(x, (0, 2)), lambda x: ops.mean(x, 1, True), lambda x: ops.max(x, -1),
        lambda x: ops.min(x, 0), lambda x: ops.prod(x, 1), lambda x: ops.var(x, (0, 1)),
        lambda x: ops.std(x, 2), lambda x: ops.logsumexp(x, (0, 2)),
        lambda x: ops.softmax(x, (0, 1)), lambda x: ops.log_softmax(x, 1), lambda x: ops.norm(x, axis=1),
        lambda x: ops.norm(x, 3, axis=1), lambda x: ops.norm(x, 1, axis=(0, 1)), lambda x: ops.normalize(x, 1),
        lambda x: ops.normalize(x, 1, order=1), lambda x: ops.average(x, 2, np.array([1, 2, 3, 4], "float32")),
    ],
)  # fmt: skip
def test_gradients_against_differences(function: Callable[[Any], Any]) -> None:
    (found,) = slope(function, X)
    step = 2e-3
    for i in np.random.default_rng(5).choice(X.size, 8, replace=False):
        moved = [X.ravel().copy() for _ in range(2)]
        moved[0][i] += step
        moved[1][i] -= step
        high, low = (
            function(to_tensor(m.reshape(X.shape))).numpy().astype("float64") for m in moved
        )
        expected = ((high - low) * weight(high.shape)).sum() / (2 * step)
        assert found.ravel()[i] == pytest.approx(expected, rel=2e-2, abs=2e-3)


def test_gradients_at_ties_and_zeros() -> None:
    np.testing.assert_allclose(slope(ops.max, [1, 3, 3, 2])[0], [0, 0.25, 0.25, 0])
    np.testing.assert_allclose(slope(ops.min, [1, 1, 1, 2])[0] * 3, [0.5, 0.5, 0.5, 0])
    np.testing.assert_allclose(slope(ops.prod, [0, 2, 3])[0], [3, 0, 0])
    np.testing.assert_allclose(slope(ops.prod, [0, 2, 0])[0], [0, 0, 0])
    np.testing.assert_allclose(slope(ops.norm, [0, 0, 0])[0], [0, 0, 0])
    np.testing.assert_allclose(slope(lambda x: ops.softmax(x)[0], [1000, -1000, 0])[0], [0, 0, 0])


# --- cross-entropies ---------------------------------------------------------------------------

LOGITS = np.random.default_rng(6).normal(0, 2, (5, 4)).astype("float32")
PROBABILITIES = special.softmax(LOGITS, -1).astype("float32")
LABELS = np.array([0, 3, 1, 1, 2], "int32")
HOT = np.eye(4, dtype="float32")[LABELS]
EXPECTED = -special.log_softmax(LOGITS.astype("float64"), -1)[np.arange(5), LABELS]


@pytest.mark.parametrize("from_logits", [True, False])
def test_cross_entropy(from_logits: bool) -> None:
    output = LOGITS if from_logits else 3 * PROBABILITIES  # probabilities are normalised first
    found = ops.categorical_crossentropy(HOT, output, from_logits)
    np.testing.assert_allclose(found.numpy(), EXPECTED, rtol=1e-5)
    for labels in (LABELS, LABELS[:, None], LABELS.astype("float32")):
        found = ops.sparse_categorical_crossentropy(labels, output, from_logits)
        np.testing.assert_allclose(found.numpy(), EXPECTED, rtol=1e-5)
    found = ops.sparse_categorical_crossentropy(
        LABELS, np.ascontiguousarray(output.T), from_logits, axis=0
    )
    np.testing.assert_allclose(found.numpy(), EXPECTED, rtol=1e-5)


def test_binary_cross_entropy() -> None:
    target = np.array([0, 1, 0, 1, 0.3], "float32")
    logits = np.array([1000, 1000, -1000, -1000, 0.7], "float32")
    tail = math.log1p(math.exp(0.7)) - 0.3 * 0.7
    found = ops.binary_crossentropy(target, logits, from_logits=True).numpy()
    np.testing.assert_allclose(found, [1000, 0, 0, 1000, tail], rtol=1e-6)
    p = np.array([0, 0, 0.25, 0.25, 1], "float32")
    found = ops.binary_crossentropy(np.array([0, 1, 0, 1, 1], "float32"), p).numpy()
    held = float(np.float32(1 - 1e-7))
    np.testing.assert_allclose(
        found,
        [-math.log(held), -math.log(1e-7), -math.log(0.75), -math.log(0.25), -math.log(held)],
        rtol=1e-5,
        atol=2.5e-7,  # a device's logarithm near 1
    )
    # sigmoid(x) - t, at 0 as anywhere
    (_, slopes) = slope(
        lambda t, x: ops.binary_crossentropy(t, x, True), [0, 1, 0.5, 1], [0, 0, 0, 1000]
    )
    np.testing.assert_allclose(slopes / weight((4,)), [0.5, -0.5, 0, 0], atol=1e-7)


def test_cross_entropies_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="use sparse_categorical_crossentropy"):
        ops.categorical_crossentropy(LABELS, LOGITS)
    with pytest.raises(ValueError, match="use categorical_crossentropy"):
        ops.sparse_categorical_crossentropy(HOT, LOGITS)
    with pytest.raises(ValueError, match="must have one shape"):
        ops.binary_crossentropy(HOT[:2], PROBABILITIES)
    outside = ops.sparse_categorical_crossentropy(np.array([0, 4, -1, 1, 1]), LOGITS, True).numpy()
    assert np.isnan(outside).tolist() == [False, True, True, False, False]


def test_in_top_k() -> None:
    scores = np.array(
        [[0.1, 0.5, 0.4], [0.3, 0.3, 0.3], [0.2, NAN, 0.9], [0.1, 0.2, 0.3]], "float32"
    )
    target = np.array([2, 1, 1, 7])
    assert ops.in_top_k(target, scores, 1).numpy().tolist() == [False, True, False, False]
    assert ops.in_top_k(target, scores, 2).numpy().tolist() == [True, True, False, False]
