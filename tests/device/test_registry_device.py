"""Every primitive on the adapter against its NumPy reference, in double precision.

Optimised and unoptimised, with the driver's bounds checks and trusted without them; the samples
are those of the records, with their zeros, infinities, odd lengths and empty tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura import config
from meganeura.graph.node import Graph
from meganeura.ops.registry import Op

pytest.importorskip("wgpu")

SAMPLED = [op for op in checks.registered() if op.samples]
DIFFERENTIABLE = [op for op in SAMPLED if checks.is_differentiable(op)]


def each(ops: list[Op]) -> Any:
    return pytest.mark.parametrize("op", ops, ids=[op.name for op in ops])


@pytest.fixture(scope="module", params=["as it is", "as a GPU"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from checks.wgpu_backend_as(request.param)


@pytest.fixture(params=[True, False], ids=["checked", "trusted"])
def bounds(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = config.checked()
    config.set_checked(request.param)
    yield request.param
    config.set_checked(before)


@each(SAMPLED)
def test_samples_one_by_one(backend: Any, op: Op) -> None:
    """Each sample as a graph of its own, as it was written, with bounds checks: the plainest case."""
    before = config.checked()
    config.set_checked(True)
    try:
        for numbered in enumerate(checks.samples_of(op)):
            checks.check_on_backend(backend, op, [numbered], optimize=False)
    finally:
        config.set_checked(before)


@pytest.mark.parametrize("optimize", [False, True], ids=["unoptimised", "optimised"])
@each(SAMPLED)
def test_samples_together(backend: Any, bounds: bool, op: Op, optimize: bool) -> None:
    """All samples of one operation in one graph, so that kernels and memory are shared."""
    checks.check_on_backend(backend, op, list(enumerate(checks.samples_of(op))), optimize)


@pytest.mark.parametrize("optimize", [False, True], ids=["unoptimised", "optimised"])
@each(DIFFERENTIABLE)
def test_gradients_in_the_middle_of_a_graph(backend: Any, op: Op, optimize: bool) -> None:
    """The loss and the gradients of the gradient check: the operation with neighbours to fuse with."""
    for index, sample in enumerate(checks.samples_of(op)):
        if not sample.gradient or not any(a.dtype == np.float32 for a in sample.inputs):
            continue
        built = checks.Differentiated(op, sample)
        outputs = [built.loss, *built.first]
        expected = built.runner(outputs)(built.values)
        executable = backend.compile(Graph(built.inputs, outputs), optimize)
        single = [checks.in_single(v) for v in built.values]
        runs = []
        for _ in range(2):
            handles = executable.run([backend.upload(a) for a in single], [])
            runs.append(
                [
                    backend.download(h, n.shape, n.dtype)
                    for h, n in zip(handles, outputs, strict=True)
                ]
            )
        names = ["loss", *(f"gradient {i}" for i in built.floats)]
        for name, first, second, wanted in zip(names, *runs, expected, strict=True):
            what = f"{name} of {checks.describe(op, index, sample)}, optimize={optimize}"
            checks.assert_close(first, wanted, 2 * sample.tolerance, what, scale=0.02)
            assert np.array_equal(first, second, equal_nan=True), f"{what}: two runs differ"
