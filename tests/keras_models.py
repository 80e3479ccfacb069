"""Models that Keras and meganeura build from the same text, to carry files from one to the other.

As a program it is Keras's side (KERAS_BACKEND=torch python tests/keras_models.py ...):
    write FOLDER    save every model in every format, with inputs, predictions and losses
    read FOLDER     load what meganeura saved there, and compare
    layouts         write the hashes of the layouts of Keras's weight files to tests/data
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

LAYOUTS = Path(__file__).parent / "data" / "keras_layouts.json"

MODELS: dict[str, Any] = {}


def model(function: Any) -> Any:
    MODELS[function.__name__] = function
    return function


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


@model
def pictures(keras: Any) -> Any:
    k = keras.layers
    layers = [
        keras.Input((8, 8, 3)),
        k.ZeroPadding2D(1),
        k.Conv2D(4, 3, strides=2, padding="same", kernel_regularizer="l2"),
        k.BatchNormalization(),
        k.DepthwiseConv2D(3, depth_multiplier=2),
        k.LeakyReLU(negative_slope=0.1),
        k.SeparableConv2D(5, 2, padding="same", activation="gelu"),
        k.Conv2DTranspose(3, 2, strides=2),
        k.GroupNormalization(3),
        k.AveragePooling2D(2),
        k.UpSampling2D(2, interpolation="bilinear"),
        k.SpatialDropout2D(0.0),
        k.Flatten(),
        k.Dense(2, kernel_constraint=keras.constraints.MaxNorm(2.0)),
    ]
    return keras.Sequential(layers), data(4, 8, 8, 3)


@model
def sequences(keras: Any) -> Any:
    k = keras.layers
    layers = [
        keras.Input((6,), dtype="int32"),
        k.Embedding(9, 4, mask_zero=True),
        k.Bidirectional(k.LSTM(3, return_sequences=True)),
        k.GRU(4, return_sequences=True, reset_after=False),
        k.TimeDistributed(k.Dense(3)),
        k.RNN([k.LSTMCell(3), k.GRUCell(2)], return_sequences=True),
        k.SimpleRNN(3, go_backwards=True),
        k.Dense(2),
    ]
    return keras.Sequential(layers), np.random.default_rng(0).integers(0, 9, (4, 6))


@model
def attention(keras: Any) -> Any:
    k = keras.layers
    x = keras.Input((5, 8))
    h = k.LayerNormalization()(k.Add()([x, k.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)]))
    h = k.RMSNormalization()(h + k.GroupQueryAttention(4, 4, 2)(h, h))
    h = k.EinsumDense("abc,cd->abd", output_shape=(None, 6), bias_axes="d")(h)
    h = k.Attention(use_scale=True)([h, h])
    h = k.PReLU(alpha_initializer="ones", shared_axes=[1])(k.Conv1D(4, 2, padding="causal")(h))
    return keras.Model(x, k.Dense(2)(k.GlobalAveragePooling1D()(h))), data(4, 5, 8)


@model
def shared_and_nested(keras: Any) -> Any:
    k = keras.layers
    a, b, inside = keras.Input((5,)), keras.Input((5,)), keras.Input((4,))
    inner = keras.Model(inside, k.BatchNormalization()(k.Dense(4)(inside)), name="inner")
    shared, tail = k.Dense(4, name="shared"), keras.Sequential([k.Dense(3), k.Dense(2)])
    joined = k.Concatenate()([tail(inner(shared(a))), tail(inner(shared(b)))])
    return keras.Model([a, b], k.Dense(2)(joined)), [data(4, 5), data(4, 5) * 2]


@model
def operations(keras: Any) -> Any:
    ops = keras.ops
    x = keras.Input((5, 8))
    h = ops.relu(x * 2.0 + 1.0) - x[:, :, :1]
    h = ops.concatenate(
        [ops.softmax(h), ops.transpose(ops.reshape(h, (-1, 8, 5)), (0, 2, 1))], axis=-1
    )
    return keras.Model(x, keras.layers.Dense(2)(ops.mean(h, axis=1))), data(4, 5, 8)


@model
def encoder_and_decoder(keras: Any) -> Any:
    x = keras.Input((6, 4))
    y, h, c = keras.layers.LSTM(3, return_state=True, return_sequences=True)(x)
    return keras.Model(x, keras.layers.LSTM(2)(y, initial_state=[h[:, :2], c[:, :2]])), data(
        4, 6, 4
    )


def subclassed(keras: Any) -> Any:
    """Attributes before and after `layers` in the alphabet, lists and dicts of layers."""

    @keras.saving.register_keras_serializable(package="tests")
    class Own(keras.Model):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.a_first = keras.layers.Dense(4)
            self.z_last = keras.layers.Dense(2)
            self.blocks = [keras.layers.Dense(4), keras.layers.Dense(4)]
            self.heads = {"one": keras.layers.Dense(4)}

        def call(self, x: Any) -> Any:
            x = self.a_first(x)
            for block in self.blocks:
                x = block(x)
            return self.z_last(self.heads["one"](x))

    own, x = Own(), data(4, 3)
    own(x)
    return own, x


MODELS["subclassed"] = subclassed


def prepared(keras: Any, name: str) -> tuple[Any, Any]:
    built, x = MODELS[name](keras)
    rng = np.random.default_rng(3)
    built.set_weights([rng.uniform(0.2, 0.8, w.shape) for w in built.get_weights()])
    built.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return built, x


def losses(built: Any, x: Any, steps: int) -> list[list[float]]:
    found = []
    for _ in range(steps):
        built.reset_metrics()
        y = np.tile([[0.5, -0.5]], (4, 1)).astype("float32")
        found.append([float(v) for v in built.train_on_batch(x, y)])
    return found


def layout(path: Any) -> str:
    """A hash of the groups, names, shapes and types in a weight file."""
    lines = []
    with h5py.File(path) as file:
        file.visititems(
            lambda n, o: lines.append(f"{n} {getattr(o, 'shape', '')} {getattr(o, 'dtype', '')}")
        )
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def write(keras: Any, folder: Path, prefix: str) -> None:
    """Train three steps, save in every format, and note what comes next."""
    for name in MODELS:
        built, x = prepared(keras, name)
        losses(built, x, 3)
        built.save(folder / f"{prefix}{name}.keras")
        built.save_weights(folder / f"{prefix}{name}.weights.h5")
        if name != "subclassed":
            (folder / f"{prefix}{name}.json").write_text(built.to_json())
        predicted = np.asarray(built.predict(x, verbose=0))
        expected = {"y": predicted.tolist(), "losses": losses(built, x, 3)}
        (folder / f"{prefix}{name}.expected").write_text(json.dumps(expected))
        if name != "subclassed":  # last, since Keras forgets the optimizer's configuration in it
            built.save(folder / f"{prefix}{name}.h5")


def read(keras: Any, folder: Path, prefix: str, legacy_trains: bool) -> None:
    """Load every file of the other side: predictions, and losses that go on."""
    for name in MODELS:
        expected = json.loads((folder / f"{prefix}{name}.expected").read_text())
        x = prepared(keras, name)[1]
        opened = [keras.models.load_model(folder / f"{prefix}{name}.keras")]
        if name != "subclassed":
            described = keras.models.model_from_json((folder / f"{prefix}{name}.json").read_text())
            described.load_weights(folder / f"{prefix}{name}.weights.h5")
            opened.append(described)
        for one in opened:
            found = np.asarray(one.predict(x, verbose=0))
            np.testing.assert_allclose(found, expected["y"], rtol=1e-4, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(
            losses(opened[0], x, 3), expected["losses"], rtol=5e-4, atol=1e-5, err_msg=name
        )
        if name == "subclassed":
            continue
        old = keras.models.load_model(folder / f"{prefix}{name}.h5")
        if legacy_trains:  # Keras's own optimizer cannot go on after a legacy file
            losses(old, x, 1)


def main(arguments: list[str]) -> None:
    import keras

    if arguments[0] == "write":
        write(keras, Path(arguments[1]), "keras_")
    elif arguments[0] == "read":
        read(keras, Path(arguments[1]), "ours_", legacy_trains=False)
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = {}
            for name in MODELS:
                path = Path(folder) / f"{name}.weights.h5"
                built, x = prepared(keras, name)
                losses(built, x, 1)
                built.save_weights(path)
                found[name] = layout(path)
        LAYOUTS.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
