"""Dispatches, memory and compile time of whole models, without running them.

    python bench/dispatches.py [NAME ...] [--device software|gpu|small] [--kernels]

Models of bench/workloads.py are built and their steps traced, optimised and scheduled by a backend
that stores nothing, so that neither a device nor memory for the weights is needed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import workloads

from meganeura import backend as backends
from meganeura import execution, initializers
from meganeura.graph.node import Graph
from meganeura.rewrite import optimise
from meganeura.schedule import Limits, Plan, cache, schedule

#: A software adapter as CI has one, a large GPU, and the least that WebGPU promises.
DEVICES = {
    "software": Limits(
        storage_buffers=16, workgroup_bytes=32 << 10, invocations=1024, software=True
    ),
    "gpu": Limits(
        storage_buffers=16, binding_bytes=2 << 30, workgroup_bytes=48 << 10, invocations=1024
    ),
    "small": Limits(),
}

#: Row of the table -> (workload, kind of step, most dispatches that are wanted).
ROWS: dict[str, tuple[str, str, int]] = {
    "MLP, batch 32, SGD, training": ("mlp_b32_sgd", "train", 10),
    "Keras's MNIST convnet, Adam, training": ("convnet_b128_adam", "train", 25),
    "U-Net small, training": ("unet_small_b2_adam", "train", 330),
    "U-Net small, inference": ("unet_small_b2_adam", "predict", 75),
    "SmolVLA expert, training": ("smolvla_c50_sgd", "train", 450),
    "SmolVLA expert, inference": ("smolvla_c50_sgd", "predict", 150),
    "SmolLM2-135M, length 128, training": ("smollm2_s128_adam", "train", 850),
    "SmolLM2-135M, length 128, prefill": ("smollm2_s128_adam", "predict", 275),
    "ResNet-50, batch 16, training": ("resnet50_b16_sgd", "train", 330),
    "ResNet-50, batch 16, inference": ("resnet50_b16_sgd", "predict", 60),
    "Whisper-tiny encoder, inference": ("whisper_encoder_adam", "predict", 45),
}


class _Planned:
    """An executable that has a plan and runs nothing."""

    def __init__(self, graph: Graph, plan: Plan, report: dict[str, Any]):
        self.graph, self.plan, self._report = graph, plan, report

    def run(self, inputs: Sequence[Any], states: Sequence[Any]) -> list[Any]:
        return [(n.shape, n.dtype) for n in self.graph.outputs]

    def run_many(self, inputs: Sequence[Any], states: Sequence[Any], count: int) -> None:
        pass

    def report(self) -> dict[str, Any]:
        return self._report


class PlanningBackend:
    """Compiles for a device that need not exist; handles are shapes and dtypes, and hold nothing."""

    name = "planning"

    def __init__(self, limits: Limits, keep: bool = False):
        """`keep` True finds plans on disk and leaves them there, as the GPU's backend does."""
        self.limits, self.keep = limits, keep

    def upload(self, array: np.ndarray) -> Any:
        return array.shape, str(array.dtype)

    def allocate(self, shape: Sequence[int], dtype: str) -> Any:
        return tuple(shape), dtype

    def write(self, handle: Any, array: np.ndarray) -> None:
        pass

    def download(self, handle: Any, shape: Sequence[int], dtype: str) -> np.ndarray:
        return np.broadcast_to(np.zeros((), dtype), tuple(shape))

    def download_many(self, arrays: Sequence[tuple[Any, Sequence[int], str]]) -> list[np.ndarray]:
        return [self.download(*a) for a in arrays]

    def download_later(
        self, arrays: Sequence[tuple[Any, Sequence[int], str]]
    ) -> Callable[[], list[np.ndarray]]:
        return lambda: self.download_many(arrays)

    def compile(self, graph: Graph, optimize: bool = True) -> _Planned:
        start = time.process_time()
        report: dict[str, Any] = {}
        name = cache.name_of(graph, self.limits, optimize) if self.keep else None
        known = None if name is None else cache.load(name)
        if known is not None:
            plan, report = known
            return _Planned(graph, plan, {**report, "plan_from_cache": True})
        ready = graph
        if optimize:
            ready, report = optimise(graph)
        optimised = time.process_time()
        plan = schedule(ready, self.limits)
        report["optimise_cpu"] = optimised - start
        report["schedule_cpu"] = time.process_time() - optimised
        report |= plan.statistics
        if name is not None:
            cache.save(name, plan, report)
        return _Planned(graph, plan, report)

    def synchronize(self) -> None:
        pass

    def release(self) -> None:
        pass

    def describe(self) -> str:
        return "nothing: plans are made and not run"


@contextmanager
def planning(limits: Limits, keep: bool = False) -> Iterator[PlanningBackend]:
    """Inside, everything is compiled for these limits and nothing runs; without files of earlier
    processes, unless `keep` is True."""
    before, chosen = backends._current, os.environ.get("MEGANEURA_CACHE")
    backends._current = found = PlanningBackend(limits, keep)
    if not keep:
        os.environ["MEGANEURA_CACHE"] = "0"
    execution.clear_cache()
    try:
        yield found
    finally:
        backends._current = before
        if chosen is not None:
            os.environ["MEGANEURA_CACHE"] = chosen
        elif not keep:
            del os.environ["MEGANEURA_CACHE"]
        execution.clear_cache()


@contextmanager
def without_values() -> Iterator[None]:
    """Initial values are drawn by the host: here they are zeros, which take no memory before they are read."""
    kinds, waiting = [], [initializers.Initializer]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if "draw" in vars(kind):
            kinds.append((kind, kind.draw))
    for kind, _ in kinds:
        kind.draw = _zeros  # type: ignore[method-assign]
    try:
        yield
    finally:
        for kind, draw in kinds:
            kind.draw = draw  # type: ignore[method-assign]


def _zeros(self: Any, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
    return np.zeros(tuple(shape), dtype or "float32")


def planned(workload: str, kinds: Sequence[str], limits: Limits) -> dict[str, _Planned]:
    """The plan of each kind of step ("train", "predict") of a workload."""
    with planning(limits), without_values():
        model, x, y = workloads.prepared(workload)
        found = {}
        for kind in kinds:
            start = time.process_time()
            if kind == "train":
                model.train_on_batch(x, y)
            else:
                model.predict_on_batch(x)
            executable = model._last_step[kind].executable
            executable._report["step_cpu"] = time.process_time() - start
            found[kind] = executable
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="workloads; all where none is named")
    parser.add_argument("--device", choices=DEVICES, default="software")
    parser.add_argument("--kernels", action="store_true", help="also count kernels by kind")
    arguments = parser.parse_args()
    print(f"{'step':38s} {'wanted':>6s} {'kernels':>7s} {'nodes':>11s} {'moved':>9s} {'peak':>9s} "
          f"{'least':>9s} {'over':>5s} {'step':>6s} {'rewrite':>7s} {'plan':>6s}")  # fmt: skip
    cached: dict[str, dict[str, _Planned]] = {}
    for row, (workload, kind, wanted) in ROWS.items():
        if arguments.names and workload not in arguments.names:
            continue
        if workload not in cached:
            kinds = [k for w, k, _ in ROWS.values() if w == workload]
            cached = {workload: planned(workload, kinds, DEVICES[arguments.device])}
        e = cached[workload][kind]
        r = e.report()
        least = r.get("least_bytes", 0)
        nodes = f"{r.get('nodes_before', 0)}>{r.get('nodes_after', 0)}"
        print(
            f"{row:38s} {wanted:6d} {r['dispatches']:7d} {nodes:>11s} {r['moved_bytes'] / 2**20:7.1f}Mi "
            f"{r['temporary_bytes'] / 2**20:7.1f}Mi {least / 2**20:7.1f}Mi "
            f"{100 * (r['temporary_bytes'] / max(least, 1) - 1):4.0f}% {r['step_cpu']:6.2f} "
            f"{r['optimise_cpu']:7.2f} {r['schedule_cpu']:6.2f}",
            flush=True,
        )
        if arguments.kernels:
            for name, count in Counter(k.name for k in e.plan.kernels).most_common(40):
                print(f"{count:8d}  {name}")


if __name__ == "__main__":
    main()
