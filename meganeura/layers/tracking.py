"""What a layer owns: its variables, and the layers, metrics and seed generators in its attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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


class Weighted(Tracked):
    """What has weights of its own and layers below: all of them in order, as arrays, frozen or not."""

    name: str
    built: bool
    _trainable: bool

    @property
    def _layers(self) -> list[Any]:
        """The layers directly below this one."""
        return self._owned_objects(Weighted)

    def _flatten_layers(self, include_self: bool = True, recursive: bool = True) -> list[Any]:
        found: list[Any] = [self] if include_self else []
        seen = {id(x) for x in found}
        stack = list(reversed(self._layers))
        while stack:
            layer = stack.pop()
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            found.append(layer)
            if recursive:
                stack.extend(reversed(layer._layers))
        return found

    @property
    def weights(self) -> list[Variable]:
        """All weights: this layer's in order of creation, then those of the layers below."""
        own = [*self._trainable_variables, *self._non_trainable_variables]
        return _unique([*own, *(w for layer in self._layers for w in layer.weights)])

    @property
    def variables(self) -> list[Variable]:
        """The weights, and the states of random generators."""
        own = [*self._trainable_variables, *self._non_trainable_variables]
        seeds = [g.state for g in self._owned_objects(SeedGenerator)]
        below = (v for layer in self._layers for v in layer.variables)
        return _unique([*own, *seeds, *below])

    @property
    def trainable_weights(self) -> list[Variable]:
        return [w for w in self.weights if w.trainable] if self._trainable else []

    @property
    def non_trainable_weights(self) -> list[Variable]:
        return [w for w in self.weights if not (w.trainable and self._trainable)]

    @property
    def trainable_variables(self) -> list[Variable]:
        return [v for v in self.variables if v.trainable] if self._trainable else []

    @property
    def non_trainable_variables(self) -> list[Variable]:
        return [v for v in self.variables if not (v.trainable and self._trainable)]

    @property
    def trainable(self) -> bool:
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        value = bool(value)
        self._trainable = value
        for variable in self._trainable_variables:
            variable.trainable = value
        for layer in self._layers:
            layer.trainable = value

    def get_weights(self) -> list[np.ndarray]:
        """Copies of the weights as arrays, in the order of `weights`."""
        return [w.numpy() for w in self.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set all weights, in the order of `weights`. Nothing changes unless every shape fits."""
        own, given = self.weights, [np.asarray(w) for w in weights]
        if len(own) != len(given):
            raise ValueError(
                f"layer {self.name!r} has {len(own)} weights, and {len(given)} arrays were given"
                + ("" if self.built else "; it is not built yet: call it, or build(), first")
            )
        for variable, array in zip(own, given, strict=True):
            if variable.shape != array.shape:
                raise ValueError(
                    f"layer {self.name!r}: weight {variable.path!r} has the shape {variable.shape}, and "
                    f"an array of shape {array.shape} was given"
                )
        for variable, array in zip(own, given, strict=True):
            variable.assign(array)

    def count_params(self) -> int:
        """The number of elements of all weights."""
        if not self.built:
            raise ValueError(
                f"layer {self.name!r} is not built yet, so its weights cannot be counted"
            )
        return sum(w.size for w in self.weights)

    def save_own_variables(self, store: dict[str, Any]) -> None:
        for i, v in enumerate([*self._trainable_variables, *self._non_trainable_variables]):
            store[str(i)] = v.numpy()

    def load_own_variables(self, store: Any) -> None:
        own = [*self._trainable_variables, *self._non_trainable_variables]
        if len(store) != len(own):
            raise ValueError(
                f"layer {self.name!r} has {len(own)} weights, and the file {len(store)} for it"
            )
        for i, v in enumerate(own):
            v.assign(np.asarray(store[str(i)]))


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


def _unique(values: Sequence[Variable]) -> list[Variable]:
    found: dict[int, Variable] = {}
    for v in values:
        found.setdefault(id(v), v)
    return list(found.values())
