"""What plans tell: why kernels are apart, what memory they need, and what would fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meganeura import ops
from meganeura.graph.trace import Trace
from meganeura.ops.registry import scope
from meganeura.rewrite.explain import explain_text
from meganeura.schedule import Limits, Plan, cache, schedule
from meganeura.schedule.budget import check_budget
from meganeura.variable import Variable


def two_layers(batch: int = 64) -> Plan:
    w = [Variable(np.zeros((32, 32), "float32"), name=f"w{i}") for i in range(2)]
    with Trace() as trace:
        x = trace.input((batch, 32), "float32")
        for i in range(2):
            with scope(f"dense_{i}"):
                x = ops.tanh(ops.matmul(x, w[i].value))
        graph = trace.graph([ops.softmax(x)])
    return schedule(graph, Limits())


def test_a_kernel_says_why_it_is_not_part_of_another() -> None:
    plan = two_layers()
    (first, second) = [k for k in plan.kernels if k.name.startswith("matmul")]
    assert not first.apart
    ((made, reads, why),) = second.apart
    assert "dense_0" in made
    assert "dense_1" in reads
    assert "from memory" in why


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda x: [ops.sum(x, axis=0), ops.sum(ops.sum(x, axis=0))], "different dimensions"),
        (lambda x: [ops.tanh(x), ops.flip(ops.tanh(x), axis=0)], "other invocations"),
        (lambda x: [ops.tanh(x), ops.tanh(x)[:3]], "different sizes"),
        (lambda x: [ops.sum(x, axis=1), ops.sum(x, axis=1)[:2]], "neither a value for each row"),
    ],
)
def test_reasons(build: Any, reason: str) -> None:
    with Trace() as trace:
        graph = trace.graph(build(trace.input((8, 16), "float32")))
    found = [why for kernel in schedule(graph, Limits()).kernels for _, _, why in kernel.apart]
    assert any(reason in why for why in found), found


def test_the_report_counts_reasons() -> None:
    plan = two_layers()
    kernels = [{**vars(k), "scopes": list(k.scopes)} for k in plan.kernels]
    text = explain_text({**plan.statistics, "kernels": kernels})
    assert "why results go through memory:" in text
    assert "dense_0" in text
    assert "(at least " in text


def test_reasons_are_kept_with_the_plan() -> None:
    plan = two_layers()
    assert cache.from_json(cache.to_json(plan)).kernels == plan.kernels


def test_a_plan_that_fits_is_no_error() -> None:
    plan = two_layers()
    check_budget(plan, 0)
    check_budget(plan, plan.statistics["buffer_bytes"])


def test_a_plan_that_does_not_fit_says_what_would() -> None:
    plan = two_layers(64)
    with pytest.raises(MemoryError) as error:
        check_budget(plan, plan.statistics["buffer_bytes"] - 1)
    text = str(error.value)
    assert "float32[64, 32]" in text
    fitting = int(text.split("a batch of ")[1].split()[0])
    assert 32 <= fitting < 64
    smaller = two_layers(fitting)
    check_budget(smaller, plan.statistics["buffer_bytes"] - 1)


def test_weights_alone_may_not_fit() -> None:
    with pytest.raises(MemoryError, match="no batch would fit"):
        check_budget(two_layers(), 100)
