"""Dtype policies (https://keras.io/api/mixed_precision): computing is in float32, so there is one."""

from __future__ import annotations

from typing import Any


class DTypePolicy:
    """In which dtype layers compute and keep their weights.

    Only "float32" is offered. Raises ValueError for another name, which says so.
    """

    def __init__(self, name: str = "float32", source_name: str | None = None):
        if not isinstance(name, str) or name not in ("float32", "mixed_float32"):
            raise ValueError(
                f"dtype policy {name!r} is not offered: layers compute in float32; use DTypePolicy('float32')"
            )
        self.name = name

    @property
    def compute_dtype(self) -> str:
        return "float32"

    variable_dtype = compute_dtype

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


def dtype_policy() -> DTypePolicy:
    """The policy of layers that are not given one."""
    return DTypePolicy()


def set_dtype_policy(policy: Any) -> None:
    """Accepts "float32"; raises ValueError, as `DTypePolicy` does, for what is not offered."""
    get(policy)


def get(identifier: Any) -> DTypePolicy:
    """A policy from its name, its config or itself; None is the default one."""
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        return deserialize(identifier)
    return DTypePolicy("float32" if identifier is None else identifier)


def serialize(dtype_policy: DTypePolicy) -> dict[str, Any]:
    return {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": dtype_policy.get_config(),
        "registered_name": None,
    }


def deserialize(config: dict[str, Any], custom_objects: Any = None) -> DTypePolicy:
    return DTypePolicy.from_config(config["config"])
