"""No kernel binds more tensors than the device offers, however many a value is computed from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import ops
from meganeura.graph.autodiff import gradients
from meganeura.graph.trace import Trace
from meganeura.schedule import schedule
from meganeura.schedule.plan import Limits


def widest(build: Callable[[list[Any]], list[Any]], count: int, buffers: int) -> int:
    with Trace() as trace:
        inputs = [trace.input((6, 5), "float32") for _ in range(count)]
        outputs = build(inputs)
    plan = schedule(trace.graph(outputs), Limits(storage_buffers=buffers))
    assert plan.kernels
    return max(len(kernel.bindings) for kernel in plan.kernels)


def total(xs: list[Any]) -> Any:
    result = xs[0]
    for x in xs[1:]:
        result = result + x * 2.0
    return result


def tree(xs: list[Any]) -> Any:
    return xs[0] if len(xs) == 1 else tree(xs[: len(xs) // 2]) * tree(xs[len(xs) // 2 :])


CASES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "chain": lambda xs: [total(xs)],
    "tree": lambda xs: [tree(xs)],
    "concatenate": lambda xs: [ops.concatenate(xs, axis=1)],
    "stack of functions": lambda xs: [ops.stack([ops.exp(x) for x in xs], axis=1)],
    "rows": lambda xs: [ops.softmax(total(xs))],
    "product": lambda xs: [ops.matmul(total(xs), ops.transpose(tree(xs))) + total(xs)[:, :1]],
    "epilogue": lambda xs: [ops.relu(ops.matmul(xs[0], ops.transpose(xs[1])) @ total(xs))],
    "several": lambda xs: [
        total(xs),
        tree(xs),
        ops.sum(total(xs), axis=0),
        ops.exp(total(xs[::2])),
    ],
    "gradients": lambda xs: gradients(ops.sum(tree(xs[:12]) * total(xs)), xs[:12]),
}


@pytest.mark.parametrize("buffers", [8, 10, 16])
@pytest.mark.parametrize("name", CASES)
def test_bindings_stay_within_the_limit(name: str, buffers: int) -> None:
    assert widest(CASES[name], 40, buffers) <= buffers


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def build(xs: list[Any]) -> list[Any]:
        values = list(xs)
        for _ in range(60):
            a, b, c = (values[i] for i in rng.integers(len(values), size=3))
            steps = [
                lambda a=a, b=b, c=c: ops.where(a > b, c, a),
                lambda a=a, b=b: a * b,
                lambda a=a, b=b: ops.relu(a) - ops.flip(b, axis=0),
                lambda a=a, b=b: ops.concatenate([a[:, :2], b[:, 2:]], axis=1),
                lambda a=a, b=b: a + ops.mean(b, axis=-1, keepdims=True),
                lambda a=a, b=b, c=c: ops.matmul(ops.matmul(a, ops.transpose(b)), c) + b,
            ]
            values.append(steps[rng.integers(len(steps))]())
        return values[-3:]

    assert widest(build, 24, 8) <= 8
