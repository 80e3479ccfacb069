"""Whole models in Keras 3's `.keras` archive: a zip of metadata, configuration and weights, all stored.

Nothing in a file is executed: classes come from our own registry or the user's, Lambdas are
refused. Keras 2's archives differ in the names of a few members and are read as well.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import warnings
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from meganeura.layers import budget
from meganeura.saving import keras2
from meganeura.saving.atomic import atomic_path
from meganeura.saving.safe_h5 import DamagedFileError, open_h5
from meganeura.saving.weights_h5 import load_weights, write_weights

#: A member may not expand by more than this, nor the configuration be larger than that.
LARGEST_EXPANSION = 100
LARGEST_CONFIG = 64 << 20

#: The version of Keras whose format is written.
FORMAT = "3.15.1"


def save(model: Any, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
    """Write a model to a `.keras` file; a crash never leaves half of it."""
    from meganeura import layers

    config = layers.serialize(model)
    compiled = model.get_compile_config() if hasattr(model, "get_compile_config") else None
    if compiled:
        config["compile_config"] = compiled
    text = json.dumps(config)
    when = datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S")
    metadata = json.dumps({"keras_version": FORMAT, "date_saved": when})
    with atomic_path(filepath, overwrite) as temporary:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            archive.writestr("metadata.json", metadata)
            archive.writestr("config.json", text)
            weights = io.BytesIO()
            write_weights(model, weights)
            archive.writestr("model.weights.h5", weights.getvalue())


def _member(archive: zipfile.ZipFile, name: str, path: Path, largest: int | None = None) -> bytes:
    """The bytes of a member, refused where it would expand out of proportion."""
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise DamagedFileError(f"{path} has no {name!r}; it is not a .keras model") from error
    stored = max(info.compress_size, 1)
    if info.file_size > LARGEST_EXPANSION * stored and info.file_size > 1 << 20:
        raise DamagedFileError(
            f"{path}: {name!r} would expand from {stored} to {info.file_size} bytes; refused as a zip bomb"
        )
    if largest is not None and info.file_size > largest:
        raise DamagedFileError(
            f"{path}: {name!r} has {info.file_size} bytes, more than the {largest} allowed"
        )
    try:
        with archive.open(info) as member:
            data = member.read(info.file_size + 1)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DamagedFileError(f"{path}: {name!r} is damaged: {error}") from error
    if len(data) != info.file_size:
        raise DamagedFileError(f"{path}: {name!r} is not as long as the archive says")
    return data


def load(
    filepath: str | os.PathLike[str],
    custom_objects: Any = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """The model in a `.keras` file, with its weights, compiled as it was."""
    path = Path(filepath)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if not zipfile.is_zipfile(path):
        raise DamagedFileError(
            f"{path} ({path.stat().st_size} bytes) is not a .keras archive, which is a zip file"
        )
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    with archive:
        _check_members(archive, path)
        try:
            config = json.loads(_member(archive, "config.json", path, LARGEST_CONFIG))
        except (ValueError, RecursionError) as error:
            if isinstance(error, DamagedFileError):
                raise
            raise DamagedFileError(f"{path}: config.json is not JSON: {error}") from error
        if not isinstance(config, dict) or "class_name" not in config:
            raise DamagedFileError(f"{path}: config.json describes no model")
        if keras2.is_keras2(config, _version(archive, path)):
            compiled = config.pop("compile_config", None)
            config = keras2.modernise(config)
            config["compile_config"] = compiled and keras2.compile_config(compiled)
        if "model.weights.h5" not in archive.namelist():
            with budget.limit(0):  # what is wrong with the configuration is said first
                _model(config, custom_objects, path)
        weights = io.BytesIO(_member(archive, "model.weights.h5", path))
        weights.name = f"{path}/model.weights.h5"  # type: ignore[attr-defined]
        with open_h5(weights) as root, budget.limit(root.declared_bytes()):
            model = _model(config, custom_objects, path)
        if compile and config.get("compile_config"):
            _compile(model, config["compile_config"], path)
        load_weights(model, weights)
    return model


def _model(config: dict[str, Any], custom_objects: Any, path: Path) -> Any:
    """The model of a configuration; one that is nested without end is refused."""
    from meganeura import layers

    try:
        model = layers.deserialize(config, custom_objects)
    except budget.OverBudgetError as error:
        raise DamagedFileError(f"{path}: {error}") from error
    except RecursionError as error:
        raise DamagedFileError(f"{path}: config.json is nested too deeply") from error
    except (KeyError, AttributeError, IndexError) as error:
        raise DamagedFileError(
            f"{path}: config.json is not what Keras writes ({type(error).__name__}: {error})"
        ) from error
    _build(model, config)
    return model


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """Nothing is unpacked to disk, but an archive that tries is not one of ours."""
    names = archive.namelist()
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise DamagedFileError(f"{path}: the member {name!r} points outside of the archive")
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise DamagedFileError(f"{path}: the member {twice!r} is there twice")


def _version(archive: zipfile.ZipFile, path: Path) -> str | None:
    """The version of Keras that wrote the archive, where it says so."""
    if "metadata.json" not in archive.namelist():
        return None
    try:
        metadata = json.loads(_member(archive, "metadata.json", path, LARGEST_CONFIG))
    except (ValueError, RecursionError):
        return None
    return metadata.get("keras_version") if isinstance(metadata, dict) else None


def load_only_weights(
    model: Any, filepath: str | os.PathLike[str], skip_mismatch: bool = False
) -> None:
    """The weights of a `.keras` file into a model that is already built."""
    path = Path(filepath)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if not zipfile.is_zipfile(path):
        raise DamagedFileError(f"{path} is not a .keras archive, which is a zip file")
    with zipfile.ZipFile(path) as archive:
        _check_members(archive, path)
        weights = io.BytesIO(_member(archive, "model.weights.h5", path))
    weights.name = f"{path}/model.weights.h5"  # type: ignore[attr-defined]
    load_weights(model, weights, skip_mismatch)


def _build(model: Any, config: dict[str, Any]) -> None:
    """A subclassed model has no weights before it knows its input's shape."""
    build = config.get("build_config") or {}
    if not getattr(model, "built", True) and build.get("input_shape"):
        model.build_from_config(build)


def _compile(model: Any, config: dict[str, Any], path: Path) -> None:
    try:
        model.compile_from_config(config)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        warnings.warn(
            f"{path}: the model was not compiled as it was saved ({error}); call compile() to train it"
        )
