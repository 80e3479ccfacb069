"""Recurrent and attention layers: the equations in NumPy, masks, states, and wrong input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import layers, ops

RNG = np.random.default_rng(2)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
MASK = np.array([[True, True, False, False, True], [True] * 5])


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def fill(layer: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    layer(*inputs)
    weights = [array(*w.shape) for w in layer.weights]
    layer.set_weights(weights)
    return weights


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def simple_step(x: np.ndarray, states: list[np.ndarray], w: list[np.ndarray]) -> list[np.ndarray]:
    return [np.tanh(x @ w[0] + states[0] @ w[1] + w[2])]


def lstm_step(x: np.ndarray, states: list[np.ndarray], w: list[np.ndarray]) -> list[np.ndarray]:
    h, c = states
    i, f, g, o = np.split(x @ w[0] + h @ w[1] + w[2], 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def gru_step(x: np.ndarray, states: list[np.ndarray], w: list[np.ndarray]) -> list[np.ndarray]:
    h = states[0]
    xz, xr, xh = np.split(x @ w[0] + w[2][0], 3, axis=-1)
    hz, hr, hh = np.split(h @ w[1] + w[2][1], 3, axis=-1)
    z, r = sigmoid(xz + hz), sigmoid(xr + hr)
    return [z * h + (1 - z) * np.tanh(xh + r * hh)]


def gru_before_step(
    x: np.ndarray, states: list[np.ndarray], w: list[np.ndarray]
) -> list[np.ndarray]:
    h, u = states[0], states[0].shape[1]
    xz, xr, xh = np.split(x @ w[0] + w[2], 3, axis=-1)
    z = sigmoid(xz + h @ w[1][:, :u])
    r = sigmoid(xr + h @ w[1][:, u : 2 * u])
    return [z * h + (1 - z) * np.tanh(xh + (r * h) @ w[1][:, 2 * u :])]


KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "SimpleRNN": (layers.SimpleRNN, simple_step, 1),
    "LSTM": (layers.LSTM, lstm_step, 2),
    "GRU": (layers.GRU, gru_step, 1),
    "GRU before": (lambda *a, **k: layers.GRU(*a, reset_after=False, **k), gru_before_step, 1),
}


def run(
    step: Any,
    x: np.ndarray,
    w: list[np.ndarray],
    count: int,
    units: int,
    mask: Any = None,
    zero: bool = False,
) -> tuple[np.ndarray, list[np.ndarray]]:
    states = [np.zeros((len(x), units))] * count
    output, outputs = np.zeros((len(x), units)), []
    for t in range(x.shape[1]):
        new = step(x[:, t], states, w)
        seen = np.ones((len(x), 1), bool) if mask is None else mask[:, t, None]
        states = [np.where(seen, n, s) for n, s in zip(new, states, strict=True)]
        output = np.where(seen, new[0], output)
        outputs.append(np.where(seen, output, 0) if zero else output)
    return np.stack(outputs, 1), states


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_recurrent(name: str, masked: bool) -> None:
    make, step, count = KINDS[name]
    x, mask = array(2, 5, 4), MASK if masked else None
    layer = make(3, return_sequences=True, return_state=True)
    w = fill(layer, x)
    expected, states = run(step, x, w, count, 3, mask)
    result = layer(x, mask=mask)
    np.testing.assert_allclose(np.asarray(result[0]), expected, **CLOSE)
    for state, value in zip(states, result[1:], strict=True):
        np.testing.assert_allclose(np.asarray(value), state, **CLOSE)
    last = make(3)
    last(x)
    last.set_weights(w)
    np.testing.assert_allclose(np.asarray(last(x, mask=mask)), expected[:, -1], **CLOSE)


def test_backwards_keeps_the_order_of_its_outputs() -> None:
    x = array(2, 5, 4)
    layer = layers.LSTM(3, return_sequences=True, go_backwards=True)
    w = fill(layer, x)
    expected, _ = run(lstm_step, x[:, ::-1], w, 2, 3)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, **CLOSE)


def test_the_forget_gate_starts_open() -> None:
    layer = layers.LSTM(3)
    layer.build((None, 5, 4))
    np.testing.assert_array_equal(layer.weights[2].numpy(), [0] * 3 + [1] * 3 + [0] * 6)


def test_states_go_in_and_out() -> None:
    x, whole = array(2, 6, 4), layers.GRU(3, return_sequences=True)
    w = fill(whole, x)
    layer = layers.GRU(3, return_sequences=True, return_state=True)
    layer(x)
    layer.set_weights(w)
    first, state = layer(x[:, :4])
    second, _ = layer(x[:, 4:], initial_state=state)
    both = np.concatenate([np.asarray(first), np.asarray(second)], 1)
    np.testing.assert_allclose(both, np.asarray(whole(x)), **CLOSE)


def test_stateful_layers_go_on_until_they_are_reset() -> None:
    x, whole = array(2, 6, 4), layers.LSTM(3, return_sequences=True)
    w = fill(whole, x)
    layer = layers.LSTM(3, return_sequences=True, stateful=True)
    layer(x)
    layer.set_weights(w)
    for _ in range(2):
        layer.reset_state()
        parts = [np.asarray(layer(x[:, :3])), np.asarray(layer(x[:, 3:]))]
        np.testing.assert_allclose(np.concatenate(parts, 1), np.asarray(whole(x)), **CLOSE)
    with pytest.raises(ValueError, match="batch of 1"):
        layer(x[:1])


def test_bidirectional_puts_zeros_at_masked_steps() -> None:
    x = array(2, 5, 4)
    layer = layers.Bidirectional(layers.GRU(3, return_sequences=True))
    w = fill(layer, x)
    result = np.asarray(layer(x, mask=MASK))
    ahead, _ = run(gru_step, x, w[:3], 1, 3, MASK, zero=True)
    back, _ = run(gru_step, x[:, ::-1], w[3:], 1, 3, MASK[:, ::-1], zero=True)
    np.testing.assert_allclose(result, np.concatenate([ahead, back[:, ::-1]], -1), **CLOSE)
    assert [x.name for x in (layer.forward_layer, layer.backward_layer)] == [
        f"forward_{(base := layer.forward_layer.name.removeprefix('forward_'))}",
        f"backward_{base}",
    ]


@pytest.mark.parametrize("mode", ["sum", "mul", "ave", None])
def test_merge_modes(mode: str | None) -> None:
    x = array(2, 5, 4)
    layer = layers.Bidirectional(layers.SimpleRNN(3), merge_mode=mode)
    w = fill(layer, x)
    ahead = run(simple_step, x, w[:3], 1, 3)[0][:, -1]
    back = run(simple_step, x[:, ::-1], w[3:], 1, 3)[0][:, -1]
    result = layer(x)
    if mode is None:
        np.testing.assert_allclose(np.asarray(result[0]), ahead, **CLOSE)
        np.testing.assert_allclose(np.asarray(result[1]), back, **CLOSE)
    else:
        expected = {"sum": ahead + back, "mul": ahead * back, "ave": (ahead + back) / 2}[mode]
        np.testing.assert_allclose(np.asarray(result), expected, **CLOSE)


def test_stacked_cells() -> None:
    x = array(2, 5, 4)
    layer = layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)], return_sequences=True)
    w = fill(layer, x)
    middle, _ = run(lstm_step, x, w[:3], 2, 3)
    expected, _ = run(gru_step, middle, w[3:], 1, 2)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, **CLOSE)


def test_a_cell_of_ones_own() -> None:
    class Adder(layers.Layer):
        state_size = 4

        def call(self, inputs: Any, states: Any) -> Any:
            total = ops.add(inputs, states[0])
            return total, [total]

    x = array(2, 5, 4)
    result = np.asarray(layers.RNN(Adder(), return_sequences=True)(x))
    np.testing.assert_allclose(result, x.cumsum(1), **CLOSE)


def test_dropout_keeps_one_mask_for_a_sequence() -> None:
    x = np.ones((1, 6, 8), np.float32)
    layer = layers.SimpleRNN(
        8, activation="linear", kernel_initializer="identity", recurrent_initializer="zeros",
        dropout=0.5, return_sequences=True, seed=3,
    )  # fmt: skip
    result = np.asarray(layer(x, training=True))
    assert (result == result[:, :1]).all() and set(np.unique(result)) == {0.0, 2.0}
    assert (np.asarray(layer(x)) == 1).all()


@pytest.mark.parametrize("form", ["channels_last", "channels_first"])
def test_conv_lstm_with_a_window_of_one_is_an_lstm_in_every_pixel(form: str) -> None:
    x = array(2, 5, 3, 2, 4)
    layer = layers.ConvLSTM2D(3, 1, return_sequences=True, return_state=True, data_format=form)
    w = fill(layer, x if form == "channels_last" else np.moveaxis(x, -1, 2))
    pixels = np.moveaxis(x, 1, 3).reshape(12, 5, 4)
    flat = [w[0][0, 0], w[1][0, 0], w[2]]
    expected, states = run(lstm_step, pixels, flat, 2, 3)
    if form == "channels_last":
        output, h, _ = (np.asarray(y) for y in layer(x))
    else:
        output, h, _ = (np.asarray(y) for y in layer(np.moveaxis(x, -1, 2)))
        output, h = np.moveaxis(output, 2, -1), np.moveaxis(h, 1, -1)
    np.testing.assert_allclose(output, np.moveaxis(expected.reshape(2, 3, 2, 5, 3), 3, 1), **CLOSE)
    np.testing.assert_allclose(h, states[0].reshape(2, 3, 2, 3), **CLOSE)


def test_time_distributed_applies_to_each_step() -> None:
    x = array(2, 3, 5, 4)
    layer = layers.TimeDistributed(layers.Conv1D(2, 2))
    fill(layer, x)
    expected = np.stack([np.asarray(layer.layer(x[:, t])) for t in range(3)], 1)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, **CLOSE)
    assert layer.compute_output_shape((None, 3, 5, 4)) == (None, 3, 4, 2)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.einsum("btm,mhd->bhtd", x, kernel) + bias[:, None]


def attend(q: Any, k: Any, v: Any, w: list[np.ndarray], allowed: Any = None) -> np.ndarray:
    q, k, v = heads(q, *w[:2]), heads(k, *w[2:4]), heads(v, *w[4:6])
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -1e9)
    return np.einsum("bhtd,hdm->btm", softmax(scores) @ v, w[6]) + w[7]


def test_multi_head_attention() -> None:
    q, v, k = array(2, 4, 6), array(2, 5, 3), array(2, 5, 7)
    layer = layers.MultiHeadAttention(2, 3, value_dim=4)
    w = fill(layer, q, v, k)
    np.testing.assert_allclose(np.asarray(layer(q, v, k)), attend(q, k, v, w), **CLOSE)
    names = [x.path.rpartition(f"{layer.name}/")[2] for x in layer.weights]
    parts = ("query", "key", "value", "attention_output")
    assert names == [f"{p}/{x}" for p in parts for x in ("kernel", "bias")]


def test_attention_masks_are_combined() -> None:
    x = array(2, 4, 6)
    layer = layers.MultiHeadAttention(2, 3)
    w = fill(layer, x, x)
    seen = np.array([[True, True, False, True], [True] * 4])
    allowed = np.tril(np.ones((4, 4), bool)) & seen[:, None, None, :]
    result = layer(x, x, value_mask=seen, use_causal_mask=True)
    np.testing.assert_allclose(np.asarray(result), attend(x, x, x, w, allowed), **CLOSE)
    near = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) < 2
    narrow = layers.MultiHeadAttention(2, 3, sliding_window=2)
    narrow(x, x)
    narrow.set_weights(w)
    np.testing.assert_allclose(np.asarray(narrow(x, x)), attend(x, x, x, w, near), **CLOSE)


def test_a_query_that_may_look_at_nothing() -> None:
    """Without scores the mean of all values; with scores asked for, zeros."""
    x = array(1, 3, 4)
    layer = layers.MultiHeadAttention(1, 2, use_bias=False)
    w = fill(layer, x, x)
    nothing = np.zeros((1, 3, 3), bool)
    plain = np.asarray(layer(x, x, attention_mask=nothing))
    mean = np.einsum("btm,mhd->bthd", x, w[2]).mean(1, keepdims=True)
    expected = np.einsum("bthd,hdm->btm", mean, w[3]).repeat(3, 1)
    np.testing.assert_allclose(plain, expected, **CLOSE)
    result, scores = layer(x, x, attention_mask=nothing, return_attention_scores=True)
    assert not np.asarray(result).any() and not np.asarray(scores).any()


def test_grouped_heads_share_keys() -> None:
    x = array(2, 4, 6)
    layer = layers.GroupQueryAttention(3, 4, 2)
    w = fill(layer, x, x)
    wide = [w[0], w[1], *(y.repeat(2, axis=-2) for y in w[2:6]), *w[6:]]
    np.testing.assert_allclose(np.asarray(layer(x, x)), attend(x, x, x, wide), **CLOSE)


def test_plain_attention() -> None:
    q, v = array(2, 4, 3), array(2, 5, 3)
    masks = [np.array([[True] * 3 + [False]] * 2), np.array([[True, False, True, True, True]] * 2)]
    scores = q @ v.swapaxes(1, 2)
    expected = softmax(np.where(masks[1][:, None], scores, -1e9)) @ v
    expected[:, 3] = 0
    result = layers.Attention()([q, v], mask=masks)
    np.testing.assert_allclose(np.asarray(result), expected, **CLOSE)
    layer = layers.AdditiveAttention()
    (scale,) = fill(layer, [q, v])
    scores = (scale * np.tanh(q[:, :, None] + v[:, None])).sum(-1)
    np.testing.assert_allclose(np.asarray(layer([q, v])), softmax(scores) @ v, **CLOSE)


@pytest.mark.parametrize(
    ("equation", "shape", "bias", "kernel", "reference"),
    [
        ("abc,cd->abd", (None, 5), "d", (4, 5), "abc,cd->abd"),
        ("...x,xy->...y", 5, "y", (4, 5), "abx,xy->aby"),
        ("abc,cde->abde", (None, 2, 3), "de", (4, 2, 3), "abc,cde->abde"),
        ("abc,bd->adc", (5, None), "d", (3, 5), "abc,bd->adc"),
    ],
)
def test_einsum_dense(equation: str, shape: Any, bias: str, kernel: Any, reference: str) -> None:
    x = array(2, 3, 4)
    layer = layers.EinsumDense(equation, output_shape=shape, bias_axes=bias, activation="relu")
    w = fill(layer, x)
    assert w[0].shape == kernel
    expected = np.maximum(np.einsum(reference, x, w[0]) + w[1], 0)
    np.testing.assert_allclose(np.asarray(layer(x)), expected, **CLOSE)
    assert layer.compute_output_shape((None, 3, 4)) == (None, *expected.shape[1:])


def test_einsum_dense_has_true_fans() -> None:
    layer = layers.EinsumDense("abc,cde->abde", output_shape=(None, 4, 8))
    layer.build((None, 5, 32))
    assert np.abs(layer.kernel.numpy()).max() == pytest.approx(np.sqrt(6 / 64), rel=0.02)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layers.LSTM(3)(array(2, 4)), "(2, 4)"),
        (lambda: layers.LSTM(-1), "units"),
        (lambda: layers.LSTM(3, dropout=2.0), "dropout"),
        (lambda: layers.GRU(3)(array(2, 5, 4), initial_state=[array(2, 3)] * 2), "1 states"),
        (lambda: layers.RNN(layers.Dense(3)), "no cell"),
        (lambda: layers.Bidirectional(layers.Dense(3)), "recurrent"),
        (lambda: layers.Bidirectional(layers.GRU(3), merge_mode="max"), "'concat'"),
        (lambda: layers.TimeDistributed(layers.Dense(3))(array(2, 4)), "(2, 4)"),
        (lambda: layers.MultiHeadAttention(0, 3), "num_heads"),
        (lambda: layers.GroupQueryAttention(3, 5, 2), "multiple"),
        (lambda: layers.Attention()(array(2, 3, 4)), "[query, value]"),
        (lambda: layers.EinsumDense("abc->ab", 3)(array(2, 3, 4)), "input,kernel->output"),
        (lambda: layers.EinsumDense("ab,bc->ac", 3)(array(2, 3, 4)), "3 dimensions"),
        (lambda: layers.EinsumDense("abc,cd->abd", 3)(array(2, 3, 4)), "output_shape"),
    ],
)
def test_errors(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.LSTM(3, return_sequences=True, recurrent_dropout=0.1, name="mine"),
        lambda: layers.GRU(3, reset_after=False, kernel_regularizer="l2"),
        lambda: layers.SimpleRNN(3, go_backwards=True),
        lambda: layers.ConvLSTM1D(3, 2, padding="same", return_sequences=True),
        lambda: layers.RNN([layers.LSTMCell(3), layers.SimpleRNNCell(2)], return_state=True),
        lambda: layers.Bidirectional(layers.LSTM(3), merge_mode="sum"),
        lambda: layers.TimeDistributed(layers.Dense(3)),
        lambda: layers.MultiHeadAttention(2, 3, dropout=0.1, output_shape=(5,), use_gate=True),
        lambda: layers.GroupQueryAttention(3, 4, 2, sliding_window=3),
        lambda: layers.Attention(use_scale=True, score_mode="concat"),
        lambda: layers.AdditiveAttention(use_scale=False),
        lambda: layers.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d"),
    ],
)
def test_config_round_trip(make: Callable[[], Any]) -> None:
    layer = make()
    again = layers.deserialize(layers.serialize(layer))
    assert type(again) is type(layer) and again.get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_heads": 1.5}, "num_heads must be an integer"),
        ({"value_dim": 0}, "value_dim must be an integer of at least 1"),
        ({"output_shape": 8.0}, "output_shape must be an integer"),
        ({"flash_attention": True, "dropout": 0.1}, "exclude each other"),
    ],
)
def test_arguments_of_attention_that_mean_nothing(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        layers.MultiHeadAttention(**{"num_heads": 2, "key_dim": 4, **arguments})


def test_attention_wants_lists_and_keys_beside_values() -> None:
    x = np.ones((1, 3, 4), "float32")
    for layer in (layers.Attention(), layers.AdditiveAttention()):
        with pytest.raises(ValueError, match=r"one tensor of shape \(1, 3, 4\)"):
            layer(x)
        with pytest.raises(ValueError, match="mask must be a list"):
            layer([x, x], mask=np.ones((1, 3), bool))
    for layer in (layers.MultiHeadAttention(2, 4), layers.GroupQueryAttention(4, 2, 1)):
        with pytest.raises(ValueError, match="key and value must agree"):
            layer(x, x, x[:, :2])
        with pytest.raises(ValueError, match="key and value must agree"):
            layer.compute_output_shape((1, 3, 4), (1, 3, 4), (1, 2, 4))
    layer = layers.MultiHeadAttention(2, 4, flash_attention=True)
    with pytest.raises(ValueError, match="return_attention_scores"):
        layer(x, x, return_attention_scores=True)
