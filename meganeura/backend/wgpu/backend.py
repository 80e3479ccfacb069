"""The GPU backend: WGSL on wgpu."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura import config
from meganeura.backend.base import no_half
from meganeura.backend.wgpu.device import Device, DeviceError, NoAdapterError
from meganeura.backend.wgpu.executor import Pipelines, WgpuExecutable
from meganeura.backend.wgpu.memory import GpuBuffer, Pool, Scratch, from_storage, to_storage
from meganeura.backend.wgpu.stream import Stream
from meganeura.backend.wgpu.tuner import Tuner
from meganeura.graph.node import Graph
from meganeura.schedule import cache, schedule
from meganeura.schedule.budget import check_budget
from meganeura.schedule.plan import BYTES, Plan, storage_bytes

__all__ = ["DeviceError", "NoAdapterError", "WgpuBackend"]


class WgpuBackend:
    """Handles are GpuBuffers."""

    name = "wgpu"

    def __init__(self) -> None:
        self.device = Device()
        self.stream = Stream(self.device.handle)
        self.pool = Pool(self.device.handle, self.stream)
        self.scratch = Scratch(self.pool)
        self.limits = self.device.limits
        self.tuner = Tuner(self)
        self.limits = self.tuner.limits(self.limits)
        self.half = self.device.half
        self._pipelines: dict[bool, Pipelines] = {}
        if not config.quiet():
            print(f"meganeura: computing on {self.describe()}", flush=True)

    def describe(self) -> str:
        return self.device.describe()

    # --- memory --------------------------------------------------------------------------------

    def upload(self, array: np.ndarray) -> GpuBuffer:
        held = self._take(array.shape, str(array.dtype))
        self.write(held, array)
        return held

    def allocate(self, shape: Sequence[int], dtype: str) -> GpuBuffer:
        held = self._take(shape, dtype)
        self.stream.clear(held.gpu)
        return held

    def _take(self, shape: Sequence[int], dtype: str) -> GpuBuffer:
        size = storage_bytes(math.prod(shape), dtype)
        if size > self.limits.binding_bytes:
            raise ValueError(
                f"an array of shape {tuple(shape)} takes {size} bytes, and the device binds at most "
                f"{self.limits.binding_bytes}; give the data in batches, from a generator"
            )
        return self.pool.take(size)

    def write(self, handle: GpuBuffer, array: np.ndarray) -> None:
        self.pool.write(handle, to_storage(array).reshape(-1))

    def download(self, handle: GpuBuffer, shape: Sequence[int], dtype: str) -> np.ndarray:
        return self.download_many([(handle, shape, dtype)])[0]

    def download_many(
        self, arrays: Sequence[tuple[GpuBuffer, Sequence[int], str]]
    ) -> list[np.ndarray]:
        """Several arrays with one wait."""
        return _arrays(self.stream.read(_places(arrays)), arrays)

    def download_later(
        self, arrays: Sequence[tuple[GpuBuffer, Sequence[int], str]]
    ) -> Callable[[], list[np.ndarray]]:
        """Have arrays copied to the host; returns what waits for them. The handles may be let go at once."""
        read = self.stream.start_read(_places(arrays))
        kinds = [(None, shape, dtype) for _, shape, dtype in arrays]
        return lambda: _arrays(read.result(), kinds)

    def synchronize(self) -> None:
        self.stream.wait()

    def release(self) -> None:
        """Give memory that nobody uses back to the device."""
        self.pool.release()
        self.stream.reader.release()

    # --- compiling -----------------------------------------------------------------------------

    def compile(self, graph: Graph, optimize: bool = True) -> WgpuExecutable:
        """Optimise and schedule, or find the plan on disk; then make the pipelines."""
        start = time.perf_counter()
        if not self.half and any(n.dtype == "float16" for n in graph.nodes()):
            raise ValueError(no_half(self.describe()))
        name = cache.name_of(graph, self.limits, optimize)
        known = None if name is None else cache.load(name)
        if known is not None:
            plan, report = known
            report["plan_from_cache"] = True
        else:
            plan, report = self._plan(graph, optimize)
            name = cache.name_of(graph, self.limits, optimize)  # by what was measured meanwhile
            if name is not None:
                cache.save(name, plan, report)
        report.update(backend=self.name, device=self.describe())
        check_budget(plan, config.memory_bytes() or self.device.memory_bytes)
        planned = time.perf_counter()
        executable = self.executable(plan, report, graph)
        report["pipeline_seconds"] = time.perf_counter() - planned
        report["seconds"] = time.perf_counter() - start
        return executable

    def pipelines(self) -> Pipelines:
        """Those with the driver's checks, or without, as is set."""
        checked = config.checked()
        if checked not in self._pipelines:
            self._pipelines[checked] = Pipelines(self.device.handle, checked)
        return self._pipelines[checked]

    def executable(
        self, plan: Plan, report: dict[str, Any], graph: Graph | None = None
    ) -> WgpuExecutable:
        """A plan, ready to run."""
        device = self.device.handle
        return WgpuExecutable(
            plan, device, self.pool, self.scratch, self.pipelines(), report, graph
        )

    def _plan(self, graph: Graph, optimize: bool) -> tuple[Plan, dict[str, Any]]:
        report: dict[str, Any] = {}
        before = len(graph.nodes())
        if optimize:
            graph, report = _optimised(graph)
        report.setdefault("nodes_before", before)
        report.setdefault("nodes_after", len(graph.nodes()))
        report.setdefault("rewrites", {})
        if config.tuning() and not self.limits.software and self.tuner.tune(graph):
            self.limits = self.tuner.limits(self.limits)
        return schedule(graph, self.limits), report


def _places(arrays: Sequence[tuple[GpuBuffer, Sequence[int], str]]) -> list[tuple[Any, int]]:
    return [(h.gpu, math.prod(shape) * BYTES.get(dtype, 4)) for h, shape, dtype in arrays]


def _arrays(
    parts: list[np.ndarray], arrays: Sequence[tuple[Any, Sequence[int], str]]
) -> list[np.ndarray]:
    kinds = ((tuple(shape), dtype) for _, shape, dtype in arrays)
    return [from_storage(part, *kind) for part, kind in zip(parts, kinds, strict=True)]


def _optimised(graph: Graph) -> tuple[Graph, dict[str, Any]]:
    """Through the e-graph. Its failure is an error under MEGANEURA_STRICT=1, else told once."""
    try:
        from meganeura.rewrite import optimise

        return optimise(graph)
    except Exception as error:
        if os.environ.get("MEGANEURA_STRICT", "0") == "1":
            raise
        warnings.warn(f"the optimiser failed ({error!r}); the graph runs as it was written")
        return graph, {}
