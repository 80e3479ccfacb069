"""Batches from arrays: kept on the device where they fit, else cut on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import config
from meganeura.backend import backend_object
from meganeura.data.batch import Batch, structured
from meganeura.data.checks import count_of, leaves
from meganeura.data.dataset import PyDataset
from meganeura.ops.dispatch import map_tree
from meganeura.tensor import to_tensor
from meganeura.variable import Variable


class ResidentArrays:
    """Arrays kept on the device. A step gathers its own batch there: nothing is uploaded but, once
    per pass, the order of the samples.

    Its cursor, an int32 variable, is the number of samples that the pass has used; steps advance it.
    """

    def __init__(self, data: Any, batch_size: int, shuffle: bool):
        self.samples = count_of(*data)
        self.batch_size = min(batch_size, self.samples)
        self.shuffle = shuffle
        self.cursor = Variable(np.zeros((), np.int32), trainable=False, name="cursor")
        self.targets = data[1]
        self.check: Callable[[Any], None] | None = None  # all targets are at hand from the start
        self.structure, arrays = structured(data)
        self.order = to_tensor(np.arange(self.samples, dtype=np.int32))
        self.tensors = [self.order, *(to_tensor(a) for a in arrays)]
        self.batches: int | None = -(-self.samples // self.batch_size)
        whole, rest = divmod(self.samples, self.batch_size)
        self._whole = (self._batch(self.batch_size), whole)
        self._runs = [self._whole, (self._batch(rest), 1)] if rest else [self._whole]
        #: what is left of the pass: batches, and for how many steps each
        self._left: list[tuple[Batch, int]] = []

    def _batch(self, size: int) -> Batch:
        return Batch(self.tensors, self.structure, size, self.cursor)

    @staticmethod
    def fits(data: Any) -> bool:
        """Whether the arrays together stay within the budget, and each within what the device binds."""
        arrays = leaves(data)
        limits = getattr(backend_object(), "limits", None)
        largest = getattr(limits, "binding_bytes", None)
        stored = [a.size if a.dtype == np.uint8 else 4 * a.size for a in arrays]
        if largest is not None and max(stored, default=0) > largest:
            return False
        return sum(stored) <= config.resident_bytes()

    def peek(self) -> Batch | None:
        return self._whole[0]

    def begin(self) -> bool:
        if not self._left:
            if self.shuffle:
                order = np.random.permutation(self.samples).astype(np.int32)
                self.order.backend.write(self.order.handle, order)
            self.cursor.assign(np.zeros((), np.int32))
            self._left = list(self._runs)
        return True

    def next(self, most: int) -> tuple[Batch, int] | None:
        if not self._left:
            return None
        batch, count = self._left[0]
        taken = min(count, most)
        self._left[:1] = [(batch, count - taken)] if count > taken else []
        return batch, taken

    def reset(self) -> None:
        self._left = []

    def close(self) -> None:
        pass

    def find_nan(self) -> str | None:
        return not_finite([t.numpy() for t in self.tensors[1:]])


def gather(nodes: list[Any], size: int, cursor: Variable) -> list[Any]:
    """In a trace: the batch of `size` samples at the cursor, which moves on."""
    from meganeura import ops

    start = cursor.value
    position = ops.add(ops.arange(size, dtype="int32"), start)
    index = ops.take(nodes[0], position, axis=0)
    cursor.assign(ops.add(start, size))
    return [ops.take(n, index, axis=0) for n in nodes[1:]]


class HostBatches(PyDataset):
    """Arrays too large for the device, cut into batches on the host by a thread, ahead of the steps."""

    def __init__(self, data: Any, batch_size: int, shuffle: bool):
        super().__init__(workers=1, max_queue_size=4)
        self.data = data
        self.samples = count_of(*data)
        self.batch_size, self.shuffle = batch_size, shuffle
        self._order: np.ndarray | None = None

    def __len__(self) -> int:
        return -(-self.samples // self.batch_size)

    def on_epoch_begin(self) -> None:
        self._order = np.random.permutation(self.samples) if self.shuffle else None

    def __getitem__(self, index: int) -> Any:
        rows: Any = slice(index * self.batch_size, (index + 1) * self.batch_size)
        if self._order is not None:
            rows = self._order[rows]
        return map_tree(lambda v: None if v is None else v[rows], self.data)


def not_finite(arrays: list[np.ndarray]) -> str | None:
    """Which array holds NaN or infinity first, and in which sample."""
    for i, array in enumerate(arrays):
        if array.dtype.kind != "f":
            continue
        bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        if bad.any():
            return f"array {i} of the data, of shape {array.shape}, is not finite in sample {int(bad.argmax())}"
    return None
