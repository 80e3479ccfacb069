"""Dtype policies (https://keras.io/api/mixed_precision): in which dtype layers compute and keep weights."""

from __future__ import annotations

import warnings
from typing import Any

from meganeura import config, dtypes

#: Policies whose weights have more digits than what is computed with them: (compute, variable).
_MIXED = {"mixed_float16": ("float16", "float32"), "mixed_float32": ("float32", "float32")}
#: Dtypes that WGSL does not have.
_ABSENT = ("bfloat16", "float64", "complex64", "complex128")


class DTypePolicy:
    """In which dtype layers compute, and in which they keep their weights.

    "float32":       both are single precision
    "mixed_float16": weights are kept in single precision; inputs, weights in use and results are half
                     precision, which takes half the memory. Sums and products are added up in single
                     precision all the same. `compile` scales the loss (LossScaleOptimizer).
    "float16":       weights too are half precision
    an integer dtype, for layers that make whole numbers of their inputs

    Raises ValueError for another name, and for half precision on a device that cannot keep it.
    """

    def __init__(self, name: str = "float32", source_name: str | None = None):
        self.compute_dtype, self.variable_dtype = _dtypes_of(name)
        self.name = name
        if "float16" in (self.compute_dtype, self.variable_dtype):
            from meganeura.backend import backend_object
            from meganeura.backend.base import no_half

            if not backend_object().half:
                raise ValueError(
                    f"dtype policy {name!r} cannot be used: {no_half(backend_object().describe())}"
                )

    @property
    def quantization_mode(self) -> None:
        return None

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DTypePolicy:
        return cls(config["name"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicy) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f'<DTypePolicy "{self.name}">'


FloatDTypePolicy = DTypePolicy


def _dtypes_of(name: Any) -> tuple[str, str]:
    if name in _MIXED:
        return _MIXED[name]
    absent = next((d for d in _ABSENT if isinstance(name, str) and name in (d, f"mixed_{d}")), None)
    if absent is not None:
        use = "'mixed_float16' or 'float32'" if absent == "bfloat16" else "'float32'"
        raise ValueError(
            f"dtype policy {name!r} is not offered: WGSL has no {absent}, so that no GPU program could be "
            f"written for it; use {use}"
        )
    try:
        kind = dtypes.standardize(name) if isinstance(name, str) else ""
    except ValueError:
        kind = ""
    if not kind:
        raise ValueError(
            f"dtype policy {name!r} is not known; use 'float32', 'mixed_float16', 'float16' or an integer dtype"
        )
    return kind, kind


_default: DTypePolicy | None = None


def dtype_policy() -> DTypePolicy:
    """The policy of layers that are not given one: what `set_dtype_policy` set, else `config.floatx()`."""
    return _default or DTypePolicy(config.floatx())


def set_dtype_policy(policy: Any) -> None:
    """Layers that are made from now on compute by this policy, if they are not given one of their own.

    Raises ValueError, as `DTypePolicy` does, for what is not offered.
    """
    global _default
    _default = None if policy is None else get(policy)


def get(identifier: Any) -> DTypePolicy:
    """A policy from its name, its config or itself; None is the one that `set_dtype_policy` set."""
    if identifier is None:
        return dtype_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        return deserialize(identifier)
    if isinstance(identifier, str):
        return DTypePolicy(identifier)
    return DTypePolicy(dtypes.standardize(identifier))  # numpy.float32 and the like


def from_file(identifier: Any) -> DTypePolicy:
    """As `get`, for what stands in files: a policy that this device cannot follow becomes float32.

    Weights have float32 in the file where policies are mixed, so that nothing of them is lost.
    """
    try:
        return get(identifier)
    except ValueError as error:
        warnings.warn(f"{error}; what the file describes computes in float32")
        return DTypePolicy("float32")


def serialize(dtype_policy: DTypePolicy) -> dict[str, Any]:
    return {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": dtype_policy.get_config(),
        "registered_name": None,
    }


def deserialize(config: dict[str, Any], custom_objects: Any = None) -> DTypePolicy:
    return DTypePolicy.from_config(config["config"])
