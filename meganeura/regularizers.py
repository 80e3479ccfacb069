"""Regularizers: penalties on weights or activations that are added to the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from meganeura import ops
from meganeura.identifiers import Family


class Regularizer:
    """Gives the penalty of a tensor: `regularizer(x)` returns a scalar tensor."""

    def __call__(self, x: Any) -> Any:
        raise NotImplementedError(
            f"regularizer {type(self).__name__} must define __call__(self, x)"
        )

    def get_config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Regularizer:
        return cls(**config)


def _checked(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(
            f"regularizer argument {name} must be a finite number of at least 0, got {value!r}"
        )
    if value < 0:
        raise ValueError(f"regularizer argument {name} must be at least 0, got {value}")
    return float(value)


class L1L2(Regularizer):
    """l1 * sum(|x|) + l2 * sum(x^2)."""

    def __init__(self, l1: float = 0.0, l2: float = 0.0):
        self.l1 = _checked("l1", 0.0 if l1 is None else l1)
        self.l2 = _checked("l2", 0.0 if l2 is None else l2)

    def __call__(self, x: Any) -> Any:
        penalty = None
        if self.l1:
            penalty = ops.multiply(ops.sum(ops.abs(x)), self.l1)
        if self.l2:
            square = ops.multiply(ops.sum(ops.square(x)), self.l2)
            penalty = square if penalty is None else ops.add(penalty, square)
        return ops.zeros((), "float32") if penalty is None else penalty

    def get_config(self) -> dict[str, Any]:
        return {"l1": self.l1, "l2": self.l2}


class L1(Regularizer):
    """l1 * sum(|x|)."""

    def __init__(self, l1: float = 0.01):
        self.l1 = _checked("l1", 0.01 if l1 is None else l1)

    def __call__(self, x: Any) -> Any:
        return ops.multiply(ops.sum(ops.abs(x)), self.l1)

    def get_config(self) -> dict[str, Any]:
        return {"l1": self.l1}


class L2(Regularizer):
    """l2 * sum(x^2)."""

    def __init__(self, l2: float = 0.01):
        self.l2 = _checked("l2", 0.01 if l2 is None else l2)

    def __call__(self, x: Any) -> Any:
        return ops.multiply(ops.sum(ops.square(x)), self.l2)

    def get_config(self) -> dict[str, Any]:
        return {"l2": self.l2}


class OrthogonalRegularizer(Regularizer):
    """factor * mean of |cos| over all pairs of distinct rows (or columns) of a 2-D tensor."""

    def __init__(self, factor: float = 0.01, mode: str = "rows"):
        self.factor = _checked("factor", factor)
        if mode not in ("rows", "columns"):
            raise ValueError(
                f"regularizer OrthogonalRegularizer: mode is {mode!r}; use 'rows' or 'columns'"
            )
        self.mode = mode

    def __call__(self, x: Any) -> Any:
        if len(x.shape) != 2:
            raise ValueError(
                f"regularizer OrthogonalRegularizer works on 2-D tensors, got shape {tuple(x.shape)}"
            )
        rows = x if self.mode == "rows" else ops.transpose(x)
        count = rows.shape[0]
        length = ops.sum(ops.square(rows), axis=1, keepdims=True)
        rows = ops.divide(rows, ops.sqrt(ops.maximum(length, 1e-12)))
        products = ops.abs(ops.matmul(rows, ops.transpose(rows)))
        apart = ops.multiply(products, ops.subtract(1.0, ops.eye(count)))
        pairs = max(count * (count - 1) / 2.0, 1.0)
        return ops.multiply(ops.sum(apart), self.factor * 0.5 / pairs)

    def get_config(self) -> dict[str, Any]:
        return {"factor": self.factor, "mode": self.mode}


l1 = L1
l2 = L2
l1_l2 = L1L2
orthogonal_regularizer = OrthogonalRegularizer

_TABLE: dict[str, Any] = {
    "L1": L1,
    "L2": L2,
    "L1L2": L1L2,
    "OrthogonalRegularizer": OrthogonalRegularizer,
    "l1": L1,
    "l2": L2,
    "l1_l2": L1L2,
    "l1l2": L1L2,
    "orthogonal_regularizer": OrthogonalRegularizer,
}
_family = Family("regularizer", "keras.regularizers", _TABLE)


def get(identifier: Any) -> Callable[..., Any] | None:
    """The regularizer for a name, config dict, class or callable; None stays None."""
    return _family.get(identifier)


def serialize(regularizer: Any) -> Any:
    """The regularizer as a dict in Keras 3's config format."""
    return _family.serialize(regularizer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The regularizer that `serialize` described."""
    return _family.deserialize(config, custom_objects)
