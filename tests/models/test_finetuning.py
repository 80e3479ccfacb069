"""Freezing, LoRA, rates by name, packed texts and perplexity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers
from meganeura.zoo.llama import LlamaConfig, llama

CONFIG = LlamaConfig(
    vocabulary=31, width=16, layers=1, heads=2, kv_heads=1, head_width=8, inner=24, tied_head=True
)  # fmt: skip


def small() -> Any:
    mg.utils.set_random_seed(3)
    return mg.Sequential(
        [mg.Input((6,)), layers.Dense(5, "tanh", name="first"), layers.Dense(2, name="second")],
        name="net",
    )


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(16, 6)).astype("float32"), rng.normal(size=(16, 2)).astype("float32")


def test_frozen_weights_stay() -> None:
    model, (x, y) = small(), data()
    assert mg.models.freeze(model, "first") == ["net/first/kernel", "net/first/bias"]
    model.compile("sgd", "mse")
    before = model.get_weights()
    model.fit(x, y, verbose=0)
    moved = [not np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True)]
    assert moved == [False, False, True, True]
    mg.models.unfreeze(model, r"first/bias$")
    assert [w.path for w in model.trainable_weights] == [
        "net/first/bias",
        "net/second/kernel",
        "net/second/bias",
    ]
    with pytest.raises(ValueError, match="'third'"):
        mg.models.freeze(model, "third")


def test_moving_averages_do_not_thaw() -> None:
    model = mg.Sequential([mg.Input((4,)), layers.BatchNormalization(name="norm")])
    mg.models.freeze(model)
    mg.models.unfreeze(model)
    assert [w.name for w in model.trainable_weights] == ["gamma", "beta"]


def test_lora_learns_beside_what_stays(tmp_path: Any) -> None:
    model, (x, y) = small(), data()
    before, weights = np.asarray(model(x)), model.get_weights()
    assert mg.models.add_lora(model, rank=2, alpha=4, pattern="first") == ["first"]
    np.testing.assert_array_equal(np.asarray(model(x)), before)
    assert [w.path for w in model.trainable_weights] == [
        "net/first/lora/lora_a",
        "net/first/lora/lora_b",
    ]
    model.compile("adam", "mse")
    losses = model.fit(x, y, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    first = model.get_layer("first")
    np.testing.assert_array_equal(first.kernel.numpy(), weights[0])
    trained = np.asarray(model(x))
    a, b = first.lora.a.numpy(), first.lora.b.numpy()
    by_hand = np.tanh(x @ (weights[0] + 2.0 * a @ b) + weights[1]) @ weights[2] + weights[3]
    np.testing.assert_allclose(trained, by_hand, atol=1e-5)
    model.save(tmp_path / "lora.keras")
    again = mg.models.load_model(tmp_path / "lora.keras")
    np.testing.assert_allclose(np.asarray(again(x)), trained, atol=1e-6)
    mg.models.merge_lora(model)
    assert not model.trainable_weights
    np.testing.assert_allclose(np.asarray(model(x)), trained, atol=1e-5)
    assert not np.allclose(first.kernel.numpy(), weights[0])
    mg.models.unmerge_lora(model)
    np.testing.assert_allclose(first.kernel.numpy(), weights[0], atol=1e-6)
    assert len(model.trainable_weights) == 2


def test_lora_of_embeddings_and_their_tied_heads() -> None:
    model = llama(CONFIG)
    ids = np.array([[1, 5, 9]], "int32")
    names = mg.models.add_lora(model, 2, pattern=["embed_tokens", "q_proj"])
    assert names == ["model.embed_tokens", "model.layers.0.self_attn.q_proj"]
    rng = np.random.default_rng(0)
    for v in model.trainable_weights:
        v.assign(rng.normal(size=v.shape))
    apart = np.asarray(model(ids))
    mg.models.merge_lora(model)
    np.testing.assert_allclose(np.asarray(model(ids)), apart, rtol=1e-4, atol=1e-4)


def test_lora_of_attention(tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    inputs = mg.Input((5, 6))
    outputs = layers.MultiHeadAttention(2, 3, name="attention")(inputs, inputs)
    model = mg.Model(inputs, outputs)
    names = mg.models.add_lora(model, 2, pattern="query|output")
    assert names == ["query", "attention_output"]
    assert [w.shape for w in model.trainable_weights] == [(6, 2, 2), (2, 3), (2, 3, 2), (2, 6)]
    for w in model.trainable_weights:
        w.assign(rng.normal(size=w.shape))
    apart = np.asarray(model(x))
    mg.models.merge_lora(model)
    np.testing.assert_allclose(np.asarray(model(x)), apart, rtol=1e-4, atol=1e-5)
    layer = layers.EinsumDense("ab,bc->ac", 4, lora_rank=3)
    layer(x[0])
    assert layer.lora_rank == 3 and layer.get_config()["lora_rank"] == 3


def test_what_lora_refuses() -> None:
    with pytest.raises(ValueError, match="not built"):
        layers.Dense(3).enable_lora(2)
    model = small()
    with pytest.raises(ValueError, match="'conv'"):
        mg.models.add_lora(model, pattern="conv")
    with pytest.raises(ValueError, match="rank"):
        mg.models.add_lora(model, rank=0)
    mg.models.add_lora(model, pattern="first")
    with pytest.raises(ValueError, match="LoRA already"):
        model.get_layer("first").enable_lora(1)
    with pytest.raises(ValueError, match="no LoRA"):
        model.get_layer("second").merge_lora()


def test_rates_by_name() -> None:
    x, y = data()
    steps = []
    for multipliers in (None, {"first/kernel": 0.25, "second": 0.0}):
        model = small()
        optimizer = mg.optimizers.SGD(0.1, learning_rate_multipliers=multipliers)
        model.compile(optimizer, "mse")
        before = model.get_weights()
        model.fit(x, y, batch_size=16, verbose=0)
        steps.append([b - a for a, b in zip(before, model.get_weights(), strict=True)])
    for step, other, factor in zip(*steps, (0.25, 1.0, 0.0, 0.0), strict=True):
        np.testing.assert_allclose(other, factor * step, atol=1e-6)
    copied = mg.optimizers.SGD.from_config(optimizer.get_config())
    assert copied.learning_rate_multipliers == {"first/kernel": 0.25, "second": 0.0}
    assert "learning_rate_multipliers" not in mg.optimizers.SGD().get_config()
    with pytest.raises(ValueError, match="'first'"):
        mg.optimizers.SGD(learning_rate_multipliers={"first": -1})


def test_packed_texts_are_texts_of_their_own() -> None:
    texts = [[4, 8, 15], [16, 23], [3, 1, 4, 1, 5, 9, 2, 6], [7, 7, 7, 7]]
    packed = mg.utils.pack_sequences(texts, 8)
    assert packed.ids.tolist()[0] == texts[2]
    assert packed.ids.shape == (3, 8)
    assert packed.segments.tolist()[1] == [1, 1, 1, 1, 2, 2, 2, 0]
    assert packed.labels.tolist()[1] == [7, 7, 7, 0, 8, 15, 0, 0]
    assert packed.sample_weight.tolist()[1] == [1, 1, 1, 0, 1, 1, 0, 0]
    mg.utils.set_random_seed(0)
    together, alone = llama(CONFIG, packed=True), llama(CONFIG)
    alone.set_weights(together.get_weights())
    found = np.asarray(together({"ids": packed.ids, "segments": packed.segments}))
    np.testing.assert_allclose(found[1, :4], np.asarray(alone(np.array([texts[3]])))[0], atol=1e-5)
    np.testing.assert_allclose(found[1, 4:7], np.asarray(alone(np.array([texts[0]])))[0], atol=1e-5)
    with pytest.raises(ValueError, match="whole numbers"):
        mg.utils.pack_sequences([[0.5]], 8)


def test_long_texts_are_cut() -> None:
    packed = mg.utils.pack_sequences([list(range(1, 8))], 3, pad_token=9)
    assert sorted(map(tuple, packed.ids)) == [(1, 2, 3), (4, 5, 6), (7, 9, 9)]


def test_perplexity() -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(2, 3, 7)).astype("float32")
    true = np.array([[1, 2, 0], [6, 0, 3]], "int32")
    p = np.exp(scores.astype("float64"))
    p /= p.sum(-1, keepdims=True)
    losses = -np.log(np.take_along_axis(p, true[..., None], -1)[..., 0])
    metric = mg.metrics.Perplexity(from_logits=True)
    assert float(metric.result()) == 0.0
    metric.update_state(true[:1], scores[:1])
    metric.update_state(true[1:], scores[1:])
    np.testing.assert_allclose(float(metric.result()), np.exp(losses.mean()), rtol=1e-5)
    metric = mg.metrics.Perplexity(from_logits=False, mask_token_id=0)
    weights = np.array([1.0, 3.0], "float32")
    metric.update_state(true, p.astype("float32"), weights)
    own = weights[:, None] * (true != 0)
    expected = np.exp((losses * own).sum() / own.sum())
    np.testing.assert_allclose(float(metric.result()), expected, rtol=1e-5)
    assert mg.metrics.get("perplexity").name == "perplexity"


def test_a_packed_model_is_trained_with_perplexity() -> None:
    mg.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    packed = mg.utils.pack_sequences([rng.integers(1, 31, n) for n in (5, 7, 3, 8, 4)], 8)
    model = llama(CONFIG, packed=True)
    loss = mg.losses.SparseCategoricalCrossentropy(from_logits=True)
    perplexity = mg.metrics.Perplexity(from_logits=True)
    model.compile(mg.optimizers.AdamW(3e-2), loss, weighted_metrics=[perplexity])
    x = {"ids": packed.ids, "segments": packed.segments}
    history = model.fit(
        x, packed.labels, sample_weight=packed.sample_weight, epochs=8, verbose=0
    ).history  # fmt: skip
    assert history["perplexity"][-1] < 0.7 * history["perplexity"][0]
