"""Metrics: values from Keras over several batches, resets, names, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meganeura import metrics, ops
from meganeura.execution import compiled
from meganeura.graph.trace import Trace
from meganeura.tensor import to_tensor

SAMPLES = Path(__file__).parents[2].parent / "shared" / "keras" / "samples"
NAMES = json.loads(text.read_text()) if (text := SAMPLES / "metrics.json").exists() else {}


@pytest.mark.filterwarnings("ignore:.*counts in integers.*")
@pytest.mark.skipif(not NAMES, reason="the Keras samples are not here")
@pytest.mark.parametrize("name", NAMES)
def test_sample(name: str) -> None:
    with np.load(SAMPLES / "metrics.npz") as file:
        sample = {k.partition("/")[2]: file[k] for k in file.files if k.startswith(f"{name}/")}
        weight = file["sample_weight"]
    metric = metrics.deserialize(
        {"class_name": NAMES[name]["class"], "config": NAMES[name]["config"]}
    )
    true, pred = sample["y_true"], sample["y_pred"]
    # twice, so that forgetting to reset shows
    for _ in range(2):
        metric.reset_state()
        for rows in np.array_split(np.arange(len(true)), 3):
            metric.update_state(true[rows], pred[rows])
        np.testing.assert_allclose(np.asarray(metric.result()), sample["value"], rtol=2e-5)
    if "weighted" in sample:
        metric.reset_state()
        metric.update_state(true, pred, sample_weight=weight)
        np.testing.assert_allclose(np.asarray(metric.result()), sample["weighted"], rtol=2e-5)


def test_recorded_into_a_graph() -> None:
    """The same code inside a trace: one executable updates the state and gives the result."""
    metric = metrics.BinaryAccuracy()
    with Trace() as trace:
        true, pred = trace.input((4,), "float32"), trace.input((4, 1), "float32")
        metric.update_state(true, pred)
        result = metric.result()
    executable = compiled(trace.graph([result]), optimize=False)
    states = [v.handle for v in trace.variables]
    for scores, expected in (([0.9, 0.2, 0.5, 0.7], 0.75), ([0.1, 0.9, 0.1, 0.1], 0.625)):
        inputs = [np.array([1, 0, 0, 0], np.float32), np.array(scores, np.float32)[:, None]]
        (value,) = executable.run([to_tensor(x).handle for x in inputs], states)
        assert float(np.asarray(value)) == pytest.approx(expected)
    assert float(metric.result()) == pytest.approx(0.625)


def test_mean_divides_by_the_weights() -> None:
    mean = metrics.Mean()
    mean.update_state([1.0, 3.0])
    mean.update_state([10.0, 20.0], sample_weight=[1.0, 0.0])
    assert float(mean.result()) == pytest.approx(14 / 3)
    mean.reset_state()
    assert float(mean.result()) == 0.0
    mean.update_state(5.0)
    assert float(mean.result()) == 5.0


def test_sum() -> None:
    total = metrics.Sum()
    total.update_state(np.ones((2, 3)))
    total.update_state([1.0, 2.0], sample_weight=[2.0, 0.5])
    assert float(total.result()) == 9.0


def test_half_counts_as_zero() -> None:
    assert np.asarray(metrics.binary_accuracy(np.array([[0.0]]), np.array([[0.5]]))).item() == 1


def test_top_k_with_ties_counts_those_in_front_only() -> None:
    scores = np.array([[1.0, 1.0, 1.0, 0.0]], np.float32)
    hit = metrics.sparse_top_k_categorical_accuracy(np.array([2]), scores, k=1)
    assert np.asarray(hit).item() == 1
    hit = metrics.sparse_top_k_categorical_accuracy(np.array([3]), scores, k=3)
    assert np.asarray(hit).item() == 0
    hit = metrics.sparse_top_k_categorical_accuracy(np.array([9]), scores, k=3)
    assert np.asarray(hit).item() == 0


def exact_auc(true: np.ndarray, scores: np.ndarray) -> float:
    positive, negative = scores[true == 1], scores[true == 0]
    pairs = positive[:, None] - negative
    return float((pairs > 0).mean() + 0.5 * (pairs == 0).mean())


def test_auc_approaches_the_share_of_ordered_pairs() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 400)
    scores = np.clip(rng.normal(0.4 + 0.2 * true, 0.15), 0, 1).astype(np.float32)
    auc = metrics.AUC(num_thresholds=2000)
    auc.update_state(true, scores)
    assert float(auc.result()) == pytest.approx(exact_auc(true, scores), abs=2e-3)
    logits = metrics.AUC(num_thresholds=2000, from_logits=True)
    logits.update_state(true, np.log(scores + 1e-6) - np.log(1 - scores + 1e-6))
    assert float(logits.result()) == pytest.approx(exact_auc(true, scores), abs=5e-3)


def test_auc_curves_and_sums() -> None:
    true, scores = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8], np.float32)
    values = {}
    for method in ("interpolation", "minoring", "majoring"):
        metric = metrics.AUC(num_thresholds=5, summation_method=method)
        metric.update_state(true, scores)
        values[method] = float(metric.result())
    assert values["minoring"] < values["interpolation"] < values["majoring"]
    for curve in ("PR", "PRGAIN"):
        metric = metrics.AUC(curve=curve)
        metric.update_state(true, scores)
        assert 0 < float(metric.result()) <= 1


def test_precision_of_the_top_scores() -> None:
    precision = metrics.Precision(top_k=2)
    precision.update_state([[0, 1, 1, 0]], [[0.4, 0.3, 0.2, 0.1]])
    assert float(precision.result()) == pytest.approx(0.5)


def test_nothing_predicted_gives_zero() -> None:
    for metric in (metrics.Precision(), metrics.Recall(), metrics.F1Score(threshold=0.5)):
        true, pred = np.zeros((2, 2)), np.zeros((2, 2))
        metric.update_state(true, pred)
        assert not np.asarray(metric.result()).any()


def test_iou_leaves_out_ignored_and_absent_classes() -> None:
    metric = metrics.MeanIoU(num_classes=4, ignore_class=2)
    metric.update_state([0, 0, 1, 2], [0, 1, 1, 0])
    assert float(metric.result()) == pytest.approx(0.5, rel=1e-5)
    hot = metrics.OneHotMeanIoU(num_classes=3)
    hot.update_state(np.eye(3)[[0, 1, 2]], np.eye(3)[[0, 1, 1]])
    assert float(hot.result()) == pytest.approx((1 + 0.5 + 0) / 3, rel=1e-5)


def test_r2_adjusts_for_regressors() -> None:
    rng = np.random.default_rng(1)
    true = rng.normal(size=(20, 1)).astype(np.float32)
    pred = true + 0.3 * rng.normal(size=(20, 1)).astype(np.float32)
    plain, adjusted = metrics.R2Score(), metrics.R2Score(num_regressors=3)
    for metric in (plain, adjusted):
        metric.update_state(true, pred)
    score = float(plain.result())
    expected = 1 - ((true - pred) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    assert score == pytest.approx(expected, rel=1e-4)
    assert float(adjusted.result()) == pytest.approx(1 - (1 - score) * 19 / 16, rel=1e-5)


def test_a_metric_of_ones_own() -> None:
    class Largest(metrics.Metric):
        _direction = "up"

        def __init__(self, **options: object):
            super().__init__(**options)
            self.value = self.add_weight(name="value")
            self.inner = metrics.Sum()

        def update_state(
            self, y_true: object, y_pred: object, sample_weight: object = None
        ) -> None:
            self.value.assign(ops.maximum(self.value, ops.max(y_pred)))
            self.inner.update_state(y_pred)

        def result(self) -> object:
            return self.value + 0.0

    metric = Largest(name="largest")
    metric.update_state([0], np.array([1.0, 5.0, 2.0]))
    metric.update_state([0], np.array([3.0]))
    assert float(metric.result()) == 5.0 and float(metric.inner.result()) == 11.0
    assert len(metric.variables) == 2
    metric.reset_state()
    assert float(metric.result()) == 0.0 and float(metric.inner.result()) == 0.0


def test_a_metric_that_looks_at_values_runs_step_by_step() -> None:
    class Rounds(metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="rounds")
            self.count = self.add_variable(name="count")

        def update_state(
            self, y_true: object, y_pred: object, sample_weight: object = None
        ) -> None:
            if float(ops.sum(y_pred)) > 1.0:
                self.count.assign_add(1.0)

        def result(self) -> object:
            return self.count + 0.0

    metric = Rounds()
    for value in (0.5, 2.0, 3.0):
        metric.update_state(None, np.array([value]))
    assert float(metric.result()) == 2.0


SPECIAL = {
    "IoU": {"num_classes": 3, "target_class_ids": [0, 2]},
    "OneHotIoU": {"num_classes": 3, "target_class_ids": [1]},
    "MeanIoU": {"num_classes": 3},
    "OneHotMeanIoU": {"num_classes": 3},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
    "MeanMetricWrapper": {"fn": metrics.mean_squared_error},
}
CLASSES = [n for n in metrics.__all__ if n[0].isupper() and n != "Metric"]


@pytest.mark.parametrize("name", CLASSES)
def test_config_round_trip(name: str) -> None:
    metric = getattr(metrics, name)(**SPECIAL.get(name, {}))
    again = metrics.deserialize(json.loads(json.dumps(metrics.serialize(metric))))
    assert type(again) is type(metric) and again.get_config() == metric.get_config()


def test_names() -> None:
    assert isinstance(metrics.get("mse"), metrics.MeanSquaredError)
    assert isinstance(metrics.get("AUC"), metrics.AUC)
    assert isinstance(metrics.get("sparse_categorical_accuracy"), object)
    with pytest.raises(ValueError, match="binary_accuracy"):
        metrics.get("binary_acuracy")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.Precision(thresholds=1.5), "[0, 1]"),
        (lambda: metrics.AUC(curve="XYZ"), "ROC"),
        (lambda: metrics.IoU(2, [2]), "class 2"),
        (lambda: metrics.F1Score(average="best"), "'macro'"),
        (lambda: metrics.FBetaScore(beta=1), "positive float"),
        (lambda: metrics.FBetaScore(threshold=1), "must be a float"),
        (lambda: metrics.F1Score(threshold="0.5"), "must be a float"),
        (lambda: metrics.F1Score().update_state([0, 1], [0, 1]), "(2,)"),
        (lambda: metrics.Recall(class_id=7).update_state(np.eye(3), np.eye(3)), "class_id 7"),
        (
            lambda: metrics.SparseCategoricalAccuracy().update_state(np.eye(3), np.eye(3)),
            "one-hot",
        ),
        (lambda: metrics.Mean().update_state(np.ones(3), sample_weight=np.ones(2)), "(2,)"),
    ],
)
def test_errors_name_what_is_wrong(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        call()  # type: ignore[operator]
    assert words in str(caught.value)
