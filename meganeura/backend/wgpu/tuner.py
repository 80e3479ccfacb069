"""Finding out how products run best on a device: candidates are timed there, and what is found is kept.

Only what `config.set_tuning(True)` (or MEGANEURA_TUNE=1) asks for is timed, so that the order of sums does not change
from one run to the next by itself. Results lie in a file for the adapter and its driver; for some adapters a
set of results comes with the package (`schedule/measured.py`).
"""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

from meganeura import config, disk_cache
from meganeura.graph.node import Graph, Node
from meganeura.ops.fused import unfused
from meganeura.schedule import choices, schedule
from meganeura.schedule.choices import Size
from meganeura.schedule.measured import MEASURED
from meganeura.schedule.plan import Limits
from meganeura.schedule.templates import tiles
from meganeura.schedule.templates.sizes import is_product, product_size

#: Candidates of one product, at most, and how much longer than the best estimate one may be estimated.
MOST_CANDIDATES, WORST_ESTIMATE = 16, 1.7
#: The estimate's own choice is kept unless another takes less than this part of its time.
_BETTER = 0.97
_TRIES = 3
_TRY_SECONDS = 0.002


class Tuner:
    """The choices that hold for one device, and the measuring of more."""

    def __init__(self, backend: Any):
        self.backend = backend
        info = backend.device.adapter.info
        names = ("vendor", "device", "description", "backend_type")
        self._file = disk_cache.key("products", *(str(info.get(n, "")) for n in names))
        self.choices: dict[Size, str] = {
            **MEASURED.get(str(info.get("device", "")), {}),
            **self._kept(),
        }

    def _kept(self) -> dict[Size, str]:
        """What is on disk, as far as it makes sense."""
        content = disk_cache.load(self._file)
        found: dict[Size, str] = {}
        for entry in content if isinstance(content, list) else []:
            try:
                (batch, m, n, k), label = entry
                block, _ = choices.split(label)
            except (TypeError, ValueError):
                continue
            if block in tiles.BY_LABEL and min(batch, m, n, k) > 0:
                found[int(batch), int(m), int(n), int(k)] = label
        return found

    def limits(self, limits: Limits) -> Limits:
        """The device's limits, with its choices."""
        return dataclasses.replace(limits, measured=choices.adopt(self.choices))

    def tune(self, graph: Graph) -> bool:
        """Time the products of a graph that have no choice yet; whether there were any."""
        wanted: dict[Size, Node] = {}
        for node in graph.nodes():
            if is_product(node):
                size = product_size(node)
                if min(size[1:3]) >= 4 and size not in self.choices:
                    wanted.setdefault(size, node)
        if not wanted:
            return False
        begun = time.perf_counter()
        for number, (size, node) in enumerate(wanted.items(), 1):
            _tell(f"timing product {number} of {len(wanted)}")
            self.choices[size] = self._best(size, node)
        _tell(f"timed {len(wanted)} products in {time.perf_counter() - begun:.1f} s\n")
        disk_cache.save(self._file, [[list(s), label] for s, label in self.choices.items()])
        return True

    def _best(self, size: Size, node: Node) -> str:
        kinds = tiles.candidates(*size, self.backend.limits)
        best = kinds[0][1]
        near = [label for time, label in kinds if time <= WORST_ESTIMATE * kinds[0][0]]
        times = self.times(size, node, near[:MOST_CANDIDATES])
        least = min(times, key=times.__getitem__)
        return least if times[least] < _BETTER * times[best] else best

    def times(self, size: Size, node: Node, labels: list[str]) -> dict[str, float]:
        """How long a product takes with each choice, in ticks or seconds of one kind."""
        backend = self.backend
        plain, _ = unfused(node)
        inputs = [
            Node("input", (), {"name": str(i)}, x.shape, x.dtype)
            for i, x in enumerate(plain.inputs)
        ]
        out = Node(plain.op, inputs, plain.attributes, plain.shape, plain.dtype)
        graph = Graph(inputs, [out], [], {})
        plans = []
        for label in labels:
            own = dataclasses.replace(backend.limits, measured=choices.adopt({size: label}))
            plans.append(schedule(graph, own))
        backend.pipelines().get([k.wgsl for plan in plans for k in plan.kernels])
        handles = [backend.allocate(x.shape, x.dtype) for x in (*inputs, out)]
        found: dict[str, float] = {}
        for label, plan in zip(labels, plans, strict=True):
            executable = backend.executable(plan, {})  # which keeps what the steps name
            steps = executable._bound(handles)
            if not found:  # clocks fall while kernels are compiled
                begun = time.perf_counter()
                while time.perf_counter() - begun < 0.02:
                    backend.stream.timed(steps, 4)
            begun = time.perf_counter()
            backend.stream.timed(steps, 2)
            again = int(_TRY_SECONDS / ((time.perf_counter() - begun) / 2))
            count = max(2, min(50, again))
            found[label] = min(backend.stream.timed(steps, count) / count for _ in range(_TRIES))
        return found


def _tell(text: str) -> None:
    if not config.quiet():
        print(f"\rmeganeura: {text}", end="", file=sys.stderr, flush=True)
