"""Map kernels that read a transposed tensor in squares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make

pytest.importorskip("wgpu")


@pytest.fixture(scope="module")
def backend() -> Iterator[Any]:
    yield from checks.wgpu_backend_as("as a GPU")


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((64, 96), (1, 0)), ((33, 40), (1, 0)), ((40, 33), (1, 0)), ((2, 3, 64, 32), (0, 3, 1, 2)),
        ((5, 32, 36, 17), (0, 3, 2, 1)), ((4, 20, 32, 24), (0, 2, 1, 3)), ((3, 48, 20, 2), (1, 3, 0, 2)),
    ],
)  # fmt: skip
def test_transposed_operands(backend: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    random = np.random.default_rng(sum(shape))
    x = random.standard_normal(shape).astype("float32")
    y = random.standard_normal(x.transpose(axes).shape).astype("float32")
    row = random.standard_normal(y.shape[-1]).astype("float32")
    nodes = [
        Node("input", (), {"name": str(i)}, a.shape, "float32") for i, a in enumerate((x, row))
    ]
    state = Node("state", (), {"name": "s"}, y.shape, "float32")
    turned = make("transpose", nodes[0], axes=axes)
    new = make("add", state, make("multiply", turned, nodes[1]))
    executable = backend.compile(Graph(nodes, [make("negative", turned)], [state], {0: new}), False)
    handles, held = [backend.upload(x), backend.upload(row)], backend.upload(y)
    (found,) = executable.run(handles, [held])
    np.testing.assert_array_equal(backend.download(found, y.shape, "float32"), -x.transpose(axes))
    expected = y + x.transpose(axes) * row
    np.testing.assert_allclose(
        backend.download(held, y.shape, "float32"), expected, rtol=1e-5, atol=1e-6
    )
    assert [k.name for k in executable.plan.kernels].count("copy") == 0
