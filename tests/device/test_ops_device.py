"""The tests of the public operations and of random numbers once more, computed by the adapter."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from meganeura import backend, config
from meganeura.graph.node import Graph
from meganeura.ops.registry import make

pytest.importorskip("wgpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pure"))

for _part in ("elementwise", "movement", "reduction", "control_flow", "operators"):
    _module = importlib.import_module(f"test_ops_{_part}")
    for _name, _test in list(vars(_module).items()):
        if _name.startswith("test_"):
            globals()[f"test_{_part}_{_name[5:]}"] = _test
for _name, _test in list(vars(importlib.import_module("test_random")).items()):
    if _name.startswith("test_"):
        globals()[f"test_random_{_name[5:]}"] = _test


@pytest.fixture(autouse=True, scope="module")
def on_the_adapter() -> Iterator[None]:
    before = backend._current
    backend.set_backend("wgpu")
    yield
    backend._current = before


@pytest.fixture(autouse=True)
def optimised_where_it_pays(request: pytest.FixtureRequest) -> Iterator[None]:
    """The optimiser takes its time on every new graph: a part of the tests goes through it."""
    before = config.optimize()
    parts = ("test_reduction", "test_control_flow", "test_operators", "test_random")
    config.set_optimize(request.node.name.startswith(parts))
    yield
    config.set_optimize(before)


def test_the_adapter_computes() -> None:
    assert backend.backend() == "wgpu"


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
def test_a_literal_as_an_output(dtype: str) -> None:
    """No kernel writes it: it is copied, also where a kernel reads it too."""
    values = np.array([3, 0, 1, 0, 7], dtype)
    node = make("literal", data=values.tobytes(), shape=(5,), dtype=dtype)
    total = make("sum", make("cast", node, dtype="float32"), axes=(0,), keepdims=False)
    device = backend.backend_object()
    for optimize in (True, False):
        for outputs in ([node], [node, total, node]):
            handles = device.compile(Graph([], outputs), optimize).run([], [])
            found = [
                device.download(h, n.shape, n.dtype) for h, n in zip(handles, outputs, strict=True)
            ]
            np.testing.assert_array_equal(found[0], values)
            if len(found) > 1:
                assert found[1] == values.sum()
                np.testing.assert_array_equal(found[2], values)
