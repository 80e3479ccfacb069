"""Layers and models as Keras 3's JSON describes them, and back; Keras 2's arguments are understood."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from meganeura import identifiers

#: Where Keras 3 has its models, for it looks there.
_MODULES_OF_MODELS = {
    "Sequential": "keras",
    "Functional": "keras.src.models.functional",
    "Model": "keras",
}

#: Keras's classes whose public name is another one.
_PUBLIC_NAMES = {"GroupedQueryAttention": "GroupQueryAttention"}

#: Arguments that Keras 2 (or a newer Keras) writes and our constructors lack -> values that mean
#: what we do anyway. None stands for any value: the argument never changed the numbers.
_FOREIGN_ARGUMENTS: dict[str, tuple[Any, ...] | None] = {
    "dynamic": (False,),
    "groups": (1,),
    "implementation": None,
    "input_length": None,
    "key_shape": None,
    "optional": (False,),
    "query_shape": None,
    "ragged": (False,),
    "sparse": (False,),
    "time_major": (False,),
    "value_shape": None,
    "zero_output_for_mask": (False,),
}


def serialize(layer: Any) -> dict[str, Any]:
    """A layer or model as Keras 3 describes it: module, class, config, the shapes it was built with."""
    kind = type(layer)
    builtin = kind.__module__.startswith("meganeura.")
    name = _PUBLIC_NAMES.get(kind.__name__, kind.__name__) if builtin else kind.__name__
    registered = identifiers.registered_name(kind) or (name if name == "Functional" else None)
    module = _MODULES_OF_MODELS.get(name, "keras.layers")
    config = {
        "module": module if builtin else kind.__module__,
        "class_name": name,
        "config": layer.get_config(),
        "registered_name": registered if builtin else registered or name,
    }
    if hasattr(layer, "get_build_config") and (build := layer.get_build_config()):
        config["build_config"] = build
    return config


def deserialize(config: Mapping[str, Any], custom_objects: Any = None) -> Any:
    """The layer or model that `serialize`, or Keras, described.

    custom_objects: name -> class or function, for those that are not registered

    Only our own classes, registered ones and these are made; no code comes from a file. Raises
    ValueError where a class or one of its arguments is not known.
    """
    if custom_objects:
        from meganeura.utils import custom_object_scope

        with custom_object_scope(custom_objects):
            return deserialize(config)
    if not isinstance(config, Mapping) or "class_name" not in config:
        raise ValueError(
            f"a layer's configuration is a dict with 'class_name' and 'config', not {config!r}"
        )
    name, inner = str(config["class_name"]), dict(config.get("config") or {})
    if name == "Lambda":
        raise ValueError(
            f"layer {inner.get('name')!r} is a Lambda, whose code a file must not bring along; rebuild "
            "the model in Python and load its weights"
        )
    kind = _find(name, config)
    if name in _MODULES_OF_MODELS:
        return kind.from_config(inner)
    inner = _own_arguments(kind, inner)
    layer = kind.from_config(dict(inner))
    build = config.get("build_config")
    if build and not layer.built:
        try:
            layer.build_from_config(build)
        except (ValueError, TypeError, AttributeError, IndexError):
            # It is built when the model is wired: what a half-done build left is thrown away.
            layer = kind.from_config(inner)
    return layer


def _find(name: str, config: Mapping[str, Any]) -> Any:
    from meganeura import layers

    for candidate in (config.get("registered_name"), name):
        if candidate and (found := identifiers.custom_object(str(candidate), None)):
            return found
    if name in _MODULES_OF_MODELS:
        from meganeura import models

        return getattr(models, name)
    kind = getattr(layers, name, None) if name in dir(layers) else None
    if not isinstance(kind, type):
        hint = identifiers.suggestion(name, [n for n in dir(layers) if n[:1].isupper()])
        raise ValueError(
            f"the configuration names the layer {name!r}, which is not known{hint}; pass it in "
            "custom_objects, or register its class with register_keras_serializable"
        )
    return kind


def _own_arguments(kind: type, config: dict[str, Any]) -> dict[str, Any]:
    """The config without arguments of other versions of Keras that say nothing new."""
    known: set[str] = set()
    for base in kind.__mro__:
        if "__init__" in base.__dict__:
            known |= set(inspect.signature(base.__init__).parameters)  # type: ignore[misc]
    kept = {}
    for name, value in config.items():
        if name not in known and name in _FOREIGN_ARGUMENTS:
            meaningless = _FOREIGN_ARGUMENTS[name]
            if meaningless is None or value in meaningless:
                continue
        if name not in known and value is None:
            continue
        kept[name] = value
    return kept
