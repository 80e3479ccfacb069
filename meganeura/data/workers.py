"""Who prepares the batches of a PyDataset ahead of the steps: threads, or processes with a copy of it."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any


class Threads:
    """Threads that call `dataset[index]`."""

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self._executor = ThreadPoolExecutor(dataset.workers, "meganeura-data")

    def begin(self) -> None:
        """Before a pass."""

    def submit(self, index: int) -> Future[Any]:
        """Have a batch prepared."""
        return self._executor.submit(self.dataset.__getitem__, index)

    def result(self, future: Future[Any]) -> Any:
        """Wait for a batch."""
        return future.result()

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)


class Processes:
    """Processes that hold a copy of the data set, which must be picklable.

    They are started anew, not forked, for threads of drivers do not live on in a forked process. They stay
    for later passes unless the data set has changed in between, as one that shuffles itself does. In them
    the backend is NumPy.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self._executor: ProcessPoolExecutor | None = None
        self._copied = b""

    def begin(self) -> None:
        """Before a pass: bring the copies up to date."""
        what = type(self.dataset).__name__
        try:
            data = pickle.dumps(self.dataset, protocol=5)
        except Exception as error:
            raise ValueError(
                f"{what}: use_multiprocessing=True copies the data set to other processes, and it cannot be "
                f"pickled ({error}); keep open files and locks out of its attributes, or use threads"
            ) from error
        digest = hashlib.sha256(data).digest()
        if self._executor is None or digest != self._copied:
            self.close()
            self._copied = digest
            self._executor = ProcessPoolExecutor(
                self.dataset.workers, multiprocessing.get_context("spawn"), _hold, (data,)
            )

    def submit(self, index: int) -> Future[Any]:
        """Have a batch prepared."""
        assert self._executor is not None
        try:
            return self._executor.submit(_item, index)
        except BrokenProcessPool as error:
            raise self._ended() from error

    def result(self, future: Future[Any]) -> Any:
        """Wait for a batch."""
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise self._ended() from error

    def _ended(self) -> RuntimeError:
        return RuntimeError(
            f"{type(self.dataset).__name__}: a worker process ended before it gave its batch; each one runs "
            "the main script again, so put what trains under `if __name__ == '__main__':`, or use threads"
        )

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


#: In a worker process: its copy of the data set.
_held: Any = None


def _hold(data: bytes) -> None:
    global _held
    os.environ["MEGANEURA_BACKEND"] = "numpy"  # the device belongs to the process that trains
    _held = pickle.loads(data)


def _item(index: int) -> Any:
    return _held[index]


Workers = Threads | Processes


def workers_of(dataset: Any) -> Workers | None:
    """Those that a PyDataset asks for; None where it wants its batches made one by one."""
    if dataset.workers == 0:
        return None
    return Processes(dataset) if dataset.use_multiprocessing else Threads(dataset)
