"""Optimizers and learning-rate schedules, with Keras's names and numerics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meganeura.identifiers import Family
from meganeura.optim import schedules
from meganeura.optim.adam import Adam, Adamax, AdamW, Lamb, Nadam, ScheduleFreeAdamW
from meganeura.optim.base import Optimizer
from meganeura.optim.descent import SGD, Adadelta, Adagrad, Ftrl, Lion, RMSprop
from meganeura.optim.matrix import Adafactor, Muon
from meganeura.optim.wrappers import LossScaleOptimizer, MultiOptimizer, OptimizerMap

_KINDS = (
    SGD, RMSprop, Adam, AdamW, Adadelta, Adagrad, Adamax, Adafactor, Nadam, Ftrl, Lion, Lamb, Muon,
    ScheduleFreeAdamW, LossScaleOptimizer, MultiOptimizer,
)  # fmt: skip
_TABLE: dict[str, Any] = {kind.__name__: kind for kind in _KINDS}
_TABLE |= {kind.__name__.lower(): kind for kind in _KINDS}
_family = Family("optimizer", "keras.optimizers", _TABLE)


def get(identifier: Any) -> Optimizer | None:
    """The optimizer for a name (in any case), config dict, class or optimizer; None stays None.

    Raises ValueError where it is none of these, naming near names for an unknown string.
    """
    if isinstance(identifier, str) and identifier.lower() in _TABLE:
        identifier = identifier.lower()
    optimizer = _family.get(identifier)
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"{identifier!r} is not an optimizer; give a name such as 'adam', a config dict or an "
            "optimizer object"
        )
    return optimizer


def serialize(optimizer: Any) -> Any:
    """The optimizer as a dict in Keras 3's config format."""
    return _family.serialize(optimizer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The optimizer that `serialize`, or Keras, described."""
    if isinstance(config, Mapping):
        config = dict(config)
        name = str(config.get("class_name", ""))
        # Keras 2 wrote its own optimizers as "Custom>Adam", and Keras 3 registers some names
        name = name.removeprefix("Custom>")
        config["class_name"] = name.lower() if name.lower() in _TABLE else name
    return _family.deserialize(config, custom_objects)


__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "LossScaleOptimizer",
    "MultiOptimizer",
    "Muon",
    "Nadam",
    "Optimizer",
    "OptimizerMap",
    "RMSprop",
    "ScheduleFreeAdamW",
    "deserialize",
    "get",
    "schedules",
    "serialize",
]
