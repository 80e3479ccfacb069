"""Normalisation and activation layers: Keras's numerics, worked out in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import layers

RNG = np.random.default_rng(1)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def array(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) * 2 + 1).astype(np.float32)


def test_batch_normalization_in_training() -> None:
    x = array(8, 5, 3)
    layer = layers.BatchNormalization(momentum=0.9)
    layer.build(x.shape)
    gamma, beta = array(3), array(3)
    layer.set_weights([gamma, beta, np.full(3, 2.0), np.full(3, 3.0)])
    mean, variance = x.mean((0, 1)), x.var((0, 1))  # biased, for the moving one too
    expected = (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta
    np.testing.assert_allclose(np.asarray(layer(x, training=True)), expected, **CLOSE)
    moving_mean, moving_variance = 0.9 * 2 + 0.1 * mean, 0.9 * 3 + 0.1 * variance
    np.testing.assert_allclose(layer.moving_mean.numpy(), moving_mean, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance.numpy(), moving_variance, rtol=1e-5)
    expected = (x - moving_mean) / np.sqrt(moving_variance + 1e-3) * gamma + beta
    np.testing.assert_allclose(np.asarray(layer(x)), expected, **CLOSE)


def test_frozen_batch_normalization_runs_in_inference() -> None:
    x = array(8, 3)
    layer = layers.BatchNormalization()
    layer.trainable = False
    result = np.asarray(layer(x, training=True))
    np.testing.assert_allclose(result, x / np.sqrt(1.001), **CLOSE)
    assert not layer.moving_mean.numpy().any()


def test_batch_normalization_ignores_masked_steps() -> None:
    x = array(2, 4, 3)
    mask = np.array([[True, True, False, False], [True, True, True, False]])
    layer = layers.BatchNormalization(momentum=0.0)
    layer(x, training=True, mask=mask)
    np.testing.assert_allclose(layer.moving_mean.numpy(), x[mask].mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance.numpy(), x[mask].var(0), rtol=1e-5)


def test_batch_normalization_over_another_axis() -> None:
    x = array(4, 3, 5)
    layer = layers.BatchNormalization(axis=1, center=False, scale=False)
    result = np.asarray(layer(x, training=True))
    mean, variance = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    np.testing.assert_allclose(result, (x - mean) / np.sqrt(variance + 1e-3), **CLOSE)
    assert [w.name for w in layer.weights] == ["moving_mean", "moving_variance"]


def test_renormalisation_with_tight_clips_is_plain() -> None:
    x = array(8, 3)
    clip = {"rmin": 1.0, "rmax": 1.0, "dmax": 0.0}
    layer = layers.BatchNormalization(renorm=True, renorm_clipping=clip)
    expected = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3)
    np.testing.assert_allclose(np.asarray(layer(x, training=True)), expected, **CLOSE)


@pytest.mark.parametrize("axis", [-1, 1, (1, 2), [2, 3]])
def test_layer_normalization(axis: Any) -> None:
    x = array(2, 3, 4, 5)
    layer = layers.LayerNormalization(axis=axis)
    layer.build(x.shape)
    gamma, beta = (array(*w.shape) for w in layer.weights)
    layer.set_weights([gamma, beta])
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    spread = [n if i in {a % 4 for a in axes} else 1 for i, n in enumerate(x.shape)]
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 1e-3)
    expected = expected * gamma.reshape(spread) + beta.reshape(spread)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, **CLOSE)


@pytest.mark.parametrize("groups", [1, 2, -1])
def test_group_normalization(groups: int) -> None:
    x = array(2, 3, 4, 6)
    layer = layers.GroupNormalization(groups=groups)
    layer.build(x.shape)
    gamma, beta = array(6), array(6)
    layer.set_weights([gamma, beta])
    count = 6 if groups == -1 else groups
    parts = x.reshape(2, 12, count, 6 // count)
    parts = parts - parts.mean((1, 3), keepdims=True)
    parts = parts / np.sqrt((parts**2).mean((1, 3), keepdims=True) + 1e-3)
    expected = parts.reshape(x.shape) * gamma + beta
    np.testing.assert_allclose(np.asarray(layer(x)), expected, **CLOSE)


def test_rms_and_unit_normalization() -> None:
    x = array(4, 6)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(np.asarray(layers.RMSNormalization()(x)), expected, **CLOSE)
    expected = x / np.linalg.norm(x, axis=0)
    np.testing.assert_allclose(np.asarray(layers.UnitNormalization(axis=0)(x)), expected, **CLOSE)
    assert not np.asarray(layers.UnitNormalization()(np.zeros((2, 3)))).any()


def test_spectral_normalization_bounds_the_kernel() -> None:
    layer = layers.SpectralNormalization(layers.Dense(4), power_iterations=30)
    x = array(2, 6)
    before = np.asarray(layer(x))
    kernel = layer.layer.kernel.numpy()
    largest = np.linalg.svd(kernel, compute_uv=False)[0]
    np.testing.assert_allclose(before, x @ kernel, **CLOSE)
    np.testing.assert_allclose(np.asarray(layer(x, training=True)), x @ kernel / largest, rtol=1e-3)
    assert np.linalg.svd(layer.layer.kernel.numpy(), compute_uv=False)[0] == pytest.approx(1, 1e-3)
    assert [w.name for w in layer.weights] == ["kernel", "vector_u", "bias"]


GRID = np.linspace(-3, 3, 13).astype(np.float32)[None]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (layers.ReLU(), np.maximum(GRID, 0)),
        (
            layers.ReLU(max_value=2.0, negative_slope=0.1, threshold=0.6),
            np.where(GRID > 0.6, np.minimum(GRID, 2), 0.1 * (GRID - 0.6)),
        ),
        (layers.LeakyReLU(), np.where(GRID >= 0, GRID, 0.3 * GRID)),
        (layers.LeakyReLU(alpha=0.1), np.where(GRID >= 0, GRID, 0.1 * GRID)),
        (layers.ELU(0.5), np.where(GRID > 0, GRID, 0.5 * np.expm1(GRID))),
        (layers.Softmax(), np.exp(GRID) / np.exp(GRID).sum()),
    ],
)
def test_activation_layers(layer: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(layer(GRID)), expected, rtol=1e-5, atol=1e-6)


def test_prelu_learns_one_slope_a_feature() -> None:
    layer = layers.PReLU(alpha_initializer="ones", shared_axes=[1])
    x = -np.abs(array(2, 3, 4))
    layer(x)
    assert layer.alpha.shape == (1, 4)
    layer.set_weights([np.array([[0.0, 1.0, 2.0, 3.0]])])
    np.testing.assert_allclose(np.asarray(layer(x)), x * [0, 1, 2, 3], rtol=1e-6)


def test_masked_softmax() -> None:
    x = array(2, 4)
    mask = np.array([[True, False, True, True], [False] * 4])
    result = np.asarray(layers.Softmax()(x, mask=mask))
    e = np.exp(x[0]) * mask[0]
    np.testing.assert_allclose(result[0], e / e.sum(), rtol=1e-5)
    assert not result[1].any()  # where nothing is allowed, nothing is given


@pytest.mark.parametrize("kind", [layers.LayerNormalization, layers.UnitNormalization])
def test_an_axis_is_an_integer_or_a_list(kind: Any) -> None:
    for axis in ({"axis": -1}, "last", [1.5]):
        with pytest.raises(TypeError, match=f"{kind.__name__}: axis must be an integer"):
            kind(axis=axis)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layers.LayerNormalization(axis=4)(array(2, 3)), "axis 4"),
        (lambda: layers.BatchNormalization(axis=(1, 2)), "one integer"),
        (lambda: layers.BatchNormalization(renorm_clipping={"r": 1}), "'r'"),
        (lambda: layers.BatchNormalization(renorm_clipping={"rmin": 2, "rmax": 1}), "rmin <= rmax"),
        (lambda: layers.BatchNormalization(renorm_clipping={"dmax": -1}), "dmax >= 0"),
        (lambda: layers.GroupNormalization(groups=4)(array(2, 6)), "6 channels"),
        (lambda: layers.ReLU(max_value=-1.0), "max_value"),
        (lambda: layers.LeakyReLU(negative_slope=None), "negative_slope"),
        (lambda: layers.PReLU(shared_axes=[3])(array(2, 3)), "shared_axes"),
        (lambda: layers.SpectralNormalization(3), "wraps a layer"),
    ],
)
def test_errors(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "layer",
    [
        layers.BatchNormalization(axis=1, renorm=True, gamma_regularizer="l2"),
        layers.LayerNormalization(axis=[1, 2], center=False),
        layers.GroupNormalization(groups=3),
        layers.RMSNormalization(epsilon=1e-3),
        layers.UnitNormalization(axis=1),
        layers.SpectralNormalization(layers.Dense(3), power_iterations=2),
        layers.ReLU(max_value=6.0),
        layers.PReLU(shared_axes=[1, 2]),
        layers.Softmax(axis=1),
    ],
)
def test_config_round_trip(layer: Any) -> None:
    again = layers.deserialize(layers.serialize(layer))
    assert type(again) is type(layer) and again.get_config() == layer.get_config()
