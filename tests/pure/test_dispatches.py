"""Dispatches, memory and bindings of whole models, from their plans alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meganeura import ops
from meganeura.graph.trace import Trace
from meganeura.schedule import Limits, Plan, schedule
from meganeura.variable import Variable

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import dispatches  # noqa: E402

_plans: dict[tuple[str, str], dict[str, Any]] = {}


def plan_of(workload: str, kind: str, device: str = "software") -> Any:
    """Both steps of a workload are planned at once, and kept."""
    if (workload, device) not in _plans:
        kinds = [k for w, k, _ in dispatches.ROWS.values() if w == workload]
        found = dispatches.planned(workload, kinds, dispatches.DEVICES[device])
        _plans[workload, device] = found
    return _plans[workload, device][kind]


def check_plan(plan: Plan, limits: Limits) -> None:
    """What the device asks of every plan, and that nothing is overwritten while it is needed."""
    for kernel in plan.kernels:
        buffers = [b for b, _ in kernel.bindings]
        assert len(set(buffers)) == len(buffers) <= limits.storage_buffers
        assert max(kernel.workgroups) <= limits.workgroups
    written: set[int] = {b.id for b in plan.buffers if b.role in ("input", "state", "constant")}
    for kernel in plan.kernels:
        for buffer, writes in kernel.bindings:
            assert writes or buffer in written, f"{kernel.name} reads what nobody wrote"
        written |= {b for b, writes in kernel.bindings if writes}


#: How far memory is above the largest live set, where that is more than 15 %: a handful of tensors of
#: different sizes fits no better.
_OVER = {"Keras's MNIST convnet, Adam, training": 1.25}


@pytest.mark.parametrize("row", dispatches.ROWS)
def test_dispatches_and_memory(row: str) -> None:
    workload, kind, most = dispatches.ROWS[row]
    over = _OVER.get(row, 1.15)
    executable = plan_of(workload, kind)
    report = executable.report()
    assert report["dispatches"] == len(executable.plan.kernels) <= most
    least = report["least_bytes"]
    assert least <= report["temporary_bytes"] <= over * least + 4096
    check_plan(executable.plan, dispatches.DEVICES["software"])


@pytest.mark.parametrize(("row", "most"), [("ResNet-50, batch 16, training", 350)])
def test_dispatches_on_a_large_gpu(row: str, most: int) -> None:
    """Statistics of batch normalisation by one kernel, or two where columns are long. Products in parts,
    which keep a large device busy, take some more."""
    workload, kind, _ = dispatches.ROWS[row]
    executable = plan_of(workload, kind, "gpu")
    assert len(executable.plan.kernels) <= most
    check_plan(executable.plan, dispatches.DEVICES["gpu"])


@pytest.mark.parametrize("workload", ["mlp_b32_sgd", "convnet_b128_adam", "unet_tiny_b4_adam"])
@pytest.mark.parametrize("device", ["gpu", "small"])
def test_plans_for_other_devices(workload: str, device: str) -> None:
    limits = dispatches.DEVICES[device]
    for executable in dispatches.planned(workload, ["train", "predict"], limits).values():
        check_plan(executable.plan, limits)


def test_a_state_that_a_product_reads_is_not_overwritten() -> None:
    """Other rows of the product still read it."""
    w = Variable(np.zeros((4, 4), "float32"), name="w")
    with Trace() as trace:
        a = trace.input((4, 4), "float32")
        w.assign(ops.matmul(w.value, a))
        graph = trace.graph([])
    plan = schedule(graph, Limits())
    assert [k.name for k in plan.kernels][-1] == "copy"


def test_the_old_value_is_read_before_it_is_overwritten() -> None:
    """Two readers of a state and its update: no copy, and the update comes last."""
    w = Variable(np.zeros((8, 4), "float32"), name="w")
    with Trace() as trace:
        a, b = trace.input((3, 8), "float32"), trace.input((4, 8), "float32")
        old = w.value
        w.assign(old - 0.5 * ops.transpose(b))
        graph = trace.graph([ops.matmul(a, old), ops.matmul(old, b)])
    plan = schedule(graph, Limits())
    state = plan.states[0]
    uses = [dict(k.bindings).get(state) for k in plan.kernels]
    assert "copy" not in [k.name for k in plan.kernels]
    assert uses[-1] is True
    assert not any(uses[:-1])


def test_independent_kernels_share_a_dispatch() -> None:
    with Trace() as trace:
        x = trace.input((6, 8), "float32")
        weights = [trace.input((8, n), "float32") for n in (8, 5, 16)]
        graph = trace.graph([ops.matmul(x, w) for w in weights])
    assert len(schedule(graph, Limits(software=True)).kernels) == 1


def test_a_long_chain_needs_no_recursion() -> None:
    """As many kernels as it takes, none of them too long."""
    with Trace() as trace:
        x = y = trace.input((4, 4), "float32")
        for i in range(20_000):
            y = ops.tanh(y) if i % 2 else y + x
        graph = trace.graph([y])
    plan = schedule(graph, Limits())
    assert 2 < len(plan.kernels) < 100
    assert max(len(k.wgsl) for k in plan.kernels) < 200_000
