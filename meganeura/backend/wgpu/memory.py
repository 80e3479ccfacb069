"""Device memory: buffers by size class, given back when nobody holds them any more."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

import numpy as np

_serial = itertools.count()
_USAGE = 0x0080 | 0x0004 | 0x0008  # STORAGE | COPY_SRC | COPY_DST

#: Bytes of free buffers that are kept for the next request.
LARGEST_IDLE = 1 << 30


class GpuBuffer:
    """A handle: a device buffer that returns to the pool when the handle goes."""

    __slots__ = ("__weakref__", "gpu", "serial", "size")

    def __init__(self, gpu: Any, size: int):
        self.gpu = gpu
        self.size = size
        self.serial = next(_serial)


class Pool:
    """Gives buffers out and takes them back; counts what it made."""

    def __init__(self, device: Any):
        self.device = device
        self._free: dict[int, list[Any]] = {}
        self._idle = 0
        self._lock = threading.Lock()
        self.created = 0
        self.live_bytes = 0
        self.peak_bytes = 0

    def take(self, size: int) -> GpuBuffer:
        size = _class(size)
        with self._lock:
            waiting = self._free.get(size)
            gpu = waiting.pop() if waiting else None
            if gpu is not None:
                self._idle -= size
        if gpu is None:
            try:
                gpu = self.device.create_buffer(size=size, usage=_USAGE)
            except Exception as error:
                raise MemoryError(
                    f"the device could not allocate {size} bytes ({self.live_bytes} are in use): {error}"
                ) from error
            self.created += 1
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        held = GpuBuffer(gpu, size)
        weakref.finalize(held, self._give, gpu, size).atexit = False
        return held

    def _give(self, gpu: Any, size: int) -> None:
        with self._lock:
            self.live_bytes -= size
            if self._idle + size > LARGEST_IDLE:
                gpu.destroy()
                return
            self._free.setdefault(size, []).append(gpu)
            self._idle += size

    def write(self, held: GpuBuffer, data: Any) -> None:
        if len(data):
            self.device.queue.write_buffer(held.gpu, 0, _padded(data))

    def read(self, held: GpuBuffer, size: int) -> bytes:
        return bytes(self.device.queue.read_buffer(held.gpu, 0, -(-size // 4) * 4))[:size]


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


def from_storage(data: bytes, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = "uint32" if dtype == "bool" else dtype
    array = np.frombuffer(data, kind).reshape(shape)
    return np.asarray(array != 0) if dtype == "bool" else array.copy()  # 0-d stays an array
