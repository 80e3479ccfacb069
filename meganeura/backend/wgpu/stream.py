"""The stream of work to the device: dispatches are gathered into submissions, reads wait for them.

Recording goes through wgpu-native's own functions, for the Python wrappers cost 2.5 times as much a
dispatch. What is recorded is handed over when there is enough of it, so that the device computes while
the next dispatches are recorded, and before anything is written or read: the order of all work is the
order of the calls. Handing over takes longer than recording, so a thread does it while the next
submission is recorded.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from meganeura.backend.wgpu.reads import Read, Reader

#: Dispatches in one submission at most: the first one after the device was waited for, when it stands idle,
#: and the later ones, of which each has twice as many. Handing over costs as much as some dispatches do; very
#: long submissions make some systems reset the driver.
FIRST_SUBMISSION = 16
LARGEST_SUBMISSION = 128

#: Submissions that may wait for the thread that hands them over.
_MOST_WAITING = 2
#: Bytes that are written at once, and written in all before they are handed over and waited for: until
#: then the driver keeps a second copy of them.
LARGEST_WRITE = 4 << 20
LARGEST_UNSUBMITTED = 16 << 20

_QUERIED = 0x0200 | 0x0004  # QUERY_RESOLVE | COPY_SRC

#: pipeline, bind group, workgroups: one dispatch
Dispatch = tuple[Any, Any, tuple[int, int, int]]


class Stream:
    """Records, submits, waits and reads, for one device. Safe to use from several threads."""

    def __init__(self, device: Any):
        from wgpu.backends.wgpu_native import ffi, lib

        self.device = device
        self.submissions = 0
        self._ffi, self._lib = ffi, lib
        self.lock = threading.RLock()
        self._encoder: Any = None
        self._pass: Any = None
        self._raw: Any = None
        self._waiting = 0
        self._unsubmitted = 0
        self._most = FIRST_SUBMISSION
        self._pipeline: Any = None
        self._doomed: list[Any] = []
        self.reader = Reader(device)
        self._clock: tuple[Any, Any] | None = None
        self._courier = ThreadPoolExecutor(1, "meganeura-submit")
        self._underway: deque[Future[None]] = deque()

    def record(self, steps: Sequence[Dispatch], times: int = 1) -> None:
        """Dispatch all steps, one after the other, `times` over; objects are wgpu-native's."""
        set_pipeline = self._lib.wgpuComputePassEncoderSetPipeline
        set_group = self._lib.wgpuComputePassEncoderSetBindGroup
        dispatch = self._lib.wgpuComputePassEncoderDispatchWorkgroups
        null = self._ffi.NULL
        with self.lock:
            for _ in range(times):
                start = 0
                while start < len(steps):
                    if self._waiting >= self._most:
                        self._send()
                    some = steps[start : start + self._most - self._waiting]
                    start += len(some)
                    if self._pass is None:
                        self._encoder = self.device.create_command_encoder()
                        self._pass = self._encoder.begin_compute_pass()
                        self._raw = self._pass._internal
                        self._pipeline = None
                    raw, last = self._raw, self._pipeline
                    for pipeline, group, (x, y, z) in some:
                        if pipeline is not last:
                            set_pipeline(raw, pipeline)
                            last = pipeline
                        set_group(raw, 0, group, 0, null)
                        dispatch(raw, x, y, z)
                    self._pipeline = last
                    self._waiting += len(some)

    def timed(self, steps: Sequence[Dispatch], times: int) -> float:
        """How long the device takes for `times` runs, by its own clock where it has one: in its ticks, else in
        seconds; for comparing."""
        with self.lock:
            self.wait()
            if "timestamp-query" not in self.device.features:
                start = time.perf_counter()
                self.record(steps, times)
                self.wait()
                return time.perf_counter() - start
            if self._clock is None:
                self._clock = (
                    self.device.create_query_set(type="timestamp", count=2),
                    self.device.create_buffer(size=16, usage=_QUERIED),
                )
            queries, ticks = self._clock
            self._encoder = self.device.create_command_encoder()
            self._pass = self._encoder.begin_compute_pass(
                timestamp_writes={
                    "query_set": queries,
                    "beginning_of_pass_write_index": 0,
                    "end_of_pass_write_index": 1,
                }
            )
            self._raw, self._pipeline, self._most = self._pass._internal, None, len(steps) * times
            self.record(steps, times)
            encoder, compute = self._recorded()
            compute.end()
            encoder.resolve_query_set(queries, 0, 2, ticks, 0)
            self.device.queue.submit([encoder.finish()])
            first, last = self.read([(ticks, 16)])[0].view(np.uint64)
            return float(last - first)

    def flush(self) -> None:
        """Hand over what is recorded, and return when it is handed over."""
        with self.lock:
            self._settle(0)
            if self._pass is not None:
                self._submit(*self._recorded())
            while self._doomed:
                self._doomed.pop().destroy()

    def _send(self) -> None:
        """Let the thread hand over what is recorded."""
        self._settle(_MOST_WAITING - 1)
        self._underway.append(self._courier.submit(self._submit, *self._recorded()))

    def _settle(self, most: int) -> None:
        """Wait until no more than so many submissions wait for the thread; its errors are raised here."""
        while len(self._underway) > most:
            self._underway.popleft().result()

    def _recorded(self) -> tuple[Any, Any]:
        encoder, compute = self._encoder, self._pass
        self._encoder = self._pass = self._raw = self._pipeline = None
        self._waiting = 0
        self.submissions += 1
        self._unsubmitted = 0
        self._most = min(2 * self._most, LARGEST_SUBMISSION)
        return encoder, compute

    def _submit(self, encoder: Any, compute: Any) -> None:
        compute.end()
        self.device.queue.submit([encoder.finish()])

    def write(self, gpu: Any, data: Any) -> None:
        """Copy host memory into a buffer, after all that was recorded before."""
        with self.lock:
            self.flush()
            view = memoryview(data).cast("B")
            for start in range(0, len(view), LARGEST_WRITE):
                part = view[start : start + LARGEST_WRITE]
                self.device.queue.write_buffer(gpu, start, part)
                self._unsubmitted += len(part)
                if self._unsubmitted >= LARGEST_UNSUBMITTED:
                    self.device.queue.submit([])
                    self._lib.wgpuDevicePoll(self.device._internal, True, self._ffi.NULL)
                    self._unsubmitted = 0

    def clear(self, gpu: Any) -> None:
        """Fill a buffer with zeros, after all that was recorded before."""
        with self.lock:
            self.flush()
            encoder = self.device.create_command_encoder()
            encoder.clear_buffer(gpu)
            self.device.queue.submit([encoder.finish()])
            self._unsubmitted = 0

    def destroy(self, gpu: Any) -> None:
        """Destroy a buffer once what was recorded is handed over: it may be in use there.

        The garbage collector calls this at any moment, so nothing is done at once.
        """
        self._doomed.append(gpu)

    def wait(self) -> None:
        """Return when the device has done everything."""
        self.flush()
        self._lib.wgpuDevicePoll(self.device._internal, True, self._ffi.NULL)
        self._most = FIRST_SUBMISSION

    def start_read(self, parts: Iterable[tuple[Any, int]]) -> Read:
        """Have the first bytes of several buffers copied to the host; the buffers may be reused at once."""
        with self.lock:
            self.flush()
            return self.reader.start(list(parts))

    def read(self, parts: Iterable[tuple[Any, int]]) -> list[np.ndarray]:
        """The first bytes of each of several buffers, with one copy to the host and one wait."""
        found = self.start_read(parts).result()
        self._most = FIRST_SUBMISSION
        return found

    def __del__(
        self, suppress: Any = contextlib.suppress
    ) -> None:  # modules may be gone at the end
        with suppress(Exception):  # a pass that is never ended is reported as an error
            if self._pass is not None:
                self._pass.end()
