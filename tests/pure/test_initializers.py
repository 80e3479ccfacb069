"""Initializers, regularizers, constraints and activations: numerics, names, configs."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import activations, constraints, initializers, regularizers
from meganeura.variable import Variable

SHAPES = {
    (200, 300): (200, 300),
    (3, 3, 64, 32): (576, 288),
    (5, 32, 48): (160, 240),
}


def test_fans() -> None:
    for shape, fans in SHAPES.items():
        assert initializers.compute_fans(shape) == fans
    assert initializers.compute_fans((32, 4, 8), [0], [1, 2]) == (32, 32)
    assert initializers.compute_fans((7,)) == (7, 7)
    assert initializers.compute_fans(()) == (1, 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("name", "scale", "mode"),
    [("glorot", 1, "avg"), ("he", 2, "in"), ("lecun", 1, "in")],
)
def test_variance(shape: tuple[int, ...], name: str, scale: float, mode: str) -> None:
    """Standard deviation sqrt(scale / fan), also for the normal cut at two sigma."""
    fan_in, fan_out = SHAPES[shape]
    deviation = math.sqrt(scale / (fan_in if mode == "in" else (fan_in + fan_out) / 2))
    for kind, largest in (("uniform", math.sqrt(3)), ("normal", 2 / 0.87962566)):
        values = initializers.get(f"{name}_{kind}").draw(shape)  # type: ignore[union-attr]
        assert values.dtype == np.float32 and values.shape == shape
        assert values.std() == pytest.approx(deviation, rel=0.03)
        assert abs(values.mean()) < 5 * deviation / math.sqrt(values.size)
        assert np.abs(values).max() <= largest * deviation * 1.0001
        assert np.abs(values).max() > largest * deviation * 0.98


def test_plain_random_initializers() -> None:
    values = initializers.RandomNormal(1.0, 0.2).draw((100, 100))
    assert values.mean() == pytest.approx(1.0, abs=0.01) and values.std() == pytest.approx(
        0.2, rel=0.05
    )
    values = initializers.TruncatedNormal(1.0, 0.2).draw((100, 100))
    assert np.abs(values - 1).max() <= 0.4001 and values.std() == pytest.approx(0.176, rel=0.05)
    values = initializers.RandomUniform(2.0, 3.0).draw((100, 100))
    assert values.min() >= 2 and values.max() <= 3 and values.mean() == pytest.approx(2.5, abs=0.02)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (3, 3, 4, 8)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    matrix = initializers.Orthogonal(gain=2.0).draw(shape).reshape(-1, shape[-1])
    small = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_constants() -> None:
    np.testing.assert_array_equal(initializers.Identity(3.0).draw((2, 3)), 3 * np.eye(2, 3))
    assert initializers.Zeros().draw((2,), "int32").dtype == np.int32
    row = initializers.Constant([1.0, 2.0]).draw((3, 2))
    np.testing.assert_array_equal(row, [[1, 2]] * 3)
    assert np.asarray(initializers.get(np.ones(2))((3, 2))).shape == (3, 2)


def test_stft_is_a_fourier_transform() -> None:
    """As a product with a frame, the two kernels give the windowed discrete Fourier transform."""
    frame = np.random.default_rng(0).normal(size=8)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 7)
    expected = np.fft.rfft(frame * window) / np.sqrt((window**2).sum())
    real, imaginary = (initializers.STFT(side).draw((8, 1, 5))[:, 0] for side in ("real", "imag"))
    np.testing.assert_allclose(frame @ real + 1j * (frame @ imaginary), expected, atol=1e-6)


def test_tukey_window_is_flat_in_the_middle() -> None:
    """Tapers of a quarter of the length at either end, 1 between them (SciPy's tukey of 9 points)."""
    kernel = initializers.STFT("real", "tukey", None).draw((9, 1, 5))
    expected = [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0]
    np.testing.assert_allclose(kernel[:, 0, 0], expected, atol=1e-6)


def test_the_plain_constraint_allows_everything() -> None:
    np.testing.assert_array_equal(constraints.Constraint()(X), X)


def test_seeds() -> None:
    seeded = initializers.GlorotUniform(seed=1)
    np.testing.assert_array_equal(seeded.draw((3, 4)), seeded.draw((3, 4)))
    np.testing.assert_array_equal(
        seeded.draw((3, 4)), initializers.GlorotUniform(seed=1).draw((3, 4))
    )
    assert (seeded.draw((3, 4)) != initializers.GlorotUniform(seed=2).draw((3, 4))).any()
    drawn = []
    for _ in range(2):
        random.seed(5)
        drawn.append([initializers.get("he_normal").draw((4,)) for _ in range(2)])  # type: ignore[union-attr]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0][0] != drawn[0][1]).any()


def test_an_initializer_of_ones_own() -> None:
    class Twos(initializers.Zeros):
        def __call__(self, shape: Any, dtype: Any = None) -> Any:
            return np.full(shape, 2.0, np.float32)

    assert (Variable(Twos(), shape=(2, 2)).numpy() == 2).all()
    assert (Variable(lambda shape, dtype: np.ones(shape), shape=(2,)).numpy() == 1).all()


INITIALIZERS = (
    "zeros ones constant identity stft random_normal random_uniform truncated_normal "
    "variance_scaling glorot_uniform glorot_normal he_uniform he_normal lecun_uniform "
    "lecun_normal orthogonal uniform normal Zeros GlorotUniform OrthogonalInitializer"
).split()


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initializer_round_trip(name: str) -> None:
    initializer = initializers.get(name)
    config = json.loads(json.dumps(initializers.serialize(initializer)))
    assert config["module"] == "keras.initializers"
    again = initializers.deserialize(config)
    assert type(again) is type(initializer)
    assert again.get_config() == initializer.get_config()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: initializers.get("glorot_unifrom"), "glorot_uniform"),
        (lambda: initializers.get(3), "3"),
        (lambda: initializers.VarianceScaling(mode="fan"), "fan_in"),
        (lambda: initializers.Orthogonal().draw((3,)), "(3,)"),
        (lambda: initializers.Constant([1, 2, 3]).draw((2, 2)), "(2, 2)"),
        (lambda: initializers.GlorotUniform(seed="x"), "seed"),
        (lambda: regularizers.get("l3"), "l2"),
        (lambda: regularizers.L2(-1.0), "l2"),
        (lambda: constraints.get("maxnorm2"), "maxnorm"),
        (lambda: activations.get("rellu"), "relu"),
        (lambda: activations.get(7), "7"),
    ],
)
def test_errors(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        call()
    assert words in str(caught.value)


X = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("regularizer", "expected"),
    [
        (regularizers.L1(0.3), 0.3 * np.abs(X).sum()),
        (regularizers.L2(0.3), 0.3 * (X**2).sum()),
        (regularizers.L1L2(0.1, 0.2), 0.1 * np.abs(X).sum() + 0.2 * (X**2).sum()),
        (regularizers.L1L2(), 0.0),
    ],
)
def test_regularizers(regularizer: Any, expected: float) -> None:
    assert float(regularizer(X)) == pytest.approx(float(expected), rel=1e-5)
    again = regularizers.deserialize(regularizers.serialize(regularizer))
    assert again.get_config() == regularizer.get_config()


def test_orthogonal_regularizer() -> None:
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    pairs = [abs(rows[i] @ rows[j]) for i in range(4) for j in range(i)]
    value = regularizers.OrthogonalRegularizer(0.5)(X)
    assert float(value) == pytest.approx(0.5 * float(np.mean(pairs)), rel=1e-5)
    assert float(regularizers.get("orthogonal_regularizer")(np.eye(3))) == 0  # type: ignore[misc]


def test_constraints() -> None:
    norms = np.linalg.norm(X, axis=0)
    limited = np.asarray(constraints.MaxNorm(1.0)(X))
    np.testing.assert_allclose(np.linalg.norm(limited, axis=0), np.minimum(norms, 1), rtol=1e-5)
    np.testing.assert_allclose(
        np.linalg.norm(np.asarray(constraints.UnitNorm(axis=1)(X)), axis=1), 1, rtol=1e-5
    )
    assert (np.asarray(constraints.NonNeg()(X)) == np.maximum(X, 0)).all()
    half = np.asarray(constraints.MinMaxNorm(2.0, 3.0, rate=0.5)(X))
    expected = 0.5 * np.clip(norms, 2, 3) + 0.5 * norms
    np.testing.assert_allclose(np.linalg.norm(half, axis=0), expected, rtol=1e-5)
    for name in ("max_norm", "MinMaxNorm", "non_neg", "unit_norm"):
        constraint = constraints.get(name)
        again = constraints.deserialize(constraints.serialize(constraint))
        assert again.get_config() == constraint.get_config()  # type: ignore[union-attr]


GRID = np.array([-8.0, -3.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0, 7.0])
SIGMOID = 1 / (1 + np.exp(-GRID))
ERF = np.array([math.erf(v / math.sqrt(2)) for v in GRID])

#: Where Keras differs from what others call by the same name, or from Keras 2.
EXPECTED: dict[str, np.ndarray] = {
    "relu": np.maximum(GRID, 0),
    "gelu": GRID * 0.5 * (1 + ERF),
    "hard_sigmoid": np.clip(GRID / 6 + 0.5, 0, 1),
    "hard_silu": GRID * np.clip(GRID / 6 + 0.5, 0, 1),
    "leaky_relu": np.where(GRID >= 0, GRID, 0.2 * GRID),
    "elu": np.where(GRID > 0, GRID, np.expm1(GRID)),
    "selu": 1.05070098 * np.where(GRID > 0, GRID, 1.67326324 * np.expm1(GRID)),
    "silu": GRID * SIGMOID,
    "swish": GRID * SIGMOID,
    "mish": GRID * np.tanh(np.log1p(np.exp(GRID))),
    "softsign": GRID / (1 + np.abs(GRID)),
    "relu6": np.clip(GRID, 0, 6),
    "sparse_plus": np.where(GRID <= -1, 0, np.where(GRID >= 1, GRID, (GRID + 1) ** 2 / 4)),
    "sparse_sigmoid": np.clip((GRID + 1) / 2, 0, 1),
    "squareplus": (GRID + np.sqrt(GRID**2 + 4)) / 2,
    "hard_tanh": np.clip(GRID, -1, 1),
    "tanh_shrink": GRID - np.tanh(GRID),
    "soft_shrink": np.sign(GRID) * np.maximum(np.abs(GRID) - 0.5, 0),
    "hard_shrink": np.where(np.abs(GRID) > 0.5, GRID, 0),
    "log_sigmoid": np.log(SIGMOID),
    "exponential": np.exp(GRID),
    "linear": GRID,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_activation(name: str) -> None:
    function = activations.get(name)
    values = np.asarray(function(GRID.astype(np.float32)))
    np.testing.assert_allclose(values, EXPECTED[name], rtol=2e-5, atol=1e-6)
    assert activations.get(activations.serialize(function)) is function


def test_general_relu() -> None:
    values = np.asarray(activations.relu(GRID.astype(np.float32), 0.1, 2.0, 0.5))
    expected = np.where(GRID > 0.5, np.minimum(GRID, 2), 0.1 * (GRID - 0.5))
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert math.isnan(np.asarray(activations.relu(np.float32([np.nan]), 0.1, 2.0))[0])


def test_sparsemax_is_the_projection_onto_the_simplex() -> None:
    x = np.array([[0.1, 0.2, 0.2, -1.0], [3.0, 0.0, 0.0, 0.0], [0.3, 0.3, 0.3, 0.3]], np.float32)
    values = np.asarray(activations.sparsemax(x))
    np.testing.assert_allclose(values.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(values[1], [1, 0, 0, 0])
    np.testing.assert_allclose(values[2], 0.25, rtol=1e-6)
    np.testing.assert_allclose(values[0], [4 / 15, 11 / 30, 11 / 30, 0], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(activations.sparsemax(x.T, axis=0)), values.T)


def test_activation_of_ones_own() -> None:
    def double(x: Any) -> Any:
        return x * 2

    assert activations.get(double) is double
    assert activations.serialize(double)["class_name"] == "function"
    assert activations.get(None) is activations.linear
