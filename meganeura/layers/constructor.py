"""Constructors of layers: arguments kept for configs, dtype policies, and old ways to say a shape."""

from __future__ import annotations

import inspect
from typing import Any

from meganeura import dtype_policies, identifiers

#: Keywords by which Keras 2 gave the first layer of a Sequential its input shape.
SHAPE_KEYWORDS = (
    "input_shape", "input_dim", "batch_input_shape", "batch_shape", "batch_size", "input_dtype"
)  # fmt: skip


def bound_arguments(cls: type, layer: Any, args: Any, kwargs: Any) -> dict[str, Any] | None:
    """The constructor's arguments by name, for configs."""
    try:
        bound = inspect.signature(cls.__init__).bind(layer, *args, **kwargs)
    except TypeError:
        return None
    arguments = dict(list(bound.arguments.items())[1:])
    extra = arguments.pop("kwargs", {})
    if any(isinstance(v, tuple) and n == "args" for n, v in arguments.items()):
        return None
    return {**arguments, **(extra if isinstance(extra, dict) else {})}


def construct(cls: type, config: dict[str, Any]) -> Any:
    """`cls(**config)`, also where the constructor takes no `name`, `trainable` and `dtype`."""
    config = dict(config)
    if "dtype" in config and cls.__module__ != "meganeura.layers.input_layer":
        config["dtype"] = dtype_policies.from_file(config["dtype"])
    accepted = identifiers.argument_names(cls)
    common = ("name", "trainable", "dtype")
    set_after = {}
    if accepted is not None:
        set_after = {k: config.pop(k) for k in common if k in config and k not in accepted}
    layer = cls(**config)
    if "name" in set_after:
        layer._name = set_after["name"]
    if "dtype" in set_after:
        layer.dtype_policy = set_after["dtype"]
    if set_after.get("trainable") is False:
        layer.trainable = False
    return layer


def is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(is_plain(v) for v in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    return value is None or isinstance(value, (bool, int, float, str))


def first_shape(given: dict[str, Any]) -> tuple[Any, ...] | None:
    """The batch shape that the old `input_shape=` keywords mean, for the first layer of a Sequential."""
    whole = given.get("batch_input_shape") or given.get("batch_shape")
    if whole is not None:
        return tuple(whole)
    shape = given.get("input_shape")
    if shape is None and given.get("input_dim") is not None:
        shape = (given["input_dim"],)
    return None if shape is None else (given.get("batch_size"), *shape)


def as_shapes(value: Any) -> Any:
    if isinstance(value, list) and all(n is None or isinstance(n, int) for n in value):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        return [as_shapes(v) for v in value]
    return {k: as_shapes(v) for k, v in value.items()} if isinstance(value, dict) else value
