"""Every primitive against its own record: shapes, dtypes, references, gradients, shader text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura.backend.numpy.backend import NumpyBackend
from meganeura.graph.node import Node
from meganeura.ops.registry import REGISTRY, Op, Sample, make

OPS = checks.registered()
SAMPLED = [op for op in OPS if op.samples]
DIFFERENTIABLE = [op for op in SAMPLED if checks.is_differentiable(op)]
POINTWISE = [op for op in OPS if op.kind == "pointwise"]

#: Records without samples, and why.
NO_SAMPLES = {
    "input": "a place for an array, bound at the run: every check has some",
    "state": "a place for a variable's array, bound at the run",
    "constant": "its value is an attribute: every gradient check has one",
    "literal": "its value is an attribute: checked with the tracing of arrays",
}

#: Operations with float inputs and no gradient, and why.
NO_GRADIENT = {
    "fused_matmul": "made by the rewriter, after differentiation",
    "fused_conv": "made by the rewriter, after differentiation",
    "swiglu": "made by the rewriter, after differentiation",
    "axpy": "made by the rewriter, after differentiation",
    **{
        f"{op}_parts": "made by the scheduler, after differentiation"
        for op in ("matmul", "conv", "conv_input_gradient", "conv_kernel_gradient")
    },
    "attend": "made by the scheduler, after differentiation",
}

#: Operations made for large tensors only, with no samples at the edges.
#: `dequantize`: a row of a packed table is two values at least.
FEW_SAMPLES = {
    "attend",
    "matmul_parts",
    "conv_parts",
    "conv_input_gradient_parts",
    "conv_kernel_gradient_parts",
    "dequantize",
}

#: Operations that are defined for all numbers and must not make a NaN of one.
TOTAL = [
    "tanh", "sigmoid", "softplus", "silu", "relu", "gelu", "erf", "expm1", "exp", "arctan",
    "sin", "cos", "abs", "negative", "sign", "floor", "ceil", "round",
]  # fmt: skip

EXTREMES = np.array([0.0, -0.0, 10.0, -10.0, 1000.0, -1000.0], "float32")


def each(ops: list[Op]) -> Any:
    return pytest.mark.parametrize("op", ops, ids=[op.name for op in ops])


# --- shapes, dtypes, values --------------------------------------------------------------------


def test_every_record_has_samples_or_a_reason() -> None:
    without = {op.name for op in OPS if not op.samples}
    assert without == set(NO_SAMPLES)


@each(SAMPLED)
def test_inference_and_reference_agree(op: Op) -> None:
    for index, sample in enumerate(checks.samples_of(op)):
        checks.check_inference(op, index, sample)


@each(SAMPLED)
def test_samples_are_usable(op: Op) -> None:
    """Attributes hash (they are part of the cache key), arrays have one of our dtypes, and a tensor
    without elements, a result of one element and one of several are among them."""
    found = set()
    for sample in checks.samples_of(op):
        node = make(op.name, *checks.input_nodes(sample.inputs), **sample.attributes)
        hash(node.attribute_key())
        if 0 in (node.size, *(a.size for a in sample.inputs)):
            found.add("none")
        if node.size:
            found.add("one" if node.size == 1 else "several")
        for array in sample.inputs:
            assert str(array.dtype) in ("float32", "int32", "uint32", "uint8", "bool")
    missing = {"none", "one", "several"} - found
    assert not missing or op.name in FEW_SAMPLES, f"{op.name} has no samples of {missing} elements"


@each(POINTWISE)
def test_not_a_number_travels_on(op: Op) -> None:
    """A NaN in any float operand is a NaN in the result, unless the operation asks about it."""
    exempt = {"isnan", "isfinite", "where", "cast", "power", "sign"}
    samples = [s for s in checks.samples_of(op) if s.inputs and s.inputs[0].dtype == np.float32]
    if op.name in exempt or not samples:
        return
    attributes = samples[0].attributes
    for poisoned in range(len(samples[0].inputs)):
        arrays = [np.full(3, 0.5, "float32") for _ in samples[0].inputs]
        arrays[poisoned][1] = np.nan
        with np.errstate(all="ignore"):
            out = np.asarray(op.reference(*arrays, **attributes))
        if out.dtype == np.float32:
            assert np.isnan(out).tolist() == [False, True, False], op.name
        else:
            assert op.name == "not_equal" or not out[1], f"{op.name}: a comparison with NaN holds"


@pytest.mark.parametrize("name", TOTAL)
def test_extreme_values_stay_numbers(name: str) -> None:
    """0, 10 and 1000 of both signs give no NaN, and neither do the gradients there."""
    op = REGISTRY[name]
    attributes = checks.samples_of(op)[0].attributes
    with np.errstate(all="ignore"):
        out = np.asarray(op.reference(EXTREMES, **attributes))
    assert not np.isnan(out).any(), f"{name}{EXTREMES.tolist()} = {out.tolist()}"
    if name in ("exp", "expm1") or not checks.is_differentiable(op):
        return
    (x,) = nodes = checks.input_nodes([EXTREMES])
    y = make(name, x, **attributes)
    (slope,) = checks.gradients(y, [x])
    (found,) = checks.NumpyExecutable(checks.Graph(nodes, [slope])).run([EXTREMES], [])
    assert np.isfinite(found).all(), f"the slope of {name} at {EXTREMES.tolist()}: {found.tolist()}"


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("exp", [1000, -1000, -np.inf], [np.inf, 0, 0]),
        ("log", [0, np.inf, -1], [-np.inf, np.inf, np.nan]),
        ("sqrt", [0, -1, np.inf], [0, np.nan, np.inf]),
        ("sigmoid", [1000, -1000, np.inf, -np.inf], [1, 0, 1, 0]),
        ("tanh", [1000, -1000, np.inf, -np.inf], [1, -1, 1, -1]),
        ("softplus", [1000, -1000, np.inf, -np.inf], [1000, 0, np.inf, 0]),
        ("erf", [1000, -1000, np.inf, -np.inf], [1, -1, 1, -1]),
        ("round", [0.5, 1.5, 2.5, -0.5], [0, 2, 2, 0]),
        ("relu", [-np.inf, np.inf, -1000], [0, np.inf, 0]),
    ],
)
def test_known_values(name: str, x: list[float], y: list[float]) -> None:
    with np.errstate(all="ignore"):
        out = REGISTRY[name].reference(np.array(x, "float32"))
    np.testing.assert_array_equal(out, np.array(y, "float32"))


# --- gradients ---------------------------------------------------------------------------------


def test_every_float_operation_has_a_gradient_or_a_reason() -> None:
    def takes_floats(op: Op) -> bool:
        return any(a.dtype == np.float32 for s in checks.samples_of(op) for a in s.inputs)

    without = {op.name for op in SAMPLED if op.gradient is None and takes_floats(op)}
    assert without == set(NO_GRADIENT) & set(REGISTRY)


@each(DIFFERENTIABLE)
def test_gradient(op: Op) -> None:
    checked = [(i, s) for i, s in enumerate(checks.samples_of(op)) if s.gradient]
    checked = [(i, s) for i, s in checked if any(a.dtype == np.float32 for a in s.inputs)]
    assert checked, f"{op.name} has a gradient, and no sample that allows checking it"
    for index, sample in checked:
        checks.check_gradient(op, index, sample)
    for index, sample in checked[:3]:
        checks.check_second_gradient(op, index, sample)


def _checked_sample(op: Op) -> Sample:
    """The first sample that a wrong gradient rule must fail on."""
    for sample in checks.samples_of(op):
        floats = [a for a in sample.inputs if a.dtype == np.float32]
        if sample.gradient and floats and all(a.size for a in sample.inputs):
            return sample
    raise AssertionError(f"{op.name} has no sample with elements for its gradient")


def _halved(rule: Any, node: Node, g: Node) -> list[Node | None]:
    half = make("constant", value=0.5, dtype="float32")
    return [None if p is None else make("multiply", p, half) for p in rule(node, g)]


def _missing(rule: Any, node: Node, g: Node) -> list[Node | None]:
    return [None] * len(node.inputs)


def _upstream_ignored(rule: Any, node: Node, g: Node) -> list[Node | None]:
    one = make("constant", value=1.0, dtype="float32")
    return rule(node, make("broadcast_to", one, shape=g.shape))


def _first_only(rule: Any, node: Node, g: Node) -> list[Node | None]:
    """The gradient of one float input forgotten, where there are several."""
    parts = list(rule(node, g))
    last = max(i for i, p in enumerate(parts) if p is not None)
    return [None if i == last else p for i, p in enumerate(parts)]


@pytest.mark.parametrize("mutation", [_halved, _missing, _upstream_ignored, _first_only])
@each(DIFFERENTIABLE)
def test_a_wrong_gradient_is_found(
    op: Op, mutation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checker is worth something: it fails when a rule drops a factor, an input, or all."""
    sample = _checked_sample(op)
    wrong = dataclasses.replace(op, gradient=lambda node, g: mutation(op.gradient, node, g))
    monkeypatch.setitem(REGISTRY, op.name, wrong)
    with pytest.raises(AssertionError, match="from the rule"):
        checks.check_gradient(wrong, 0, sample)


def test_a_wrong_second_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first gradient that is right in value alone: detached from its input by stop_gradient."""
    op = REGISTRY["multiply"]

    def detached(node: Node, g: Node) -> list[Node | None]:
        a, b = (make("stop_gradient", x) for x in node.inputs)
        return [make("multiply", g, b), make("multiply", g, a)]

    wrong = dataclasses.replace(op, gradient=detached)
    monkeypatch.setitem(REGISTRY, "multiply", wrong)
    sample = Sample((np.float32([1, 2]), np.float32([3, 5])), {})
    checks.check_gradient(wrong, 0, sample)
    with pytest.raises(AssertionError, match="from the rule"):
        checks.check_second_gradient(wrong, 0, sample)


# --- the checks of shapes, dtypes and backends can fail as well --------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"infer": lambda x: ((*x.shape, 1), "float32")},
        {"infer": lambda x: (x.shape, "int32")},
        {"reference": lambda x: np.float64(np.exp(x))},
        {"reference": lambda x: np.float32(np.exp(x))},
    ],
)
def test_a_wrong_record_is_found(wrong: dict[str, Any]) -> None:
    op = dataclasses.replace(REGISTRY["exp"], **wrong)
    with pytest.raises(AssertionError):
        checks.check_inference(op, 0, checks.samples_of(op)[0])


@each([REGISTRY[name] for name in ("matmul", "conv", "max_pool", "argmax", "take", "equal")])
def test_a_wrong_backend_is_found(op: Op) -> None:
    """The comparison that the device tests use accepts the reference, and nothing else."""

    class OffByOne(NumpyBackend):
        def download(self, handle: Any, shape: Any, dtype: str) -> np.ndarray:
            array = np.array(handle, copy=True)
            array[-1:] = ~array[-1:] if dtype == "bool" else array[-1:] + 1
            return array

    numbered = [(i, s) for i, s in enumerate(checks.samples_of(op))]
    checks.check_on_backend(NumpyBackend(), op, numbered, optimize=False)
    with pytest.raises(AssertionError):
        checks.check_on_backend(OffByOne(), op, numbered, optimize=False)


# --- shader text -------------------------------------------------------------------------------


@each(POINTWISE)
def test_pointwise_operations_have_shader_text(op: Op) -> None:
    """The text names every operand, leaves no hole open, and balances its parentheses."""
    assert op.wgsl is not None, f"{op.name} is pointwise and has no WGSL"
    for sample in checks.samples_of(op):
        nodes = checks.input_nodes(sample.inputs)
        node = make(op.name, *nodes, **sample.attributes)
        operands = [f"operand_{i}" for i in range(len(nodes))]
        if callable(op.wgsl):
            text = op.wgsl(operands, [n.dtype for n in nodes], node)
        else:
            text = op.wgsl.format(*operands)
        assert all(name in text for name in operands), f"{op.name}: {text}"
        assert "{" not in text and text.count("(") == text.count(")"), f"{op.name}: {text}"
