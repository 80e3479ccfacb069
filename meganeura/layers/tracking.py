"""What a layer owns: its variables, and the layers, metrics and seed generators in its attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meganeura.random import SeedGenerator
from meganeura.variable import Variable


class Tracked:
    """Remembers variables in the order of their creation and other owned objects in that of assignment."""

    def __setattr__(self, name: str, value: Any) -> None:
        owned = self.__dict__.get("_owned")
        if owned is not None and not name.startswith("__"):
            if isinstance(value, Variable):
                self._own_variable(value)
            elif _may_own(value):
                owned.pop(name, None)
                owned[name] = value
            else:
                owned.pop(name, None)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        value = self.__dict__.get(name)
        if isinstance(value, Variable):
            for held in (self._trainable_variables, self._non_trainable_variables):
                held[:] = [v for v in held if v is not value]
        self.__dict__.get("_owned", {}).pop(name, None)
        object.__delattr__(self, name)

    def _start_tracking(self) -> None:
        object.__setattr__(self, "_owned", {})
        object.__setattr__(self, "_trainable_variables", [])
        object.__setattr__(self, "_non_trainable_variables", [])

    def _own_variable(self, variable: Variable) -> None:
        held = self._trainable_variables if variable.trainable else self._non_trainable_variables
        everything = (*self._trainable_variables, *self._non_trainable_variables)
        if not any(v is variable for v in everything):
            held.append(variable)

    if TYPE_CHECKING:  # layers have whatever attributes their build() and constructors set

        def __getattr__(self, name: str) -> Any: ...

    _owned: dict[str, Any]
    _trainable_variables: list[Variable]
    _non_trainable_variables: list[Variable]

    def _owned_objects(self, kind: Any) -> list[Any]:
        """Owned objects of a kind, also in lists, tuples and dicts, each once, in order."""
        found: list[Any] = []
        seen: set[int] = set()
        for value in self._owned.values():
            for item in _flat(value):
                if isinstance(item, kind) and id(item) not in seen:
                    seen.add(id(item))
                    found.append(item)
        return found


def _may_own(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict, SeedGenerator)) or hasattr(value, "_owned") or (
        hasattr(value, "update_state") and hasattr(value, "reset_state")
    )  # fmt: skip


def _flat(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, (list, tuple)) and depth < 8:
        for item in value:
            yield from _flat(item, depth + 1)
    elif isinstance(value, dict) and depth < 8:
        for item in value.values():
            yield from _flat(item, depth + 1)
    else:
        yield value
