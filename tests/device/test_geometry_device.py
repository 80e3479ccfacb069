"""The templates on the adapter over random shapes: products, convolutions, pooling."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import geometries
import pytest
import registry_checks as checks
from hypothesis import HealthCheck, given, settings

from meganeura.ops.registry import REGISTRY, Sample

pytest.importorskip("wgpu")

few = settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


#: A software adapter gets kernels of its own, so those of GPUs are asked for by name.
LIMITS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "as a GPU": {"software": False},
    "as a small GPU": {
        "software": False, "workgroup_bytes": 16384, "invocations": 256, "storage_buffers": 8,
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=list(LIMITS))
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    for found in checks.wgpu_backend():
        own = found.limits
        found.limits = dataclasses.replace(own, **LIMITS[request.param])
        try:
            yield found
        finally:
            found.limits = own


@few
@given(geometries.products(largest=80))
def test_products(backend: Any, sample: Sample) -> None:
    checks.check_on_backend(backend, REGISTRY["matmul"], [(0, sample)], optimize=False)


@few
@given(geometries.convolutions(largest=20))
def test_convolutions(backend: Any, samples: dict[str, Sample]) -> None:
    for name, sample in samples.items():
        checks.check_on_backend(backend, REGISTRY[name], [(0, sample)], optimize=False)


@few
@given(geometries.poolings())
def test_poolings(backend: Any, samples: dict[str, Sample]) -> None:
    for name, sample in samples.items():
        checks.check_on_backend(backend, REGISTRY[name], [(0, sample)], optimize=False)
