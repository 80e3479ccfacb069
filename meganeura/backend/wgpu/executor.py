"""Executing plans: pipelines once, bind groups once, one command buffer and one pass for many steps.

Recording goes through wgpu-native's own functions: the Python wrappers cost 2.5 times as much a
dispatch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from meganeura.backend.wgpu.memory import GpuBuffer, Pool
from meganeura.schedule.plan import Plan

#: Dispatches in one submission at most: long ones make some systems reset the driver.
LARGEST_SUBMISSION = 4096


class Pipelines:
    """Compute pipelines by their WGSL text."""

    def __init__(self, device: Any, checked: bool):
        self.device = device
        self.checked = checked
        self._known: dict[str, Any] = {}

    def get(self, wgsl: str) -> Any:
        found = self._known.get(wgsl)
        if found is None:
            module = self._module(wgsl)
            found = self._known[wgsl] = self.device.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": "main"}
            )
        return found

    def _module(self, wgsl: str) -> Any:
        if self.checked:
            return self.device.create_shader_module(code=wgsl)
        # Our kernels are in bounds by construction (the tests run them with checks on as well), so
        # the driver need not check every access: up to 1.5 times as fast.
        from wgpu.backends.wgpu_native import _api, lib

        original = _api.libf.wgpuDeviceCreateShaderModule
        _api.libf.wgpuDeviceCreateShaderModule = lambda device, descriptor: (
            lib.wgpuDeviceCreateShaderModuleTrusted(device, descriptor, 0)
        )
        try:
            return self.device.create_shader_module(code=wgsl)
        finally:
            _api.libf.wgpuDeviceCreateShaderModule = original


class WgpuExecutable:
    """A plan, ready to run on one device."""

    def __init__(
        self,
        plan: Plan,
        device: Any,
        pool: Pool,
        pipelines: Pipelines,
        report: dict[str, Any],
        graph: Any = None,
    ):
        self.graph = graph
        self.plan = plan
        self.device = device
        self.pool = pool
        self._report = report
        self.pipelines = [pipelines.get(k.wgsl) for k in plan.kernels]
        self.layouts = [p.get_bind_group_layout(0) for p in self.pipelines]
        self.owned: dict[int, GpuBuffer] = {}
        for buffer in plan.buffers:
            if buffer.role == "temporary":
                self.owned[buffer.id] = pool.take(buffer.bytes)
            elif buffer.role == "constant":
                held = pool.take(buffer.bytes)
                assert buffer.data is not None
                pool.write(held, buffer.data)
                self.owned[buffer.id] = held
        self._groups: OrderedDict[tuple[int, ...], list[Any]] = OrderedDict()
        self._external = [b for b in plan.buffers if b.role in ("input", "state", "output")]

    def _bound(self, buffers: dict[int, GpuBuffer]) -> list[Any]:
        """Bind groups for these external buffers, made at first need."""
        key = tuple(buffers[b.id].serial for b in self._external)
        groups = self._groups.get(key)
        if groups is not None:
            self._groups.move_to_end(key)
            return groups
        groups = []
        for kernel, layout in zip(self.plan.kernels, self.layouts, strict=True):
            entries = []
            for i, (buffer, _) in enumerate(kernel.bindings):
                held = buffers[buffer]
                resource = {"buffer": held.gpu, "offset": 0, "size": held.gpu.size}
                entries.append({"binding": i, "resource": resource})
            groups.append(self.device.create_bind_group(layout=layout, entries=entries))
        self._groups[key] = groups
        if len(self._groups) > 8:
            self._groups.popitem(last=False)
        return groups

    def _buffers(
        self, inputs: Sequence[GpuBuffer], states: Sequence[GpuBuffer]
    ) -> dict[int, GpuBuffer]:
        table = dict(self.owned)
        table.update(zip(self.plan.inputs, inputs, strict=True))
        table.update(zip(self.plan.states, states, strict=True))
        return table

    def run(self, inputs: Sequence[GpuBuffer], states: Sequence[GpuBuffer]) -> list[GpuBuffer]:
        """Run once; states are updated in place, outputs are fresh buffers."""
        table = self._buffers(inputs, states)
        outputs = [self.pool.take(self.plan.buffers[i].bytes) for i in self.plan.outputs]
        table.update(zip(self.plan.outputs, outputs, strict=True))
        self._submit(self._bound(table), 1)
        return outputs

    def run_many(
        self, inputs: Sequence[GpuBuffer], states: Sequence[GpuBuffer], count: int
    ) -> None:
        """Run `count` times with the same buffers, many steps to a submission."""
        if self.plan.outputs:
            raise ValueError("run_many is for plans without outputs")
        groups = self._bound(self._buffers(inputs, states))
        at_once = max(1, LARGEST_SUBMISSION // max(len(groups), 1))
        while count > 0:
            n = min(count, at_once)
            self._submit(groups, n)
            count -= n

    def _submit(self, groups: list[Any], times: int) -> None:
        if not groups:
            return
        from wgpu.backends.wgpu_native import ffi, lib

        encoder = self.device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        raw = compute._internal
        set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        set_group = lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        steps = [
            (p._internal, g._internal, k.workgroups)
            for p, g, k in zip(self.pipelines, groups, self.plan.kernels, strict=True)
        ]
        last = None
        null = ffi.NULL
        for _ in range(times):
            for pipeline, group, (x, y, z) in steps:
                if pipeline is not last:
                    set_pipeline(raw, pipeline)
                    last = pipeline
                set_group(raw, 0, group, 0, null)
                dispatch(raw, x, y, z)
        compute.end()
        self.device.queue.submit([encoder.finish()])

    def report(self) -> dict[str, Any]:
        """Figures for `explain`."""
        kernels = [
            {"name": k.name, "workgroups": k.workgroups, "bytes": k.bytes, "scopes": list(k.scopes)}
            for k in self.plan.kernels
        ]
        return {**self._report, **self.plan.statistics, "kernels": kernels, "graph": self.graph}
