"""Losses: values and gradients from Keras, the reductions, and what goes wrong."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from meganeura import losses, ops
from meganeura.execution import compiled
from meganeura.graph.autodiff import gradients
from meganeura.graph.trace import Trace
from meganeura.masking import set_mask
from meganeura.tensor import to_tensor

SAMPLES = Path(__file__).parents[2].parent / "shared" / "keras" / "samples"
NAMES = json.loads(text.read_text()) if (text := SAMPLES / "losses.json").exists() else {}


def gradient_of(loss: losses.Loss, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """The gradient of the loss with respect to the predictions."""
    with Trace() as trace:
        pred = trace.input(y_pred.shape, "float32")
        (slope,) = gradients(loss(y_true, pred), [pred])
    executable = compiled(trace.graph([slope]), optimize=False)
    inputs = [to_tensor(y_pred).handle, *(t.handle for t in trace.captured)]
    return np.asarray(executable.run(inputs, [])[0])


@pytest.mark.skipif(not NAMES, reason="the Keras samples are not here")
@pytest.mark.parametrize("name", NAMES)
def test_sample(name: str) -> None:
    with np.load(SAMPLES / "losses.npz") as file:
        sample = {k.partition("/")[2]: file[k] for k in file.files if k.startswith(f"{name}/")}
        weight = file["sample_weight"]
    description = {"class_name": NAMES[name]["class"], "config": NAMES[name]["config"]}

    def value(reduction: str, *arguments: np.ndarray) -> np.ndarray:
        config = {**description["config"], "reduction": reduction}
        loss = losses.deserialize({**description, "config": config})
        return np.asarray(loss(sample["y_true"], sample["y_pred"], *arguments))

    close = {"rtol": 2e-5, "atol": 1e-6}
    np.testing.assert_allclose(value("sum_over_batch_size"), sample["loss"], **close)
    np.testing.assert_allclose(value("none"), sample["unreduced"], **close)
    if "sum" in sample:
        np.testing.assert_allclose(value("sum"), sample["sum"], **close)
        np.testing.assert_allclose(
            value("sum_over_batch_size", weight), sample["weighted"], **close
        )
        np.testing.assert_allclose(
            value("mean_with_sample_weight", weight), sample["weighted_mean"], **close
        )
    slope = gradient_of(losses.deserialize(description), sample["y_true"], sample["y_pred"])
    scale = np.abs(sample["grad"]).max() + 1e-6
    np.testing.assert_allclose(slope, sample["grad"], rtol=0, atol=2e-5 * scale)


def test_probabilities_are_normalised_before_they_are_clipped() -> None:
    """Keras divides by the sum; a library that only clips gives log(0.5) twice here."""
    pred = np.array([[0.25, 0.25], [2.0, 6.0]], np.float32)
    values = np.asarray(losses.sparse_categorical_crossentropy(np.array([0, 1]), pred))
    np.testing.assert_allclose(values, [-np.log(0.5), -np.log(0.75)], rtol=1e-6)
    hot = np.eye(2, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(losses.categorical_crossentropy(hot, pred)), values)


def test_a_saturated_probability_is_clipped_at_epsilon() -> None:
    pred = np.array([[1.0, 0.0]], np.float32)
    value = losses.categorical_crossentropy(np.array([[0.0, 1.0]]), pred)
    np.testing.assert_allclose(np.asarray(value), [-np.log(1e-7)], rtol=1e-5)


def test_label_smoothing_differs_between_binary_and_categorical() -> None:
    logits = np.array([[0.3, -0.2, 0.1]], np.float32)
    true = np.array([[1.0, 0.0, 0.0]], np.float32)
    log_p = logits - np.log(np.exp(logits).sum())
    smooth = true * 0.7 + 0.1
    value = losses.categorical_crossentropy(true, logits, from_logits=True, label_smoothing=0.3)
    np.testing.assert_allclose(np.asarray(value), -(smooth * log_p).sum(-1), rtol=1e-5)
    p = 1 / (1 + np.exp(-logits))
    smooth = true * 0.7 + 0.15
    expected = -(smooth * np.log(p) + (1 - smooth) * np.log(1 - p)).mean(-1)
    value = losses.binary_crossentropy(true, logits, from_logits=True, label_smoothing=0.3)
    np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-5)


def test_hinge_maps_binary_labels_only_as_a_whole() -> None:
    pred = np.array([[0.5], [0.5]], np.float32)
    values = np.asarray(losses.hinge(np.array([[0.0], [1.0]]), pred))
    np.testing.assert_allclose(values, [1.5, 0.5])
    values = np.asarray(losses.hinge(np.array([[0.0], [-1.0]]), pred))
    np.testing.assert_allclose(values, [1.0, 1.5])


def test_a_mask_is_left_out_of_the_mean() -> None:
    true, pred = np.zeros((2, 3, 1), np.float32), np.ones((2, 3, 1), np.float32)
    pred[0, 2] = 100.0
    mask = np.array([[True, True, False], [True, True, True]])
    with Trace() as trace:
        node = trace.input(pred.shape, "float32")
        set_mask(node, trace.input(mask.shape, "bool"))
        results = [
            losses.MeanSquaredError(reduction)(true, node)
            for reduction in ("sum_over_batch_size", "sum")
        ]
    executable = compiled(trace.graph(results), optimize=False)
    mean, total = executable.run([to_tensor(pred).handle, to_tensor(mask).handle], [])
    assert float(mean) == pytest.approx(1.0) and float(total) == pytest.approx(5.0)


def test_one_weight_a_sample_reaches_every_step() -> None:
    true, pred = np.zeros((2, 3, 4), np.float32), np.ones((2, 3, 4), np.float32)
    value = losses.MeanAbsoluteError()(true, pred, sample_weight=np.array([1.0, 3.0]))
    assert float(value) == pytest.approx(2.0)


def test_flat_targets_fit_a_column_of_predictions() -> None:
    value = losses.MeanSquaredError()(np.array([1.0, 2.0]), np.array([[0.0], [0.0]]))
    assert float(value) == pytest.approx(2.5)


def brute_force_ctc(scores: np.ndarray, labels: list[int]) -> float:
    """-log of the summed probability of all paths that collapse to the labels."""
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    total = 0.0
    for path in itertools.product(range(p.shape[1]), repeat=p.shape[0]):
        merged = [c for c, _ in itertools.groupby(path)]
        if [c for c in merged if c] == labels:
            total += float(np.prod([p[t, c] for t, c in enumerate(path)]))
    return -float(np.log(total))


def test_ctc_sums_over_all_paths() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(3, 5, 3)).astype(np.float32)
    labels = np.array([[1, 2], [2, 2], [1, 0]])
    expected = [
        brute_force_ctc(s, [int(c) for c in row if c])
        for s, row in zip(scores, labels, strict=True)
    ]
    np.testing.assert_allclose(np.asarray(losses.ctc(labels, scores)), expected, rtol=1e-5)
    slope = gradient_of(losses.CTC("sum"), labels, scores)
    step = np.zeros_like(scores)
    step[1, 2, 1] = 1e-2
    up, down = (float(losses.CTC("sum")(labels, scores + s)) for s in (step, -step))
    assert slope[1, 2, 1] == pytest.approx((up - down) / 2e-2, rel=1e-2)


def test_circle_ignores_samples_without_a_partner() -> None:
    embeddings = np.eye(3, dtype=np.float32)
    values = np.asarray(losses.circle(np.array([0, 0, 1]), embeddings))
    assert values[0] > 0 and values[2] == 0
    reduced = float(losses.Circle()(np.array([0, 0, 1]), embeddings))
    assert reduced == pytest.approx(values[:2].mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: losses.get("mean_squred_error"), "mean_squared_error"),
        (lambda: losses.MeanSquaredError("average"), "sum_over_batch_size"),
        (
            lambda: losses.sparse_categorical_crossentropy(np.eye(3), np.eye(3)),
            "categorical_crossentropy",
        ),
        (
            lambda: losses.categorical_crossentropy(np.array([0, 1, 2]), np.eye(3)),
            "sparse_categorical_crossentropy",
        ),
        (lambda: losses.mean_squared_error(np.ones((2, 3)), np.ones((2, 4))), "(2, 3)"),
        (
            lambda: losses.MeanSquaredError()(
                np.ones((2, 3)), np.ones((2, 3)), np.array([1.0, 1.0, 1.0])
            ),
            "sample_weight",
        ),
    ],
)
def test_errors_name_the_way_out(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        call()  # type: ignore[operator]
    assert words in str(caught.value)


@pytest.mark.parametrize("name", [n for n in losses.__all__ if n[0].isupper() and n != "Loss"])
def test_config_round_trip(name: str) -> None:
    kind = getattr(losses, name)
    loss = kind(losses.mean_squared_error) if name == "LossFunctionWrapper" else kind()
    again = losses.deserialize(losses.serialize(loss))
    assert type(again) is kind and again.get_config() == loss.get_config()


def test_arguments_survive_a_config() -> None:
    """Keras forgets these three in its own configs."""
    for loss in (
        losses.Huber(delta=2.5),
        losses.CosineSimilarity(axis=1),
        losses.SparseCategoricalCrossentropy(axis=1, ignore_class=3),
    ):
        again = losses.deserialize(losses.serialize(loss))
        assert again.arguments == loss.arguments


def test_names() -> None:
    for name in ("mse", "MSE", "mae", "mape", "msle", "bce", "kld", "logcosh", "huber"):
        assert callable(losses.get(name))
    assert losses.get("mse") is losses.mean_squared_error
    assert isinstance(losses.get("MeanSquaredError"), losses.MeanSquaredError)
    assert losses.get(None) is None


def test_custom_loss_sees_floats() -> None:
    class Mine(losses.Loss):
        def call(self, y_true: object, y_pred: object) -> object:
            return ops.mean(ops.abs(ops.subtract(y_true, y_pred)), axis=-1)

    value = Mine()(np.array([[1, 2]]), np.array([[0.5, 0.5]]))
    assert float(value) == pytest.approx(1.0)
