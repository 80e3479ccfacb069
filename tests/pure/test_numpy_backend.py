"""The NumPy backend's stages and blocks, and its formulas where they differ from NumPy's own functions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meganeura import ops
from meganeura.backend.numpy import executable as module
from meganeura.backend.numpy.executable import NumpyExecutable
from meganeura.graph.node import Graph
from meganeura.graph.trace import Trace
from meganeura.ops.references import erf, select, sigmoid
from meganeura.ops.registry import REGISTRY


def graph_of(function, *shapes):
    with Trace() as trace:
        nodes = [trace.input(s, "float32", f"x{i}") for i, s in enumerate(shapes)]
        outputs = function(*nodes)
    return trace.graph(list(outputs) if isinstance(outputs, tuple) else [outputs])


def chain(x, bias, scale):
    y = ops.relu(x * scale + bias)
    gate = ops.where(ops.less(x, 0.5), y, ops.tanh(x))
    return gate * y, ops.sum(gate, axis=0), y


SHAPES = [
    ((7, 5, 33), (33,), (7, 1, 1)),
    ((1, 3, 1, 130), (3, 1, 1), ()),
    ((300, 7), (1, 7), (300, 1)),
    ((4,), (1,), ()),
    ((0, 9), (9,), ()),
]


@pytest.mark.parametrize("shapes", SHAPES)
def test_blocks_do_not_change_a_bit(shapes, monkeypatch):
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype("float32") for s in shapes]
    graph = graph_of(chain, *shapes)
    whole = NumpyExecutable(graph).run(arrays, [])
    monkeypatch.setattr(module, "_BLOCK", 16)
    for a, b in zip(whole, NumpyExecutable(graph).run(arrays, []), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype and a.shape == b.shape


def test_a_chain_is_one_stage_and_equal_nodes_are_computed_once():
    graph = graph_of(lambda x: ops.exp(x * 2.0) + ops.exp(x * 2.0), (50, 1000))
    executable = NumpyExecutable(graph)
    assert [[n.op for n in s.nodes] for s in executable.stages] == [["multiply", "exp", "add"]]
    (stage,) = executable.stages
    assert len(stage.escaping) == 1


def test_pointwise_work_waits_for_what_reads_it():
    """Nothing that a late stage needs is computed, and held, before an early one."""
    graph = graph_of(
        lambda x, w: (ops.matmul(x, w), ops.matmul(ops.exp(x), ops.tanh(w))), (8, 8), (8, 8)
    )
    order = [n.op for s in NumpyExecutable(graph).stages for n in s.nodes]
    assert order.index("matmul") < min(order.index("exp"), order.index("tanh"))


def test_signs_of_zero_stay_apart():
    graph = graph_of(lambda x: (x * 0.0, x * -0.0), (3,))
    plus, minus = NumpyExecutable(graph).run([np.ones(3, "float32")], [])
    assert not np.signbit(plus).any() and np.signbit(minus).all()


def test_results_belong_to_the_caller():
    """An input, a constant and one value twice: each result can be written to."""
    graph = graph_of(
        lambda x: (x, ops.reshape(x, (2, 3)), ops.zeros((3,)), ops.exp(x), ops.exp(x)), (6,)
    )
    executable = NumpyExecutable(graph)
    x = np.arange(6, dtype="float32")
    first = executable.run([x], [])
    kept = [a.copy() for a in first]
    for array in first:
        array[...] = 7
    np.testing.assert_array_equal(x, np.arange(6))
    for a, b in zip(executable.run([x], []), kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_states_that_change_places():
    with Trace() as trace:
        from meganeura.variable import Variable

        a, b = Variable(np.zeros(3, "float32")), Variable(np.ones(3, "float32"))
        old = a.value
        a.assign(b.value)
        b.assign(old)
    graph = trace.graph([])
    states = [np.zeros(3, "float32"), np.ones(3, "float32")]
    NumpyExecutable(graph).run([], states)
    np.testing.assert_array_equal(states, [np.ones(3), np.zeros(3)])


def test_intermediates_are_let_go():
    graph = graph_of(lambda x: ops.sum(ops.matmul(ops.matmul(x, x), x)), (9, 9))
    executable = NumpyExecutable(graph)
    values = {id(graph.inputs[0]): np.ones((9, 9), "float32")}
    before = len(values) + len(executable._kept)
    assert len(executable.evaluate(values)) == before + 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
def test_select_is_where(dtype):
    random = np.random.default_rng(1)
    odd = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3.0])
    with np.errstate(invalid="ignore"):
        x, y = random.choice(odd, (40, 9)).astype(dtype), random.choice(odd, (40, 9)).astype(dtype)
    condition = random.uniform(size=(40, 9)) > 0.5
    for a, b in (
        (x, y),
        (x, y[:1]),
        (x[0, 0], y),
        (x, np.zeros((), dtype)),
        (x, np.array(-0.0).astype(dtype)),
    ):
        found, right = select(condition, a, b), np.where(condition, a, b)
        assert found.dtype == right.dtype
        assert found.tobytes() == right.tobytes()
    few = condition[:, :1]
    assert select(few, x, y).tobytes() == np.where(few, x, y).tobytes()


def test_erf_in_single_precision():
    x = np.concatenate([np.linspace(-6, 6, 100_001), [1e-30, -1e-6, 0.0, np.inf, -np.inf]]).astype(
        "float32"
    )
    right = np.vectorize(math.erf)(x.astype("float64"))
    found = erf(x)
    np.testing.assert_allclose(found, right, rtol=5e-7, atol=0)
    assert found.dtype == np.float32 and np.abs(found).max() == 1
    assert np.isnan(erf(np.array([np.nan], "float32"))).all()


def test_sigmoid_of_large_numbers():
    x = np.array([-1000, -90, -20, 0, 20, 1000, np.nan, np.inf, -np.inf], "float32")
    found = sigmoid(x)
    wide = x[2:5].astype("float64")
    np.testing.assert_allclose(found[2:5], 1 / (1 + np.exp(-wide)), rtol=3e-7)
    np.testing.assert_array_equal(found[[0, 5, 7, 8]], [0, 1, 1, 0])
    assert np.isnan(found[6])


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((6, 96, 7), (0, 1)), ((4, 64, 3, 2), (1, 3)), ((128, 8), (0,)), ((3, 5), ()), ((2, 0, 3), (1,)),
     ((5, 2000), (0,))],
)  # fmt: skip
def test_sums_of_runs_of_axes(shape, axes):
    x = np.random.default_rng(2).standard_normal(shape)
    for keepdims in (False, True):
        found = REGISTRY["sum"].reference(x, axes=axes, keepdims=keepdims)
        right = np.sum(x, axis=axes, keepdims=keepdims)
        assert found.shape == right.shape
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


def test_graphs_share_nothing_between_runs():
    graph = Graph([], [], [], {})
    assert NumpyExecutable(graph).run([], []) == []
