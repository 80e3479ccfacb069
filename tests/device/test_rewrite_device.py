"""What the rewriter makes of whole graphs, on the adapter: equal to what was written, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks
from rewrite_checks import evaluate, leaf, random_values
from rewrite_models import MODELS

from meganeura import ops
from meganeura.graph.node import Graph

pytest.importorskip("wgpu")


@pytest.fixture(scope="module")
def backend() -> Iterator[Any]:
    yield from checks.wgpu_backend()


def on_device(backend: Any, graph: Graph, optimize: bool, arrays: Any) -> list[np.ndarray]:
    """Outputs, then updated states."""
    inputs, states = arrays
    executable = backend.compile(graph, optimize)
    up = [[backend.upload(checks.in_single(a)) for a in group] for group in (inputs, states)]
    found = executable.run(*up)
    results = [
        backend.download(h, n.shape, n.dtype) for h, n in zip(found, graph.outputs, strict=True)
    ]
    return results + [
        backend.download(up[1][i], graph.states[i].shape, graph.states[i].dtype)
        for i in sorted(graph.updates)
    ]


@pytest.mark.parametrize("optimize", [False, True], ids=["unoptimised", "optimised"])
@pytest.mark.parametrize("name", MODELS)
def test_models(backend: Any, name: str, optimize: bool) -> None:
    graph = MODELS[name]()
    random = np.random.default_rng(0)
    arrays = [random_values(nodes, random, 0.1, 1.0) for nodes in (graph.inputs, graph.states)]
    expected = evaluate(graph, *arrays)
    for found, wanted in zip(on_device(backend, graph, optimize, arrays), expected, strict=True):
        checks.assert_close(checks.in_double(found), wanted, 2e-5, name)


def test_a_naive_formula_is_accurate_in_single_precision(backend: Any) -> None:
    """As it was written it overflows; as it is run it is the library's."""
    x, t = leaf((2, 4)), leaf((2, 4))
    e = ops.exp(x)
    graph = Graph([x, t], [-ops.sum(t * ops.log(e / ops.sum(e, axis=-1, keepdims=True)), axis=-1)])
    logits = np.array([[100.0, 0.0, -100.0, 5.0], [-200.0, -300.0, 90.0, 80.0]])
    arrays = [[logits, np.eye(2, 4)], []]
    (written,) = on_device(backend, graph, False, arrays)
    (found,) = on_device(backend, graph, True, arrays)
    assert not np.isfinite(written).all()
    expected = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    np.testing.assert_allclose(found, expected - logits[[0, 1], [0, 1]], rtol=1e-6, atol=1e-5)
