"""Constraints: what is done to a weight after each update of the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meganeura import config, ops
from meganeura.identifiers import Family


class Constraint:
    """Maps a weight to the allowed weight nearest to it: `constraint(w)` returns a tensor like `w`.

    The base class allows every weight.
    """

    def __call__(self, w: Any) -> Any:
        return w

    def get_config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Constraint:
        return cls(**config)


def _norms(w: Any, axis: int | Sequence[int]) -> Any:
    return ops.sqrt(ops.sum(ops.square(w), axis=axis, keepdims=True))


class MaxNorm(Constraint):
    """Scales down where the norm along `axis` exceeds `max_value`: w * min(n, max_value) / (eps + n)."""

    def __init__(self, max_value: float = 2, axis: int | Sequence[int] = 0):
        self.max_value = max_value
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        norms = _norms(w, self.axis)
        wanted = ops.clip(norms, 0, float(self.max_value))
        return ops.multiply(w, ops.divide(wanted, ops.add(norms, config.epsilon())))

    def get_config(self) -> dict[str, Any]:
        return {"max_value": self.max_value, "axis": self.axis}


class NonNeg(Constraint):
    """Negative weights become zero."""

    def __call__(self, w: Any) -> Any:
        return ops.maximum(w, 0.0)


class UnitNorm(Constraint):
    """Scales to a norm of one along `axis`: w / (eps + n)."""

    def __init__(self, axis: int | Sequence[int] = 0):
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        return ops.divide(w, ops.add(_norms(w, self.axis), config.epsilon()))

    def get_config(self) -> dict[str, Any]:
        return {"axis": self.axis}


class MinMaxNorm(Constraint):
    """Draws the norm along `axis` into [min_value, max_value].

    The wanted norm is rate * clip(n, min_value, max_value) + (1 - rate) * n; a `rate` below 1
    moves only part of the way at each step.
    """

    def __init__(
        self,
        min_value: float = 0.0,
        max_value: float = 1.0,
        rate: float = 1.0,
        axis: int | Sequence[int] = 0,
    ):
        self.min_value = min_value
        self.max_value = max_value
        self.rate = rate
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        norms = _norms(w, self.axis)
        inside = ops.clip(norms, float(self.min_value), float(self.max_value))
        wanted = ops.add(ops.multiply(inside, self.rate), ops.multiply(norms, 1 - self.rate))
        return ops.multiply(w, ops.divide(wanted, ops.add(norms, config.epsilon())))

    def get_config(self) -> dict[str, Any]:
        return {
            "min_value": self.min_value,
            "max_value": self.max_value,
            "rate": self.rate,
            "axis": self.axis,
        }


max_norm = MaxNorm
non_neg = NonNeg
unit_norm = UnitNorm
min_max_norm = MinMaxNorm

_TABLE: dict[str, Any] = {
    "MaxNorm": MaxNorm,
    "NonNeg": NonNeg,
    "UnitNorm": UnitNorm,
    "MinMaxNorm": MinMaxNorm,
    "max_norm": MaxNorm,
    "non_neg": NonNeg,
    "unit_norm": UnitNorm,
    "min_max_norm": MinMaxNorm,
    # Keras 1 and 2 spellings that stand in old files
    "maxnorm": MaxNorm,
    "nonneg": NonNeg,
    "unitnorm": UnitNorm,
}
_family = Family("constraint", "keras.constraints", _TABLE)


def get(identifier: Any) -> Callable[..., Any] | None:
    """The constraint for a name, config dict, class or callable; None stays None."""
    return _family.get(identifier)


def serialize(constraint: Any) -> Any:
    """The constraint as a dict in Keras 3's config format."""
    return _family.serialize(constraint)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The constraint that `serialize` described."""
    return _family.deserialize(config, custom_objects)
