"""Models (https://keras.io/api/models), and those of the zoo by their names."""

from __future__ import annotations

import json
from typing import Any

from meganeura.models.finetuning import add_lora as add_lora
from meganeura.models.finetuning import freeze as freeze
from meganeura.models.finetuning import merge_lora as merge_lora
from meganeura.models.finetuning import unfreeze as unfreeze
from meganeura.models.finetuning import unmerge_lora as unmerge_lora
from meganeura.models.functional import Functional as Functional
from meganeura.models.model import Model as Model
from meganeura.models.sequential import Sequential as Sequential


def __getattr__(name: str) -> Any:
    """The zoo's models, such as `models.llama`, which are loaded when first asked for."""
    if name.startswith("__"):
        raise AttributeError(name)
    from meganeura import zoo

    try:
        return zoo.find(name)
    except AttributeError as error:
        raise AttributeError(f"meganeura.models has no {name!r}; {error}") from None


def model_from_json(json_string: str, custom_objects: Any = None) -> Any:
    """The model that `to_json` described, with new weights."""
    from meganeura.layers import deserialize
    from meganeura.saving import keras2

    try:
        config = json.loads(json_string)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"model_from_json: the text is not JSON: {error}") from error
    if keras2.is_keras2(config):
        config = keras2.modernise(config)
    return deserialize(config, custom_objects)


def load_model(
    filepath: Any, custom_objects: Any = None, compile: bool = True, safe_mode: bool = True
) -> Any:
    """The model that `model.save` wrote; nothing in the file is ever executed."""
    from meganeura import saving

    return saving.load_model(
        filepath, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode
    )


def save_model(model: Any, filepath: Any, overwrite: bool = True, **kwargs: Any) -> None:
    """Save a whole model: `model.save(filepath)`."""
    model.save(filepath, overwrite=overwrite, **kwargs)


def clone_model(
    model: Any,
    input_tensors: Any = None,
    clone_function: Any = None,
    call_function: Any = None,
    recursive: bool = False,
    **kwargs: Any,
) -> Any:
    """A model of the same structure with new weights; see `meganeura.models.cloning.clone`."""
    from meganeura.models.cloning import clone

    return clone(model, input_tensors, clone_function, call_function, recursive, **kwargs)
