"""Helpers (https://keras.io/api/utils)."""

from __future__ import annotations

from collections import abc
from typing import Any

import numpy as np

from meganeura import identifiers, random
from meganeura.data.dataset import PyDataset as PyDataset
from meganeura.utils.objects import custom_object_scope as custom_object_scope
from meganeura.utils.objects import deserialize_keras_object as deserialize_keras_object
from meganeura.utils.objects import get_custom_objects as get_custom_objects
from meganeura.utils.objects import get_registered_name as get_registered_name
from meganeura.utils.objects import get_registered_object as get_registered_object
from meganeura.utils.objects import register_keras_serializable as register_keras_serializable
from meganeura.utils.objects import serialize_keras_object as serialize_keras_object
from meganeura.utils.packing import Packed as Packed
from meganeura.utils.packing import pack_sequences as pack_sequences

Sequence = PyDataset  # its name in Keras 2


def set_random_seed(seed: int) -> None:
    """Seed Python's, NumPy's and meganeura's generators: the same program then gives the same weights."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"set_random_seed: seed must be a non-negative integer, not {seed!r}")
    random.set_global_seed(int(seed))


def clear_session(free_memory: bool = True) -> None:
    """Start the automatic names anew."""
    identifiers._counts.clear()


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
