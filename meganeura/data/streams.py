"""Batches from an iterable: uploaded one by one, into one of two sets of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meganeura.data.arrays import not_finite
from meganeura.data.batch import Batch, structured, unpack
from meganeura.data.checks import as_arrays, class_weights, count_of
from meganeura.data.dataset import PyDataset, read_ahead
from meganeura.data.workers import Workers, workers_of
from meganeura.tensor import Tensor, to_tensor

#: Sets of tensors kept for reuse; data whose shapes keep changing forget the oldest.
_SETS = 16


class Stream:
    """Batches from an iterable of x, (x, y) or (x, y, sample_weight).

    They are written to one of two sets of tensors in turn, so that an upload need not wait for the
    step that reads the other. `check`, once set, looks at the targets of each batch.
    """

    def __init__(
        self,
        given: Any,
        class_weight: dict[int, float] | None = None,
        shuffle: bool = False,
    ):
        self.given = given
        self.class_weight = class_weight
        self.shuffle = shuffle
        self.check: Callable[[Any], None] | None = None
        self.targets: Any = None
        self.batches = _length(given)
        self._once = hasattr(given, "__next__")
        self._used = False
        self._iterator: Iterator[Any] | None = None
        self._workers: Workers | None = None
        self._sets: dict[Any, list[tuple[Batch, list[Tensor]]]] = {}
        self._turn = 0
        self._held: Batch | None = None  # uploaded, and not used yet
        self._last: list[np.ndarray] = []

    def _fresh(self) -> Iterator[Any]:
        if isinstance(self.given, PyDataset):
            if self._workers is None:
                self._workers = workers_of(self.given)
            return read_ahead(self.given, self.shuffle, self._workers)
        if not hasattr(self.given, "__iter__"):  # batches by number, as Keras 2's Sequence
            return (self.given[i] for i in range(len(self.given)))
        return iter(self.given)

    def begin(self) -> bool:
        if self._iterator is None:
            if self._once and self._used:
                return False
            self._used = True
            _tell(self.given, "on_epoch_begin")
            self._iterator = self._fresh()
        return True

    def _advance(self) -> Any:
        assert self._iterator is not None
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = None
            _tell(self.given, "on_epoch_end")
            raise

    def peek(self) -> Batch | None:
        if self._held is not None:
            return self._held
        if not self.begin():
            return None
        try:
            data = self._advance()
        except StopIteration:
            return None
        self._held = self.batch(data)
        return self._held

    def next(self, most: int) -> tuple[Batch, int] | None:
        if self._held is not None:
            held, self._held = self._held, None
            return held, 1
        if self._iterator is None:
            return None
        try:
            return self.batch(self._advance()), 1
        except StopIteration:
            return None

    def reset(self) -> None:
        if not self._once:
            self._iterator = self._held = None

    def close(self) -> None:
        self._iterator = None if not self._once else self._iterator
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def find_nan(self) -> str | None:
        return not_finite(self._last)

    def batch(self, data: Any) -> Batch:
        """Upload one batch."""
        x, y, w = unpack(data)
        x, y, w = as_arrays(x, "x"), as_arrays(y, "y"), as_arrays(w, "sample_weight")
        size = count_of(x, y, w)
        self.targets = y
        if self.check is not None:
            self.check(y)
        if self.class_weight is not None:
            if w is not None:
                raise ValueError(
                    "class_weight cannot be given where the batches bring sample_weight"
                )
            w = class_weights(y, self.class_weight)
        structure, arrays = structured((x, y, w))
        self._last = arrays
        key = (repr(structure), *((a.shape, str(a.dtype)) for a in arrays))
        sets = self._sets.setdefault(key, [])
        if len(sets) < 2:
            tensors = [to_tensor(a) for a in arrays]
            sets.append((Batch(tensors, structure, size), tensors))
            if len(self._sets) > _SETS:
                del self._sets[next(iter(self._sets))]
            return sets[-1][0]
        batch, tensors = sets[self._turn]  # not the one that was used last
        self._turn ^= 1
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.backend.write(tensor.handle, array)
        return batch


def _length(given: Any) -> int | None:
    if isinstance(given, PyDataset):
        return given.num_batches
    try:
        return len(given)
    except TypeError:  # no length, or one that is not known
        return None


def _tell(given: Any, hook: str) -> None:
    method = getattr(given, hook, None)
    if callable(method):
        method()
