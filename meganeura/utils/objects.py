"""Custom classes and functions by name, and any object as Keras 3's config format and back."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from meganeura import identifiers

# --- names for the user's own classes and functions ----------------------------------------------


def register_keras_serializable(
    package: str = "Custom", name: str | None = None
) -> Callable[[Any], Any]:
    """A decorator that lets files name this class or function: `package>name`."""

    def register(thing: Any) -> Any:
        if isinstance(thing, type) and not hasattr(thing, "get_config"):
            raise ValueError(
                f"register_keras_serializable: class {thing.__name__} has no get_config(), so it cannot "
                "be written to files"
            )
        identifiers.custom_objects_by_name[f"{package}>{name or thing.__name__}"] = thing
        return thing

    return register


def get_custom_objects() -> dict[str, Any]:
    """The registered classes and functions by name."""
    return identifiers.custom_objects_by_name


def get_registered_name(thing: Any) -> str:
    """The name under which a class or function was registered, else its own."""
    return identifiers.registered_name(thing) or thing.__name__


def get_registered_object(
    name: str,
    custom_objects: Mapping[str, Any] | None = None,
    module_objects: Mapping[str, Any] | None = None,
) -> Any:
    """What was given or registered under `name`, or None."""
    found = identifiers.custom_object(name, custom_objects)
    return found if found is not None else (module_objects or {}).get(name)


@contextmanager
def custom_object_scope(custom_objects: Mapping[str, Any]) -> Iterator[None]:
    """Inside, files may name these classes and functions."""
    before = dict(identifiers.custom_objects_by_name)
    identifiers.custom_objects_by_name.update(custom_objects)
    try:
        yield
    finally:
        identifiers.custom_objects_by_name.clear()
        identifiers.custom_objects_by_name.update(before)


# --- any object as data --------------------------------------------------------------------------

#: Our modules with serialize and deserialize -> base class there.
_FAMILIES = {
    "layers": "Layer",
    "optimizers": "Optimizer",
    "losses": "Loss",
    "metrics": "Metric",
    "initializers": "Initializer",
    "regularizers": "Regularizer",
    "constraints": "Constraint",
}


def _family(name: str) -> Any:
    return importlib.import_module(f"meganeura.{name}")


def serialize_keras_object(obj: Any) -> Any:
    """An object, or a structure of objects, in JSON's terms.

    Layers, models, optimizers, losses, metrics, initializers, regularizers and constraints become
    dicts of module, class_name, config and registered_name; arrays and functions likewise. Raises
    ValueError for anything else that JSON cannot hold.
    """
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj
    if isinstance(obj, np.generic):
        return obj.item()
    if isinstance(obj, (list, tuple)):
        return [serialize_keras_object(x) for x in obj]
    if isinstance(obj, Mapping):
        return {str(k): serialize_keras_object(v) for k, v in obj.items()}
    if isinstance(obj, np.ndarray):
        return {
            "class_name": "__numpy__",
            "config": {"value": obj.tolist(), "dtype": str(obj.dtype)},
        }
    for name, base in _FAMILIES.items():
        family = _family(name)
        if isinstance(obj, getattr(family, base)):
            return family.serialize(obj)
    schedules = importlib.import_module("meganeura.optimizers").schedules
    if isinstance(obj, schedules.LearningRateSchedule):
        return schedules.serialize(obj)
    if hasattr(obj, "get_config"):
        kind = type(obj)
        return {
            "module": kind.__module__,
            "class_name": kind.__name__,
            "config": serialize_keras_object(obj.get_config()),
            "registered_name": get_registered_name(kind),
        }
    if callable(obj):
        return _family("activations").serialize(obj)
    raise ValueError(
        f"{obj!r} of type {type(obj).__name__} cannot be written in Keras's config format"
    )


def deserialize_keras_object(
    config: Any, custom_objects: Mapping[str, Any] | None = None, safe_mode: bool = True
) -> Any:
    """The object that `serialize_keras_object`, or Keras, described; no code in it is executed.

    Raises ValueError where the class is neither ours nor registered nor in `custom_objects`.
    """
    if custom_objects:
        with custom_object_scope(custom_objects):
            return deserialize_keras_object(config, None, safe_mode)
    if isinstance(config, list):
        return [deserialize_keras_object(x) for x in config]
    if not isinstance(config, Mapping):
        return config
    if "class_name" not in config or "config" not in config:
        return {k: deserialize_keras_object(v) for k, v in config.items()}
    name, inner = str(config["class_name"]), config["config"]
    if name == "__numpy__":
        return np.asarray(inner["value"], dtype=inner["dtype"])
    kind = identifiers.custom_object(str(config.get("registered_name") or name), None)
    kind = kind or identifiers.custom_object(name, None)
    if kind is not None:
        layer = isinstance(kind, type) and issubclass(kind, _family("layers").Layer)
        if layer:
            return _family("layers").deserialize(dict(config))
        return identifiers.build(kind, dict(inner)) if isinstance(kind, type) else kind
    if name == "function":
        return _family("activations").deserialize(dict(config))
    module = str(config.get("module") or "")
    named = [n for n in _FAMILIES if f".{n}" in f".{module}."]
    models = module in ("keras", "keras.models") or ".models" in module
    if ".schedules" in f".{module}":
        return importlib.import_module("meganeura.optimizers").schedules.deserialize(dict(config))
    for family in named or (["layers"] if models else list(_FAMILIES)):
        try:
            return _family(family).deserialize(dict(config))
        except ValueError as error:
            if named or "is not known" not in str(error):
                raise
    raise ValueError(
        f"class {name!r} is not known; pass it in custom_objects, or register it with "
        "register_keras_serializable"
    )
