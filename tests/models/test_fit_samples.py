"""fit and evaluate against the bookkeeping that Keras 3.15 recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import callbacks, layers

SAMPLES = Path(__file__).parents[2].parent / "shared" / "keras" / "samples"
pytestmark = pytest.mark.skipif(not SAMPLES.exists(), reason="the Keras samples are not here")


@pytest.fixture(scope="module")
def arrays() -> Any:
    return np.load(SAMPLES / "fit_history.npz")


@pytest.fixture(scope="module")
def expected() -> Any:
    return json.loads((SAMPLES / "fit_history.json").read_text())


def mlp(arrays: Any, metrics: Any = ("accuracy",), weighted: Any = None) -> Any:
    model = mg.Sequential(
        [layers.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(4, "softmax")]
    )
    model.set_weights([arrays[f"init/w_{i:03d}"] for i in range(4)])
    model.compile(
        mg.optimizers.SGD(0.1, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=list(metrics),
        weighted_metrics=weighted,
    )
    return model


def agrees(history: Any, expected: Any, model: Any, arrays: Any, name: str, count: int = 4) -> None:
    wanted = expected[name]
    assert list(history.history) == wanted["key_order"]
    for key, values in wanted["history"].items():
        np.testing.assert_allclose(history.history[key], values, rtol=2e-5, atol=2e-6, err_msg=key)
        assert all(type(v) is float for v in history.history[key])
    for i, weight in enumerate(model.get_weights()):
        np.testing.assert_allclose(weight, arrays[f"{name}/w_{i:03d}"], rtol=1e-4, atol=1e-5)
    assert len(model.get_weights()) == count


def test_validation_split(arrays: Any, expected: Any) -> None:
    model = mlp(arrays)
    history = model.fit(
        arrays["x"], arrays["y"], batch_size=16, epochs=3, shuffle=False,
        validation_split=0.25, verbose=0,
    )  # fmt: skip
    agrees(history, expected, model, arrays, "plain_valsplit")
    wanted = expected["plain_valsplit"]
    found = model.evaluate(arrays["x"], arrays["y"], batch_size=16, verbose=0)
    np.testing.assert_allclose(found, wanted["evaluate_list"], rtol=2e-5)
    found = model.evaluate(arrays["x"], arrays["y"], batch_size=16, verbose=0, return_dict=True)
    assert list(found) == list(wanted["evaluate_dict"])


def test_sample_weight(arrays: Any, expected: Any) -> None:
    model = mlp(
        arrays,
        ["accuracy", mg.metrics.SparseTopKCategoricalAccuracy(k=2)],
        ["accuracy"],
    )
    x, y, w = arrays["x"], arrays["y"], arrays["sample_weight"]
    history = model.fit(
        x, y, batch_size=16, epochs=2, shuffle=False, sample_weight=w,
        validation_data=(x[:20], y[:20], w[:20]), verbose=0,
    )  # fmt: skip
    agrees(history, expected, model, arrays, "sample_weight")
    found = model.evaluate(x, y, sample_weight=w, batch_size=16, verbose=0)
    loss, accuracy, top, _, weighted = expected["sample_weight"]["evaluate_list"]
    np.testing.assert_allclose(found, [loss, accuracy, top, weighted], rtol=2e-5)


def test_class_weight(arrays: Any, expected: Any) -> None:
    model = mlp(arrays, ["accuracy"], ["accuracy"])
    history = model.fit(
        arrays["x"], arrays["y"], batch_size=16, epochs=2, shuffle=False, verbose=0,
        class_weight={0: 1.0, 1: 3.0, 2: 0.5},
    )  # fmt: skip
    agrees(history, expected, model, arrays, "class_weight")


def test_an_epoch_that_ends_early_is_continued(arrays: Any, expected: Any) -> None:
    model = mlp(arrays)
    with pytest.warns(UserWarning, match="ended before 3 steps"):
        history = model.fit(
            arrays["x"], arrays["y"], batch_size=16, epochs=4, shuffle=False, steps_per_epoch=3,
            verbose=0,
        )  # fmt: skip
    agrees(history, expected, model, arrays, "steps_per_epoch_3_of_4")


def test_initial_epoch_and_validation_freq(arrays: Any, expected: Any) -> None:
    model = mlp(arrays)
    x, y = arrays["x"], arrays["y"]
    history = model.fit(
        x, y, batch_size=16, epochs=6, initial_epoch=2, shuffle=False, verbose=0,
        validation_data=(x[:20], y[:20]), validation_freq=2,
    )  # fmt: skip
    agrees(history, expected, model, arrays, "initial_epoch_valfreq")
    assert history.epoch == expected["initial_epoch_valfreq"]["epoch"]


def test_two_outputs(arrays: Any, expected: Any) -> None:
    inputs = layers.Input((8,))
    hidden = layers.Dense(6, "relu")(inputs)
    one = layers.Dense(4, "softmax", name="cls")(hidden)
    other = layers.Dense(1, name="reg")(hidden)
    model = mg.Model(inputs, [one, other])
    model.set_weights([arrays[f"two/init_w_{i:03d}"] for i in range(6)])
    model.compile(
        mg.optimizers.SGD(0.05),
        loss={"cls": "sparse_categorical_crossentropy", "reg": "mse"},
        loss_weights={"cls": 1.0, "reg": 0.25},
        metrics={"cls": ["accuracy"], "reg": ["mae", "mse"]},
    )
    x, y = arrays["x"], [arrays["y"], arrays["y_reg"]]
    history = model.fit(
        x, y, batch_size=16, epochs=2, shuffle=False, verbose=0, validation_split=0.2
    )
    agrees(history, expected, model, arrays, "two", 6)
    wanted = expected["two"]
    found = model.evaluate(x, y, batch_size=16, verbose=0)
    np.testing.assert_allclose(found, wanted["evaluate_list"], rtol=2e-5)
    named = model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)
    assert list(named) == list(wanted["evaluate_dict"])


def test_plateau_and_early_stopping(arrays: Any, expected: Any) -> None:
    model = mlp(arrays)
    stopping = callbacks.EarlyStopping(
        monitor="val_loss", patience=2, min_delta=0.05, restore_best_weights=True
    )
    plateau = callbacks.ReduceLROnPlateau(
        monitor="val_loss", factor=0.5, patience=1, min_delta=0.05
    )
    history = model.fit(
        arrays["x"], arrays["y"], batch_size=16, epochs=30, shuffle=False, validation_split=0.25,
        verbose=0, callbacks=[plateau, stopping],
    )  # fmt: skip
    agrees(history, expected, model, arrays, "plateau_earlystop")
    assert stopping.stopped_epoch == expected["plateau_earlystop"]["stopped_epoch"]
    assert stopping.best_epoch == expected["plateau_earlystop"]["best_epoch"]


def test_a_convnet_of_every_kind_of_layer(arrays: Any) -> None:
    data = np.load(SAMPLES / "train_cnn_adam.npz")
    model = mg.models.model_from_json((SAMPLES / "train_cnn_adam.json").read_text())
    model.set_weights([data[k] for k in sorted(data.files) if k.startswith("init_w")])
    model.compile(
        mg.optimizers.Adam(0.005),
        mg.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    batch = int(data["batch_size"])
    rows = len(data["y"]) // batch
    losses = []
    for i in range(len(data["loss64"])):
        part = slice(i % rows * batch, (i % rows + 1) * batch)
        losses.append(model.train_on_batch(data["x_0"][part], data["y"][part]))
    np.testing.assert_allclose(losses, data["loss64"], rtol=1e-4)
    final = model.predict(data["x_0"][:16], verbose=0)
    np.testing.assert_allclose(final, data["final_predict64"], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("ending", [".keras", ".h5", ".weights.h5"])
def test_training_goes_on_where_keras_stopped(ending: str) -> None:
    data = np.load(SAMPLES / "resume_adam.npz")
    path = SAMPLES / f"resume_adam{ending}"
    if ending == ".weights.h5":
        model = mg.Sequential(
            [layers.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(4, "softmax")]
        )
        model.compile(mg.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
        model.optimizer.build(model.trainable_variables)
        model.load_weights(path)
        rate = float(data["step5_opt_001"])
        assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(rate)
    else:
        model = mg.models.load_model(path)
    np.testing.assert_array_equal(model.get_weights()[0], data["step5_w_000"])
    assert int(model.optimizer.iterations.numpy()) == 5
    batch = int(data["batch_size"])
    rows = len(data["y"]) // batch
    losses = []
    for i in range(5, 20):
        part = slice(i % rows * batch, (i % rows + 1) * batch)
        found = model.train_on_batch(data["x"][part], data["y"][part], return_dict=True)
        losses.append(found["loss"])
    np.testing.assert_allclose(losses, data["loss_5_19"], rtol=1e-4)
    for i, weight in enumerate(model.get_weights()):
        np.testing.assert_allclose(weight, data[f"step20_w_{i:03d}"], rtol=1e-3, atol=1e-5)
