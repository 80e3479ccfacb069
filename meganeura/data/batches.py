"""Data sets that are made batch by batch from numbered samples: what the `*_dataset` functions return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meganeura.data.dataset import PyDataset
from meganeura.ops.dispatch import map_tree


class Batches(PyDataset):
    """Batches of numbered samples, in a new order every pass where `shuffle`.

    read:       function of an array of sample numbers, gives the batch
    count:      how many samples there are
    batch_size: samples in a batch; None: one sample at a time, without the axis of the batch
    seed:       of the order

    `fit` takes it, and so does a for loop. `map`, `take`, `prefetch` and `cache` do what they do in tf.data.
    """

    class_names: list[str]
    file_paths: list[str]

    def __init__(
        self,
        read: Callable[[np.ndarray], Any],
        count: int,
        batch_size: int | None = 32,
        shuffle: bool = False,
        seed: int | None = None,
    ):
        super().__init__()
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be a positive integer or None, got {batch_size!r}")
        self._read, self._count, self._batch_size = read, count, batch_size
        self._shuffle, self._generator = shuffle, np.random.default_rng(seed)
        self._order = np.arange(count)
        self._reorder()

    def _reorder(self) -> None:
        if self._shuffle:
            self._order = self._generator.permutation(self._count)

    def __len__(self) -> int:
        return -(-self._count // (self._batch_size or 1))

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        size = self._batch_size or 1
        batch = self._read(self._order[index * size : (index + 1) * size])
        return batch if self._batch_size else map_tree(lambda array: array[0], batch)

    def on_epoch_end(self) -> None:
        self._reorder()

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]
        self.on_epoch_end()

    def map(self, function: Callable[..., Any], num_parallel_calls: Any = None) -> Batches:
        """The batches after `function(x, y)`; of arrays, or of what meganeura.ops make of them."""

        def mapped(numbers: np.ndarray) -> Any:
            batch = self._read(numbers)
            out = function(*batch) if isinstance(batch, tuple) else function(batch)
            return map_tree(np.asarray, out)

        return self._like(mapped, self._count)

    def take(self, count: int) -> Batches:
        """The first `count` batches of the order at present."""
        numbers = self._order[: count * (self._batch_size or 1)].copy()
        return self._like(lambda chosen: self._read(numbers[chosen]), len(numbers), shuffle=False)

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Batches:
        """The samples of a data set that gave them one by one, in batches."""
        if self._batch_size is not None:
            raise ValueError("batch: this data set is in batches already")
        count = self._count - (self._count % batch_size if drop_remainder else 0)
        made = self._like(self._read, count)
        made._batch_size = batch_size
        return made

    def prefetch(self, buffer_size: Any = None) -> Batches:
        """Itself: `fit` reads ahead as it is."""
        return self

    def cache(self, filename: str | None = None) -> Batches:
        """The same batches, each sample read once and kept in memory."""
        if filename is not None:
            raise ValueError(
                "cache: files are not offered; leave filename out to keep it in memory"
            )
        kept: dict[int, Any] = {}

        def read(numbers: np.ndarray) -> Any:
            new = np.array([n for n in numbers.tolist() if n not in kept], "int64")
            if len(new):
                batch = self._read(new)
                for i, n in enumerate(new.tolist()):
                    kept[n] = map_tree(lambda array, i=i: array[i], batch)
            return _stacked([kept[n] for n in numbers.tolist()])

        return self._like(read, self._count)

    def _like(self, read: Any, count: int, shuffle: bool | None = None) -> Batches:
        shuffle = self._shuffle if shuffle is None else shuffle
        other = Batches(read, count, self._batch_size, shuffle)
        other._generator = self._generator
        other._order = self._order if count == self._count else other._order
        for name in ("class_names", "file_paths"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other


def _stacked(samples: list[Any]) -> Any:
    first = samples[0]
    if isinstance(first, tuple):
        return tuple(_stacked([s[i] for s in samples]) for i in range(len(first)))
    if isinstance(first, dict):
        return {k: _stacked([s[k] for s in samples]) for k in first}
    return np.stack(samples)
