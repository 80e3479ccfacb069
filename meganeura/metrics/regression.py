"""Means of the loss functions, and correlations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meganeura import config, losses, ops
from meganeura.graph.node import Node
from meganeura.losses.regression import pair
from meganeura.metrics.reduction import Mean, MeanMetricWrapper
from meganeura.ops.dispatch import operation


class _Named(MeanMetricWrapper):
    """The mean of a function without arguments, under its own name."""

    function: Callable[..., Any]
    default_name: str
    _direction = "down"

    def __init__(self, name: str | None = None, dtype: Any = None):
        super().__init__(type(self).function, name or self.default_name, dtype)


class MeanSquaredError(_Named):
    """The mean of (y_true - y_pred)^2."""

    function, default_name = staticmethod(losses.mean_squared_error), "mean_squared_error"


class MeanAbsoluteError(_Named):
    """The mean of |y_true - y_pred|."""

    function, default_name = staticmethod(losses.mean_absolute_error), "mean_absolute_error"


class MeanAbsolutePercentageError(_Named):
    """The mean of 100 * |y_true - y_pred| / |y_true|."""

    function = staticmethod(losses.mean_absolute_percentage_error)
    default_name = "mean_absolute_percentage_error"


class MeanSquaredLogarithmicError(_Named):
    """The mean of (log(y_true + 1) - log(y_pred + 1))^2."""

    function = staticmethod(losses.mean_squared_logarithmic_error)
    default_name = "mean_squared_logarithmic_error"


class LogCoshError(_Named):
    """The mean of log(cosh(y_pred - y_true))."""

    function, default_name = staticmethod(losses.log_cosh), "logcosh"


class KLDivergence(_Named):
    """The mean of sum(y_true * log(y_true / y_pred))."""

    function, default_name = staticmethod(losses.kl_divergence), "kl_divergence"


class Poisson(_Named):
    """The mean of y_pred - y_true * log(y_pred)."""

    function, default_name = staticmethod(losses.poisson), "poisson"


class Hinge(_Named):
    """The mean of max(1 - y_true * y_pred, 0)."""

    function, default_name = staticmethod(losses.hinge), "hinge"


class SquaredHinge(_Named):
    """The mean of max(1 - y_true * y_pred, 0)^2."""

    function, default_name = staticmethod(losses.squared_hinge), "squared_hinge"


class CategoricalHinge(_Named):
    """The mean of max(neg - pos + 1, 0)."""

    function, default_name = staticmethod(losses.categorical_hinge), "categorical_hinge"


class BinaryCrossentropy(MeanMetricWrapper):
    """The mean cross-entropy of labels 0 and 1 with probabilities or scores."""

    _direction = "down"

    def __init__(
        self,
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
    ):
        super().__init__(
            losses.binary_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
        )


class CategoricalCrossentropy(MeanMetricWrapper):
    """The mean cross-entropy of one-hot labels with probabilities or scores."""

    _direction = "down"

    def __init__(
        self,
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
        axis: int = -1,
    ):
        super().__init__(
            losses.categorical_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class SparseCategoricalCrossentropy(MeanMetricWrapper):
    """The mean cross-entropy of class numbers with probabilities or scores."""

    _direction = "down"

    def __init__(
        self,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
    ):
        super().__init__(
            losses.sparse_categorical_crossentropy,
            name,
            dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )


class RootMeanSquaredError(Mean):
    """sqrt(mean((y_true - y_pred)^2)) over all batches."""

    _direction = "down"

    def __init__(self, name: str | None = "root_mean_squared_error", dtype: Any = None):
        super().__init__(name, dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        true, pred = pair(self.name, y_true, y_pred)
        Mean.update_state(self, ops.square(ops.subtract(pred, true)), sample_weight)

    def result(self) -> Any:
        return ops.sqrt(Mean.result(self))


@operation
def cosine(y_true: Any, y_pred: Any, axis: Any = -1) -> Any:
    """The cosine of the angle between targets and predictions along `axis`."""
    return ops.negative(losses.cosine_similarity(y_true, y_pred, axis=axis))


class CosineSimilarity(MeanMetricWrapper):
    """The mean cosine of the angle between targets and predictions."""

    _direction = "up"

    def __init__(self, name: str | None = "cosine_similarity", dtype: Any = None, axis: int = -1):
        super().__init__(cosine, name, dtype, axis=axis)


def _centred(x: Node, axis: Any) -> Any:
    return ops.subtract(x, ops.mean(x, axis=axis, keepdims=True))


@operation
def pearson_correlation(y_true: Any, y_pred: Any, axis: Any = -1) -> Any:
    """The correlation coefficient of targets and predictions along `axis`."""
    true, pred = (_centred(x, axis) for x in pair("pearson_correlation", y_true, y_pred))
    scale = ops.multiply(
        ops.mean(ops.square(true), axis=axis), ops.mean(ops.square(pred), axis=axis)
    )
    return ops.divide(ops.mean(ops.multiply(true, pred), axis=axis), ops.sqrt(scale))


@operation
def concordance_correlation(y_true: Any, y_pred: Any, axis: Any = -1) -> Any:
    """2 * covariance / (both variances + (difference of the means)^2) along `axis`."""
    true, pred = pair("concordance_correlation", y_true, y_pred)
    true_mean, pred_mean = (ops.mean(x, axis=axis, keepdims=True) for x in (true, pred))
    spread = ops.add(
        ops.mean(ops.square(ops.subtract(true, true_mean)), axis=axis, keepdims=True),
        ops.mean(ops.square(ops.subtract(pred, pred_mean)), axis=axis, keepdims=True),
    )
    apart = ops.square(ops.subtract(true_mean, pred_mean))
    together = ops.multiply(ops.subtract(true, pred_mean), ops.subtract(pred, pred_mean))
    norm = ops.add(ops.add(spread, apart), config.epsilon())
    return ops.mean(ops.divide(ops.multiply(together, 2.0), norm), axis=axis)


class PearsonCorrelation(MeanMetricWrapper):
    """The mean correlation coefficient of targets and predictions along `axis`."""

    _direction = "up"

    def __init__(self, name: str | None = "pearson_correlation", dtype: Any = None, axis: int = -1):
        super().__init__(pearson_correlation, name, dtype, axis=axis)
        self.axis = axis


class ConcordanceCorrelation(MeanMetricWrapper):
    """The mean concordance correlation of targets and predictions along `axis`."""

    _direction = "up"

    def __init__(
        self, name: str | None = "concordance_correlation", dtype: Any = None, axis: int = -1
    ):
        super().__init__(concordance_correlation, name, dtype, axis=axis)
        self.axis = axis
