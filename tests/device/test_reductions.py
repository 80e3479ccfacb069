"""Reductions of every aspect, with the kernels that a GPU gets: along rows, along columns, in two stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make

pytest.importorskip("wgpu")


@pytest.fixture(scope="module", params=["as a GPU", "as a small GPU"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from checks.wgpu_backend_as(request.param)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((3, 700), (1,)), ((2000, 5), (0,)), ((2000, 33), (0,)), ((70, 40), (0,)), ((4000, 64), (0,)),
        ((5, 9, 11, 24), (0, 1, 2)), ((5, 9, 11, 24), (1, 2)), ((7, 300, 6), (1,)), ((6, 50, 8, 3), (1, 3)),
        ((40000,), (0,)), ((1, 1), (0,)), ((33, 32), (0,)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", ["sum", "max", "argmax"])
def test_all_aspects(backend: Any, op: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    if op == "argmax" and len(axes) > 1:
        pytest.skip("argmax has one axis")
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    node = Node("input", (), {"name": "x"}, shape, "float32")
    out = make(op, node, axes=axes, keepdims=False)
    (found,) = backend.compile(Graph([node], [out], [], {}), False).run([backend.upload(x)], [])
    expected = getattr(x.astype("float64"), op)(axis=axes[0] if op == "argmax" else axes)
    np.testing.assert_allclose(
        backend.download(found, out.shape, out.dtype), expected, rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize(
    "shape", [(900, 40), (64, 33), (40, 8), (12000, 24), (30000, 16), (20011, 3)]
)
def test_statistics_and_what_follows_in_one_kernel(backend: Any, shape: tuple[int, int]) -> None:
    """Normalization over columns, and a state that the column's mean moves in place."""
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    kept = np.linspace(0, 1, shape[1], dtype="float32")
    node = Node("input", (), {"name": "x"}, shape, "float32")
    state = Node("state", (), {"name": "moving"}, (shape[1],), "float32")
    count = make("constant", value=1.0 / shape[0], dtype="float32")
    mean = make("multiply", make("sum", node, axes=(0,), keepdims=False), count)
    centred = make("subtract", node, make("reshape", mean, shape=(1, shape[1])))
    power = make("sum", make("multiply", centred, centred), axes=(0,), keepdims=False)
    moved = make("add", state, mean)
    executable = backend.compile(Graph([node], [centred, power], [state], {0: moved}), False)
    held = backend.upload(kept)
    first, second = executable.run([backend.upload(x)], [held])
    middle = x.astype("float64").mean(0)
    np.testing.assert_allclose(backend.download(first, shape, "float32"), x - middle, atol=1e-5)
    np.testing.assert_allclose(
        backend.download(second, (shape[1],), "float32"), ((x - middle) ** 2).sum(0), rtol=1e-4
    )
    np.testing.assert_allclose(
        backend.download(held, (shape[1],), "float32"), kept + middle, atol=1e-5
    )
