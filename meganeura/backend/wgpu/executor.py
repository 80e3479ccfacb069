"""Executing plans: pipelines once, bind groups once, one command buffer and one pass for many steps."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from meganeura.backend.wgpu.memory import GpuBuffer, Pool, Scratch
from meganeura.backend.wgpu.patience import Patience
from meganeura.backend.wgpu.stream import Dispatch
from meganeura.schedule.plan import Plan


class Pipelines:
    """Compute pipelines by their WGSL text."""

    def __init__(self, device: Any, checked: bool):
        self.device = device
        self.checked = checked
        self._known: dict[str, Any] = {}

    def get(self, texts: Sequence[str]) -> list[Any]:
        """One for each text. Drivers take most of the time, and compile several at once."""
        new = [t for t in dict.fromkeys(texts) if t not in self._known]
        if len(new) < 2:
            made = [self._pipeline(module) for module in self._modules(new)]
        else:
            done: list[Any] = []  # by several threads, in any order

            def make(module: Any) -> Any:
                made = self._pipeline(module)
                done.append(made)
                return made

            workers = min(len(new), os.cpu_count() or 1, 8)
            with (
                Patience(lambda: f"the driver has compiled {len(done)} of {len(new)} kernels"),
                ThreadPoolExecutor(workers) as executor,
            ):
                made = list(executor.map(make, self._modules(new)))
        self._known.update(zip(new, made, strict=True))
        return [self._known[t] for t in texts]

    def _pipeline(self, module: Any) -> Any:
        return self.device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )

    def _modules(self, texts: Sequence[str]) -> list[Any]:
        if self.checked or not texts:
            return [self.device.create_shader_module(code=t) for t in texts]
        # Our kernels are in bounds by construction (the tests run them with checks on as well), so
        # the driver need not check every access: up to 1.5 times as fast.
        from wgpu.backends.wgpu_native import _api, lib

        with _trusting:
            original = _api.libf.wgpuDeviceCreateShaderModule
            _api.libf.wgpuDeviceCreateShaderModule = lambda device, descriptor: (
                lib.wgpuDeviceCreateShaderModuleTrusted(device, descriptor, 0)
            )
            try:
                return [self.device.create_shader_module(code=t) for t in texts]
            finally:
                _api.libf.wgpuDeviceCreateShaderModule = original


#: Held while modules are made without checks, which is a setting of the whole process.
_trusting = threading.Lock()


class WgpuExecutable:
    """A plan, ready to run on one device."""

    def __init__(
        self,
        plan: Plan,
        device: Any,
        pool: Pool,
        scratch: Scratch,
        pipelines: Pipelines,
        report: dict[str, Any],
        graph: Any = None,
    ):
        self.graph = graph
        self.plan = plan
        self.device = device
        self.pool = pool
        self.stream = pool.stream
        self._report = report
        self.pipelines = pipelines.get([k.wgsl for k in plan.kernels])
        self.layouts = [p.get_bind_group_layout(0) for p in self.pipelines]
        temporary = [b for b in plan.buffers if b.role == "temporary"]
        lent = scratch.lend([b.bytes for b in temporary])
        self.owned = {b.id: held for b, held in zip(temporary, lent, strict=True)}
        for buffer in plan.buffers:
            if buffer.role == "constant":
                held = pool.take(buffer.bytes)
                assert buffer.data is not None
                pool.write(held, buffer.data)
                self.owned[buffer.id] = held
        roles = {b.id: b.role for b in plan.buffers}
        self._external = [
            tuple(id for id, _ in k.bindings if roles[id] in ("input", "state", "output"))
            for k in plan.kernels
        ]
        self._groups: list[OrderedDict[tuple[int, ...], Any]] = [
            OrderedDict() for _ in plan.kernels
        ]
        self._bound_to: tuple[int, ...] | None = None
        self._steps: list[Dispatch] = []

    def _bound(self, handles: list[GpuBuffer]) -> list[Dispatch]:
        """The dispatches on these inputs, states and outputs; bind groups are made at first need."""
        key = tuple([h.serial for h in handles])
        if key == self._bound_to:
            return self._steps
        table = dict(self.owned)
        plan = self.plan
        table.update(zip((*plan.inputs, *plan.states, *plan.outputs), handles, strict=True))
        self._steps = [
            (self.pipelines[i]._internal, self._group(i, table)._internal, kernel.workgroups)
            for i, kernel in enumerate(plan.kernels)
        ]
        self._bound_to = key
        return self._steps

    def _run(self, handles: list[GpuBuffer], times: int) -> None:
        # Threads share executables of equal graphs: what is bound must be recorded before another binds.
        with self.stream.lock:
            self.stream.record(self._bound(handles), times)

    def _group(self, i: int, table: dict[int, GpuBuffer]) -> Any:
        known = self._groups[i]
        key = tuple([table[id].serial for id in self._external[i]])
        found = known.get(key)
        if found is not None:
            known.move_to_end(key)
            return found
        entries = []
        for at, (buffer, _) in enumerate(self.plan.kernels[i].bindings):
            gpu = table[buffer].gpu
            resource = {"buffer": gpu, "offset": 0, "size": gpu.size}
            entries.append({"binding": at, "resource": resource})
        found = known[key] = self.device.create_bind_group(layout=self.layouts[i], entries=entries)
        # The dispatches of the last call hold no references of their own: keep more than they use.
        if len(known) > 8:
            known.popitem(last=False)
        return found

    def run(self, inputs: Sequence[GpuBuffer], states: Sequence[GpuBuffer]) -> list[GpuBuffer]:
        """Run once; states are updated in place, outputs are fresh buffers."""
        outputs = [self.pool.take(self.plan.buffers[i].bytes) for i in self.plan.outputs]
        self._run([*inputs, *states, *outputs], 1)
        return outputs

    def run_many(
        self, inputs: Sequence[GpuBuffer], states: Sequence[GpuBuffer], count: int
    ) -> None:
        """Run `count` times with the same buffers, many steps to a submission."""
        if self.plan.outputs:
            raise ValueError("run_many is for plans without outputs")
        self._run([*inputs, *states], count)

    def report(self) -> dict[str, Any]:
        """Figures for `explain`."""
        kernels = [
            {"name": k.name, "workgroups": k.workgroups, "bytes": k.bytes, "scopes": list(k.scopes),
             "apart": k.apart}
            for k in self.plan.kernels
        ]  # fmt: skip
        return {**self._report, **self.plan.statistics, "kernels": kernels, "graph": self.graph}
