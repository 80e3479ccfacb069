"""Files that Keras 2.15 wrote, most of which Keras 3 refuses: predictions, and training that goes on.

tests/data/keras2_files.zip holds small models with random weights, written by Keras 2.15.0: `.h5`,
`_w.h5` (weights alone), `.keras`, `.weights.h5`, `.json`, and an `.npz` of inputs `x0..`, predictions
`p0..` and, for those that were trained, targets `y` and the five `losses` that followed.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers
from meganeura.saving import keras2, optimizer_state

DATA = Path(__file__).parents[1] / "data" / "keras2_files.zip"
NAMES = zipfile.ZipFile(DATA).namelist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("keras2")
    with zipfile.ZipFile(DATA) as archive:
        archive.extractall(path)
    return path


def expect(model: Any, folder: Path, name: str) -> None:
    z = np.load(folder / f"{name}.npz")
    x = [z[k] for k in sorted(z) if k.startswith("x")]
    found = model.predict(x[0] if len(x) == 1 else x, verbose=0)
    for i, y in enumerate(found if isinstance(found, (list, tuple)) else [found]):
        np.testing.assert_allclose(y, z[f"p{i}"], atol=2e-5, rtol=2e-4)
    if "losses" in z:
        losses = []
        for _ in range(len(z["losses"])):
            model.reset_metrics()
            losses.append(model.train_on_batch(x[0], z["y"]))
        np.testing.assert_allclose(losses, z["losses"], rtol=5e-4, atol=1e-5)


@pytest.mark.parametrize(
    "file",
    [n for n in NAMES if n.endswith((".h5", ".keras")) and "_w." not in n and "s.h5" not in n],
)
def test_whole_models(folder: Path, file: str) -> None:
    """DepthwiseConv2D, attention, recurrent layers, nested and frozen models, tf functions, optimizers."""
    expect(mg.models.load_model(folder / file), folder, file.rpartition(".")[0])


@pytest.mark.parametrize(
    ("name", "ending"), [("rnn", ".weights.h5"), ("mha", ".weights.h5"), ("nested", "_w.h5")]
)
def test_json_and_weights(folder: Path, name: str, ending: str) -> None:
    model = mg.models.model_from_json((folder / f"{name}.json").read_text())
    model.load_weights(folder / f"{name}{ending}")
    expect(model, folder, name)


@pytest.mark.parametrize("name", ["dw", "nested", "convlstm", "o_adam"])
def test_saved_again(folder: Path, tmp_path: Path, name: str) -> None:
    model = mg.models.load_model(folder / f"{name}.h5")
    model.save(tmp_path / "again.keras")
    expect(mg.models.load_model(tmp_path / "again.keras"), folder, name)


def test_names_lose_their_slashes(folder: Path) -> None:
    model = mg.models.load_model(folder / "names_slash.h5")
    assert [layer.name for layer in model.layers] == ["block1_dense", "block2_dense"]
    other = mg.Sequential([mg.Input((4,)), layers.Dense(3, name="block1_dense")])
    other.load_weights(folder / "names_slash.h5", by_name=True)
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


def test_unknown_function_of_tensorflow() -> None:
    entry = {
        "class_name": "TFOpLambda",
        "config": {"name": "tf.strings.lower", "function": "strings.lower"},
        "name": "tf.strings.lower",
        "inbound_nodes": [["a", 0, 0, {}]],
    }
    with pytest.raises(ValueError, match="tf.strings.lower, which has no counterpart"):
        keras2.modernise(entry)


def test_constants_slices_and_lists_of_functions() -> None:
    """1 - x, x[:, 1:] and concat([a, b]) as Keras 2 wrote them."""

    def function(name: str, function: str, call: Any) -> dict[str, Any]:
        kind = "SlicingOpLambda" if "getitem" in function else "TFOpLambda"
        config = {"name": name, "function": function, "dtype": "float32", "trainable": True}
        return {"class_name": kind, "config": config, "name": name, "inbound_nodes": [call]}

    everything = {"start": None, "stop": None, "step": None}
    config = {
        "class_name": "Functional",
        "keras_version": "2.15.0",
        "config": {
            "name": "m",
            "layers": [
                {
                    "class_name": "InputLayer",
                    "config": {"batch_input_shape": [None, 3], "dtype": "float32", "name": "a"},
                    "name": "a",
                    "inbound_nodes": [],
                },
                function("s", "math.subtract", ["_CONSTANT_VALUE", -1, 1.0, {"y": ["a", 0, 0]}]),
                function(
                    "t",
                    "__operators__.getitem",
                    ["a", 0, 0, {"slice_spec": [everything, {**everything, "start": 1}]}],
                ),
                function("c", "concat", [["s", 0, 0, {"axis": -1}], ["t", 0, 0, {"axis": -1}]]),
                function("r", "math.reduce_sum", ["c", 0, 0, {"axis": 1, "keepdims": True}]),
            ],
            "input_layers": [["a", 0, 0]],
            "output_layers": [["r", 0, 0]],
        },
    }
    model = mg.models.model_from_json(json.dumps(config))
    x = np.arange(6, dtype="float32").reshape(2, 3)
    expected = (1 - x).sum(1, keepdims=True) + x[:, 1:].sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected)


def test_hard_sigmoid_had_another_slope() -> None:
    config = {"class_name": "LSTM", "config": {"recurrent_activation": "hard_sigmoid"}}
    assert keras2.modernise(config)["config"]["recurrent_activation"] == "keras2_hard_sigmoid"
    x = np.array([-3.0, -1.0, 0.0, 2.0, 4.0], "float32")
    found = np.asarray(mg.activations.get("keras2_hard_sigmoid")(x))
    np.testing.assert_allclose(found, [0.0, 0.3, 0.5, 0.9, 1.0], rtol=1e-6)


def test_what_is_keras2() -> None:
    assert keras2.is_keras2({}, "2.15.0")
    with pytest.raises(ValueError, match="Keras 1.2.2.*load_weights"):
        keras2.is_keras2({"keras_version": "1.2.2"})
    assert not keras2.is_keras2({"config": {"batch_input_shape": []}}, "3.15.1")
    assert keras2.is_keras2({"config": {"layers": [{"config": {"batch_input_shape": [None, 2]}}]}})
    assert not keras2.is_keras2(mg.Sequential([mg.Input((2,)), layers.Dense(1)]).get_config())


def test_compile_configurations() -> None:
    old = {
        "optimizer_config": {"class_name": "Custom>SGD", "config": {"lr": 0.1, "decay": 0.5}},
        "loss": {"out": {"class_name": "LossFunctionWrapper", "config": {"fn": "mse"}}},
        "metrics": [[{"class_name": "MeanMetricWrapper", "config": {"name": "mae"}}], None],
        "sample_weight_mode": None,
    }
    new = keras2.compile_config(old)
    assert new["loss"] == {"out": "mse"} and new["metrics"] == [["mae"]]
    assert new["optimizer"]["class_name"] == "SGD"
    rate = mg.optimizers.deserialize(new["optimizer"]).get_config()["learning_rate"]
    assert rate["class_name"] == "InverseTimeDecay" and rate["config"]["decay_rate"] == 0.5


def test_nadams_product_of_momenta_is_computed() -> None:
    """Keras 2 left it out of its files."""
    model = mg.Sequential([mg.Input((2,)), layers.Dense(1)])
    model.compile(mg.optimizers.Nadam(0.1), "mse")
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    for _ in range(3):
        model.train_on_batch(x, y)
    state = [v.numpy() for v in model.optimizer.variables]
    found = optimizer_state.fitted(model.optimizer, [state[0], *state[2:-1]])
    assert found is not None
    np.testing.assert_allclose(found[-1], state[-1], rtol=1e-6)
    assert optimizer_state.fitted(model.optimizer, state[:3]) is None
