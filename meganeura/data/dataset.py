"""PyDataset: batches by number, read ahead by threads (https://keras.io/api/utils/python_utils)."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np


class PyDataset:
    """Batches by number. Subclass it and define `__len__` and `__getitem__(index)`.

    workers:             threads that call `__getitem__` ahead of the steps; 0: none
    use_multiprocessing: not offered; threads are used, with a warning
    max_queue_size:      how many batches they prepare at most

    `on_epoch_begin` and `on_epoch_end` are called around each pass over the data.
    """

    def __init__(
        self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ):
        if workers < 0 or max_queue_size < 1:
            raise ValueError(
                f"PyDataset: workers must be at least 0 and max_queue_size at least 1, got {workers} "
                f"and {max_queue_size}"
            )
        if use_multiprocessing:
            warnings.warn("PyDataset: use_multiprocessing is not offered; threads are used")
        self._workers = workers
        self._max_queue_size = max_queue_size

    # A subclass may not call super().__init__, as was common with Keras 2's Sequence.
    _workers = 1
    _max_queue_size = 10

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def max_queue_size(self) -> int:
        return self._max_queue_size

    def __len__(self) -> int:
        raise NotImplementedError(
            f"{type(self).__name__} must define __len__, the number of batches"
        )

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} must define __getitem__(index), which returns a batch"
        )

    @property
    def num_batches(self) -> int | None:
        """Batches in a pass; None goes on for ever, and then `fit` needs steps_per_epoch."""
        return len(self)

    def on_epoch_begin(self) -> None:
        """Before a pass over the data."""

    def on_epoch_end(self) -> None:
        """After a pass over the data."""


def read_ahead(dataset: PyDataset, shuffle: bool) -> Iterator[Any]:
    """The batches of one pass in order (in a new order where `shuffle`), some of them prepared ahead."""
    count = dataset.num_batches
    indices: Iterator[int]
    if count is None:
        indices = _forever()
    else:
        indices = iter(np.random.permutation(count).tolist() if shuffle else range(count))
    if dataset.workers == 0:
        for i in indices:
            yield dataset[i]
        return
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(dataset.workers, "meganeura-data") as pool:
        try:
            for i in indices:
                waiting.append(pool.submit(dataset.__getitem__, i))
                if len(waiting) >= dataset.max_queue_size:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _forever() -> Iterator[int]:
    i = 0
    while True:
        yield i
        i += 1
