"""Keras 3's `.weights.h5`: one group per object, its variables under `vars/0`, `vars/1`, ..."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import h5py
import numpy as np

from meganeura.saving import optimizer_state
from meganeura.saving.atomic import atomic_path
from meganeura.saving.safe_h5 import DamagedFileError, SafeGroup, open_h5
from meganeura.saving.tracked import objects


def write_weights(model: Any, target: Any) -> None:
    """Write the weights, and the optimizer's state, to an HDF5 file (a path or a file object)."""
    with h5py.File(target, "w") as file:
        for path, thing in objects(model):
            group = file.create_group(f"{path}/vars" if path else "vars")
            if isinstance(getattr(thing, "name", None), str):
                group.attrs["name"] = thing.name
            store: dict[str, Any] = {}
            thing.save_own_variables(store)
            for name, value in store.items():
                group.create_dataset(name, data=np.asarray(value))


def save_weights(model: Any, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
    """Save to `filepath`, which must end in `.weights.h5`; a crash never leaves half a file."""
    if not str(filepath).endswith(".weights.h5"):
        raise ValueError(
            f"the name of a weights file must end in '.weights.h5', '.npz' or '.safetensors', not {filepath}"
        )
    if not getattr(model, "built", True):
        raise ValueError(
            f"model {model.name!r} has no weights to save yet; call build(), fit(), or the model "
            "itself on data first"
        )
    with atomic_path(filepath, overwrite) as temporary:
        write_weights(model, temporary)


def load_weights(model: Any, source: Any, skip_mismatch: bool = False) -> None:
    """Read a `.weights.h5` of Keras 3 or ours into a built model.

    Every name and shape is checked before the first weight changes; a mismatch raises ValueError
    that lists the culprits, and the model keeps its weights. With `skip_mismatch` the objects
    that do not fit keep theirs and a warning names them.
    """
    with open_h5(source) as root:
        tracked = objects(model)
        arrays: list[tuple[Any, dict[str, np.ndarray]]] = []
        problems: list[str] = []
        known: set[str] = set()
        source = getattr(source, "name", source)
        for path, thing in tracked:
            known.add(_public(path))
            try:
                store = _read_object(root, path, thing)
            except DamagedFileError as error:
                if _is_optimizer(thing):
                    warnings.warn(f"the optimizer's state was not loaded: {error}")
                    continue
                problems.append(str(error))
                continue
            if store is not None:
                arrays.append((thing, store))
        problems += [
            f"{source}: holds weights at {path!r}, for which model {model.name!r} has no layer"
            for path in _paths_with_weights(root)
            if _public(path) not in known
            and not path.startswith(("optimizer", "metrics", "_loss_tracker"))
        ]
        if problems and not skip_mismatch:
            listed = "\n  ".join(problems[:20])
            raise ValueError(
                f"{source} does not fit model {model.name!r}, which keeps its weights:\n  {listed}\n"
                "Build the model as it was saved, or pass skip_mismatch=True to load what fits."
            )
        for thing, store in arrays:
            thing.load_own_variables(store)
    if problems:
        warnings.warn(f"weights that did not fit were skipped: {'; '.join(problems[:20])}")


def own_variables(thing: Any) -> Sequence[Any]:
    """The variables an object stores itself, in the order of its file entries."""
    if _is_optimizer(thing):
        return list(thing.variables)
    return [*thing._trainable_variables, *thing._non_trainable_variables]


def _is_optimizer(thing: Any) -> bool:
    return hasattr(thing, "apply_gradients") or hasattr(thing, "update_step")


def _read_object(root: SafeGroup, path: str, thing: Any) -> dict[str, np.ndarray] | None:
    """The arrays stored for one object, each checked against the variable it is for."""
    customised = _overrides_loading(thing)
    expected = [] if customised else list(own_variables(thing))
    group = _find(root, path)
    label = f"{path or 'the model itself'} ({type(thing).__name__} {getattr(thing, 'name', '')!r})"
    names = [] if group is None else group.names()
    if customised:
        return {n: group.read(n) for n in names} if group is not None else None
    if not expected and not names:
        return None
    if _is_optimizer(thing) and group is not None and names:
        numbered = [str(i) for i in range(len(names))]
        if set(numbered) <= set(names):  # Keras 2 had no learning rate here
            found = optimizer_state.fitted(thing, [group.read(n) for n in numbered])
            if found is not None:
                return {str(i): array for i, array in enumerate(found)}
    if group is None and getattr(type(thing), "merged_in_files", False):
        # Keras writes the table with LoRA's product in it, and nothing for the factors
        factor, zero = expected
        return {"0": factor.numpy(), "1": np.zeros(tuple(zero.shape), "float32")}
    if len(names) != len(expected):
        raise DamagedFileError(
            f"{label} has {len(expected)} weights, and the file holds {len(names)} for it"
        )
    assert group is not None
    store: dict[str, np.ndarray] = {}
    for index, variable in enumerate(expected):
        shape = group.shape(str(index))
        if shape != tuple(variable.shape):
            raise DamagedFileError(
                f"{label}: weight {variable.path!r} has the shape {tuple(variable.shape)}, "
                f"and the file holds {shape}"
            )
        store[str(index)] = group.read(str(index), shape)
    return store


def _public(path: str) -> str:
    """A path as if no attribute in it were private."""
    return "/".join(part.lstrip("_") for part in path.split("/"))


def _find(root: SafeGroup, path: str) -> SafeGroup | None:
    """The `vars` of an object. Versions of Keras differ in which attributes are private: `query_dense`
    of attention was `_query_dense` in Keras 2."""
    group = root
    for part in [*filter(None, path.split("/")), "vars"]:
        spellings = (part, f"_{part}", part.lstrip("_"))
        found = next((p for p in spellings if p and p in group), None)
        if found is None:
            return None
        group = group.group(found)
    return group


def _overrides_loading(thing: Any) -> bool:
    """Whether a user's class reads its variables its own way, so that we cannot check them."""
    method = type(thing).load_own_variables
    return not method.__module__.startswith("meganeura.")


def _paths_with_weights(root: SafeGroup) -> Iterable[str]:
    """Paths of the file's objects that store at least one weight."""
    stack: list[tuple[str, SafeGroup, int]] = [("", root, 0)]
    while stack:
        path, group, depth = stack.pop()
        if depth > 64:
            raise DamagedFileError(f"{path!r} is nested more than 64 groups deep")
        for name in group.names():
            if not group.is_group(name):
                continue
            if name == "vars":
                if group.group(name).names():
                    yield path
            else:
                inner = f"{path}/{name}" if path else name
                stack.append((inner, group.group(name), depth + 1))
