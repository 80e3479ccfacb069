"""Models with packed weights: what they compute, what the report says, files, copies, and training."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers, ops
from meganeura.backend import backend_object
from meganeura.quantization.formats import FORMATS
from meganeura.quantization.variable import PackedVariable, built_packed
from meganeura.zoo.llama import LlamaConfig, llama

CONFIG = LlamaConfig(
    vocabulary=61, width=64, layers=2, heads=4, kv_heads=2, head_width=16, inner=96, tied_head=True
)  # fmt: skip
IDS = np.arange(12, dtype="int32").reshape(2, 6) * 5 % 61


def net() -> Any:
    mg.utils.set_random_seed(3)
    return mg.Sequential(
        [
            mg.Input((64,)),
            layers.Dense(96, "tanh", name="first"),
            layers.Reshape((3, 32)),
            layers.EinsumDense("abc,cde->abde", (None, 4, 8), bias_axes="de", name="heads"),
            layers.EinsumDense("abde,def->abf", (None, 32), name="joined"),
            layers.Flatten(),
            layers.Dense(5, name="narrow"),
        ],
        name="net",
    )


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    return (
        random.standard_normal((16, 64)).astype("float32"),
        random.standard_normal((16, 5)).astype("float32"),
    )


def tables(model: Any) -> list[PackedVariable]:
    return [w for w in model.weights if isinstance(w, PackedVariable)]


def bits(model: Any) -> list[np.ndarray]:
    return [part.numpy() for table in tables(model) for part in table.parts]


@pytest.mark.parametrize("mode", FORMATS)
def test_a_model_computes_with_the_packed_values(mode: str) -> None:
    model, (x, _) = net(), data()
    before, exact = np.asarray(model(x)), model.get_weights()
    report = model.quantize(mode)
    assert len(tables(model)) == len(report.packed) == 4
    values = model.get_weights()
    found = np.asarray(model(x))
    plain = net()
    plain.set_weights(values)
    np.testing.assert_allclose(found, np.asarray(plain(x)), 1e-5, 1e-5)
    np.testing.assert_allclose(found, model.predict(x, verbose=0), 1e-5, 1e-5)
    limit = {"f16": 1e-3, "q8_0": 2e-2, "q4_1": 0.3}[mode]
    assert 0 < np.abs(found - before).max() < limit * np.abs(before).max()
    for a, b, w in zip(values, exact, model.weights, strict=True):
        assert a.shape == b.shape == w.shape
        assert np.array_equal(a, b) != isinstance(w, PackedVariable)


@pytest.mark.parametrize(("mode", "ratio"), [("f16", 2), ("q8_0", 128 / 34), ("q4_1", 6.4)])
def test_the_report(mode: str, ratio: float) -> None:
    model = llama(CONFIG)
    exact = {w.path: w.numpy() for w in model.weights}
    bytes_before = sum(w.nbytes for w in model.weights)
    report = model.quantize(mode)
    assert not report.left
    squares = np.zeros(2)
    for row, table in zip(report.layers, tables(model), strict=True):
        assert row.before == 4 * table.size
        assert row.after == table.nbytes == sum(p.numpy().nbytes for p in table.parts)
        assert row.before / row.after == pytest.approx(ratio)
        error = np.linalg.norm(table.numpy() - exact[table.path])
        size = np.linalg.norm(exact[table.path])
        squares += error**2, size**2
        assert row.error == pytest.approx(error / size, rel=1e-4)
    assert report.error == pytest.approx(np.sqrt(squares[0] / squares[1]), rel=1e-4)
    norms = 4 * sum(w.size for w in model.weights if w.name == "scale")
    assert report.before == bytes_before
    assert report.after == norms + sum(t.nbytes for t in tables(model))
    text = str(report)
    assert "model.layers.1.mlp.down_proj" in text
    assert f"{mode}: 15 of 15 tables" in text


def test_what_does_not_fit_stays_and_is_told_of() -> None:
    model = mg.Sequential(
        [mg.Input((33,)), layers.Dense(64, name="odd"), layers.Dense(64, name="large"),
         layers.Dense(4, name="fits")]
    )  # fmt: skip
    large = model.get_layer("large")
    large.kernel.assign(large.kernel.numpy() * np.float32(1e9))
    report = model.quantize("q8_0")
    assert [r.name for r in report.left] == ["odd", "large"]
    assert report.left[0].left == "its 33 inputs are no multiple of 32"
    assert report.left[1].left.endswith("does not fit into a half")
    assert [r.name for r in report.packed] == ["fits"]
    assert "float32: its 33 inputs" in str(report)
    assert not isinstance(model.get_layer("odd").kernel, PackedVariable)
    assert not isinstance(large.kernel, PackedVariable)
    with pytest.raises(ValueError, match=r"'\w+/odd/kernel'.* its 33 inputs are no multiple of 32"):
        model.get_layer("odd").quantize("q8_0")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ("^first$", ["first"]),
        (["^heads", "joined"], ["heads", "joined"]),
        (lambda layer: layer.name != "first", ["heads", "joined", "narrow"]),
    ],
)
def test_filters(filters: Any, expected: list[str]) -> None:
    report = net().quantize("q8_0", filters=filters)
    assert [r.name for r in report.packed] == expected


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="offered are f16, q8_0, q4_1"):
        net().quantize("int8")
    with pytest.raises(ValueError, match=r"'net' has no dense.*'second'"):
        net().quantize("f16", filters="second")
    with pytest.raises(ValueError, match="'later' .*not built yet"):
        mg.Sequential([layers.Dense(32, name="later")]).quantize("f16")
    with pytest.raises(ValueError, match="'later' is not built yet"):
        layers.Dense(32, name="later").quantize("f16")


def test_a_table_of_two_layers_stays() -> None:
    class Twins(mg.Model):
        def __init__(self) -> None:
            super().__init__()
            self.one = layers.Dense(32, name="one")
            self.two = layers.Dense(32, name="two")

        def build(self, input_shape: Any) -> None:
            self.one.build(input_shape)
            self.two.build(input_shape)
            self.two.kernel = self.one.kernel

        def call(self, x: Any) -> Any:
            return self.two(self.one(x))

    model = Twins()
    model(np.ones((1, 32), "float32"))
    report = model.quantize("f16")
    assert [r.left for r in report.layers] == [
        "layer 'two' holds it as well", "layer 'one' holds it as well",
    ]  # fmt: skip


def test_layers_inside_layers() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 32)).astype("float32")
    inputs = mg.Input((5, 32))
    out = layers.MultiHeadAttention(4, 8, name="attention")(inputs, inputs)
    model = mg.Model(inputs, layers.TimeDistributed(layers.Dense(32))(out))
    before = np.asarray(model(x))
    assert len(model.quantize("q8_0").packed) == 5
    np.testing.assert_allclose(np.asarray(model(x)), before, atol=0.05)


def test_the_float32_tables_are_gone() -> None:
    model = llama(CONFIG)
    model.predict(IDS, verbose=0)
    model.generate([3, 7, 1], 4)
    old = [weakref.ref(w) for w in model.weights if w.ndim == 2]
    assert len(old) == 15
    model.quantize("f16")
    gc.collect()
    assert not any(w() for w in old)


def test_models_around_it_notice() -> None:
    inner, (x, _) = net(), data()
    inputs = mg.Input((64,))
    outer = mg.Model(inputs, inner(inputs) * 2.0)
    outer.predict(x, verbose=0)
    inner.quantize("q4_1")
    found = outer.predict(x, verbose=0)
    np.testing.assert_allclose(found, 2 * inner.predict(x, verbose=0), 1e-5, 1e-5)


@pytest.mark.parametrize("mode", ["q8_0", "f16"])
def test_half_precision_around_packed_weights(mode: str) -> None:
    """Products with packed tables are computed in float32, and layers give what their policy says."""
    if not backend_object().half:
        pytest.skip("the device has no half precision")
    model, (x, _) = net(), data()
    model.quantize(mode)
    expected = np.asarray(model(x))
    before = mg.mixed_precision.dtype_policy()
    mg.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        half = net()
        half.quantize(mode)
        half.set_weights(model.get_weights())
        found = half(x)
        assert found.dtype == "float16"
        np.testing.assert_allclose(np.asarray(found), expected, 2e-2, 2e-2)
        words = llama(CONFIG)
        words.quantize(mode)
        text = words.generate([3, 7, 1], 8)
        logits = np.asarray(words(text[None, :-1]), "float32")[0]
        chosen = np.take_along_axis(logits, text[1:, None], -1)[2:, 0]
        assert (chosen >= logits[2:].max(-1) - 0.02 * np.abs(logits).max()).all()
    finally:
        mg.mixed_precision.set_dtype_policy(before)


# --- generation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", FORMATS)
def test_generation(mode: str) -> None:
    """The tokens that the whole text gives, one at a time; nothing of before is used again."""
    model = llama(CONFIG)
    model.generate([3, 7, 1], 4)
    model.quantize(mode)
    text = model.generate([3, 7, 1], 12)
    logits = np.asarray(model(text[None, :-1]))[0]
    np.testing.assert_array_equal(text[3:], logits.argmax(-1)[2:])


# --- files and copies ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", FORMATS)
@pytest.mark.parametrize("name", ["m.weights.h5", "m.keras"])
def test_files_hold_the_values(tmp_path: Path, mode: str, name: str) -> None:
    model, (x, _) = net(), data()
    model.quantize(mode)
    expected = np.asarray(model(x))
    if name == "m.keras":
        model.save(tmp_path / name)
        loaded = mg.models.load_model(tmp_path / name)
    else:
        model.save_weights(tmp_path / name)
        loaded = net()
        loaded.load_weights(tmp_path / name)
        packed = net()
        packed.quantize(mode)  # other values, into which those of the file are packed
        packed.load_weights(tmp_path / name)
        for a, b in zip(bits(packed), bits(model), strict=True):
            np.testing.assert_array_equal(a, b)
    assert not tables(loaded)
    np.testing.assert_allclose(np.asarray(loaded(x)), expected, 1e-5, 1e-5)
    loaded.quantize(mode)
    for a, b in zip(bits(loaded), bits(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_safetensors(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "vocab_size": 61, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "rope_theta": 10000.0, "tie_word_embeddings": True,
    }  # fmt: skip
    model = llama(CONFIG)
    mg.models.save_pretrained(model, tmp_path / "exact", config)
    model.quantize("q8_0")
    packed = mg.models.from_pretrained(tmp_path / "exact", quantize="q8_0")
    assert len(tables(packed)) == 15
    for a, b in zip(bits(packed), bits(model), strict=True):
        np.testing.assert_array_equal(a, b)
    mg.models.save_pretrained(packed, tmp_path / "again")
    again = mg.models.from_pretrained(tmp_path / "again")
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="'stored' is no format"):
        mg.models.from_pretrained(tmp_path / "exact", quantize="stored")


def test_onnx_files_hold_the_values(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model, (x, _) = net(), data()
    model.quantize("q8_0")
    model.export(tmp_path / "m.onnx", batch_size=16)
    proto = onnx.load(tmp_path / "m.onnx")
    held = {w.name: onnx.numpy_helper.to_array(w) for w in proto.graph.initializer}
    np.testing.assert_array_equal(held["net/first/kernel"].T, tables(model)[0].numpy())
    found = np.asarray(mg.onnx.load(tmp_path / "m.onnx")(x))
    np.testing.assert_allclose(found, np.asarray(model(x)), 1e-4, 1e-5)


def test_the_summary_tells_bytes_as_they_lie() -> None:
    model, lines = net(), []
    model.quantize("q4_1")
    model.summary(print_fn=lines.append)
    held = sum(w.nbytes for w in model.weights)
    assert f"({held / 1024:.2f} KB)" in "".join(lines)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_packed_alike(copied: Any) -> None:
    model, (x, _) = net(), data()
    model.quantize("q4_1", filters=["first", "heads"])
    twin = copied(model)
    assert len(tables(twin)) == 2
    for a, b in zip(bits(twin), bits(model), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(np.asarray(twin(x)), np.asarray(model(x)), 1e-5, 1e-5)


def test_layers_built_packed() -> None:
    with built_packed("q8_0"):
        model = net()
    assert [t.path.split("/")[-2] for t in tables(model)] == ["first", "heads", "joined", "narrow"]
    other = net()
    other.quantize("q8_0")
    model.set_weights(net().get_weights())
    for a, b in zip(bits(model), bits(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not tables(net())


# --- training ------------------------------------------------------------------------------------


def test_packed_weights_are_not_trained() -> None:
    model, (x, y) = net(), data()
    model.quantize("q8_0")
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match=r"'net/first/kernel' is packed as q8_0 .*add_lora"):
        model.fit(x, y, verbose=0)
    with pytest.raises(ValueError, match=r"'net/first/kernel' is packed"):
        mg.optimizers.SGD().build(model.trainable_variables)

    @mg.function
    def shrink() -> None:
        table = model.layers[0].kernel
        table.assign(ops.multiply(table, 0.5))

    with pytest.raises(ValueError, match=r"'net/first/kernel' is packed"):
        shrink()
    assert model.evaluate(x, y, verbose=0) > 0


def test_what_is_left_is_trained_once_the_rest_is_frozen() -> None:
    model, (x, y) = net(), data()
    model.quantize("q8_0", filters=["first", "heads", "joined"])
    before = bits(model)
    mg.models.freeze(model, "kernel")
    mg.models.unfreeze(model, "narrow")
    model.compile(mg.optimizers.Adam(1e-2), "mse")
    history = model.fit(x, y, epochs=5, verbose=0).history["loss"]
    assert history[-1] < history[0]
    for a, b in zip(before, bits(model), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mode", FORMATS)
def test_lora_beside_packed_weights(mode: str) -> None:
    model, (x, y) = net(), data()
    model.quantize(mode)
    before = bits(model)
    names = mg.models.add_lora(model, rank=2)
    assert names == ["first", "heads", "joined", "narrow"]
    model.compile(mg.optimizers.Adam(1e-2), "mse")
    history = model.fit(x, y, epochs=8, verbose=0).history["loss"]
    assert history[-1] < 0.9 * history[0]
    for a, b in zip(before, bits(model), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match=r"'first' is packed as \w+, and LoRA"):
        mg.models.merge_lora(model)


def test_gradients_flow_through_packed_weights() -> None:
    model, (x, _) = net(), data()
    model.quantize("q8_0")
    plain = net()
    plain.set_weights(model.get_weights())
    found, expected = (
        np.asarray(mg.grad(lambda t, m=m: ops.sum(ops.square(m(t))))(x)) for m in (model, plain)
    )
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
