"""Scores over a whole data set: R squared, and the F scores."""

from __future__ import annotations

from typing import Any

from meganeura import config, ops
from meganeura.graph.node import Node
from meganeura.losses.loss import match_ranks
from meganeura.metrics.metric import Metric, safe_divide
from meganeura.ops.dispatch import convert_to_node
from meganeura.variable import Variable


def _table(metric: str, y_true: Any, y_pred: Any) -> tuple[Node, Node]:
    true, pred = match_ranks(convert_to_node(y_true, "float32"), convert_to_node(y_pred, "float32"))
    if true.ndim != 2 or true.shape != pred.shape:
        raise ValueError(
            f"metric {metric!r} needs targets and predictions of shape (samples, columns), got "
            f"{true.shape} and {pred.shape}"
        )
    return true, pred


class R2Score(Metric):
    """1 - sum((y_true - y_pred)^2) / sum((y_true - mean(y_true))^2), for each column.

    class_aggregation: "uniform_average", "variance_weighted_average", or None (a vector).
    num_regressors:    gives the adjusted score, 1 - (1 - R^2) * (n - 1) / (n - p - 1), wherever
                       n > p + 1. A column of constant targets scores 0.
    """

    _direction = "up"

    def __init__(
        self,
        class_aggregation: str | None = "uniform_average",
        num_regressors: int = 0,
        name: str | None = "r2_score",
        dtype: Any = None,
    ):
        super().__init__(dtype, name)
        if class_aggregation not in (None, "uniform_average", "variance_weighted_average"):
            raise ValueError(
                f"metric R2Score: class_aggregation is {class_aggregation!r}; use "
                "'uniform_average', 'variance_weighted_average' or None"
            )
        if num_regressors < 0:
            raise ValueError(
                f"metric R2Score: num_regressors must be at least 0, got {num_regressors}"
            )
        self.class_aggregation = class_aggregation
        self.num_regressors = num_regressors
        self.num_samples = self.add_variable(name="num_samples")
        self._built = False

    def _build(self, columns: int) -> None:
        shape = (columns,)
        self.squared_sum = self.add_variable(shape, name="squared_sum")
        self.sum = self.add_variable(shape, name="sum")
        self.total_mse = self.add_variable(shape, name="residual")
        self.count = self.add_variable(shape, name="count")
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        true, pred = _table(self.name, y_true, y_pred)
        if not self._built:
            self._build(true.shape[1])
        weights = convert_to_node(1.0 if sample_weight is None else sample_weight, "float32")
        if weights.ndim == 1:
            weights = ops.expand_dims(weights, 1)
        weights = ops.broadcast_to(weights, true.shape)
        weighted = ops.multiply(true, weights)
        error = ops.multiply(ops.square(ops.subtract(true, pred)), weights)
        self.sum.assign_add(ops.sum(weighted, axis=0))
        self.squared_sum.assign_add(ops.sum(ops.multiply(true, weighted), axis=0))
        self.total_mse.assign_add(ops.sum(error, axis=0))
        self.count.assign_add(ops.sum(weights, axis=0))
        self.num_samples.assign_add(float(true.size))

    def result(self) -> Any:
        if not self._built:
            return ops.zeros((), "float32")
        mean = safe_divide(self.sum, self.count)
        total = ops.subtract(self.squared_sum, ops.multiply(self.sum, mean))
        constant = ops.less_equal(total, 0.0)
        ratio = ops.divide(self.total_mse, ops.where(constant, 1.0, total))
        scores = ops.where(constant, 0.0, ops.subtract(1.0, ratio))
        if self.class_aggregation == "uniform_average":
            scores = ops.mean(scores)
        elif self.class_aggregation == "variance_weighted_average":
            scores = safe_divide(ops.sum(ops.multiply(total, scores)), ops.sum(total))
        if self.num_regressors:
            n, p = convert_to_node(self.num_samples), float(self.num_regressors)
            left = ops.subtract(n, p + 1.0)
            usable = ops.greater(left, 0.0)
            factor = ops.divide(ops.subtract(n, 1.0), ops.where(usable, left, 1.0))
            adjusted = ops.subtract(1.0, ops.multiply(ops.subtract(1.0, scores), factor))
            scores = ops.where(usable, adjusted, scores)
        return scores

    def get_config(self) -> dict[str, Any]:
        own = {"class_aggregation": self.class_aggregation, "num_regressors": self.num_regressors}
        return {**super().get_config(), **own}


class FBetaScore(Metric):
    """(1 + beta^2) * precision * recall / (beta^2 * precision + recall), for each class.

    average:   None (a vector), "micro" (over all entries), "macro" (the mean of the classes),
               "weighted" (their mean weighted by how often they occur)
    threshold: a class is predicted where its score is greater; None: where it is the largest
    """

    _direction = "up"

    def __init__(
        self,
        average: str | None = None,
        beta: float = 1.0,
        threshold: float | None = None,
        name: str | None = "fbeta_score",
        dtype: Any = None,
    ):
        super().__init__(dtype, name)
        kind = type(self).__name__
        if average not in (None, "micro", "macro", "weighted"):
            raise ValueError(
                f"metric {kind}: average is {average!r}; use 'micro', 'macro', 'weighted' or None"
            )
        if not isinstance(beta, float) or not beta > 0:
            raise ValueError(f"metric {kind}: beta must be a positive float, got {beta!r}")
        if threshold is not None and not (isinstance(threshold, float) and 0 < threshold <= 1):
            raise ValueError(
                f"metric {kind}: threshold must be a float greater than 0 and at most 1, got "
                f"{threshold!r}"
            )
        self.average = average
        self.beta = float(beta)
        self.threshold = threshold
        self._built = False

    def _build(self, classes: int) -> None:
        shape = () if self.average == "micro" else (classes,)
        self.true_positives = self.add_variable(shape, name="true_positives")
        self.false_positives = self.add_variable(shape, name="false_positives")
        self.false_negatives = self.add_variable(shape, name="false_negatives")
        self.intermediate_weights = self.add_variable(shape, name="intermediate_weights")
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        true, pred = _table(self.name, y_true, y_pred)
        if not self._built:
            self._build(true.shape[1])
        if self.threshold is None:
            largest = ops.greater_equal(pred, ops.max(pred, axis=-1, keepdims=True))
            said = ops.logical_and(largest, ops.greater(ops.abs(pred), 1e-9))
        else:
            said = ops.greater(pred, float(self.threshold))
        said = ops.cast(said, "float32")
        weights = None
        if sample_weight is not None:
            weights = ops.reshape(convert_to_node(sample_weight, "float32"), (-1, 1))
        axis = None if self.average == "micro" else 0

        def add(variable: Variable, values: Any) -> None:
            if weights is not None:
                values = ops.multiply(values, weights)
            variable.assign_add(ops.sum(values, axis=axis))

        add(self.true_positives, ops.multiply(said, true))
        add(self.false_positives, ops.multiply(said, ops.subtract(1.0, true)))
        add(self.false_negatives, ops.multiply(ops.subtract(1.0, said), true))
        add(self.intermediate_weights, true)

    def result(self) -> Any:
        if not self._built:
            return ops.zeros((), "float32")
        small, square = config.epsilon(), self.beta**2

        def share(other: Variable) -> Any:
            total = ops.add(ops.add(self.true_positives, other), small)
            return ops.divide(self.true_positives, total)

        precision, recall = share(self.false_positives), share(self.false_negatives)
        below = ops.add(ops.add(ops.multiply(precision, square), recall), small)
        score = ops.multiply(ops.divide(ops.multiply(precision, recall), below), 1.0 + square)
        if self.average == "weighted":
            occurrences = convert_to_node(self.intermediate_weights)
            shares = ops.divide(occurrences, ops.add(ops.sum(occurrences), small))
            return ops.sum(ops.multiply(score, shares))
        return score if self.average is None else ops.mean(score)

    def get_config(self) -> dict[str, Any]:
        own = {"average": self.average, "beta": self.beta, "threshold": self.threshold}
        return {**super().get_config(), **own}


class F1Score(FBetaScore):
    """2 * precision * recall / (precision + recall); see `FBetaScore`."""

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str | None = "f1_score",
        dtype: Any = None,
    ):
        super().__init__(average, 1.0, threshold, name, dtype)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["beta"]
        return config
