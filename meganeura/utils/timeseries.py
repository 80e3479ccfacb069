"""Windows of a time series, and data sets in two parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura.data.batches import Batches
from meganeura.data.dataset import PyDataset
from meganeura.ops.dispatch import map_tree


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
) -> Batches:
    """Batches of windows of a series: `(batch, sequence_length, ...)`, and the target of each.

    Window i is data[s], data[s + r], ..., data[s + (sequence_length - 1) * r] with s = start_index +
    i * sequence_stride and r = sampling_rate; its target is targets[s]. targets may be None.
    Windows lie between start_index and end_index. Raises ValueError where there is none.
    """
    where = "timeseries_dataset_from_array"
    series = np.asarray(data)
    for name, value in (
        ("sequence_length", sequence_length),
        ("sequence_stride", sequence_stride),
        ("sampling_rate", sampling_rate),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{where}: {name} must be a positive integer, got {value!r}")
    length = len(series)
    start, end = start_index or 0, length if end_index is None else end_index
    if not 0 <= start < end <= length:
        raise ValueError(
            f"{where}: start_index {start} and end_index {end} do not lie within the {length} steps"
        )
    span = (sequence_length - 1) * sampling_rate + 1
    last = end - span  # the last step at which a window may start
    values = None if targets is None else np.asarray(targets)
    if values is not None:
        last = min(last, len(values) - 1)
    if last < start:
        raise ValueError(
            f"{where}: a window of {sequence_length} steps at a sampling_rate of {sampling_rate} spans "
            f"{span} steps, and there are {end - start}"
        )
    starts = np.arange(start, last + 1, sequence_stride)
    steps = np.arange(sequence_length) * sampling_rate

    def read(numbers: np.ndarray) -> Any:
        first = starts[numbers]
        windows = series[first[:, None] + steps]
        return windows if values is None else (windows, values[first])

    return Batches(read, len(starts), batch_size, shuffle, seed)


def split_dataset(
    dataset: Any,
    left_size: float | int | None = None,
    right_size: float | int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> tuple[Batches, Batches]:
    """Two data sets with the samples of one: sizes are fractions or numbers of samples.

    dataset: arrays (one, or a tuple, list or dict of them), a list of samples, or a PyDataset, which is
    read whole. The parts give one sample at a time; `part.batch(32)` makes what `fit` takes.
    """
    where = "split_dataset"
    arrays = _arrays(dataset)
    leaves: list[np.ndarray] = []
    map_tree(leaves.append, arrays)
    lengths = {len(a) for a in leaves}
    if len(lengths) != 1:
        raise ValueError(f"{where}: the arrays have different lengths: {sorted(lengths)}")
    count = lengths.pop()
    left = _size(where, "left_size", left_size, count)
    right = _size(where, "right_size", right_size, count)
    if left is None and right is None:
        raise ValueError(f"{where}: give left_size or right_size")
    left = count - right if left is None and right is not None else left
    right = count - left if right is None and left is not None else right
    assert left is not None and right is not None
    if left + right > count:
        raise ValueError(f"{where}: {left} and {right} samples are more than the {count} there are")
    if left == 0 or right == 0:
        raise ValueError(
            f"{where}: of {count} samples {left} and {right} would be left; one is empty"
        )
    order = np.arange(count)
    if shuffle:
        order = np.random.default_rng(seed).permutation(count)

    def part(numbers: np.ndarray) -> Batches:
        return Batches(
            lambda rows: map_tree(lambda a: a[numbers[rows]], arrays), len(numbers), None
        )

    return part(order[:left]), part(order[count - right :])


def _size(where: str, name: str, given: float | int | None, count: int) -> int | None:
    if given is None:
        return None
    if isinstance(given, float):
        if not 0 < given < 1:
            raise ValueError(f"{where}: {name} as a fraction lies between 0 and 1, got {given}")
        return round(given * count)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 < given < count:
        raise ValueError(
            f"{where}: {name} must be a fraction, or a number between 0 and {count}, got {given!r}"
        )
    return given


def _arrays(dataset: Any) -> Any:
    if isinstance(dataset, PyDataset):
        batches = [dataset[i] for i in range(len(dataset))]
        single = isinstance(dataset, Batches) and dataset._batch_size is None
        return _joined(batches, np.stack if single else np.concatenate)
    if isinstance(dataset, tuple):
        return tuple(np.asarray(a) for a in dataset)
    if isinstance(dataset, dict):
        return {k: np.asarray(v) for k, v in dataset.items()}
    if isinstance(dataset, list) and dataset and isinstance(dataset[0], np.ndarray):
        return [np.asarray(a) for a in dataset]
    return np.asarray(dataset)


def _joined(batches: list[Any], join: Any) -> Any:
    first = batches[0]
    if isinstance(first, tuple):
        return tuple(_joined([b[i] for b in batches], join) for i in range(len(first)))
    if isinstance(first, dict):
        return {k: _joined([b[k] for b in batches], join) for k in first}
    return join([np.asarray(b) for b in batches])
