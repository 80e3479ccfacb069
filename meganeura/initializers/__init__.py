"""Initializers: what a new weight holds. The values are drawn on the host, so every backend gets the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meganeura.identifiers import Family
from meganeura.initializers.constant import STFT, Constant, Identity, Initializer, Ones, Zeros
from meganeura.initializers.random import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    LecunUniform,
    Orthogonal,
    RandomNormal,
    RandomUniform,
    TruncatedNormal,
    VarianceScaling,
    compute_fans,
)

# The lower-case spellings are the same classes, as in Keras.
zeros = Zeros
ones = Ones
constant = Constant
identity = Identity
stft = STFT
random_normal = RandomNormal
random_uniform = RandomUniform
truncated_normal = TruncatedNormal
variance_scaling = VarianceScaling
glorot_uniform = GlorotUniform
glorot_normal = GlorotNormal
he_uniform = HeUniform
he_normal = HeNormal
lecun_uniform = LecunUniform
lecun_normal = LecunNormal
orthogonal = Orthogonal
OrthogonalInitializer = Orthogonal
IdentityInitializer = Identity
STFTInitializer = STFT

_SNAKE = (
    "zeros ones constant identity stft random_normal random_uniform truncated_normal "
    "variance_scaling glorot_uniform glorot_normal he_uniform he_normal lecun_uniform "
    "lecun_normal orthogonal"
).split()

_TABLE: dict[str, Any] = {name: globals()[name] for name in _SNAKE}
_TABLE |= {kind.__name__: kind for kind in list(_TABLE.values())}
_TABLE |= {
    "OrthogonalInitializer": Orthogonal,
    "IdentityInitializer": Identity,
    "STFTInitializer": STFT,
    "uniform": RandomUniform,
    "normal": RandomNormal,
    "zero": Zeros,
    "one": Ones,
}

_family = Family("initializer", "keras.initializers", _TABLE)


def get(identifier: Any) -> Initializer | Callable[..., Any] | None:
    """The initializer for a name, config dict, class, array or callable; None stays None."""
    if hasattr(identifier, "shape") and hasattr(identifier, "dtype") and not callable(identifier):
        return Constant(identifier)
    return _family.get(identifier)


def serialize(initializer: Any) -> Any:
    """The initializer as a dict in Keras 3's config format."""
    return _family.serialize(initializer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The initializer that `serialize` described."""
    return _family.deserialize(config, custom_objects)


__all__ = [
    "STFT",
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "IdentityInitializer",
    "Initializer",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "Orthogonal",
    "OrthogonalInitializer",
    "RandomNormal",
    "RandomUniform",
    "STFTInitializer",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    "compute_fans",
    "deserialize",
    "get",
    "serialize",
    *_SNAKE,
]
