"""Mistakes with data and arguments: one sentence each, before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers

X = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
LABELS = np.arange(20) % 3
ONE_HOT = np.eye(3, dtype="float32")[LABELS]


def classifier(loss: Any = "sparse_categorical_crossentropy", units: int = 3) -> Any:
    model = mg.Sequential([layers.Input((4,)), layers.Dense(units, "softmax")], name="net")
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def refused(match: str, x: Any = X, y: Any = LABELS, model: Any = None, **arguments: Any) -> None:
    model = model or classifier()
    before = model.get_weights()
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(x, y, verbose=0, **arguments)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_compile_suggests_near_names() -> None:
    model = mg.Sequential([layers.Input((4,)), layers.Dense(3)])
    with pytest.raises(
        ValueError, match="loss 'mean_square_error' is not known; did you mean 'mean_squared_error'"
    ):
        model.compile("adam", "mean_square_error")
    with pytest.raises(ValueError, match="optimizer 'adm' is not known; did you mean 'adam'"):
        model.compile("adm", "mse")
    with pytest.raises(
        ValueError, match="metric 'acuracy' is not known; did you mean .*'accuracy'"
    ):
        model.compile("adam", "mse", metrics=["acuracy"])
    with pytest.raises(ValueError, match="steps_per_execution must be a positive integer, not 0"):
        model.compile("adam", "mse", steps_per_execution=0)
    with pytest.raises(ValueError, match="loss_weights were given without a loss"):
        model.compile("adam", loss_weights=[1.0])
    with pytest.raises(ValueError, match="neither a name, a function, nor a Loss"):
        model.compile("adam", 3)
    assert not model.compiled


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_before_compile(method: str) -> None:
    model = mg.Sequential([layers.Input((4,)), layers.Dense(3)], name="net")
    with pytest.raises(ValueError, match=rf"model 'net' must be compiled before {method}\(\)"):
        getattr(model, method)(X, LABELS)


def test_counts_that_differ() -> None:
    refused(r"numbers of samples differ \(x: 20, y: 19\)", y=LABELS[:19])
    refused(r"x: 20, y: 20, sample_weight: 3", sample_weight=np.ones(3))


def test_nothing_to_train_on() -> None:
    refused("no samples: the arrays are empty", X[:0], LABELS[:0])
    refused("no data: x is None", None, None)
    refused("no samples: the data are empty", iter([]), None)
    refused("y is None", y=None)
    for method in ("evaluate", "predict"):
        with pytest.raises(ValueError, match="arrays are empty"):
            getattr(classifier(), method)(X[:0], verbose=0)


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "8"])
def test_batch_size(size: Any) -> None:
    refused("batch_size must be a positive integer", batch_size=size)


def test_other_counts() -> None:
    refused("epochs must be an integer of at least 0, not -1", epochs=-1)
    refused("initial_epoch must be an integer", initial_epoch="1")
    refused("steps_per_epoch must be a positive integer, not 0", steps_per_epoch=0)
    refused("validation_freq must be a positive integer, not 0", validation_freq=0)
    refused("validation_split must lie between 0 and 1, and is 1.5", validation_split=1.5)
    refused("leaves 0 to train and 20 to validate", validation_split=0.99)
    refused(
        "validation_split is for arrays", (X[i : i + 1] for i in range(3)), None,
        validation_split=0.5,
    )  # fmt: skip


def test_weights_of_classes_and_samples_together() -> None:
    refused("not both", sample_weight=np.ones(20), class_weight={0: 1.0})


def test_one_hot_targets_with_a_sparse_loss() -> None:
    refused(r"look one-hot; use the loss 'categorical_crossentropy'", y=ONE_HOT)


def test_class_numbers_with_a_categorical_loss() -> None:
    loss = mg.losses.CategoricalCrossentropy(name="any")
    for y in (LABELS, LABELS[:, None]):
        refused("use the loss 'sparse_categorical_crossentropy'", y=y, model=classifier(loss))


@pytest.mark.parametrize("bad", [3, -1])
@pytest.mark.parametrize("streamed", [False, True])
def test_labels_out_of_range(bad: int, streamed: bool) -> None:
    y = LABELS.copy()
    y[7] = bad
    message = rf"output 'dense.*': label {bad} is out of range for 3 classes \(0 to 2\)"
    if streamed:
        refused(message, [(X[:10], y[:10])].__iter__(), None)
    else:
        refused(message, y=y)
        with pytest.raises(ValueError, match=message):
            classifier().evaluate(X, y, verbose=0)
        with pytest.raises(ValueError, match=message):
            classifier().train_on_batch(X, y)


def test_labels_out_of_range_in_validation_and_in_a_later_batch() -> None:
    refused("label 9 is out of range", validation_data=(X, np.full(20, 9)))
    batches = [(X[:10], LABELS[:10]), (X[10:], LABELS[10:] + 1)]
    with pytest.raises(ValueError, match="label 3 is out of range"):
        classifier().fit(iter(batches), verbose=0)


def test_an_ignored_class_is_no_mistake() -> None:
    loss = mg.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    y = LABELS.copy()
    y[3] = -1
    model = mg.Sequential([layers.Input((4,)), layers.Dense(3, "softmax")])
    model.compile("adam", loss)
    model.fit(X, y, verbose=0)


def test_labels_that_are_no_class_numbers() -> None:
    refused("needs whole class numbers", y=LABELS + 0.5)
    refused("targets must be numbers; numpy.unique", y=np.array(["a", "b"] * 10))
    refused("needs class numbers of shape", y=np.zeros((20, 2), int))


def test_targets_of_another_shape() -> None:
    def model() -> Any:
        made = mg.Sequential([layers.Input((4,)), layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    refused(
        r"has the shape \(None, 1\), and its targets the shape \(20, 3\)", y=ONE_HOT, model=model()
    )
    refused("they must agree but for the batch", y=ONE_HOT, model=classifier("mse", units=2))
    for y in (LABELS, LABELS[:, None]):
        model().fit(X, y, verbose=0)  # (N,) and (N, 1) are the same


def test_a_users_own_loss_takes_any_targets() -> None:
    def loss(y_true: Any, y_pred: Any) -> Any:
        return mg.ops.sum(y_true, -1) * mg.ops.mean(y_pred, -1)

    model = mg.Sequential([layers.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss)
    model.fit(X, ONE_HOT, verbose=0)


def test_inputs_of_another_shape() -> None:
    refused(r"model 'net'.*expects the shape \(None, 4\), and got \(20, 3\)", X[:, :3])


def test_python_lists_and_other_things() -> None:
    refused("x is a Python list of list; give a NumPy array", X.tolist())
    refused("x is a Python list of float", [1.0, 2.0])
    refused("data of type int cannot be used", 3)
    refused("y cannot be given with data of type generator", (b for b in [(X, LABELS)]))
    refused("values of type object", np.array([[None] * 4] * 20))


def test_a_batch_of_too_many_parts() -> None:
    refused("has 4 parts; put several inputs in a list or dict", iter([(X, LABELS, X, X)]), None)


def test_names_of_several_outputs() -> None:
    inputs = layers.Input((4,))
    outputs = [layers.Dense(1, name="one")(inputs), layers.Dense(1, name="two")(inputs)]
    model = mg.Model(inputs, outputs)
    model.compile("sgd", {"one": "mse", "twoo": "mse"})
    y = LABELS[:, None]
    refused("no output 'twoo'; did you mean 'two'", y=[y, y], model=model)
    model.compile("sgd", ["mse"])
    refused("loss has 1 entries for 2 outputs", y=[y, y], model=model)
    model.compile("sgd", "mse")
    refused("2 output.* and 1 target", y=y, model=model)
    refused("data have the names", y={"one": y, "three": y, "four": y}, model=model)
    refused(
        "class_weight is for models with one output", y=[y, y], model=model, class_weight={0: 1}
    )


def test_a_model_without_a_loss() -> None:
    model = mg.Sequential([layers.Input((4,)), layers.Dense(3)], name="net")
    model.compile("sgd")
    refused("model 'net' has no loss to compute", model=model)


def test_a_loss_that_became_nan_is_told_once() -> None:
    model = mg.Sequential([layers.Input((4,)), layers.Dense(3)])
    model.compile(mg.optimizers.SGD(1e30), "mse")
    with pytest.warns(
        UserWarning, match="the loss of epoch .* is (nan|inf): the data are finite"
    ) as told:
        model.fit(X, ONE_HOT, epochs=4, verbose=0)
    assert len(told) == 1


def test_layers_that_ask_for_values_are_told_of_eager_running() -> None:
    class Choosy(layers.Layer):
        def call(self, x: Any) -> Any:
            return x * 2 if mg.ops.sum(x) > 0 else x

    inputs = layers.Input((4,))
    with pytest.raises(TypeError, match="run_eagerly=True"):
        Choosy()(inputs)


def test_class_weight_is_a_dict() -> None:
    model = mg.Sequential([mg.Input((2,)), layers.Dense(2, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="class_weight is a dict"):
        model.fit(np.zeros((4, 2)), np.zeros(4, int), class_weight="balanced", verbose=0)


def test_a_target_that_no_output_has() -> None:
    x = mg.Input((2,))
    model = mg.Model(x, {"a": layers.Dense(1)(x), "b": layers.Dense(1)(x)})
    model.compile("sgd", "mse")
    y = np.zeros((4, 1))
    with pytest.raises(ValueError, match="'zz'"):
        model.fit(np.zeros((4, 2)), {"a": y, "b": y, "zz": y}, verbose=0)
