"""Device memory: buffers by size class, given back when nobody holds them any more."""

from __future__ import annotations

import itertools
import threading
import weakref
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.backend.wgpu.stream import Stream

_serial = itertools.count()
_USAGE = 0x0080 | 0x0004 | 0x0008  # STORAGE | COPY_SRC | COPY_DST

#: Bytes of free buffers that are kept for the next request; beyond, those that have been free longest are
#: given back to the device.
LARGEST_IDLE = 256 << 20


class GpuBuffer:
    """A handle: a device buffer that returns to the pool when the handle goes."""

    __slots__ = ("__weakref__", "gpu", "serial", "size")

    def __init__(self, gpu: Any, serial: int, size: int):
        self.gpu = gpu
        self.serial = serial  # of the buffer, not of the handle: bind groups are found by it
        self.size = size


class Pool:
    """Gives buffers out and takes them back; counts what it made.

    live_bytes: what is held by somebody; peak_bytes: the most of it since `forget_peak`
    idle_bytes: what waits for the next request
    """

    def __init__(self, device: Any, stream: Stream):
        self.device = device
        self.stream = stream
        #: by size, and of one size the one that was given back last at the end
        self._free: dict[int, list[tuple[Any, int]]] = {}
        self._order: OrderedDict[int, int] = (
            OrderedDict()
        )  # serial -> size, in the order of giving back
        self._lock = threading.RLock()  # finalizers run at any moment, also inside take()
        self.created = 0
        self.live_bytes = self.peak_bytes = self.idle_bytes = 0

    def take(self, size: int) -> GpuBuffer:
        size = _class(size)
        with self._lock:
            waiting = self._free.get(size)
            found = waiting.pop() if waiting else None
            if found is not None:
                self.idle_bytes -= size
                del self._order[found[1]]
        if found is None:
            if size > LARGEST_IDLE // 4:
                self.stream.flush()  # what is to be destroyed makes room
            try:
                found = self.device.create_buffer(size=size, usage=_USAGE), next(_serial)
            except Exception as error:
                raise MemoryError(
                    f"the device could not allocate {size} bytes ({self.live_bytes} are in use): {error}"
                ) from error
            self.created += 1
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        held = GpuBuffer(*found, size)
        # Not __del__: the collector might end the buffer first where both are part of a cycle.
        weakref.finalize(held, self._give, found, size).atexit = False
        return held

    def _give(self, found: tuple[Any, int], size: int) -> None:
        with self._lock:
            self.live_bytes -= size
            self._free.setdefault(size, []).append(found)
            self._order[found[1]] = size
            self.idle_bytes += size
            self._shrink(LARGEST_IDLE)

    def _shrink(self, most: int) -> None:
        while self.idle_bytes > most:
            serial, size = self._order.popitem(last=False)
            waiting = self._free[size]
            at = next(i for i, (_, s) in enumerate(waiting) if s == serial)
            self.stream.destroy(waiting.pop(at)[0])
            self.idle_bytes -= size

    def release(self) -> None:
        """Give all free buffers back to the device."""
        with self._lock:
            self._shrink(0)
        self.stream.flush()

    def forget_peak(self) -> None:
        self.peak_bytes = self.live_bytes

    def write(self, held: GpuBuffer, data: Any) -> None:
        if len(data):
            self.stream.write(held.gpu, _padded(data))


class Scratch:
    """Temporary buffers that executables share: they run one after another and leave nothing in them.

    So a model's steps of training, evaluation and prediction take together what the largest takes."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._known: weakref.WeakSet[GpuBuffer] = weakref.WeakSet()
        self._lock = threading.Lock()

    def lend(self, sizes: Sequence[int]) -> list[GpuBuffer]:
        """A buffer for each size, no two of them the same; the smallest of those that suffice, unless it is so
        large that it should go with the executable that it was made for."""
        with self._lock:
            free = sorted(self._known, key=lambda b: (b.size, b.serial))
            lent: list[GpuBuffer | None] = [None] * len(sizes)
            for at in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
                first = bisect_left(free, sizes[at], key=lambda b: b.size)
                most = max(4 * sizes[at], 1 << 20)
                suits = first < len(free) and free[first].size <= most
                found = free.pop(first) if suits else self._pool.take(sizes[at])
                self._known.add(found)
                lent[at] = found
            return [b for b in lent if b is not None]


def _padded(data: Any) -> Any:
    """Writes are whole words."""
    view = memoryview(data).cast("B")
    extra = -len(view) % 4
    return bytes(view) + b"\0" * extra if extra else view


def _class(size: int) -> int:
    if size <= 4096:
        return max(256, 1 << (size - 1).bit_length())
    step = 1 << max((size - 1).bit_length() - 4, 8)
    return -(-size // step) * step


def to_storage(array: np.ndarray) -> np.ndarray:
    """An array as the kernels read it: bool as words."""
    array = np.ascontiguousarray(array)
    return array.astype(np.uint32) if array.dtype == np.bool_ else array


def from_storage(data: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The bytes that the stream read, which nobody else holds, as an array."""
    array = data.view("uint32" if dtype == "bool" else dtype).reshape(shape)
    return np.asarray(array != 0) if dtype == "bool" else array  # 0-d stays an array
