"""Counts of true and false positives and negatives at thresholds, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import config, ops
from meganeura.graph.node import Node
from meganeura.losses.loss import match_ranks
from meganeura.metrics.metric import Metric, safe_divide
from meganeura.ops.dispatch import convert_to_node
from meganeura.variable import Variable

#: Stands for minus infinity among scores.
_NOTHING = -1e10


def checked_thresholds(metric: str, thresholds: Any, default: float = 0.5) -> list[float]:
    if thresholds is None:
        return [default]
    values = list(thresholds) if isinstance(thresholds, (list, tuple, np.ndarray)) else [thresholds]
    if not values or any(t is None or not 0 <= t <= 1 for t in values):
        raise ValueError(f"metric {metric}: thresholds must lie in [0, 1], got {thresholds!r}")
    return [float(t) for t in values]


def evenly_spaced(thresholds: Sequence[float]) -> bool:
    """Whether these are 0, 1/n, 2/n, ... 1, but for a slip of epsilon at the ends."""
    if len(thresholds) < 3:
        return False
    return np.allclose(thresholds, np.linspace(0, 1, len(thresholds)), atol=config.epsilon())


def _top_k_only(scores: Node, k: int) -> Any:
    """All but the k largest scores of each row become `_NOTHING`; of equal ones the first count."""
    mine, other = ops.expand_dims(scores, -1), ops.expand_dims(scores, -2)
    place = ops.arange(scores.shape[-1], dtype="int32")
    before = ops.less(ops.expand_dims(place, 0), ops.expand_dims(place, 1))
    ahead = ops.logical_or(
        ops.greater(other, mine), ops.logical_and(ops.equal(other, mine), before)
    )
    rank = ops.sum(ops.cast(ahead, "int32"), axis=-1)
    return ops.where(ops.less(rank, k), scores, _NOTHING)


def update_counts(
    counts: dict[str, Variable],
    y_true: Any,
    y_pred: Any,
    thresholds: Sequence[float],
    sample_weight: Any = None,
    top_k: int | None = None,
    class_id: int | None = None,
    multi_label: bool = False,
    label_weights: Any = None,
) -> None:
    """Add a batch to the variables `counts`, named "tp", "fp", "tn", "fn", one entry a threshold.

    With `multi_label` the entries of the last axis are counted apart: (thresholds, labels).
    A score is positive at a threshold when it is greater. Evenly spaced thresholds are compared by
    rounding the score up to the next one, which is what Keras does.
    """
    pred: Any
    true: Any
    pred, true = match_ranks(convert_to_node(y_pred, "float32"), convert_to_node(y_true, "float32"))
    if pred.shape != true.shape:
        raise ValueError(
            f"the targets have the shape {true.shape} and the predictions {pred.shape}; they must "
            "agree"
        )
    weights = None
    if sample_weight is not None:
        weights = ops.expand_dims(convert_to_node(sample_weight, "float32"), -1)
        if weights.ndim == true.ndim + 1:
            weights = ops.squeeze(weights, -1)
    if top_k is not None:
        pred = _top_k_only(pred, top_k)
    if class_id is not None:
        if pred.ndim < 2 or not 0 <= class_id < pred.shape[-1]:
            raise ValueError(
                f"class_id {class_id} does not fit predictions of shape {pred.shape}; they need "
                "one column for each class"
            )
        pred, true = (x[..., class_id : class_id + 1] for x in (pred, true))
    if label_weights is not None:
        own = ops.broadcast_to(convert_to_node(label_weights, "float32"), pred.shape)
        weights = own if weights is None else ops.multiply(own, weights)
    positive = ops.cast(ops.not_equal(true, 0.0), "float32")
    negative = ops.subtract(1.0, positive)
    if weights is not None:
        weights = ops.broadcast_to(weights, pred.shape)
        positive, negative = ops.multiply(positive, weights), ops.multiply(negative, weights)
    rows = (-1, pred.shape[-1]) if multi_label else (-1,)
    pred, positive, negative = (ops.reshape(x, rows) for x in (pred, positive, negative))
    said = _said_positive(pred, thresholds)
    total = {"t": positive, "f": negative}
    for name, variable in counts.items():
        # true positives and false negatives are among the positives
        part = total["t"] if name in ("tp", "fn") else total["f"]
        chosen = said if name in ("tp", "fp") else ops.logical_not(said)
        variable.assign_add(ops.sum(ops.where(chosen, part, 0.0), axis=1))


def _said_positive(pred: Node, thresholds: Sequence[float]) -> Any:
    """Booleans of shape (thresholds, *pred.shape)."""
    column = (len(thresholds),) + (1,) * pred.ndim
    if not evenly_spaced(thresholds):
        return ops.greater(pred, np.asarray(thresholds, np.float32).reshape(column))
    steps = float(len(thresholds) - 1)
    bucket = ops.subtract(ops.ceil(ops.multiply(ops.clip(pred, 0.0, 1.0), steps)), 1.0)
    if thresholds[0] < 0:  # every score is above the first threshold
        bucket = ops.maximum(bucket, 0.0)
    place = ops.reshape(ops.arange(len(thresholds), dtype="float32"), column)
    return ops.less_equal(place, bucket)


class _Count(Metric):
    """One of the four counts."""

    which: str

    def __init__(self, thresholds: Any = None, name: str | None = None, dtype: Any = None):
        super().__init__(dtype, name)
        self.init_thresholds = thresholds
        self.thresholds = checked_thresholds(type(self).__name__, thresholds)
        self.accumulator = self.add_variable((len(self.thresholds),), name="accumulator")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        update_counts(
            {self.which: self.accumulator}, y_true, y_pred, self.thresholds, sample_weight
        )

    def result(self) -> Any:
        value: Any = convert_to_node(self.accumulator)
        return value[0] if len(self.thresholds) == 1 else value

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "thresholds": self.init_thresholds}


class TruePositives(_Count):
    """How many positive labels are scored above the threshold."""

    which = "tp"


class FalsePositives(_Count):
    """How many negative labels are scored above the threshold."""

    which = "fp"


class TrueNegatives(_Count):
    """How many negative labels are not scored above the threshold."""

    which = "tn"


class FalseNegatives(_Count):
    """How many positive labels are not scored above the threshold."""

    which = "fn"


class _Share(Metric):
    """tp / (tp + other), at one or several thresholds."""

    _direction = "up"
    other: str
    other_name: str

    def __init__(
        self,
        thresholds: Any = None,
        top_k: int | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(dtype, name)
        self.init_thresholds = thresholds
        self.top_k = top_k
        self.class_id = class_id
        default = 0.5 if top_k is None else _NOTHING
        self.thresholds = checked_thresholds(type(self).__name__, thresholds, default)
        shape = (len(self.thresholds),)
        self._counts = {
            "tp": self.add_variable(shape, name="true_positives"),
            self.other: self.add_variable(shape, name=self.other_name),
        }
        self.true_positives = self._counts["tp"]
        setattr(self, self.other_name, self._counts[self.other])

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        update_counts(
            self._counts,
            y_true,
            y_pred,
            self.thresholds,
            sample_weight,
            top_k=self.top_k,
            class_id=self.class_id,
        )

    def result(self) -> Any:
        right = self._counts["tp"]
        share = safe_divide(right, ops.add(right, self._counts[self.other]))
        return share[0] if len(self.thresholds) == 1 else share

    def get_config(self) -> dict[str, Any]:
        own = {"thresholds": self.init_thresholds, "top_k": self.top_k, "class_id": self.class_id}
        return {**super().get_config(), **own}


class Precision(_Share):
    """tp / (tp + fp): how much of what was said positive is so.

    `top_k` looks at the k largest scores of each sample only, `class_id` at one class only.
    """

    other, other_name = "fp", "false_positives"


class Recall(_Share):
    """tp / (tp + fn): how much of what is positive was said to be.

    `top_k` looks at the k largest scores of each sample only, `class_id` at one class only.
    """

    other, other_name = "fn", "false_negatives"


class FourCounts(Metric):
    """Base of the metrics that need all four counts at many thresholds."""

    _direction = "up"

    def _make_counts(self, shape: Sequence[int]) -> None:
        names = {
            "tp": "true_positives",
            "fp": "false_positives",
            "tn": "true_negatives",
            "fn": "false_negatives",
        }
        self._counts = {k: self.add_variable(shape, name=name) for k, name in names.items()}
        for k, name in names.items():
            setattr(self, name, self._counts[k])

    def _nodes(self) -> tuple[Any, Any, Any, Any]:
        tp, fp, tn, fn = (convert_to_node(self._counts[k]) for k in ("tp", "fp", "tn", "fn"))
        return tp, fp, tn, fn


class _BestAt(FourCounts):
    """The best of one share where another reaches a given value."""

    argument: str

    def __init__(
        self,
        value: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(dtype, name)
        kind = type(self).__name__
        if not 0 <= value <= 1:
            raise ValueError(f"metric {kind}: {self.argument} must lie in [0, 1], got {value}")
        if num_thresholds < 1:
            raise ValueError(
                f"metric {kind}: num_thresholds must be at least 1, got {num_thresholds}"
            )
        self.value = value
        self.num_thresholds = num_thresholds
        self.class_id = class_id
        self.thresholds = (
            [0.5] if num_thresholds == 1 else [float(t) for t in np.linspace(0, 1, num_thresholds)]
        )
        self._make_counts((len(self.thresholds),))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        update_counts(
            self._counts, y_true, y_pred, self.thresholds, sample_weight, class_id=self.class_id
        )

    def shares(self) -> tuple[Any, Any]:
        """The share that is constrained, and the one that is wanted large."""
        raise NotImplementedError

    def result(self) -> Any:
        constrained, wanted = self.shares()
        reached = ops.greater_equal(constrained, float(self.value))
        return ops.max(ops.where(reached, wanted, 0.0))

    def get_config(self) -> dict[str, Any]:
        own = {
            "class_id": self.class_id,
            "num_thresholds": self.num_thresholds,
            self.argument: self.value,
        }
        return {**super().get_config(), **own}


def _share(part: Node, other: Node) -> Any:
    return safe_divide(part, ops.add(part, other))


class SensitivityAtSpecificity(_BestAt):
    """The largest tp / (tp + fn) among thresholds where tn / (tn + fp) >= specificity."""

    argument = "specificity"

    def __init__(self, specificity: float, *args: Any, **options: Any):
        super().__init__(specificity, *args, **options)
        self.specificity = specificity

    def shares(self) -> tuple[Any, Any]:
        tp, fp, tn, fn = self._nodes()
        return _share(tn, fp), _share(tp, fn)


class SpecificityAtSensitivity(_BestAt):
    """The largest tn / (tn + fp) among thresholds where tp / (tp + fn) >= sensitivity."""

    argument = "sensitivity"

    def __init__(self, sensitivity: float, *args: Any, **options: Any):
        super().__init__(sensitivity, *args, **options)
        self.sensitivity = sensitivity

    def shares(self) -> tuple[Any, Any]:
        tp, fp, tn, fn = self._nodes()
        return _share(tp, fn), _share(tn, fp)


class PrecisionAtRecall(_BestAt):
    """The largest tp / (tp + fp) among thresholds where tp / (tp + fn) >= recall."""

    argument = "recall"

    def __init__(self, recall: float, *args: Any, **options: Any):
        super().__init__(recall, *args, **options)
        self.recall = recall

    def shares(self) -> tuple[Any, Any]:
        tp, fp, _, fn = self._nodes()
        return _share(tp, fn), _share(tp, fp)


class RecallAtPrecision(_BestAt):
    """The largest tp / (tp + fn) among thresholds where tp / (tp + fp) >= precision."""

    argument = "precision"

    def __init__(self, precision: float, *args: Any, **options: Any):
        super().__init__(precision, *args, **options)
        self.precision = precision

    def shares(self) -> tuple[Any, Any]:
        tp, fp, _, fn = self._nodes()
        return _share(tp, fp), _share(tp, fn)
