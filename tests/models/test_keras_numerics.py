"""Traps of Keras's numbers: small cases with the values that Keras 3.15 gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as keras


def _dense(**options: Any) -> Any:
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="d")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(optimizer="sgd", loss="mse", **options)
    return model


def test_epsilons() -> None:
    assert keras.config.epsilon() == 1e-7
    assert keras.optimizers.Adam().epsilon == keras.optimizers.RMSprop().epsilon == 1e-7
    layers = keras.layers
    assert layers.BatchNormalization().epsilon == layers.LayerNormalization().epsilon == 1e-3
    assert layers.RMSNormalization().epsilon == 1e-6


def test_adam_adds_epsilon_outside_of_the_corrected_root() -> None:
    """w - lr sqrt(1 - b2) / (1 - b1) m / (sqrt(v) + epsilon): epsilon counts 31.6 times as much as in the paper."""
    variable = keras.Variable(np.zeros(1, "float32"))
    keras.optimizers.Adam(1.0, epsilon=1e-3).apply_gradients(
        [(keras.ops.convert_to_tensor([1e-3]), variable)]
    )
    expected = -(0.001**0.5) / 0.1 * 1e-4 / (1e-3 * 0.001**0.5 + 1e-3)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable.value), [expected], rtol=1e-4)


def test_same_padding_puts_the_odd_element_last() -> None:
    layer = keras.layers.Conv1D(1, 2, padding="same", kernel_initializer="ones")
    found = keras.ops.convert_to_numpy(layer(np.array([1.0, 2.0, 4.0], "float32").reshape(1, 3, 1)))
    np.testing.assert_array_equal(found.ravel(), [3.0, 6.0, 4.0])


def test_losses_of_a_partial_batch_weigh_by_its_size() -> None:
    x, y = np.zeros((3, 1), "float32"), np.array([[1.0], [2.0], [3.0]], "float32")
    found = _dense().evaluate(x, y, batch_size=2, verbose=0)
    assert found == pytest.approx(14 / 3, rel=1e-6)


def test_class_weights_multiply_losses_but_not_plain_metrics() -> None:
    x, y = np.zeros((2, 1), "float32"), np.array([[0.0], [1.0]], "float32")
    model = _dense(metrics=["mae"], weighted_metrics=["mse"])
    logs = model.fit(x, y, class_weight={0: 5.0, 1: 6.0}, shuffle=False, verbose=0).history
    assert sorted(logs) == ["loss", "mae", "mse"]
    assert logs["loss"][0] == pytest.approx(3.0)  # (0 * 5 + 1 * 6) / 2, the number of samples
    assert logs["mae"][0] == pytest.approx(0.5)
    assert logs["mse"][0] == pytest.approx(6 / 11)  # over the sum of the weights
    with pytest.raises(ValueError, match="class_weight"):
        model.fit(x, y, class_weight={0: 5.0, 1: 6.0}, sample_weight=np.ones(2), verbose=0)


def test_validation_split_takes_the_last_samples_before_shuffling() -> None:
    x, y = np.zeros((10, 1), "float32"), np.array([[0.0]] * 8 + [[2.0]] * 2, "float32")
    logs = _dense().fit(x, y, validation_split=0.2, shuffle=True, verbose=0).history
    assert logs["loss"] == [0.0] and logs["val_loss"] == [4.0]


def test_recurrent_biases() -> None:
    lstm, gru = keras.layers.LSTM(2), keras.layers.GRU(2)
    lstm.build((None, 3, 1))
    gru.build((None, 3, 1))
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(lstm.weights[2].value), [0, 0, 1, 1, 0, 0, 0, 0]
    )
    assert tuple(gru.weights[2].shape) == (2, 6)  # reset_after: a bias for inputs, one for states


def test_label_smoothing_and_logarithms_of_zero() -> None:
    y, p = np.array([[0.0, 1.0]], "float32"), np.array([[1.0, 0.0]], "float32")
    losses = keras.losses
    found = float(keras.ops.convert_to_numpy(losses.CategoricalCrossentropy()(y, p)))
    assert found == pytest.approx(16.118095, rel=1e-5)
    found = float(
        keras.ops.convert_to_numpy(losses.CategoricalCrossentropy(label_smoothing=0.2)(y, p))
    )
    assert found == pytest.approx(0.9 * 16.118095, rel=1e-4)
    found = float(
        keras.ops.convert_to_numpy(losses.BinaryCrossentropy(label_smoothing=0.2)(y, 1 - p))
    )
    assert found == pytest.approx(0.1 * 16.118, rel=2e-2)
