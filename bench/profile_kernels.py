"""Where a step's time goes: each kernel of a workload's plan, timed by itself.

python bench/profile_kernels.py --only resnet50 [--kind infer] [--top 25] [--repeat 50]

Every kernel is dispatched many times in a row on the buffers of the plan. The sum is what the device would
need if nothing overlapped; the step, timed as a whole, shows what the gaps between kernels add.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import workloads  # noqa: E402

import meganeura as mg  # noqa: E402
from meganeura.backend import backend_object  # noqa: E402


def kernel_times(executable: Any, handles: list[Any], repeat: int) -> list[float]:
    """Microseconds of each kernel."""
    backend = backend_object()
    steps = executable._bound(handles)
    times = []
    for step in steps:
        backend.stream.record([step], 3)
        backend.synchronize()
        start = time.perf_counter()
        backend.stream.record([step], repeat)
        backend.synchronize()
        times.append((time.perf_counter() - start) / repeat * 1e6)
    return times


def profile(name: str, kind: str, top: int, repeat: int) -> None:
    model, x, y = workloads.prepared(name)
    inputs = list(x.values()) if isinstance(x, dict) else [x]
    if kind == "train":
        model.train_on_batch(x, y)
        data = (*inputs, y)
    else:
        model.predict_on_batch(x)
        data = tuple(inputs)
    executable, handles, states = workloads._bound(model, kind, data)
    plan = executable.plan
    backend = backend_object()
    outputs = [backend.pool.take(plan.buffers[i].bytes) for i in plan.outputs]
    bound = [*handles, *states, *outputs]
    begun = time.perf_counter()
    while time.perf_counter() - begun < 0.5:  # clocks rise under load
        backend.stream.record(executable._bound(bound), 5)
        backend.synchronize()
    times = kernel_times(executable, bound, repeat)
    steps = executable._bound(bound)
    backend.stream.record(steps, 2)
    backend.synchronize()
    start = time.perf_counter()
    backend.stream.record(steps, 10)
    backend.synchronize()
    whole = (time.perf_counter() - start) / 10 * 1e3
    print(
        f"\n{name} {kind}: {len(times)} kernels, {sum(times) / 1e3:.3f} ms one by one, {whole:.3f} ms together, "
        f"temporary {executable.report().get('temporary_bytes', 0) / 2**20:.1f} MiB"
    )
    families: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for kernel, t in zip(plan.kernels, times, strict=True):
        family = families[kernel.name.split(":")[0]]
        family[0] += 1
        family[1] += t
    for family, (count, total) in sorted(families.items(), key=lambda f: -f[1][1]):
        print(f"  {family:28s} {count:5.0f} kernels {total / 1e3:9.3f} ms")
    order = sorted(range(len(times)), key=lambda i: -times[i])[:top]
    print(f"  {'us':>8s} {'GB/s':>7s} {'GFLOP/s':>8s}  workgroups       kernel")
    for i in order:
        k = plan.kernels[i]
        rate, work = k.bytes / times[i] / 1e3, k.flops / times[i] / 1e3
        places = ", ".join(list(k.scopes)[:2])
        print(
            f"  {times[i]:8.1f} {rate:7.0f} {work:8.0f}  {k.workgroups!s:16s} {k.name} [{places}]"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="comma-separated parts of workload names")
    parser.add_argument("--kind", default="train", choices=("train", "infer"))
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--repeat", type=int, default=50)
    arguments = parser.parse_args()
    print(mg.backend.describe())
    for name in workloads.WORKLOADS:
        if any(part in name for part in arguments.only.split(",")):
            profile(name, arguments.kind, arguments.top, arguments.repeat)


if __name__ == "__main__":
    main()
