"""Names for objects: what `get`, `serialize` and `deserialize` of every family have in common."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message: near names, or all names if they are few, else nothing."""
    near = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    if not near:
        lowered = {k.lower(): k for k in known}
        near = [lowered[k] for k in difflib.get_close_matches(name.lower(), sorted(lowered), n=3)]
    if not near:
        names = sorted(set(known))
        return f"; use one of {', '.join(map(repr, names))}" if len(names) <= 16 else ""
    return f"; did you mean {' or '.join(repr(n) for n in near)}?"


_counts: dict[str, int] = {}


def snake_case(name: str) -> str:
    """`MaxPooling2D` -> `max_pooling2d`, `LSTM` -> `lstm`, as Keras names layers in files."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def auto_name(class_name: str) -> str:
    """A name that no other object of this process got: `adam`, `adam_1`, ..."""
    name = snake_case(class_name)
    count = _counts.get(name, 0)
    _counts[name] = count + 1
    return f"{name}_{count}" if count else name


#: What users registered: name (or "package>name") -> class or function.
custom_objects_by_name: dict[str, Any] = {}


def custom_object(name: str, custom_objects: Mapping[str, Any] | None) -> Any:
    """What the user gave or registered under `name`, or None."""
    if custom_objects and name in custom_objects:
        return custom_objects[name]
    return custom_objects_by_name.get(name)


def registered_name(value: Any) -> str | None:
    """The name under which the user registered this class or function, or None."""
    return next((k for k, v in custom_objects_by_name.items() if v is value), None)


class Family:
    """One family of named objects, such as the initializers: a table of names and how to read configs.

    kind:    the word for error messages, "initializer"
    module:  what configs carry as "module", so that Keras finds the class as well
    table:   every accepted name -> class (or function, for losses, metrics and activations)
    """

    def __init__(self, kind: str, module: str, table: dict[str, Any]):
        self.kind = kind
        self.module = module
        self.table = table

    def find(self, name: str, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """The class or function of this name. Raises ValueError with near names if there is none."""
        found = custom_object(name, custom_objects)
        if found is None:
            found = self.table.get(name)
        if found is None:
            hint = suggestion(name, self.table)
            raise ValueError(f"{self.kind} {name!r} is not known{hint}")
        return found

    def serialize(self, value: Any) -> Any:
        """`value` as a JSON-able dict in Keras 3's format: module, class_name, config, registered_name."""
        if value is None:
            return None
        if isinstance(value, dict):
            return value
        if not hasattr(value, "get_config") or isinstance(value, type):
            return self.serialize_function(value)
        kind = type(value)
        name = registered_name(kind)
        return {
            "module": self.module if self.table.get(kind.__name__) is kind else kind.__module__,
            "class_name": kind.__name__,
            "config": value.get_config(),
            "registered_name": name,
        }

    def serialize_function(self, function: Any) -> Any:
        """A built-in function as its name; another as a reference by (registered) name."""
        name = getattr(function, "__name__", None)
        if name is None or name == "<lambda>":
            raise ValueError(
                f"{self.kind} {function!r} has no name and cannot be saved; use a function defined "
                "with def, and register it with register_keras_serializable"
            )
        if self.table.get(name) is function:
            return name
        return {
            "module": "builtins",
            "class_name": "function",
            "config": name,
            "registered_name": registered_name(function) or "function",
        }

    def deserialize(self, config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """The object that `serialize` described. Raises ValueError for an unknown class."""
        if isinstance(config, str):
            found = self.find(config, custom_objects)
            return found() if isinstance(found, type) else found
        if not isinstance(config, Mapping) or "class_name" not in config:
            raise ValueError(
                f"{self.kind}: a config is a dict with 'class_name' and 'config', got {config!r}"
            )
        name, inner = config["class_name"], config.get("config")
        if name == "function":
            registered = config.get("registered_name")
            for candidate in (registered, inner):
                if candidate and candidate != "function":
                    found = custom_object(str(candidate), custom_objects)
                    if found is not None:
                        return found
            return self.find(str(inner), custom_objects)
        kind = None
        if config.get("registered_name"):
            kind = custom_object(str(config["registered_name"]), custom_objects)
        # Keras 2 wrote custom classes as "package>Class"
        kind = kind or self.find(str(name), custom_objects)
        if not isinstance(kind, type):
            return kind
        return build(kind, dict(inner or {}), custom_objects)

    def get(self, identifier: Any) -> Any:
        """The object for a name, config, class, or an object itself; None stays None.

        Raises ValueError where it is none of these, naming near names for an unknown string.
        """
        if identifier is None:
            return None
        if isinstance(identifier, (str, Mapping)):
            return self.deserialize(identifier)
        if isinstance(identifier, type):
            return identifier()
        if callable(identifier) or hasattr(identifier, "get_config"):
            return identifier
        raise ValueError(
            f"{self.kind} {identifier!r} of type {type(identifier).__name__} cannot be used; "
            "give a name, a config dict or an object"
        )


def build(
    kind: type, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """`kind.from_config(config)`, tolerating arguments of other Keras versions that are None."""
    accepted = argument_names(kind)
    if accepted is not None:
        config = {k: v for k, v in config.items() if k in accepted or v is not None}
    from_config: Callable[..., Any] | None = getattr(kind, "from_config", None)
    if from_config is None:
        return kind(**config)
    if "custom_objects" in inspect.signature(from_config).parameters:
        return from_config(config, custom_objects=custom_objects)
    return from_config(config)


def argument_names(kind: type) -> set[str] | None:
    """The constructor's keyword names, or None where it takes any."""
    names: set[str] = set()
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:  # type: ignore[misc]
        if parameter.kind is parameter.VAR_KEYWORD:
            return None
        names.add(parameter.name)
    return names
