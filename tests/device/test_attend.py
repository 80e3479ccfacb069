"""Attention as one kernel, for every kind of device, against NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura import layers, ops
from meganeura.backend.numpy.backend import NumpyExecutable
from meganeura.graph.trace import Trace
from meganeura.layers.dot_product import ScaledDotProduct
from meganeura.rewrite import optimise
from meganeura.schedule import Limits, schedule
from meganeura.schedule.templates.attend import LARGEST, queries_of

pytest.importorskip("wgpu")

DEVICES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "GPU": {"software": False},
    "small GPU": {"software": False, "storage_buffers": 8, "workgroup_bytes": 16 << 10,
                  "invocations": 256},
    "small": {"storage_buffers": 8, "workgroup_bytes": 16 << 10, "invocations": 256},
}  # fmt: skip


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    yield from checks.wgpu_backend()


def masked(q: Any, k: Any, v: Any) -> Any:
    """With a bias per key that another tensor gives, and weights written out."""
    scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * 0.3 + k[:, :, :, 0][:, :, None]
    return ops.relu(ops.matmul(ops.softmax(scores, axis=-1), v)) + 1.0


CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "causal": (ScaledDotProduct(causal=True), ((2, 9, 2, 8),) * 3),
    "groups": (ScaledDotProduct(causal=True), ((1, 13, 6, 8), (1, 13, 2, 8), (1, 13, 2, 8))),
    "cross": (ScaledDotProduct(), ((2, 5, 3, 8), (2, 70, 3, 8), (2, 70, 3, 6))),
    "one query": (ScaledDotProduct(), ((2, 1, 2, 8), (2, 33, 2, 8), (2, 33, 2, 8))),
    "capped": (ScaledDotProduct(softcap=5.0), ((1, 11, 2, 8),) * 3),
    "bias": (masked, ((2, 3, 7, 5), (2, 3, 10, 5), (2, 3, 10, 4))),
    "two keys": (masked, ((1, 1, 3, 4), (1, 1, 2, 4), (1, 1, 2, 2))),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_values(gpu: Any, name: str, device: str) -> None:
    function, shapes = CASES[name]
    before = gpu.limits
    limits = dataclasses.replace(
        before, **{k: min(v, getattr(before, k)) for k, v in DEVICES[device].items()}
    )
    with Trace() as trace:
        inputs = [trace.input(shape, "float32") for shape in shapes]
        graph = trace.graph([function(*inputs)])
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype("float32") for s in shapes]
    gpu.limits = limits
    try:
        executable = gpu.compile(graph)
    finally:
        gpu.limits = before
    assert any(k.name.startswith("attend") for k in executable.plan.kernels)
    assert not any("matmul" in k.name for k in executable.plan.kernels)
    (found,) = executable.run([gpu.upload(a) for a in arrays], [])
    (right,) = NumpyExecutable(graph, "float64").run(arrays, [])
    shape = graph.outputs[0].shape
    np.testing.assert_allclose(gpu.download(found, shape, "float32"), right, rtol=2e-5, atol=2e-5)


def test_weights_that_somebody_looks_at_are_computed() -> None:
    with Trace() as trace:
        q, k = (trace.input((2, 6, 8), "float32") for _ in range(2))
        weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 2, 1))), axis=-1)
        graph = trace.graph([ops.matmul(weights, k), weights])
    names = [k.name for k in schedule(graph, Limits()).kernels]
    assert not any("attend" in name for name in names)


def test_training_keeps_the_weights() -> None:
    from meganeura.graph.autodiff import gradients

    with Trace() as trace:
        q, k = (trace.input((1, 6, 2, 8), "float32") for _ in range(2))
        out = ScaledDotProduct()(q, k, k)
        graph = trace.graph([out, *gradients(ops.sum(out * out), [q, k])])
    assert not any("attend" in k.name for k in schedule(graph, Limits()).kernels)


def test_many_keys_stay_products() -> None:
    with Trace() as trace:
        q, k = (trace.input((1, LARGEST + 1, 1, 4), "float32") for _ in range(2))
        graph = trace.graph([ScaledDotProduct()(q, k, k)])
    assert not any("attend" in k.name for k in schedule(graph, Limits()).kernels)


@pytest.mark.parametrize("limits", [Limits(), Limits(workgroup_bytes=48 << 10)])
@pytest.mark.parametrize("keys", [1, 128, 512])
@pytest.mark.parametrize("queries", [1, 3, 8, 100])
def test_queries_of_a_workgroup(limits: Limits, keys: int, queries: int) -> None:
    count = queries_of(limits, queries, keys, 64)
    assert count in (1, 2, 4, 8)
    assert 4 * (count * (keys + 64) + 64) <= limits.workgroup_bytes
    assert count == 1 or count // 2 < queries


def test_a_layer_of_attention_is_one_kernel_for_it() -> None:
    attention = layers.MultiHeadAttention(2, 4)
    with Trace() as trace:
        x = trace.input((2, 6, 8), "float32")
        graph = trace.graph([attention(x, x)])
    kernels = [
        p for k in schedule(optimise(graph)[0], Limits()).kernels for p in k.name.split(" | ")
    ]
    assert sum("attend" in name for name in kernels) == 1
