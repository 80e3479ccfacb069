"""Whole models in legacy `.h5` files, as Keras 1, 2 and 3 write them."""

from __future__ import annotations

import json
import os
import warnings
from typing import Any

import h5py
import numpy as np

from meganeura import losses
from meganeura.layers import budget
from meganeura.saving import keras2, optimizer_state
from meganeura.saving.atomic import atomic_path
from meganeura.saving.legacy_weights import TOP_LEVEL, legacy_order, load_legacy_weights
from meganeura.saving.safe_h5 import DamagedFileError, SafeGroup, open_h5, text


def load(filepath: str | os.PathLike[str], custom_objects: Any = None, compile: bool = True) -> Any:
    """The model in a legacy whole-model `.h5` file, with its weights and optimizer state."""
    with open_h5(filepath) as root:
        described = root.attribute("model_config")
        if described is None:
            raise DamagedFileError(
                f"{filepath} holds no model_config: it is a weights-only file; build the model and call load_weights()"
            )
        try:
            config = json.loads(text(described))
        except (ValueError, RecursionError) as error:
            raise DamagedFileError(f"{filepath}: model_config is not JSON: {error}") from error
        version = root.attribute("keras_version")
        if keras2.is_keras2(config, None if version is None else text(version)):
            config = keras2.modernise(config)
        with budget.limit(root.declared_bytes()):
            model = _model(config, custom_objects, filepath)
        load_legacy_weights(model, root)
        training = root.attribute("training_config")
        if compile and training is not None:
            try:
                model.compile_from_config(keras2.compile_config(json.loads(text(training))))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                warnings.warn(
                    f"{filepath}: the model was not compiled as it was saved ({error}); call compile()"
                )
            else:
                _load_optimizer(model, root, filepath)
    return model


def _model(config: Any, custom_objects: Any, filepath: Any) -> Any:
    from meganeura import layers

    try:
        return layers.deserialize(config, custom_objects)
    except budget.OverBudgetError as error:
        raise DamagedFileError(f"{filepath}: {error}") from error
    except RecursionError as error:
        raise DamagedFileError(f"{filepath}: model_config is nested too deeply") from error
    except (KeyError, AttributeError, IndexError) as error:
        raise DamagedFileError(
            f"{filepath}: model_config is not what Keras writes ({type(error).__name__}: {error})"
        ) from error


def _load_optimizer(model: Any, root: SafeGroup, filepath: Any) -> None:
    """The optimizer's state; what does not fit or was not written whole is left out with a warning."""
    if "optimizer_weights" not in root:
        return
    group = root.group("optimizer_weights")
    names = group.strings("weight_names")
    arrays = []
    problem = None
    try:
        for name in names:
            *folders, leaf = name.split("/")
            arrays.append(group.walk("/".join(folders)).read(leaf))
    except DamagedFileError as error:
        problem = str(error)
    found = None if problem else optimizer_state.fitted(model.optimizer, arrays, names)
    if found is None:
        count = len(model.optimizer.variables)
        warnings.warn(
            f"{filepath}: the optimizer's state was not loaded: "
            + (problem or f"{model.optimizer.name} has {count} variables, the file {len(arrays)}")
        )
        return
    optimizer_state.restore(model.optimizer, found)


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
            file.attrs["training_config"] = json.dumps(_training_config(compiled))
        group = file.create_group("model_weights")
        group.attrs["keras_version"], group.attrs["backend"] = FORMAT, "meganeura"
        _strings(group, "layer_names", [layer.name for layer in model.layers])
        for layer in model.layers:
            _variables(group.create_group(layer.name), legacy_order(layer))
        _variables(group.create_group(TOP_LEVEL), [])
        if compiled and model.optimizer is not None and model.optimizer.variables:
            _variables(file.create_group("optimizer_weights"), list(model.optimizer.variables))


def _training_config(compiled: dict[str, Any]) -> dict[str, Any]:
    """A compile configuration as these files hold it: without modules, the optimizer by another name."""
    config = {k: _without_modules(v) for k, v in compiled.items() if k != "optimizer"}
    config["loss"] = _full_names(config.get("loss"))
    optimizer = compiled.get("optimizer")
    if isinstance(optimizer, dict):
        own = {"class_name": optimizer["class_name"], "config": optimizer["config"]}
        config["optimizer_config"] = own
    elif optimizer is not None:
        config["optimizer_config"] = {"class_name": optimizer, "config": {}}
    return config


def _full_names(loss: Any) -> Any:
    """Functions by their own names: Keras does not find "mse" when it reads such a file."""
    if isinstance(loss, list):
        return [_full_names(one) for one in loss]
    if isinstance(loss, dict) and "class_name" not in loss:
        return {k: _full_names(one) for k, one in loss.items()}
    return getattr(losses.get(loss), "__name__", loss) if isinstance(loss, str) else loss


def _without_modules(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_modules(v) for v in value]
    if isinstance(value, dict) and str(value.get("module", "")).startswith("keras"):
        return {"class_name": value["class_name"], "config": value["config"]}
    return {k: _without_modules(v) for k, v in value.items()} if isinstance(value, dict) else value


def _variables(group: Any, variables: list[Any]) -> None:
    names = []
    for v in variables:
        name, count = v.path, 1
        while name in names:  # two slots of Adafactor have one name
            name, count = f"{v.path}_{count}", count + 1
        names.append(name)
        group.create_dataset(name, data=v.numpy())
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
