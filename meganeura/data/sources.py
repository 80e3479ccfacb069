"""The source of batches for whatever `fit`, `evaluate` and `predict` were given."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from meganeura.data.arrays import HostBatches, ResidentArrays
from meganeura.data.batch import Source
from meganeura.data.checks import as_arrays, class_weights, count_of
from meganeura.data.streams import Stream
from meganeura.tensor import Tensor


def is_array_like(x: Any) -> bool:
    """Arrays or structures of arrays, as opposed to generators and data sets."""
    if isinstance(x, (list, tuple)):
        return bool(x) and all(is_array_like(v) or isinstance(v, (int, float)) for v in x)
    if isinstance(x, dict):
        return all(is_array_like(v) for v in x.values())
    return isinstance(x, (np.ndarray, Tensor)) or hasattr(x, "__array__") or hasattr(x, "to_numpy")


def make(
    x: Any,
    y: Any,
    w: Any,
    *,
    batch_size: int | None,
    shuffle: bool = False,
    class_weight: dict[int, float] | None = None,
) -> Source:
    """The source for arrays, a generator, a data set, or any iterable of batches."""
    if isinstance(x, list) or is_array_like(x):
        x, y, w = as_arrays(x, "x"), as_arrays(y, "y"), as_arrays(w, "sample_weight")
        count_of(x, y, w)
        if class_weight is not None:
            w = class_weights(y, class_weight)
        size = 32 if batch_size is None else batch_size
        if ResidentArrays.fits((x, y, w)):
            return ResidentArrays((x, y, w), size, shuffle)
        return Stream(HostBatches((x, y, w), size, shuffle))
    if x is None:
        raise ValueError("there are no data: x is None")
    if isinstance(x, (str, bytes, int, float)) or not (
        hasattr(x, "__iter__") or hasattr(x, "__getitem__")
    ):
        raise ValueError(
            f"data of type {type(x).__name__} cannot be used; give NumPy arrays, a PyDataset, a "
            "generator, or an iterable of batches"
        )
    if not hasattr(x, "__iter__") and type(x).__module__.startswith("torch."):
        raise ValueError(
            f"{type(x).__name__} brings single samples; wrap it in torch.utils.data.DataLoader"
        )
    for name, value in (("y", y), ("sample_weight", w)):
        if value is not None:
            raise ValueError(
                f"{name} cannot be given with data of type {type(x).__name__}: its batches are x, "
                "(x, y) or (x, y, sample_weight)"
            )
    if batch_size is not None:
        warnings.warn(
            f"batch_size is ignored: data of type {type(x).__name__} bring their own batches"
        )
    return Stream(x, class_weight, shuffle)
