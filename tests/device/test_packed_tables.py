"""Kernels that read packed tables: what they compute, and that they read nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

import meganeura as mg
from meganeura import backend as backends
from meganeura.graph.node import Graph, Node
from meganeura.ops.nodes import transpose
from meganeura.ops.registry import make
from meganeura.quantization.formats import FORMATS, pack, unpack
from meganeura.quantization.variable import PackedVariable
from meganeura.zoo.llama import LlamaConfig, llama

pytest.importorskip("wgpu")


@pytest.fixture(scope="module", params=["as it is", "as a GPU"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from checks.wgpu_backend_as(request.param)


@pytest.fixture
def policy_setter() -> Iterator[Any]:
    """Sets the policy of layers for one test."""
    before = mg.mixed_precision.dtype_policy()
    yield mg.mixed_precision.set_dtype_policy
    mg.mixed_precision.set_dtype_policy(before)


class Case:
    """A packed table of (outputs, inputs), and a graph that reads it."""

    def __init__(self, name: str, outputs: int, inputs: int):
        random = np.random.default_rng(outputs + inputs)
        packed = pack(FORMATS[name], random.standard_normal((outputs, inputs)).astype("float32"))
        self.arrays = [packed.words] + ([] if packed.scales is None else [packed.scales])
        self.table = unpack(packed)
        self.states = [
            Node("state", (), {"name": f"s{i}"}, a.shape, "uint32")
            for i, a in enumerate(self.arrays)
        ]
        self.node = make("dequantize", *self.states, format=name)
        self.inputs: list[Node] = []

    def input(self, *shape: int, dtype: str = "float32") -> Node:
        node = Node("input", (), {"name": f"x{len(self.inputs)}"}, shape, dtype)
        self.inputs.append(node)
        return node

    def run(self, backend: Any, outputs: list[Node], *arrays: np.ndarray) -> list[np.ndarray]:
        executable = backend.compile(Graph(self.inputs, outputs, self.states, {}), True)
        for b in executable.plan.buffers:  # no copy of the table
            assert b.role != "temporary" or np.prod(b.shape) < self.table.size, b
        found = executable.run(
            [backend.upload(a) for a in arrays], [backend.upload(a) for a in self.arrays]
        )
        return [backend.download(f, o.shape, o.dtype) for f, o in zip(found, outputs, strict=True)]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("rows", "outputs", "inputs"),
    [
        (1, 96, 64),
        (1, 3, 320),
        (3, 50, 96),
        (9, 70, 32),
        (70, 132, 96),
        (1, 1601, 128),
        (2, 3075, 160),  # a few rows, several columns to a lane
        (16, 72, 1088),  # its terms in parts
    ],
)
def test_products(backend: Any, name: str, rows: int, outputs: int, inputs: int) -> None:
    case = Case(name, outputs, inputs)
    x, g = case.input(rows, inputs), case.input(rows, outputs)
    forward = make("matmul", x, transpose(case.node, (1, 0)), transpose_a=False, transpose_b=False)
    back = make("matmul", g, case.node, transpose_a=False, transpose_b=False)
    random = np.random.default_rng(1)
    values = [random.standard_normal(n.shape).astype("float32") for n in (x, g)]
    found = case.run(backend, [forward, back], *values)
    expected = (values[0] @ case.table.T, values[1] @ case.table)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", FORMATS)
def test_rows_and_products_of_one_table(backend: Any, name: str) -> None:
    """Tied embeddings: rows are looked up in what the logits are a product with."""
    case = Case(name, 50, 64)
    ids = case.input(2, 3, dtype="int32")
    rows = make("take", case.node, ids, axis=0)
    logits = make(
        "matmul", make("reshape", make("tanh", rows), shape=(6, 64)), case.node,
        transpose_a=False, transpose_b=True,
    )  # fmt: skip
    at = np.array([[0, 49, 7], [7, 1, 30]], "int32")
    found, product = case.run(backend, [rows, logits], at)
    np.testing.assert_array_equal(found, case.table[at])
    expected = np.tanh(case.table[at].reshape(6, 64)) @ case.table.T
    np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-4)


def test_halves_in_rows_that_are_no_quads(backend: Any) -> None:
    case = Case("f16", 21, 6)
    x = case.input(5, 6)
    out = make("matmul", x, case.node, transpose_a=False, transpose_b=True)
    value = np.random.default_rng(0).standard_normal((5, 6)).astype("float32")
    (found,) = case.run(backend, [out], value)
    np.testing.assert_allclose(found, value @ case.table.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FORMATS)
def test_values_are_exact(backend: Any, name: str) -> None:
    """Scales that are subnormal halves included."""
    random = np.random.default_rng(3)
    x = random.standard_normal((16, 64)).astype("float32")
    x *= np.float32(10) ** random.integers(-7, 4, (16, 1)).astype("float32")
    packed = pack(FORMATS[name], x)
    case = Case(name, 16, 64)
    case.arrays = [packed.words] + ([] if packed.scales is None else [packed.scales])
    (found,) = case.run(backend, [case.node])
    np.testing.assert_array_equal(found, unpack(packed))


def test_a_table_that_is_read_often_is_not_expanded(backend: Any) -> None:
    """A recurrence reads it at each step."""
    case = Case("q8_0", 32, 32)
    x = case.input(1, 32)
    out = x
    for _ in range(12):
        out = make("tanh", make("matmul", out, case.node, transpose_a=False, transpose_b=True))
    value = np.ones((1, 32), "float32")
    (found,) = case.run(backend, [out], value)
    for _ in range(12):
        value = np.tanh(value @ case.table.T)
    np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-3)


CONFIG = LlamaConfig(
    vocabulary=96, width=64, layers=1, heads=4, kv_heads=2, head_width=16, inner=128, tied_head=True
)  # fmt: skip


def quantised(name: str) -> Any:
    mg.utils.set_random_seed(5)
    model = llama(CONFIG)
    model.quantize(name)
    return model


@pytest.mark.parametrize(
    ("name", "policy"), [*((name, "float32") for name in FORMATS), ("q8_0", "mixed_float16")]
)
def test_generation(
    backend: Any, name: str, policy: str, monkeypatch: pytest.MonkeyPatch, policy_setter: Any
) -> None:
    """The tokens that NumPy gives; and a token reads the packed words, and no other copy of a table."""
    if policy != "float32" and not backend.half:
        pytest.skip("the device has no half precision")
    policy_setter(policy)
    monkeypatch.setattr(backends, "_current", backends._choose("numpy"))
    expected = quantised(name).generate([[3, 7, 1], [9, 2, 4]], 10)
    monkeypatch.setattr(backends, "_current", backend)
    model = quantised(name)
    found = model.generate([[3, 7, 1], [9, 2, 4]], 10)
    if policy == "float32":
        np.testing.assert_array_equal(found, expected)
    tables = [w for w in model.weights if isinstance(w, PackedVariable)]
    smallest = min(t.size for t in tables)
    plan = model._generation[1]._step.executable.plan
    words = [b for b in plan.buffers if b.role == "state" and b.dtype == "uint32" and b.bytes > 16]
    assert sum(4 * int(np.prod(b.shape)) for b in words) == sum(t.nbytes for t in tables)
    for b in plan.buffers:
        if b.dtype in ("float32", "float16") and len(b.shape) < 4:  # of four dimensions are caches
            assert np.prod(b.shape) < smallest, b
