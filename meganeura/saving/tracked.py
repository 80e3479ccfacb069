"""Walking a model the way Keras's files are laid out: objects, their own variables, their children."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def snake_case(name: str) -> str:
    """`MaxPooling2D` -> `max_pooling2d`, `ReLU` -> `re_lu`: how a class is called in a file."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def is_saveable(value: Any) -> bool:
    """Layers, models, optimizers and metrics: whatever can save its own variables."""
    return not isinstance(value, type) and hasattr(value, "save_own_variables")


def children(thing: Any) -> Iterator[tuple[str, Any]]:
    """`(attribute, child or container)` pairs in the order of the file.

    A Sequential or functional model's layers come first; then the attributes in alphabetical
    order, private ones last. What the base classes keep for themselves is skipped.
    """
    own = _base_attributes(thing)
    has_layers = _is_model(thing)
    if has_layers and _is_graph_model(thing):
        yield "layers", list(thing.layers)
    names = {n for n in vars(thing) if not n.startswith("__") and n not in own}
    names |= set(getattr(type(thing), "saved_attributes", ()))
    if has_layers:
        names.add("layers")
        if getattr(thing, "optimizer", None) is not None:
            names.add("optimizer")
    for name in sorted(names, key=lambda n: (n.startswith("_"), n)):
        value = getattr(thing, name, None)
        if is_saveable(value) or isinstance(value, (list, tuple, dict)):
            yield name, value


def objects(root: Any) -> list[tuple[str, Any]]:
    """Every saveable object below and including `root` with its path, each once."""
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()

    def visit(thing: Any, path: str) -> None:
        if id(thing) in seen:
            return
        seen.add(id(thing))
        found.append((path, thing))
        for name, child in children(thing):
            inner = f"{path}/{name}" if path else name
            if is_saveable(child):
                visit(child, inner)
            else:
                visit_container(child, inner, set())

    def visit_container(container: Any, path: str, visited: set[int]) -> None:
        if id(container) in visited:
            return
        visited.add(id(container))
        used: dict[str, int] = {}
        members = container.values() if isinstance(container, dict) else container
        for member in members:
            if is_saveable(member):
                visit(member, f"{path}/{_unique(snake_case(_class_name(member)), used)}")
            elif isinstance(member, (list, tuple, dict)):
                visit_container(member, f"{path}/{_unique('container', used)}", visited)

    visit(root, "")
    return found


def _unique(name: str, used: dict[str, int]) -> str:
    count = used.get(name, -1) + 1
    used[name] = count
    return f"{name}_{count}" if count else name


def _class_name(thing: Any) -> str:
    return getattr(type(thing), "file_class_name", type(thing).__name__)


def _is_model(thing: Any) -> bool:
    from meganeura.models.model import Model

    return isinstance(thing, Model)


def _is_graph_model(thing: Any) -> bool:
    from meganeura.models.functional import Functional
    from meganeura.models.sequential import Sequential

    return isinstance(thing, (Sequential, Functional))


_skipped: dict[type, frozenset[str]] = {}


def _base_attributes(thing: Any) -> frozenset[str]:
    """Attributes that a bare instance of the base class has: bookkeeping, not children."""
    from meganeura.layers.layer import Layer
    from meganeura.models.model import Model
    from meganeura.models.sequential import Sequential

    base = next((b for b in (Sequential, Model, Layer) if isinstance(thing, b)), None)
    if base is None:
        return frozenset()
    if base not in _skipped:
        _skipped[base] = frozenset(vars(base()))
    return _skipped[base] | {"_functional", "_operations", "_layers", "_tracker"}
