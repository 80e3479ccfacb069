"""How often predictions are right."""

from __future__ import annotations

from typing import Any

from meganeura import ops
from meganeura.graph.node import Node
from meganeura.losses.loss import match_ranks
from meganeura.metrics.reduction import MeanMetricWrapper
from meganeura.ops.dispatch import convert_to_node, operation


def _hits(matches: Any) -> Any:
    return ops.cast(matches, "float32")


def _labels(y: Any) -> Node:
    """Class numbers as int32; numbers that are not whole stay apart from all classes."""
    node = convert_to_node(y)
    return node if node.dtype == "int32" else ops.cast(node, "float32")


@operation
def accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where targets and predictions are equal, else 0."""
    true, pred = match_ranks(_labels(y_true), _labels(y_pred))
    return _hits(ops.equal(true, pred))


@operation
def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Any:
    """1 where y_pred > threshold says the same as the label 0 or 1, else 0."""
    true = convert_to_node(y_true, "float32")
    true, pred = match_ranks(true, convert_to_node(y_pred, "float32"))
    return _hits(ops.equal(true, ops.cast(ops.greater(pred, float(threshold)), "float32")))


@operation
def categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where the largest score is that of the one-hot label, else 0."""
    true, pred = convert_to_node(y_true), convert_to_node(y_pred)
    return _hits(ops.equal(ops.argmax(true, axis=-1), ops.argmax(pred, axis=-1)))


def _class_numbers(name: str, y_true: Any, pred: Node) -> Node:
    true = _labels(y_true)
    if true.ndim == pred.ndim and true.shape[-1] == 1:
        true = ops.squeeze(true, -1)
    if true.shape != pred.shape[:-1]:
        hint = "; for one-hot targets use the categorical form" if true.shape == pred.shape else ""
        raise ValueError(
            f"{name}: the targets have the shape {true.shape}, expected {pred.shape[:-1]}, one "
            f"class number for each prediction of shape {pred.shape}{hint}"
        )
    return true


@operation
def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """1 where the largest score is that of the class number, else 0."""
    pred = convert_to_node(y_pred)
    true = _class_numbers("sparse_categorical_accuracy", y_true, pred)
    return _hits(ops.equal(true, ops.cast(ops.argmax(pred, axis=-1), true.dtype)))


def _in_top_k(true: Node, pred: Node, k: int) -> Any:
    """Whether fewer than k scores beat that of the true class."""
    true = ops.cast(true, "int32")
    own = ops.take_along_axis(pred, ops.expand_dims(true, -1), axis=-1)
    better = ops.sum(ops.cast(ops.greater(pred, own), "int32"), axis=-1)
    known = ops.logical_and(ops.greater_equal(true, 0), ops.less(true, pred.shape[-1]))
    finite = ops.isfinite(ops.squeeze(own, -1))
    return ops.logical_and(ops.logical_and(ops.less(better, k), known), finite)


@operation
def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Any:
    """1 where the class of the one-hot label is among the k largest scores, else 0."""
    pred = convert_to_node(y_pred, "float32")
    return _hits(_in_top_k(ops.argmax(convert_to_node(y_true), axis=-1), pred, k))


@operation
def sparse_top_k_categorical_accuracy(
    y_true: Any, y_pred: Any, k: int = 5, from_sorted_ids: bool = False
) -> Any:
    """1 where the class number is among the k largest scores, else 0.

    With `from_sorted_ids` y_pred holds class numbers, best first, in place of scores.
    """
    pred: Any = convert_to_node(y_pred)
    if from_sorted_ids:
        true = convert_to_node(y_true, pred.dtype)
        if true.ndim == pred.ndim and true.shape[-1] == 1:
            true = ops.squeeze(true, -1)
        return _hits(ops.any(ops.equal(ops.expand_dims(true, -1), pred[..., :k]), axis=-1))
    true = _class_numbers("sparse_top_k_categorical_accuracy", y_true, pred)
    return _hits(_in_top_k(true, pred, k))


class Accuracy(MeanMetricWrapper):
    """How often predictions equal the targets."""

    _direction = "up"

    def __init__(self, name: str | None = "accuracy", dtype: Any = None):
        super().__init__(accuracy, name, dtype)


class BinaryAccuracy(MeanMetricWrapper):
    """How often y_pred > threshold agrees with the label."""

    _direction = "up"

    def __init__(
        self, name: str | None = "binary_accuracy", dtype: Any = None, threshold: float = 0.5
    ):
        super().__init__(binary_accuracy, name, dtype, threshold=threshold)
        self.threshold = threshold


class CategoricalAccuracy(MeanMetricWrapper):
    """How often the largest score is that of the one-hot label."""

    _direction = "up"

    def __init__(self, name: str | None = "categorical_accuracy", dtype: Any = None):
        super().__init__(categorical_accuracy, name, dtype)


class SparseCategoricalAccuracy(MeanMetricWrapper):
    """How often the largest score is that of the class number."""

    _direction = "up"

    def __init__(self, name: str | None = "sparse_categorical_accuracy", dtype: Any = None):
        super().__init__(sparse_categorical_accuracy, name, dtype)


class TopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the class of the one-hot label is among the k largest scores."""

    _direction = "up"

    def __init__(
        self, k: int = 5, name: str | None = "top_k_categorical_accuracy", dtype: Any = None
    ):
        super().__init__(top_k_categorical_accuracy, name, dtype, k=k)
        self.k = k


class SparseTopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the class number is among the k largest scores."""

    _direction = "up"

    def __init__(
        self,
        k: int = 5,
        name: str | None = "sparse_top_k_categorical_accuracy",
        dtype: Any = None,
        from_sorted_ids: bool = False,
    ):
        super().__init__(
            sparse_top_k_categorical_accuracy, name, dtype, k=k, from_sorted_ids=from_sorted_ids
        )
        self.k = k
        self.from_sorted_ids = from_sorted_ids
