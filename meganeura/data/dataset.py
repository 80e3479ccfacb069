"""PyDataset: batches by number, read ahead by others (https://keras.io/api/utils/python_utils)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np

from meganeura.data.workers import Workers, workers_of


class PyDataset:
    """Batches by number. Subclass it and define `__len__` and `__getitem__(index)`.

    workers:             threads that call `__getitem__` ahead of the steps; 0: none
    use_multiprocessing: processes instead, each with a copy of the data set, for batches that Python code makes
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
        self._workers = workers
        self._use_multiprocessing = bool(use_multiprocessing)
        self._max_queue_size = max_queue_size

    # A subclass may not call super().__init__, as was common with Keras 2's Sequence.
    _workers = 1
    _use_multiprocessing = False
    _max_queue_size = 10

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def use_multiprocessing(self) -> bool:
        return self._use_multiprocessing

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


def read_ahead(dataset: PyDataset, shuffle: bool, workers: Workers | None = None) -> Iterator[Any]:
    """The batches of one pass in order (in a new order where `shuffle`), some of them prepared ahead by
    `workers`, which stay for the next pass; by ones of its own where none are given."""
    count = dataset.num_batches
    indices: Iterator[int]
    if count is None:
        indices = _forever()
    else:
        indices = iter(np.random.permutation(count).tolist() if shuffle else range(count))
    own = workers_of(dataset) if workers is None else None
    workers = workers or own
    if workers is None:
        for i in indices:
            yield dataset[i]
        return
    waiting: deque[Future[Any]] = deque()
    try:
        workers.begin()
        for i in indices:
            waiting.append(workers.submit(i))
            if len(waiting) >= dataset.max_queue_size:
                yield workers.result(waiting.popleft())
        while waiting:
            yield workers.result(waiting.popleft())
    finally:
        for future in waiting:
            future.cancel()
        if own is not None:
            own.close()


def _forever() -> Iterator[int]:
    i = 0
    while True:
        yield i
        i += 1
