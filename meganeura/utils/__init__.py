"""Helpers (https://keras.io/api/utils)."""

from __future__ import annotations

import gc
from collections import abc
from typing import Any

import numpy as np

from meganeura import backend as backends
from meganeura import execution, identifiers, random
from meganeura.data.dataset import PyDataset as PyDataset
from meganeura.dtypes import standardize as standardize_dtype  # noqa: F401
from meganeura.symbolic import is_keras_tensor as is_keras_tensor
from meganeura.utils.files import get_file as get_file
from meganeura.utils.images import array_to_img as array_to_img
from meganeura.utils.images import image_dataset_from_directory as image_dataset_from_directory
from meganeura.utils.images import img_to_array as img_to_array
from meganeura.utils.images import load_img as load_img
from meganeura.utils.images import save_img as save_img
from meganeura.utils.objects import custom_object_scope as custom_object_scope
from meganeura.utils.objects import deserialize_keras_object as deserialize_keras_object
from meganeura.utils.objects import get_custom_objects as get_custom_objects
from meganeura.utils.objects import get_registered_name as get_registered_name
from meganeura.utils.objects import get_registered_object as get_registered_object
from meganeura.utils.objects import register_keras_serializable as register_keras_serializable
from meganeura.utils.objects import serialize_keras_object as serialize_keras_object
from meganeura.utils.packing import Packed as Packed
from meganeura.utils.packing import pack_sequences as pack_sequences
from meganeura.utils.plotting import model_to_dot as model_to_dot
from meganeura.utils.plotting import plot_model as plot_model
from meganeura.utils.progress import Progbar as Progbar
from meganeura.utils.timeseries import split_dataset as split_dataset
from meganeura.utils.timeseries import (
    timeseries_dataset_from_array as timeseries_dataset_from_array,
)

Sequence = PyDataset  # its name in Keras 2


def set_random_seed(seed: int) -> None:
    """Seed Python's, NumPy's and meganeura's generators: the same program then gives the same weights."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"set_random_seed: seed must be a non-negative integer, not {seed!r}")
    random.set_global_seed(int(seed))


def clear_session(free_memory: bool = True) -> None:
    """Start the automatic names anew and, where `free_memory`, forget compiled plans that no model holds and
    give the memory that nobody uses back to the device."""
    identifiers._counts.clear()
    if free_memory:
        execution.clear_cache()
        gc.collect()
        if backends._current is not None:
            backends._current.release()


def to_categorical(x: Any, num_classes: int | None = None) -> np.ndarray:
    """Class numbers as rows of 0 and 1: (...) -> (..., num_classes), float32."""
    labels = np.asarray(x)
    if labels.dtype.kind not in "iub" and not np.all(labels == np.floor(labels)):
        raise ValueError("to_categorical: class numbers must be whole")
    labels = labels.astype(np.int64)
    if labels.ndim > 1 and labels.shape[-1] == 1:
        labels = labels[..., 0]
    count = int(num_classes) if num_classes else int(labels.max(initial=-1)) + 1
    if labels.size and (labels.min() < 0 or labels.max() >= count):
        raise ValueError(
            f"to_categorical: class numbers from {labels.min()} to {labels.max()} do not fit {count} classes"
        )
    return np.eye(count, dtype="float32")[labels]


def normalize(x: Any, axis: int = -1, order: int = 2) -> np.ndarray:
    """x divided by its norm along `axis`; zeros stay zeros."""
    array = np.asarray(x, dtype="float32")
    size = np.atleast_1d(np.linalg.norm(array, order, axis, keepdims=True))
    return array / np.where(size == 0, 1, size)


def pad_sequences(
    sequences: Any,
    maxlen: int | None = None,
    dtype: Any = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: Any = 0.0,
    buckets: abc.Sequence[int] | None = None,
) -> np.ndarray:
    """Sequences of different lengths as one array, padded and cut before ("pre") or after ("post").

    buckets: lengths to choose from: the array has the smallest one that holds the longest sequence
             (the largest one where none does), so that batch after batch uses the same few compiled
             steps. Not in Keras
    """
    for what, given in (("padding", padding), ("truncating", truncating)):
        if given not in ("pre", "post"):
            raise ValueError(f"pad_sequences: {what} must be 'pre' or 'post', not {given!r}")
    listed = [np.asarray(s) for s in sequences]
    longest = max((len(s) for s in listed), default=0) if maxlen is None else maxlen
    if buckets is not None:
        if not len(buckets) or min(buckets) < 1:
            raise ValueError(f"pad_sequences: buckets are lengths of at least 1, not {buckets!r}")
        longest = min((b for b in buckets if b >= longest), default=max(buckets))
    rest = next((s.shape[1:] for s in listed if len(s)), ())
    out = np.full((len(listed), longest, *rest), value, dtype=dtype)
    for row, sequence in zip(out, listed, strict=True):
        if not len(sequence):
            continue
        if sequence.shape[1:] != rest:
            raise ValueError(
                f"pad_sequences: elements of shape {sequence.shape[1:]} and {rest} differ"
            )
        kept = sequence[-longest:] if truncating == "pre" else sequence[:longest]
        if longest:
            row[slice(-len(kept), None) if padding == "pre" else slice(0, len(kept))] = kept
    return out


CustomObjectScope = custom_object_scope


def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """`(x, y, sample_weight)` of the data of a step, None where there is none."""
    parts = tuple(data) if isinstance(data, (list, tuple)) else (data,)
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            f"the data of a step are x, (x, y) or (x, y, sample_weight), got {len(parts)} parts"
        )
    return (*parts, None, None)[:3]


def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """The data of a step: x alone, (x, y) or (x, y, sample_weight)."""
    if sample_weight is not None:
        return (x, y, sample_weight)
    if y is not None:
        return (x, y)
    return (x,) if isinstance(x, (list, tuple)) else x


#: What is not offered -> why, and what to use.
_REFUSED = {
    "FeatureSpace": "it is built on TensorFlow's data pipelines; use the preprocessing layers "
    "(Normalization, Discretization, CategoryEncoding, Hashing) on the columns",
    "audio_dataset_from_directory": "sound files are not decoded; read them with a package such as "
    "soundfile and give arrays, or a PyDataset, to fit",
    "text_dataset_from_directory": "there are no tensors of strings; turn the texts into numbers with a "
    "tokenizer and give arrays, or a PyDataset, to fit",
    "bounding_boxes": "pictures with boxes are not augmented here",
}


def __getattr__(name: str) -> Any:
    if name in _REFUSED:
        raise AttributeError(f"meganeura.utils.{name} is not offered: {_REFUSED[name]}")
    hint = identifiers.suggestion(name, [n for n in globals() if not n.startswith("_")])
    raise AttributeError(f"meganeura.utils has no {name!r}{hint}")
