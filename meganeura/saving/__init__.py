"""Files: weights and whole models in Keras's formats, written atomically and read with suspicion."""

from __future__ import annotations

import os
from typing import Any

from meganeura.saving.safe_h5 import DamagedFileError as DamagedFileError
from meganeura.saving.safetensors import load_safetensors as load_safetensors
from meganeura.saving.safetensors_writer import by_path
from meganeura.saving.safetensors_writer import save_safetensors as save_safetensors
from meganeura.utils.objects import custom_object_scope as custom_object_scope
from meganeura.utils.objects import deserialize_keras_object as deserialize_keras_object
from meganeura.utils.objects import get_custom_objects as get_custom_objects
from meganeura.utils.objects import get_registered_name as get_registered_name
from meganeura.utils.objects import get_registered_object as get_registered_object
from meganeura.utils.objects import register_keras_serializable as register_keras_serializable
from meganeura.utils.objects import serialize_keras_object as serialize_keras_object


def save_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    max_shard_size: float | str | None = None,
) -> None:
    """Save a model's weights by the ending of the name: `.weights.h5` as Keras
    (https://keras.io/api/models/model_saving_apis), `.npz` or `.safetensors` under their variables' paths.

    max_shard_size: gigabytes of a file at most, or such as "500MB", for `.safetensors` alone
    """
    from meganeura.saving import named_weights, weights_h5

    if str(filepath).endswith(".safetensors"):
        if isinstance(max_shard_size, (int, float)):
            max_shard_size = f"{max_shard_size:f}GB"
        save_safetensors(filepath, model, {"format": "np"}, overwrite, None, max_shard_size)
        return
    if max_shard_size is not None:
        raise ValueError(
            f"save_weights: max_shard_size is for .safetensors alone; {filepath} holds all weights"
        )
    if str(filepath).endswith(".npz"):
        named_weights.save_npz(filepath, by_path(model), overwrite)
        return
    weights_h5.save_weights(model, filepath, overwrite)


def load_weights(
    model: Any,
    filepath: str | os.PathLike[str],
    skip_mismatch: bool = False,
    by_name: bool = False,
    **kwargs: Any,
) -> None:
    """Load weights from a `.weights.h5`, `.keras`, or legacy `.h5` file, ours or Keras's, or by their
    variables' paths from a `.npz` or `.safetensors` file, or the index of several.

    The model keeps its weights unless the whole file fits it. Raises ValueError that names the
    layer, the shapes expected and found; DamagedFileError where the file itself is at fault.
    """
    from meganeura.saving import archive, legacy_weights, named_weights, safe_h5, weights_h5

    if kwargs:
        raise TypeError(f"load_weights has no argument {next(iter(kwargs))!r}")
    if not getattr(model, "built", True):
        raise ValueError(
            f"model {model.name!r} has no weights to load into yet; call build(input_shape), or "
            "the model itself on data, first"
        )
    if str(filepath).endswith(".keras"):
        if by_name:
            raise ValueError(f"{filepath} is no legacy file, and by_name=True is for those alone")
        archive.load_only_weights(model, filepath, skip_mismatch)
        return
    if str(filepath).endswith(named_weights.ENDINGS):
        if by_name:
            raise ValueError(f"{filepath} has weights by name as it is; leave by_name out")
        named_weights.load(model, filepath, skip_mismatch)
        return
    with safe_h5.open_h5(filepath) as root:
        if legacy_weights.is_legacy(root):
            legacy_weights.load_legacy_weights(model, root, by_name, skip_mismatch)
            return
    if by_name:
        raise ValueError(f"{filepath} is no legacy file, and by_name=True is for those alone")
    weights_h5.load_weights(model, filepath, skip_mismatch)


def save_model(
    model: Any,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    zipped: bool | None = None,
) -> None:
    """Save a whole model: `.keras`, or the legacy `.h5`."""
    from meganeura.saving import archive, legacy_model

    name = str(filepath)
    if zipped is False:
        raise ValueError("save: zipped=False is not offered; a .keras file is an archive")
    if name.endswith(".weights.h5"):
        raise ValueError(
            f"{name} is the name of a weights file; call save_weights(), or use '.keras'"
        )
    if name.endswith(".keras"):
        archive.save(model, filepath, overwrite)
    elif name.endswith((".h5", ".hdf5")):
        legacy_model.save(model, filepath, overwrite)
    else:
        raise ValueError(f"the name of a model file must end in '.keras' or '.h5', not {name!r}")


def load_model(
    filepath: str | os.PathLike[str],
    custom_objects: Any = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """The model in a `.keras` or legacy `.h5` file. No code in a file is ever executed."""
    from meganeura.saving import archive, legacy_model

    name = str(filepath)
    if name.endswith(".keras"):
        return archive.load(filepath, custom_objects, compile, safe_mode)
    if name.endswith((".h5", ".hdf5")):
        return legacy_model.load(filepath, custom_objects, compile)
    raise ValueError(f"a model file ends in '.keras' or '.h5'; {name!r} does not")
