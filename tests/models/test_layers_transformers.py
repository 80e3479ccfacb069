"""The building blocks of transformers against their formulas, written out with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers, ops
from meganeura.layers.dot_product import alibi_slopes
from meganeura.layers.positions import rotary_frequencies, sinusoids
from meganeura.zoo.generation import LanguageModel

RANDOM = np.random.default_rng(11)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype("float32")


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turning", [None, 4])
def test_rotations_are_products_of_complex_numbers(interleaved: bool, turning: int | None) -> None:
    x, width = drawn(2, 5, 3, 8), turning or 8
    layer = layers.RotaryEmbedding(100.0, interleaved, rotary_width=turning)
    found = np.asarray(layer(x, offset=7))
    part = x[..., :width]
    if interleaved:
        numbers = part[..., 0::2] + 1j * part[..., 1::2]
    else:
        numbers = part[..., : width // 2] + 1j * part[..., width // 2 :]
    angle = np.arange(7, 12)[:, None] * 100.0 ** (-np.arange(0, width, 2) / width)
    numbers = numbers * np.exp(1j * angle)[:, None]
    expected = x.copy()
    if interleaved:
        expected[..., 0:width:2], expected[..., 1:width:2] = numbers.real, numbers.imag
    else:
        expected[..., :width] = np.concatenate([numbers.real, numbers.imag], -1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_rotary_scaling_is_known_or_refused() -> None:
    plain, factor = rotary_frequencies(8, 1e4)
    assert factor == 1.0
    half, _ = rotary_frequencies(8, 1e4, {"type": "linear", "factor": 2.0})
    np.testing.assert_allclose(half, plain / 2)
    with pytest.raises(ValueError, match="'dynamic' is not offered"):
        rotary_frequencies(8, 1e4, {"rope_type": "dynamic", "factor": 2.0})
    with pytest.raises(ValueError, match="cannot turn 3 of 8"):
        layers.RotaryEmbedding(rotary_width=3)(drawn(1, 2, 1, 8))


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray, bias: Any = 0.0, cap: Any = None
) -> np.ndarray:
    """One query head after the other."""
    groups = q.shape[2] // k.shape[2]
    heads = []
    for h in range(q.shape[2]):
        scores = q[:, :, h] @ np.swapaxes(k[:, :, h // groups], 1, 2) / np.sqrt(q.shape[-1])
        scores = cap * np.tanh(scores / cap) if cap else scores
        scores = scores + (bias[h] if isinstance(bias, np.ndarray) else bias)
        heads.append(softmax(np.where(seen, scores, -1e30)) @ v[:, :, h // groups])
    return np.concatenate(heads, -1)


@pytest.mark.parametrize(
    "kind", ["full", "causal", "window", "alibi", "softcap", "masked", "packed"]
)
def test_attention(kind: str) -> None:
    q, k, v = drawn(2, 6, 6, 5), drawn(2, 6, 2, 5), drawn(2, 6, 2, 4)
    back = np.arange(6)[:, None] - np.arange(6)[None]
    seen = np.broadcast_to(back >= 0, (2, 6, 6)) if kind not in ("full", "masked") else True
    options: dict[str, Any] = {"causal": kind not in ("full", "masked")}
    given: dict[str, Any] = {}
    bias, cap = 0.0, None
    if kind == "window":
        options["window"], seen = 3, (back >= 0) & (back < 3)
    if kind == "alibi":
        options["alibi"], bias = True, -alibi_slopes(6)[:, None, None] * back
    if kind == "softcap":
        options["softcap"] = cap = 2.0
    if kind == "masked":
        mask = np.arange(6) < np.array([[4], [6]])
        given["key_mask"], seen = mask, mask[:, None]
    if kind == "packed":
        segments = np.array([[1, 1, 2, 2, 2, 3], [1, 1, 1, 1, 2, 2]], "int32")
        given["segments"] = segments
        seen = seen & (segments[:, :, None] == segments[:, None])
    found = np.asarray(layers.ScaledDotProduct(**options)(q, k, v, **given))
    np.testing.assert_allclose(found, attended(q, k, v, np.asarray(seen), bias, cap), atol=2e-5)


def test_slopes_of_heads_that_are_no_power_of_two() -> None:
    np.testing.assert_allclose(alibi_slopes(8), 2.0 ** -np.arange(1, 9))
    np.testing.assert_allclose(alibi_slopes(6), [0.25, 1 / 16, 1 / 64, 1 / 256, 0.5, 0.125])


def test_positions() -> None:
    x = np.zeros((2, 5, 6), "float32")
    found = np.asarray(layers.SinePositionEncoding()(x, start_index=2))
    turn = np.arange(2, 7)[:, None] / 10000.0 ** (np.arange(0, 6, 2) / 6)
    np.testing.assert_allclose(found[1, :, 0::2], np.sin(turn), atol=1e-5)
    np.testing.assert_allclose(found[0, :, 1::2], np.cos(turn), atol=1e-5)
    table = layers.PositionEmbedding(8)
    rows = np.asarray(table(x))
    np.testing.assert_array_equal(rows[1], table.position_embeddings.numpy()[:5])
    with pytest.raises(ValueError, match="8 positions, got the length 9"):
        table(np.zeros((1, 9, 6), "float32"))
    assert sinusoids(7, 4).shape == (7, 4)
    np.testing.assert_allclose(
        sinusoids(7, 4)[3], [*np.sin([3, 3e-4]), *np.cos([3, 3e-4])], atol=1e-6
    )


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gated_units(activation: str) -> None:
    x = drawn(2, 3, 4)
    layer = layers.GatedFeedForward(6, activation, use_bias=True)
    layer(x)
    for w in layer.weights:
        w.assign(drawn(*w.shape))
    gate, gate_bias, up, up_bias, down, down_bias = (w.numpy() for w in layer.weights)
    g = x @ gate + gate_bias
    if activation == "silu":
        g = g / (1 + np.exp(-g))
    else:
        g = 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
    expected = (g * (x @ up + up_bias)) @ down + down_bias
    np.testing.assert_allclose(np.asarray(layer(x)), expected, rtol=1e-4, atol=1e-4)


def test_patches_and_squares_of_them() -> None:
    images = drawn(2, 6, 9, 2)
    layer = layers.PatchEmbedding(3, 5)
    found = np.asarray(layer(images))
    kernel, bias = (w.numpy() for w in layer.weights)
    patch = images[1, 3:6, 6:9].reshape(-1) @ kernel.reshape(-1, 5) + bias
    assert found.shape == (2, 6, 5)
    np.testing.assert_allclose(found[1, 5], patch, atol=1e-5)
    tokens = np.arange(16, dtype="float32").reshape(1, 16, 1)
    shuffled = np.asarray(layers.PixelShuffle(2)(tokens))
    assert shuffled[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    with pytest.raises(ValueError, match="12 tokens are no square"):
        layers.PixelShuffle(2)(np.zeros((1, 12, 1), "float32"))


def test_an_embedding_gives_logits_and_scales() -> None:
    layer = layers.ReversibleEmbedding(7, 4, scale=2.0, logit_soft_cap=3.0, padding_token=1)
    ids = np.array([[1, 5, 5]], "int32")
    table = np.asarray(layer(ids)) * 0 + drawn(1, 1, 4)  # builds it
    weights = drawn(7, 4)
    layer.embeddings.assign(weights)
    np.testing.assert_allclose(np.asarray(layer(ids)), 2 * weights[ids], rtol=1e-6)
    logits = 3 * np.tanh(table @ weights.T / 3)
    np.testing.assert_allclose(np.asarray(layer(table, reverse=True)), logits, rtol=1e-4, atol=1e-5)
    _, (gradient,) = mg.value_and_grad(lambda: ops.sum(layer(ids)), [layer.embeddings])()
    expected = np.zeros((7, 4))
    expected[5] = 4.0  # twice, by 2; what pads is not trained
    np.testing.assert_allclose(np.asarray(gradient), expected)


@pytest.mark.parametrize("kind", ["alibi", "sines"])
def test_models_of_these_layers_can_write(kind: str, tmp_path: Any) -> None:
    ids = mg.Input((None,), dtype="int32", name="ids")
    embedding = layers.ReversibleEmbedding(23, 16, embeddings_initializer="normal")
    x = embedding(ids)
    if kind == "sines":
        x = x + layers.SinePositionEncoding()(x)
    q, k, v = (layers.SplitHeads(2)(layers.Dense(16)(x)) for _ in range(3))
    core = layers.ScaledDotProduct(causal=True, alibi=kind == "alibi")
    x = x + layers.Dense(16)(core(q, k, v))
    x = layers.LastToken()(layers.RMSNormalization()(x + layers.GatedFeedForward(24)(x)))
    model = LanguageModel(ids, embedding(x, reverse=True))
    for w in model.weights:
        w.assign(drawn(*w.shape))
    text = model.generate([3, 9, 4], 10)
    logits = np.asarray(model(text[None]))
    np.testing.assert_array_equal(text[3:], logits[0].argmax(-1)[2:-1])
    model.save(tmp_path / "writer.keras")
    again = mg.models.load_model(tmp_path / "writer.keras")
    np.testing.assert_allclose(np.asarray(again(text[None])), logits, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.ScaledDotProduct(window=3), "causal"),
        (lambda: layers.SplitHeads(3)(drawn(1, 2, 8)), "8 features do not split into 3"),
        (lambda: layers.ScaledDotProduct()(drawn(1, 2, 3, 4), drawn(1, 2, 2, 4), drawn(1, 2, 2, 4)),
         "3 heads of queries"),
        (lambda: layers.PatchEmbedding(2, 3)(drawn(1, 4, 4)), "4 dimensions"),
        (lambda: sinusoids(3, 5), "even"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
