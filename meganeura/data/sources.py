"""Batches for a step: from arrays that live on the device, or from an iterable, batch by batch."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from meganeura.data.checks import as_arrays, count_of, leaves
from meganeura.ops.dispatch import map_tree
from meganeura.tensor import Tensor, to_tensor
from meganeura.variable import Variable

#: Arrays up to this many bytes together are kept on the device; larger ones are streamed.
RESIDENT_BYTES = 2 << 30


class Batch:
    """What one run of a step reads: tensors, and how they form (x, y, sample_weight)."""

    def __init__(self, tensors: list[Tensor], structure: Any, size: int, resident: bool):
        self.tensors = tensors
        self.structure = structure
        self.size = size
        self.resident = resident


class _Place:
    def __init__(self, index: int):
        self.index = index


def _structured(tree: Any) -> tuple[Any, list[Any]]:
    """The structure with places in it, and the leaves in their order."""
    found: list[Any] = []

    def take(leaf: Any) -> Any:
        if leaf is None:
            return None
        found.append(leaf)
        return _Place(len(found) - 1)

    return map_tree(take, tree), found


def fill(structure: Any, values: list[Any]) -> Any:
    """The structure with `values` at its places."""
    return map_tree(lambda p: values[p.index] if isinstance(p, _Place) else p, structure)


class ResidentArrays:
    """Arrays kept on the device. A step gathers its own batch: nothing is uploaded but, once per
    epoch, the order of the samples."""

    def __init__(self, x: Any, y: Any, w: Any, batch_size: int, shuffle: bool):
        self.samples = count_of(x, y, w)
        self.batch_size = min(batch_size, self.samples)
        self.shuffle = bool(shuffle)
        self.structure, arrays = _structured((x, y, w))
        self.order = to_tensor(np.arange(self.samples, dtype=np.int32))
        self.cursor = Variable(np.zeros((), np.int32), trainable=False, name="cursor")
        self.tensors = [self.order, *(to_tensor(a) for a in arrays)]
        self.batches = -(-self.samples // self.batch_size)
        self.last = self.samples - (self.batches - 1) * self.batch_size

    @staticmethod
    def fits(x: Any, y: Any, w: Any) -> bool:
        return sum(a.nbytes for a in leaves((x, y, w))) <= RESIDENT_BYTES

    def start_epoch(self) -> None:
        if self.shuffle:
            order = np.random.permutation(self.samples).astype(np.int32)
            self.order.backend.write(self.order.handle, order)
        self.cursor.assign(np.zeros((), np.int32))

    def runs(self) -> Iterator[tuple[Batch, int]]:
        """(batch, how many times in a row): the whole batches, then the partial one."""
        whole = self.samples // self.batch_size
        if whole:
            yield Batch(self.tensors, self.structure, self.batch_size, True), whole
        if whole < self.batches:
            yield Batch(self.tensors, self.structure, self.last, True), 1

    def gather(self, nodes: list[Any], size: int) -> list[Any]:
        """In a trace: the batch at the cursor, which moves on."""
        from meganeura import ops

        start = self.cursor.value
        position = ops.add(ops.arange(size, dtype="int32"), start)
        index = ops.take(nodes[0], position, axis=0)
        self.cursor.assign(ops.add(start, size))
        return [ops.take(n, index, axis=0) for n in nodes[1:]]


class Stream:
    """Batches from an iterable: written to one of two sets of tensors, so that an upload need not
    wait for the step that reads the other."""

    batches: int | None = None

    def __init__(self, iterable: Any, class_weight: Any = None):
        self._given = iterable
        self._class_weight = class_weight
        self._iterator: Iterator[Any] | None = None
        self._sets: dict[Any, list[list[Tensor]]] = {}
        self._turn = 0
        self.restartable = not hasattr(iterable, "__next__")
        self._items = iterable if hasattr(iterable, "__getitem__") and hasattr(iterable, "__len__") else None
        if self._items is not None or hasattr(iterable, "__len__"):
            self.batches = len(iterable)
            if hasattr(iterable, "num_batches") and iterable.num_batches is not None:
                self.batches = int(iterable.num_batches)

    def _fresh(self) -> Iterator[Any]:
        if self._items is not None and hasattr(self._items, "on_epoch_end"):
            return _items(self._items, self.batches)
        return iter(self._given)

    def start_epoch(self) -> None:
        if self._iterator is None:
            self._iterator = self._fresh()

    def end_epoch(self) -> None:
        if hasattr(self._given, "on_epoch_end"):
            self._given.on_epoch_end()

    def rewind(self) -> bool:
        """Begin anew; False where the data can be read only once."""
        if not self.restartable:
            return False
        self._iterator = self._fresh()
        return True

    def next(self) -> Batch | None:
        assert self._iterator is not None
        try:
            data = next(self._iterator)
        except StopIteration:
            self._iterator = None
            return None
        return self.batch(data)

    def peek(self) -> Batch | None:
        """The first batch, which the next epoch gets as well."""
        self.start_epoch()
        assert self._iterator is not None
        try:
            data = next(self._iterator)
        except StopIteration:
            return None
        self._iterator = itertools.chain([data], self._iterator)
        return self.batch(data)

    def batch(self, data: Any) -> Batch:
        x, y, w = unpack(data)
        x, y, w = as_arrays(x, "x"), as_arrays(y, "y"), as_arrays(w, "sample_weight")
        if self._class_weight is not None:
            from meganeura.data.checks import class_weights

            w = class_weights(y, self._class_weight)
        size = count_of(x, y, w)
        structure, arrays = _structured((x, y, w))
        key = tuple((a.shape, str(a.dtype)) for a in arrays)
        sets = self._sets.setdefault(key, [])
        self._turn ^= 1
        if len(sets) < 2:
            sets.append([to_tensor(a) for a in arrays])
            return Batch(sets[-1], structure, size, False)
        chosen = sets[self._turn]
        for tensor, array in zip(chosen, arrays, strict=True):
            tensor.backend.write(tensor.handle, array)
        return Batch(chosen, structure, size, False)


def _items(data: Any, count: int | None) -> Iterator[Any]:
    for i in range(count or len(data)):
        yield data[i]


def unpack(data: Any) -> tuple[Any, Any, Any]:
    """(x,), (x, y), (x, y, sample_weight) or x alone, as (x, y, sample_weight)."""
    if isinstance(data, list):
        data = tuple(data)
    if not isinstance(data, tuple):
        return data, None, None
    if len(data) > 3 or not data:
        raise ValueError(
            f"a batch is x, (x, y) or (x, y, sample_weight), and has {len(data)} parts; put several inputs in a "
            "list or dict: ([x1, x2], y)"
        )
    return (*data, None, None)[:3]  # type: ignore[return-value]


def is_array_like(x: Any) -> bool:
    """Arrays or structures of arrays, as opposed to generators and data sets."""
    if isinstance(x, (list, tuple)):
        return bool(x) and all(is_array_like(v) or isinstance(v, (int, float)) for v in x)
    if isinstance(x, dict):
        return all(is_array_like(v) for v in x.values())
    return isinstance(x, (np.ndarray, Tensor)) or hasattr(x, "__array__") or hasattr(x, "to_numpy")


class ArrayBatches:
    """Large arrays cut into batches on the host, for streaming."""

    def __init__(self, x: Any, y: Any, w: Any, batch_size: int, shuffle: bool):
        self.data = (x, y, w)
        self.samples = count_of(x, y, w)
        self.batch_size, self.shuffle = batch_size, shuffle

    def __len__(self) -> int:
        return -(-self.samples // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        order = np.random.permutation(self.samples) if self.shuffle else np.arange(self.samples)
        for i in range(len(self)):
            rows = order[i * self.batch_size : (i + 1) * self.batch_size]
            yield map_tree(lambda v, r=rows: None if v is None else v[r], self.data)


def make(
    x: Any, y: Any, w: Any, batch_size: int, shuffle: Any, class_weight: Any = None
) -> ResidentArrays | Stream:
    """The source for what `fit`, `evaluate` or `predict` was given."""
    if is_array_like(x):
        x, y, w = as_arrays(x, "x"), as_arrays(y, "y"), as_arrays(w, "sample_weight")
        count_of(x, y, w)
        if class_weight is not None:
            from meganeura.data.checks import class_weights

            w = class_weights(y, class_weight)
        if ResidentArrays.fits(x, y, w):
            return ResidentArrays(x, y, w, batch_size, bool(shuffle))
        return Stream(ArrayBatches(x, y, w, batch_size, bool(shuffle)))
    if x is None:
        raise ValueError("there are no data: x is None")
    if isinstance(x, (str, bytes, int, float)) or not (hasattr(x, "__iter__") or hasattr(x, "__getitem__")):
        raise ValueError(f"data of type {type(x).__name__} cannot be used; give NumPy arrays or an iterable of batches")
    if y is not None or w is not None:
        raise ValueError("with a generator or data set as x, its batches bring y and sample_weight along")
    return Stream(x, class_weight)


def ran_out(expected: int) -> None:
    warnings.warn(
        f"the data ended before {expected} steps were made; give a data set that can be iterated again, or "
        "fewer steps_per_epoch"
    )
