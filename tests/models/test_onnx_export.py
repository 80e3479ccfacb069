"""Models written as ONNX: ONNX's own interpreter, and we who read them again, give the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")

IMAGE, SERIES = (8, 9, 4), (6, 4)

#: What a model is made of -> the shape of a sample, its layers.
STACKS: dict[str, tuple[tuple[int, ...], list[Any]]] = {
    "dense": (
        (5,),
        [layers.Dense(7, activation=a) for a in ("relu", "gelu", "silu", "tanh", "softmax", "elu")],
    ),
    "convolutions": (
        IMAGE,
        [
            layers.Conv2D(6, 3, strides=2, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.Conv2DTranspose(4, 3, strides=2, padding="same"),
            layers.Conv2D(4, 3, dilation_rate=2, groups=2),
            layers.GlobalAveragePooling2D(),
        ],
    ),
    "pooling": (
        IMAGE,
        [
            layers.ZeroPadding2D(1),
            layers.MaxPooling2D(3, strides=2, padding="same"),
            layers.AveragePooling2D(2, padding="same"),
            layers.UpSampling2D(2),
            layers.Flatten(),
        ],
    ),
    "normalization": (
        SERIES,
        [layers.LayerNormalization(), layers.GroupNormalization(2), layers.UnitNormalization()],
    ),
    "recurrent": (
        SERIES,
        [
            layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
            layers.GRU(4),
        ],
    ),
    "causal": (SERIES, [layers.Conv1D(5, 3, padding="causal"), layers.Dropout(0.5)]),
    "reshaping": (SERIES, [layers.Permute((2, 1)), layers.Cropping1D(1), layers.Reshape((3, 4))]),
}


def agree(model: Any, path: Path, *arrays: np.ndarray) -> None:
    mg.onnx.export(model, path, batch_size=len(arrays[0]))
    given = arrays[0] if len(arrays) == 1 else list(arrays)
    expected = np.asarray(model(given, training=False))
    session = reference.ReferenceEvaluator(str(path))
    (found,) = session.run(None, dict(zip(session.input_names, arrays, strict=True)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    again = mg.onnx.load(path)(given)
    np.testing.assert_allclose(np.asarray(again), expected, rtol=1e-4, atol=1e-5)


def trained_like(model: Any) -> None:
    """Weights without symmetry: zeros and ones would hide a transposition."""
    random = np.random.default_rng(3)
    model.set_weights([random.uniform(0.1, 0.6, w.shape) for w in model.get_weights()])


@pytest.mark.parametrize("name", STACKS)
def test_stacks_of_layers(tmp_path: Path, name: str) -> None:
    shape, stack = STACKS[name]
    model = mg.Sequential([mg.Input(shape), *stack])
    trained_like(model)
    x = np.random.default_rng(0).standard_normal((2, *shape)).astype("float32")
    agree(model, tmp_path / "m.onnx", x)


def test_a_transformer_of_tokens(tmp_path: Path) -> None:
    tokens = mg.Input((6,), dtype="int32")
    x = layers.Embedding(11, 8)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True))
    model = mg.Model(tokens, layers.Dense(11)(x))
    trained_like(model)
    agree(model, tmp_path / "m.onnx", np.arange(12, dtype="int32").reshape(2, 6) % 11)


def test_two_inputs_through_the_method(tmp_path: Path) -> None:
    a, b = mg.Input((3,)), mg.Input((3,))
    model = mg.Model([a, b], layers.Subtract()([a, b]) * 2.0)
    x = np.ones((1, 3), "float32")
    model.export(tmp_path / "m.onnx", format="onnx")
    found = mg.onnx.load(tmp_path / "m.onnx")([3 * x, x])
    np.testing.assert_array_equal(np.asarray(found), 4 * x)
    agree(model, tmp_path / "n.onnx", 3 * x, x)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    model = mg.Sequential([mg.Input((3,)), layers.Lambda(lambda x: mg.ops.arctan2(x, x))])
    with pytest.raises(ValueError, match="arctan2"):
        model.export(tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="tf_saved_model"):
        model.export(tmp_path / "m", format="tf_saved_model")
    with pytest.raises(ValueError, match="input_signature"):
        mg.Sequential([layers.Dense(2)]).export(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
