"""Metrics, with Keras's names and numerics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meganeura import losses
from meganeura.identifiers import Family, snake_case
from meganeura.losses import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_hinge,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
)
from meganeura.metrics.accuracy import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
    accuracy,
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy,
)
from meganeura.metrics.auc import AUC
from meganeura.metrics.confusion import (
    FalseNegatives,
    FalsePositives,
    Precision,
    PrecisionAtRecall,
    Recall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    SpecificityAtSensitivity,
    TrueNegatives,
    TruePositives,
)
from meganeura.metrics.iou import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU
from meganeura.metrics.metric import Metric
from meganeura.metrics.perplexity import Perplexity
from meganeura.metrics.reduction import Mean, MeanMetricWrapper, Sum
from meganeura.metrics.regression import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalHinge,
    ConcordanceCorrelation,
    CosineSimilarity,
    Hinge,
    KLDivergence,
    LogCoshError,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    PearsonCorrelation,
    Poisson,
    RootMeanSquaredError,
    SparseCategoricalCrossentropy,
    SquaredHinge,
    concordance_correlation,
    pearson_correlation,
)
from meganeura.metrics.scores import F1Score, FBetaScore, R2Score

_CLASSES = (
    AUC, Accuracy, BinaryAccuracy, BinaryCrossentropy, BinaryIoU, CategoricalAccuracy,
    CategoricalCrossentropy, CategoricalHinge, ConcordanceCorrelation, CosineSimilarity, F1Score,
    FBetaScore, FalseNegatives, FalsePositives, Hinge, IoU, KLDivergence, LogCoshError, Mean,
    MeanAbsoluteError, MeanAbsolutePercentageError, MeanIoU, MeanMetricWrapper, MeanSquaredError,
    MeanSquaredLogarithmicError, OneHotIoU, OneHotMeanIoU, PearsonCorrelation, Perplexity, Poisson,
    Precision, PrecisionAtRecall, R2Score, Recall, RecallAtPrecision, RootMeanSquaredError,
    SensitivityAtSpecificity, SparseCategoricalAccuracy, SparseCategoricalCrossentropy,
    SparseTopKCategoricalAccuracy, SpecificityAtSensitivity, SquaredHinge, Sum,
    TopKCategoricalAccuracy, TrueNegatives, TruePositives,
)  # fmt: skip
_FUNCTIONS = (
    accuracy, binary_accuracy, binary_crossentropy, binary_focal_crossentropy,
    categorical_accuracy, categorical_crossentropy, categorical_focal_crossentropy,
    categorical_hinge, concordance_correlation, hinge, huber, kl_divergence, log_cosh,
    mean_absolute_error, mean_absolute_percentage_error, mean_squared_error,
    mean_squared_logarithmic_error, pearson_correlation, poisson, sparse_categorical_accuracy,
    sparse_categorical_crossentropy, sparse_top_k_categorical_accuracy, squared_hinge,
    top_k_categorical_accuracy,
)  # fmt: skip
_SHORT: dict[str, Any] = {
    "mse": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "msle": MeanSquaredLogarithmicError,
    "rmse": RootMeanSquaredError,
    "bce": BinaryCrossentropy,
    "kld": KLDivergence,
}
_TABLE: dict[str, Any] = {function.__name__: function for function in _FUNCTIONS}
_TABLE |= {kind.__name__: kind for kind in _CLASSES}
_TABLE |= {snake_case(kind.__name__): kind for kind in _CLASSES}
_TABLE |= _SHORT | {name.upper(): kind for name, kind in _SHORT.items()}
# Where the rule for names gives something that nobody would write.
_TABLE |= {"r2_score": R2Score, "f1_score": F1Score, "fbeta_score": FBetaScore, "iou": IoU}
_TABLE |= {"logcosh": LogCoshError, "log_cosh": LogCoshError, "kl_divergence": KLDivergence}
_family = Family("metric", "keras.metrics", _TABLE)


def get(identifier: Any) -> Any:
    """The metric for a name (snake case or class name), config dict, class, function or object.

    None stays None. Raises ValueError where it is none of these, naming near names for an unknown
    string.
    """
    return _family.get(identifier)


def serialize(metric: Any) -> Any:
    """The metric as a dict in Keras 3's config format; a built-in function as its name."""
    if isinstance(metric, losses.Loss):
        return losses.serialize(metric)
    return _family.serialize(metric)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The metric that `serialize` described."""
    return _family.deserialize(config, custom_objects)


__all__ = [
    "Metric",
    "deserialize",
    "get",
    "serialize",
    *(kind.__name__ for kind in _CLASSES),
    *(function.__name__ for function in _FUNCTIONS),
]
