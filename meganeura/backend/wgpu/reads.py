"""Reading back: copies into buffers that the host sees, waited for when somebody wants them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

#: What is read goes through buffers of at least and at most so many bytes, which are kept for the next read;
#: larger reads use a buffer of their own.
_STAGING_BYTES = (1 << 20, 64 << 20)
#: How many of them are kept: predictions are read while later ones are copied.
_MOST_STAGING = 2
_READABLE = 0x0001 | 0x0008  # MAP_READ | COPY_DST


class Read:
    """A copy on its way to the host. Nobody need wait for it: it may be dropped."""

    def __init__(self, reader: Reader, sizes: Sequence[int]):
        self._reader = reader
        self._sizes = sizes
        self._found: list[np.ndarray] | None = None
        self.staging: Any = None
        self.total = 0
        self.index = 0  # of the submission
        self.status: int | None = None  # None until the device has told

    def result(self) -> list[np.ndarray]:
        """Wait for the device to come this far, and no farther.

        Parts are views of the bytes of all, or copies where the others would keep much memory in use.
        """
        if self._found is None:
            self._found = []
            whole = self._reader.bytes_of(self) if self.total else np.empty(0, np.uint8)
            at = 0
            for size in self._sizes:
                part = whole[at : at + size]
                self._found.append(part if 2 * size > self.total else part.copy())
                at += _padded(size)
        return self._found


class Reader:
    """Starts and ends reads on one device."""

    def __init__(self, device: Any):
        from wgpu.backends.wgpu_native import ffi, lib

        self.device = device
        self._ffi, self._lib = ffi, lib
        self._free: list[Any] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._started: dict[int, Read] = {}
        started = self._started

        @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")
        def mapped(status: Any, message: Any, number: Any, _: Any) -> None:
            read = started.pop(int(ffi.cast("uintptr_t", number)), None)
            if read is not None:
                read.status = status

        self._callback = mapped  # native code calls it, so it must live as long as this object

    def start(self, parts: Sequence[tuple[Any, int]]) -> Read:
        """Copy the first bytes of each buffer, after all that was submitted before."""
        read = Read(self, [size for _, size in parts])
        read.total = sum(_padded(size) for _, size in parts)
        if not read.total:
            return read
        ffi, lib = self._ffi, self._lib
        read.staging = self._take(read.total)
        encoder = self.device.create_command_encoder()
        at = 0
        for gpu, size in parts:
            if size:
                encoder.copy_buffer_to_buffer(gpu, 0, read.staging, at, -(-size // 4) * 4)
            at += _padded(size)
        commands = encoder.finish()
        handed = ffi.new("WGPUCommandBuffer[]", [commands._internal])
        read.index = lib.wgpuQueueSubmitForIndex(self.device.queue._internal, 1, handed)
        number = next(self._numbers)
        self._started[number] = read
        info = ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = self._callback
        info.userdata1 = ffi.cast("void *", number)
        lib.wgpuBufferMapAsync(read.staging._internal, lib.WGPUMapMode_Read, 0, read.total, info[0])
        return read

    def bytes_of(self, read: Read) -> np.ndarray:
        """All bytes of a read, once the device has copied them."""
        ffi, lib = self._ffi, self._lib
        index = ffi.new("WGPUSubmissionIndex *", read.index)
        for until in (index, index, ffi.NULL):  # some drivers report one poll late
            if read.status is None:
                lib.wgpuDevicePoll(self.device._internal, True, until)
        if read.status != lib.WGPUMapAsyncStatus_Success:
            raise RuntimeError(
                f"the device did not give back {read.total} bytes (status {read.status}); it may have been lost: "
                "save what you have and start the process anew"
            )
        raw = read.staging._internal
        pointer = lib.wgpuBufferGetConstMappedRange(raw, 0, read.total)
        whole = np.empty(read.total, np.uint8)
        ffi.memmove(ffi.from_buffer(whole), pointer, read.total)
        lib.wgpuBufferUnmap(raw)
        self._give(read.staging)
        read.staging = None
        return whole

    def _take(self, size: int) -> Any:
        least, most = _STAGING_BYTES
        with self._lock:
            fitting = [b for b in self._free if b.size >= size]
            if fitting:
                found = min(fitting, key=lambda b: b.size)
                self._free.remove(found)
                return found
        grown = max(least, 1 << (size - 1).bit_length()) if size <= most else size
        return self.device.create_buffer(size=grown, usage=_READABLE)

    def _give(self, staging: Any) -> None:
        with self._lock:
            kept = sorted([*self._free, staging], key=lambda b: -b.size)
            small = [b for b in kept if b.size <= _STAGING_BYTES[1]]
            self._free = small[:_MOST_STAGING]
            gone = [b for b in kept if not any(b is k for k in self._free)]
        for buffer in gone:
            buffer.destroy()

    def release(self) -> None:
        """Give the buffers that are kept back to the device."""
        with self._lock:
            gone, self._free = self._free, []
        for buffer in gone:
            buffer.destroy()


def _padded(size: int) -> int:
    return -(-size // 8) * 8
