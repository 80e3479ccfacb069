"""Losses, as functions and as classes, with Keras's names and numerics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meganeura.identifiers import Family
from meganeura.losses.classes import (
    CTC,
    BinaryCrossentropy,
    BinaryFocalCrossentropy,
    CategoricalCrossentropy,
    CategoricalFocalCrossentropy,
    CategoricalGeneralizedCrossEntropy,
    CategoricalHinge,
    Circle,
    CosineSimilarity,
    Dice,
    Hinge,
    Huber,
    KLDivergence,
    LogCosh,
    LossFunctionWrapper,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
    SparseCategoricalCrossentropy,
    SquaredHinge,
    Tversky,
)
from meganeura.losses.classification import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_generalized_cross_entropy,
    circle,
    ctc,
    sparse_categorical_crossentropy,
)
from meganeura.losses.loss import Loss
from meganeura.losses.regression import (
    categorical_hinge,
    cosine_similarity,
    dice,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    poisson,
    squared_hinge,
    tversky,
)

_CLASSES = (
    BinaryCrossentropy, BinaryFocalCrossentropy, CategoricalCrossentropy, CTC,
    CategoricalFocalCrossentropy, CategoricalGeneralizedCrossEntropy, CategoricalHinge, Circle,
    CosineSimilarity, Dice, Hinge, Huber, KLDivergence, LogCosh, LossFunctionWrapper,
    MeanAbsoluteError, MeanAbsolutePercentageError, MeanSquaredError, MeanSquaredLogarithmicError,
    Poisson, SparseCategoricalCrossentropy, SquaredHinge, Tversky,
)  # fmt: skip
_FUNCTIONS = (
    binary_crossentropy, binary_focal_crossentropy, categorical_crossentropy,
    categorical_focal_crossentropy, categorical_generalized_cross_entropy, categorical_hinge,
    circle, cosine_similarity, ctc, dice, hinge, huber, kl_divergence, log_cosh,
    mean_absolute_error, mean_absolute_percentage_error, mean_squared_error,
    mean_squared_logarithmic_error, poisson, sparse_categorical_crossentropy, squared_hinge,
    tversky,
)  # fmt: skip
#: The short names, which are accepted in capitals as well.
_SHORT: dict[str, Any] = {
    "mse": mean_squared_error,
    "mae": mean_absolute_error,
    "mape": mean_absolute_percentage_error,
    "msle": mean_squared_logarithmic_error,
    "bce": binary_crossentropy,
    "kld": kl_divergence,
    "logcosh": log_cosh,
    "huber_loss": huber,
    "kullback_leibler_divergence": kl_divergence,
}
FUNCTIONS: dict[str, Any] = {function.__name__: function for function in _FUNCTIONS}
FUNCTIONS |= _SHORT | {name.upper(): function for name, function in _SHORT.items() if len(name) < 5}
_TABLE: dict[str, Any] = FUNCTIONS | {kind.__name__: kind for kind in _CLASSES}
_family = Family("loss", "keras.losses", _TABLE)


def get(identifier: Any) -> Callable[..., Any] | None:
    """The loss for a name, config dict, class, function or object; None stays None.

    A snake-case or short name gives the function, a class name an object of the class. Raises
    ValueError where it is none of these, naming near names for an unknown string.
    """
    return _family.get(identifier)


def serialize(loss: Any) -> Any:
    """The loss as a dict in Keras 3's config format; a built-in function as its name."""
    return _family.serialize(loss)


def deserialize(name: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The loss that `serialize` described."""
    return _family.deserialize(name, custom_objects)


__all__ = [
    "Loss",
    "deserialize",
    "get",
    "serialize",
    *(kind.__name__ for kind in _CLASSES),
    *(function.__name__ for function in _FUNCTIONS),
]
