"""Intersection over union of predicted and true classes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import config, ops
from meganeura.metrics.metric import Metric
from meganeura.ops.dispatch import convert_to_node
from meganeura.ops.registry import make


class IoU(Metric):
    """tp / (tp + fp + fn) from a confusion matrix, averaged over `target_class_ids`.

    Classes that occur neither in targets nor in predictions are left out of the average. Targets
    and predictions are class numbers, or scores along `axis` where sparse_y_true / sparse_y_pred
    is False. Entries of the class `ignore_class`, or outside of [0, num_classes), do not count.
    """

    _direction = "up"

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ):
        super().__init__(dtype or "int32", name)
        self.num_classes = int(num_classes)
        self.target_class_ids = [int(i) for i in target_class_ids]
        if wrong := [i for i in self.target_class_ids if not 0 <= i < self.num_classes]:
            raise ValueError(
                f"metric {type(self).__name__}: class {wrong[0]} is outside of 0 to "
                f"{self.num_classes - 1}"
            )
        self.ignore_class = ignore_class
        self.sparse_y_true = sparse_y_true
        self.sparse_y_pred = sparse_y_pred
        self.axis = axis
        self.total_cm = self.add_variable(
            (self.num_classes, self.num_classes), name="total_confusion_matrix"
        )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        true, pred = convert_to_node(y_true), convert_to_node(y_pred)
        if not self.sparse_y_true:
            true = ops.argmax(true, axis=self.axis)
        if not self.sparse_y_pred:
            pred = ops.argmax(pred, axis=self.axis)
        true, pred = (ops.reshape(ops.cast(x, "int32"), (-1,)) for x in (true, pred))
        if true.shape != pred.shape:
            raise ValueError(
                f"metric {self.name!r}: {true.size} targets for {pred.size} predictions"
            )
        if sample_weight is None:
            weights = ops.ones(true.shape, self.dtype)
        else:
            weights = convert_to_node(sample_weight)
            if weights.dtype == "float32" and self.dtype == "int32":
                warnings.warn(
                    f"metric {self.name!r} counts in integers, so its sample weights are cut to "
                    "whole numbers; give dtype='float32' to keep them"
                )
            weights = ops.cast(weights, self.dtype)
            if weights.ndim > 1:
                weights = ops.reshape(weights, (-1,))
            weights = ops.broadcast_to(weights, true.shape)
        valid = ops.logical_and(self._in_range(true), self._in_range(pred))
        if self.ignore_class is not None:
            valid = ops.logical_and(valid, ops.not_equal(true, int(self.ignore_class)))
        cell = ops.add(ops.multiply(true, self.num_classes), pred)
        cell = ops.where(valid, cell, 0)
        weights = ops.where(valid, weights, ops.zeros((), self.dtype))
        size = self.num_classes**2
        counts = make("scatter_add", convert_to_node(cell), convert_to_node(weights), size=size)
        self.total_cm.assign_add(ops.reshape(counts, self.total_cm.shape))

    def _in_range(self, x: Any) -> Any:
        return ops.logical_and(ops.greater_equal(x, 0), ops.less(x, self.num_classes))

    def result(self) -> Any:
        matrix = convert_to_node(self.total_cm)
        both = ops.multiply(matrix, ops.eye(self.num_classes, dtype=self.dtype))
        right = ops.sum(both, axis=0)
        union = ops.subtract(ops.add(ops.sum(matrix, axis=0), ops.sum(matrix, axis=1)), right)
        chosen = np.zeros(self.num_classes, bool)
        chosen[self.target_class_ids] = True
        right, union = ops.cast(right, "float32"), ops.cast(union, "float32")
        present = ops.logical_and(ops.greater(union, 1e-9), chosen)
        iou = ops.where(present, ops.divide(right, ops.add(union, config.epsilon())), 0.0)
        count = ops.sum(ops.cast(present, "float32"))
        return ops.divide(ops.sum(iou), ops.add(count, config.epsilon()))

    def get_config(self) -> dict[str, Any]:
        own = {
            "num_classes": self.num_classes,
            "target_class_ids": self.target_class_ids,
            "ignore_class": self.ignore_class,
            "sparse_y_true": self.sparse_y_true,
            "sparse_y_pred": self.sparse_y_pred,
            "axis": self.axis,
        }
        config = {**super().get_config(), **own}
        return {k: v for k, v in config.items() if k not in self._fixed}

    #: Arguments that a subclass fixes, and leaves out of its config.
    _fixed: tuple[str, ...] = ()


class BinaryIoU(IoU):
    """IoU of the classes 0 and 1, where a score of at least `threshold` is class 1."""

    _fixed: tuple[str, ...] = (
        "num_classes",
        "ignore_class",
        "sparse_y_true",
        "sparse_y_pred",
        "axis",
    )

    def __init__(
        self,
        target_class_ids: Sequence[int] = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(2, target_class_ids, name, dtype)
        self.threshold = threshold

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        said = ops.greater_equal(convert_to_node(y_pred, "float32"), float(self.threshold))
        IoU.update_state(self, y_true, ops.cast(said, "int32"), sample_weight)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "threshold": self.threshold}


class MeanIoU(IoU):
    """IoU averaged over all classes."""

    _fixed: tuple[str, ...] = ("target_class_ids",)

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ):
        super().__init__(
            num_classes,
            range(num_classes),
            name,
            dtype,
            ignore_class,
            sparse_y_true,
            sparse_y_pred,
            axis,
        )


class OneHotIoU(IoU):
    """IoU of one-hot targets."""

    _fixed: tuple[str, ...] = ("sparse_y_true",)

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ):
        super().__init__(
            num_classes, target_class_ids, name, dtype, ignore_class, False, sparse_y_pred, axis
        )


class OneHotMeanIoU(MeanIoU):
    """IoU of one-hot targets, averaged over all classes."""

    _fixed: tuple[str, ...] = ("target_class_ids", "sparse_y_true")

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ):
        super().__init__(num_classes, name, dtype, ignore_class, False, sparse_y_pred, axis)
