"""Whole models in legacy `.h5` files, as Keras 1, 2 and 3 write them."""

from __future__ import annotations

import json
import os
import warnings
from typing import Any

import h5py
import numpy as np

from meganeura.saving.atomic import atomic_path
from meganeura.saving.legacy_weights import TOP_LEVEL, legacy_order, load_legacy_weights
from meganeura.saving.safe_h5 import DamagedFileError, SafeGroup, open_h5, text


def load(filepath: str | os.PathLike[str], custom_objects: Any = None, compile: bool = True) -> Any:
    """The model in a legacy whole-model `.h5` file, with its weights and optimizer state."""
    from meganeura import layers

    with open_h5(filepath) as root:
        described = root.attribute("model_config")
        if described is None:
            raise DamagedFileError(
                f"{filepath} holds no model_config: it is a weights-only file; build the model and call load_weights()"
            )
        try:
            config = json.loads(text(described))
        except ValueError as error:
            raise DamagedFileError(f"{filepath}: model_config is not JSON: {error}") from error
        model = layers.deserialize(config, custom_objects)
        load_legacy_weights(model, root)
        training = root.attribute("training_config")
        if compile and training is not None:
            try:
                _compile(model, json.loads(text(training)))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                warnings.warn(
                    f"{filepath}: the model was not compiled as it was saved ({error}); call compile()"
                )
            else:
                _load_optimizer(model, root)
    return model


def _compile(model: Any, config: dict[str, Any]) -> None:
    """Keras 2's `training_config`, or Keras 3's."""
    config = dict(config)
    old = config.pop("optimizer_config", None)
    if old is not None and "optimizer" not in config:
        inner = dict(old.get("config") or {})
        for name in ("jit_compile", "is_legacy_optimizer", "decay"):
            inner.pop(name, None)
        config["optimizer"] = {
            **old,
            "class_name": str(old["class_name"]).split(">")[-1],
            "config": inner,
        }
    for name in ("metrics", "weighted_metrics"):
        config[name] = _names(config.get(name))
    config.pop("sample_weight_mode", None)
    model.compile_from_config(config)


def _names(metrics: Any) -> Any:
    """Keras 2 writes metrics as nested lists of wrappers; their functions' names are enough."""
    if isinstance(metrics, list):
        flat = [_names(m) for m in metrics]
        return [m for part in flat for m in (part if isinstance(part, list) else [part]) if m]
    if isinstance(metrics, dict) and metrics.get("class_name") == "MeanMetricWrapper":
        inner = metrics.get("config") or {}
        return inner.get("name") or inner.get("fn")
    return metrics


def _load_optimizer(model: Any, root: SafeGroup) -> None:
    if "optimizer_weights" not in root:
        return
    group = root.group("optimizer_weights")
    names = group.strings("weight_names")
    arrays = []
    for name in names:
        *folders, leaf = name.split("/")
        arrays.append(group.walk("/".join(folders)).read(leaf))
    optimizer = model.optimizer
    variables = list(optimizer.variables)
    if len(arrays) == len(variables) - 1:  # Keras 2 keeps the learning rate elsewhere
        rate = next((i for i, v in enumerate(variables) if v.path.endswith("learning_rate")), None)
        if rate is not None:
            arrays.insert(rate, variables[rate].numpy())
    fits = len(arrays) == len(variables) and all(
        tuple(v.shape) == a.shape for v, a in zip(variables, arrays, strict=True)
    )
    if not fits:
        warnings.warn(
            f"the optimizer's state does not fit and was not loaded ({len(arrays)} of {len(variables)})"
        )
        return
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array.astype(variable.dtype))


def save(model: Any, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
    """Write a model to a legacy `.h5` file that Keras reads."""
    from meganeura import layers
    from meganeura.saving.archive import FORMAT

    described = json.dumps(layers.serialize(model))
    compiled = model.get_compile_config()
    with atomic_path(filepath, overwrite) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = FORMAT, "meganeura"
        file.attrs["model_config"] = described
        if compiled:
            file.attrs["training_config"] = json.dumps(compiled)
        group = file.create_group("model_weights")
        group.attrs["keras_version"], group.attrs["backend"] = FORMAT, "meganeura"
        _strings(group, "layer_names", [layer.name for layer in model.layers])
        for layer in model.layers:
            _variables(group.create_group(layer.name), legacy_order(layer))
        _variables(group.create_group(TOP_LEVEL), [])
        if compiled and model.optimizer is not None and model.optimizer.variables:
            _variables(file.create_group("optimizer_weights"), list(model.optimizer.variables))


def _variables(group: Any, variables: list[Any]) -> None:
    names = []
    for v in variables:
        names.append(v.path)
        group.create_dataset(v.path, data=v.numpy())
    _strings(group, "weight_names", names)


def _strings(group: Any, name: str, values: list[str]) -> None:
    """A list of names as an attribute, in pieces where HDF5's limit for one is passed."""
    encoded = [v.encode() for v in values]
    array = np.asarray(encoded) if encoded else np.asarray([], "S1")
    pieces = 1
    while array.nbytes / pieces > 64000:
        pieces += 1
    if pieces == 1:
        group.attrs[name] = array
        return
    for i, part in enumerate(np.array_split(array, pieces)):
        group.attrs[f"{name}{i}"] = part
