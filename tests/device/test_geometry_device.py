"""The templates on the adapter over random shapes: products, convolutions, pooling."""

from __future__ import annotations

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


@pytest.fixture(scope="module", params=list(checks.LIMITS))
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from checks.wgpu_backend_as(request.param)


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
