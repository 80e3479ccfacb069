"""Files: weights and whole models in Keras's formats, written atomically and read with suspicion."""

from __future__ import annotations

import os
from typing import Any

from meganeura.saving.safe_h5 import DamagedFileError as DamagedFileError


def save_weights(model: Any, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
    """Save a model's weights to a `.weights.h5` file (https://keras.io/api/models/model_saving_apis)."""
    from meganeura.saving import weights_h5

    weights_h5.save_weights(model, filepath, overwrite)


def load_weights(
    model: Any, filepath: str | os.PathLike[str], skip_mismatch: bool = False, **kwargs: Any
) -> None:
    """Load weights that `save_weights`, or Keras 3's, wrote.

    The model keeps its weights unless the whole file fits it. Raises ValueError that names the
    layer, the shapes expected and found; DamagedFileError where the file itself is at fault.
    """
    from meganeura.saving import weights_h5

    if kwargs:
        raise ValueError(f"load_weights does not know the argument {next(iter(kwargs))!r}")
    if not getattr(model, "built", True):
        raise ValueError(
            f"model {model.name!r} has no weights to load into yet; call build(input_shape), or "
            "the model itself on data, first"
        )
    weights_h5.load_weights(model, filepath, skip_mismatch)
