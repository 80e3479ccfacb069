"""float16 in graphs: which dtype a result has, what is rounded where, and every primitive on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura import dtypes, ops
from meganeura.backend import backend_object
from meganeura.backend.numpy.backend import NumpyBackend, NumpyExecutable
from meganeura.graph.autodiff import gradients
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import Op, make
from meganeura.rewrite import optimise
from meganeura.rewrite.rules import ALL
from meganeura.schedule import schedule
from meganeura.schedule.plan import Limits, storage_bytes
from meganeura.schedule.prepare import prepared

HALVED = [op for op in checks.registered() if checks.halved_samples(op)]


def each(chosen: list[Op]) -> Any:
    return pytest.mark.parametrize("op", chosen, ids=[op.name for op in chosen])


def half(*values: float) -> np.ndarray:
    return np.array(values, np.float16)


# --- primitives --------------------------------------------------------------------------------


@each(HALVED)
def test_every_primitive_takes_halves(op: Op) -> None:
    checks.check_half(NumpyBackend(), op)


@each([op for op in HALVED if checks.is_differentiable(op)])
def test_gradients_of_halves_are_halves(op: Op) -> None:
    for index, sample in checks.halved_samples(op):
        if sample.gradient:
            checks.check_half_gradient(op, index, sample)


# --- dtypes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (2, "float16"),
        (2.5, "float16"),
        (True, "float16"),
        (half(1), "float16"),
        (np.array([1], "int32"), "float16"),
        (np.array([1], "uint8"), "float16"),
        (np.array([True]), "float16"),
        (np.array([1], "float32"), "float32"),
    ],
)
@pytest.mark.parametrize("function", [ops.add, ops.divide, ops.maximum, ops.power])
def test_promotion(function: Any, other: Any, expected: str) -> None:
    """As in Keras: Python's numbers and integers give way, float32 does not."""
    assert function(half(1), other).dtype == expected
    assert function(other, half(1)).dtype == expected


def test_functions_keep_half() -> None:
    x = half(0.5, 0.25)
    for function in (
        ops.exp,
        ops.sqrt,
        ops.softmax,
        ops.mean,
        ops.sum,
        ops.floor,
        ops.relu,
        ops.gelu,
    ):
        assert function(x).dtype == "float16", function
    assert ops.argmax(x).dtype == "int32"
    assert ops.isnan(x).dtype == "bool"
    assert ops.zeros((2,), "float16").dtype == "float16"
    assert ops.one_hot(np.array([1]), 3, dtype="float16").dtype == "float16"


@pytest.mark.parametrize("dtype", dtypes.DTYPES)
def test_cast_there_and_back(dtype: str) -> None:
    x = np.array([0, 1, 3]).astype(dtype)
    there = ops.cast(x, "float16")
    assert there.dtype == "float16"
    np.testing.assert_array_equal(ops.cast(there, dtype).numpy(), x)


def test_cast_rounds_and_overflows() -> None:
    x = np.array([1 / 3, 65519, 65520, -1e9, 1e-9], "float32")
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    np.testing.assert_array_equal(ops.cast(x, "float16").numpy(), expected)
    back = ops.cast(ops.cast(x, "float16"), "float32")
    np.testing.assert_array_equal(back.numpy(), expected.astype(np.float32))


def test_sums_of_many_halves_are_exact_where_float32_is() -> None:
    x = np.full(5000, 2.0, np.float16)  # added up in half precision, 4096 + 2 stays 4096 from there
    assert float(ops.sum(x)) == 10000
    many = np.full((200, 1000), 100.0, np.float16)
    assert float(ops.mean(many)) == 100  # although the sum is beyond 65504
    assert float(ops.sum(many)) == np.inf


def test_the_largest_half_is_found_by_its_gradient() -> None:
    """max compares what is kept with what is kept: its gradient finds the element again."""
    x = Node("input", (), {"name": "x"}, (1, 4), "float16")
    third = make("multiply", x, make("constant", value=1 / 3, dtype="float16"))
    top = make("max", third, axes=(1,), keepdims=False)
    (g,) = gradients(top, [x])
    backend = backend_object()
    executable = backend.compile(Graph([x], [g, top]))
    handles = executable.run([backend.upload(half(1.1, 7.7, 2.2, 3.3)[None])], [])
    found = backend.download(handles[0], g.shape, g.dtype)
    np.testing.assert_array_equal(found != 0, [[False, True, False, False]])


# --- rewriting and scheduling --------------------------------------------------------------------


def _inputs(*shapes: tuple[int, ...], dtype: str = "float16") -> list[Node]:
    return [Node("input", (), {"name": f"x{i}"}, s, dtype) for i, s in enumerate(shapes)]


def test_only_widening_casts_are_undone() -> None:
    (x,) = _inputs((4,))
    wide = make("cast", x, dtype="float32")
    graph, _ = optimise(Graph([x], [make("cast", wide, dtype="float16")]))
    assert graph.outputs[0].op == "input"
    (y,) = _inputs((4,), dtype="float32")
    narrow = make("cast", make("cast", y, dtype="float16"), dtype="float32")
    graph, _ = optimise(Graph([y], [narrow]))
    assert graph.outputs[0].op == "cast"
    assert graph.outputs[0].inputs[0].dtype == "float16"


def test_half_takes_half_the_bytes() -> None:
    assert storage_bytes(1000, "float16") == 2000
    assert storage_bytes(3, "float16") == 16
    a, b = _inputs((64, 64), (64, 64))
    graph = Graph([a, b], [make("matmul", a, b, transpose_a=False, transpose_b=False)])
    plan = schedule(graph, Limits())
    assert {buffer.bytes for buffer in plan.buffers} == {2 * 64 * 64}
    (kernel,) = plan.kernels
    assert kernel.wgsl.startswith("enable f16;")
    assert kernel.wgsl.count("array<vec4<f16>>") == 3  # all are read and written in quads


def test_float32_kernels_do_not_ask_for_half() -> None:
    a, b = _inputs((64, 64), (64, 64), dtype="float32")
    plan = schedule(Graph([a, b], [make("add", a, b)]), Limits())
    assert "f16" not in plan.kernels[0].wgsl


def test_long_sums_are_split_in_float32() -> None:
    (x,) = _inputs((1 << 16,))
    plan = schedule(Graph([x], [make("sum", x, axes=(0,), keepdims=False)]), Limits())
    kept = [b.dtype for b in plan.buffers if b.role == "temporary"]
    assert kept
    assert set(kept) == {"float32"}


@pytest.mark.parametrize("op", ["min", "max"])
def test_long_questions_are_split(op: str) -> None:
    """Whether all (or one) of a long row of values are finite, as the scale of the loss asks."""
    x = Node("input", (), {"name": "x"}, (100003,), "float32")
    found = make(op, make("isfinite", x), axes=(0,), keepdims=False)
    graph = prepared(Graph([x], [found]), Limits())
    assert sum(n.op == op for n in graph.nodes()) == 2
    for value in (0.0, np.inf):
        for place in (0, 50000, 100002):
            array = np.full(100003, 0.0 if op == "min" else np.inf, "float32")
            array[place] = value
            (answer,) = NumpyExecutable(graph).run([array], [])
            assert answer == (np.isfinite(array).all() if op == "min" else np.isfinite(array).any())


def test_rules_fit_halves() -> None:
    """A constant that a rule brings in has the dtype of what it meets: float32 by name on the right
    side only where the left side, or a condition, names it too."""
    for rule in ALL:
        if rule.rhs and '"float32"' in rule.rhs:
            for left in rule.lhs:
                assert '"float32"' in " ".join([left, *rule.when]), rule.name


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: ops.log(ops.sum(ops.exp(x), -1)),
        lambda x: ops.log(ops.exp(x) + ops.exp(2 * x)),
        lambda x: ops.exp(x) / ops.sum(ops.exp(x), -1, keepdims=True),
        lambda x: -ops.log(1 - ops.sigmoid(x)),
        lambda x: 0.5 * x * (1 + ops.erf(x / 2**0.5)),
        lambda x: x / (1 + ops.exp(-x)),
        lambda x: ops.maximum(x * 2 * 3 + 0.5, 0) - (-x),
        lambda x: ops.matmul(x, ops.transpose(x)) + x[:, 0],
    ],
)
def test_formulas_of_halves_are_optimised(formula: Any) -> None:
    (x,) = _inputs((4, 4))
    graph = Graph([x], [formula(x)])
    better, _ = optimise(graph)
    array = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float16)
    results = []
    for g, floating in ((graph, "float64"), (better, "float64"), (better, "float32")):
        (found,) = NumpyExecutable(g, floating=floating).run([array], [])
        results.append(found.astype(np.float64))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-3, atol=1e-3)  # constants are halves
    np.testing.assert_allclose(results[2], results[0], rtol=1e-2, atol=1e-2)
