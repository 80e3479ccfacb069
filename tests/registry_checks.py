"""Checks that hold for every primitive, driven by the samples in its own record.

The tests loop over the registry and call these, so a new operation is tested the moment it has
samples. Each check raises AssertionError with the operation, the sample and what was found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from meganeura.backend.numpy.backend import NumpyExecutable
from meganeura.dtypes import FLOATS
from meganeura.graph.autodiff import gradients, zero_gradient
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import REGISTRY, Op, Sample, make

SEED = 20240607

#: The inputs of the checked operation are `SCALE * x`, so that its gradients have to travel on.
SCALE = 1.25


def samples_of(op: Op) -> list[Sample]:
    """The samples of a record, the same ones on every call."""
    return op.samples(np.random.default_rng(SEED)) if op.samples else []


def input_nodes(arrays: Sequence[np.ndarray]) -> list[Node]:
    return [
        Node("input", (), {"name": f"x{i}"}, a.shape, str(a.dtype)) for i, a in enumerate(arrays)
    ]


def describe(op: Op, index: int, sample: Sample) -> str:
    inputs = ", ".join(f"{a.dtype}{list(a.shape)}" for a in sample.inputs)
    return f"{op.name}, sample {index}: {inputs} {sample.attributes}"


def in_double(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def in_single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


# --- comparison --------------------------------------------------------------------------------


def assert_close(
    found: np.ndarray, expected: np.ndarray, tolerance: float, what: str, scale: float = 0.0
) -> None:
    """Equal shapes; NaN and infinities in the same places; the rest within `tolerance` of the
    largest finite expected value, or of `scale`. Integers and bools are equal."""
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind != "f":
        wrong = found != expected
        assert not wrong.any(), (
            f"{what}: {wrong.sum()} of {wrong.size} differ, first at {_first(wrong)}: "
            f"{found[_first(wrong)]!r}, expected {expected[_first(wrong)]!r}"
        )
        return
    finite = np.isfinite(expected)
    same_kind = np.where(finite, np.isfinite(found), _same(found, expected))
    assert same_kind.all(), (
        f"{what}: {found[_first(~same_kind)]} at {_first(~same_kind)}, "
        f"expected {expected[_first(~same_kind)]}"
    )
    if not finite.any():
        return
    scale = max(float(np.abs(expected[finite]).max()), scale, 1e-30)
    zero = np.zeros((), expected.dtype)
    error = np.abs(np.where(finite, found, zero) - np.where(finite, expected, zero)) / scale
    assert error.max() <= tolerance, (
        f"{what}: off by {error.max():.2e} of the scale {scale:.3g} at {_first(error == error.max())} "
        f"(allowed {tolerance:.0e}): {found[_first(error == error.max())]}, "
        f"expected {expected[_first(error == error.max())]}"
    )


def scale_of(op: Op, sample: Sample) -> float:
    """How large the terms are that a sum of products adds up: they may cancel in its result."""
    if op.kind != "template":
        return 0.0
    sizes = [np.abs(in_double(a)) if a.dtype == np.float32 else a for a in sample.inputs]
    with np.errstate(all="ignore"):
        bound = np.asarray(op.reference(*sizes, **sample.attributes))
    return float(bound.max(initial=0.0, where=np.isfinite(bound)))


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


# --- shape and dtype ---------------------------------------------------------------------------


def check_inference(op: Op, index: int, sample: Sample) -> None:
    """The rule for shape and dtype agrees with what the reference returns, in single precision
    and (for floats) in double precision, and the two agree with each other."""
    what = describe(op, index, sample)
    shape, dtype = op.infer(*input_nodes(sample.inputs), **sample.attributes)
    with np.errstate(all="ignore"):
        single = np.asarray(op.reference(*sample.inputs, **sample.attributes))
        double = np.asarray(op.reference(*map(in_double, sample.inputs), **sample.attributes))
    assert tuple(shape) == single.shape, f"{what}: infer says {shape}, reference {single.shape}"
    assert dtype == str(single.dtype), f"{what}: infer says {dtype}, reference {single.dtype}"
    if dtype == "float32" and any(a.dtype == np.float32 for a in sample.inputs):
        assert double.dtype == np.float64, f"{what}: double precision became {double.dtype}"
    if all(a.dtype != np.float32 or _moderate(a) for a in sample.inputs):
        assert_close(single, double, max(sample.tolerance, 1e-5), what, scale_of(op, sample))


def _moderate(array: np.ndarray) -> bool:
    """No values that overflow in single precision only."""
    return bool(np.isfinite(array).all()) and (not array.size or float(np.abs(array).max()) < 80)


# --- gradients ---------------------------------------------------------------------------------


class Differentiated:
    """A scalar loss with one operation in the middle, and its gradients.

    x -> SCALE * x = u -> the operation -> y;  loss = sum(w y) + sum(v y y) / 2 + sum(c u).
    So the operation sits mid-graph: its upstream gradient is neither ones nor constant, its
    output has two consumers, and its inputs are used beside it as well.
    """

    def __init__(self, op: Op, sample: Sample):
        random = np.random.default_rng(SEED + 1)
        self.op, self.sample = op, sample
        self.nodes = input_nodes(sample.inputs)
        self.floats = [i for i, n in enumerate(self.nodes) if n.dtype == "float32"]
        self.values = [
            a.astype(np.float64) / SCALE if a.dtype == np.float32 else a for a in sample.inputs
        ]
        coefficients: list[Node] = []

        def coefficient(like: Node) -> Node:
            node = Node("input", (), {"name": f"c{len(coefficients)}"}, like.shape, "float32")
            coefficients.append(node)
            self.values.append(random.uniform(0.5, 1.5, like.shape))
            return node

        scale = make("constant", value=SCALE, dtype="float32")
        inner = [
            make("multiply", n, scale) if i in self.floats else n for i, n in enumerate(self.nodes)
        ]
        y = make(op.name, *inner, **sample.attributes)
        terms = [
            make("multiply", coefficient(y), y),
            make("multiply", make("multiply", coefficient(y), y), y),
            *(make("multiply", coefficient(inner[i]), inner[i]) for i in self.floats),
        ]
        self.loss = _total(terms[0])
        for term in terms[1:]:
            self.loss = make("add", self.loss, _total(term))
        self.wrt = [self.nodes[i] for i in self.floats]
        self.first = gradients(self.loss, self.wrt)
        self.inputs = [*self.nodes, *coefficients]

    def runner(self, outputs: list[Node]) -> Any:
        executable = NumpyExecutable(Graph(self.inputs, outputs), floating="float64")
        return lambda values: executable.run(values, [])


def _total(x: Node) -> Node:
    return make("sum", x, axes=tuple(range(x.ndim)), keepdims=False) if x.ndim else x


def check_gradient(op: Op, index: int, sample: Sample, tolerance: float = 2e-6) -> None:
    """The gradient of every float input agrees with central differences, in double precision."""
    built = Differentiated(op, sample)
    loss, first = built.runner([built.loss]), built.runner(built.first)
    what = f"gradient of {describe(op, index, sample)}"
    found = first(built.values)
    _compare(built, lambda values: loss(values)[0], found, what, tolerance)


def check_second_gradient(op: Op, index: int, sample: Sample, tolerance: float = 5e-6) -> None:
    """The gradient's own gradient: of sum(r * gradient) with respect to every float input."""
    built = Differentiated(op, sample)
    random = np.random.default_rng(SEED + 2)
    upstream = []
    for x in built.wrt:
        node = Node("input", (), {"name": "r"}, x.shape, "float32")
        built.inputs.append(node)
        built.values.append(random.uniform(0.5, 1.5, x.shape))
        upstream.append(node)
    terms = [_total(make("multiply", r, g)) for r, g in zip(upstream, built.first, strict=True)]
    inner = terms[0]
    for term in terms[1:]:
        inner = make("add", inner, term)
    second = built.runner(gradients(inner, built.wrt))
    value = built.runner([inner])
    what = f"second gradient of {describe(op, index, sample)}"
    _compare(built, lambda values: value(values)[0], second(built.values), what, tolerance)


def _compare(
    built: Differentiated, value: Any, found: list[np.ndarray], what: str, tolerance: float
) -> None:
    """Differences along coordinates (all, when there are few) and along random directions."""
    random = np.random.default_rng(SEED + 3)
    pairs: list[tuple[float, float]] = []
    places: list[str] = []
    for slot, gradient in zip(built.floats, found, strict=True):
        x = built.values[slot]
        assert gradient.shape == x.shape, f"{what}: shape {gradient.shape} for input {slot}"
        if not x.size:
            continue
        directions = []
        chosen = range(x.size) if x.size <= 24 else random.choice(x.size, 12, replace=False)
        for place in chosen:
            direction = np.zeros(x.size)
            direction[place] = 1.0
            directions.append((f"element {place}", direction.reshape(x.shape)))
        if x.size > 1:
            directions += [("a direction", random.uniform(-1, 1, x.shape)) for _ in range(4)]
        for name, direction in directions:
            # Long steps for long vectors would leave the neighbourhood in which a kink is avoided.
            step = 1e-5 * max(1.0, float(np.abs(x).max()))
            ends = []
            for sign in (1.0, -1.0):
                values = list(built.values)
                values[slot] = x + sign * step * direction
                ends.append(float(value(values)))
            pairs.append(((ends[0] - ends[1]) / (2 * step), float((gradient * direction).sum())))
            places.append(f"input {slot}, {name}")
    if not pairs:
        return
    numeric, analytic = np.array(pairs).T
    assert np.isfinite(analytic).all(), f"{what}: not finite: {analytic}"
    error = np.abs(numeric - analytic) / max(np.abs(numeric).max(), 1e-30)
    worst = int(error.argmax())
    assert error[worst] <= tolerance, (
        f"{what}: {places[worst]}: {analytic[worst]!r} from the rule, "
        f"{numeric[worst]!r} from differences"
    )


def is_differentiable(op: Op) -> bool:
    """Whether the record has a rule that says more than zero."""
    return op.gradient is not None and op.gradient is not zero_gradient


# --- backends ----------------------------------------------------------------------------------


#: A software adapter gets kernels of its own, so those of GPUs are asked for by name.
LIMITS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "as a GPU": {"software": False, "quads_from": 4},
    "as a small GPU": {
        "software": False, "workgroup_bytes": 16384, "invocations": 256, "storage_buffers": 8, "quads_from": 4,
    },
}  # fmt: skip


def wgpu_backend_as(kind: str) -> Iterator[Any]:
    """The backend with the limits of another kind of device."""
    for found in wgpu_backend():
        own = found.limits
        found.limits = dataclasses.replace(own, **LIMITS[kind])
        try:
            yield found
        finally:
            found.limits = own


def wgpu_backend() -> Iterator[Any]:
    """The backend of a module-scoped fixture; skips where there is no adapter."""
    from meganeura.backend.wgpu.backend import NoAdapterError, WgpuBackend

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGANEURA_QUIET", "1")
        patch.setenv("MEGANEURA_STRICT", "1")  # a failure of the optimiser is one of the test
        try:
            made = WgpuBackend()
        except NoAdapterError as error:
            pytest.skip(f"no adapter: {error}")
        yield made


def check_on_backend(
    backend: Any, op: Op, numbered: Sequence[tuple[int, Sample]], optimize: bool
) -> None:
    """Samples of one operation, computed as one graph on a backend, against the reference."""
    inputs: list[Node] = []
    outputs: list[Node] = []
    for _, sample in numbered:
        nodes = input_nodes(sample.inputs)
        inputs += nodes
        outputs.append(make(op.name, *nodes, **sample.attributes))
    executable = backend.compile(Graph(inputs, outputs), optimize)
    handles = executable.run([backend.upload(a) for _, s in numbered for a in s.inputs], [])
    for (index, sample), node, handle in zip(numbered, outputs, handles, strict=True):
        found = backend.download(handle, node.shape, node.dtype)
        what = f"{describe(op, index, sample)} on {backend.name}, optimize={optimize}"
        assert str(found.dtype) == node.dtype, f"{what}: {found.dtype}, expected {node.dtype}"
        expected = expected_on_device(op, sample)
        assert_close(found, expected, sample.tolerance, what, scale_of(op, sample))


def expected_on_device(op: Op, sample: Sample) -> np.ndarray:
    """The reference in double precision, rounded to single: where it overflows, so may a device."""
    with np.errstate(all="ignore"):
        wide = np.asarray(op.reference(*map(in_double, sample.inputs), **sample.attributes))
        return wide.astype(np.float32) if wide.dtype == np.float64 else wide


# --- half precision ----------------------------------------------------------------------------

#: Of the largest value: half precision keeps eleven bits, and a result is rounded once or twice.
HALF_TOLERANCE = 2e-3


def halved(sample: Sample) -> Sample | None:
    """The sample with float16 in place of float32; None where it has no float32."""
    if all(a.dtype != np.float32 for a in sample.inputs):
        return None
    with np.errstate(all="ignore"):
        arrays = [a.astype(np.float16) if a.dtype == np.float32 else a for a in sample.inputs]
    return dataclasses.replace(sample, inputs=tuple(arrays), tolerance=HALF_TOLERANCE)


def halved_samples(op: Op) -> list[tuple[int, Sample]]:
    found = [(i, halved(s)) for i, s in enumerate(samples_of(op))]
    return [(i, s) for i, s in found if s is not None]


def check_half(backend: Any, op: Op, optimize: bool = False) -> None:
    """float16 operands give the float16 that is nearest to the result in double precision, or one
    of its neighbours; and whatever is no float is the same."""
    numbered = halved_samples(op)
    inputs: list[Node] = []
    outputs: list[Node] = []
    for _, sample in numbered:
        nodes = input_nodes(sample.inputs)
        inputs += nodes
        outputs.append(make(op.name, *nodes, **sample.attributes))
    executable = backend.compile(Graph(inputs, outputs), optimize)
    handles = executable.run([backend.upload(a) for _, s in numbered for a in s.inputs], [])
    for (index, sample), node, handle in zip(numbered, outputs, handles, strict=True):
        found = backend.download(handle, node.shape, node.dtype)
        what = f"{describe(op, index, sample)} on {backend.name}, optimize={optimize}"
        assert str(found.dtype) == node.dtype, f"{what}: {found.dtype}, expected {node.dtype}"
        wide = [a.astype(np.float64) if a.dtype == np.float16 else a for a in sample.inputs]
        with np.errstate(all="ignore"):
            expected = np.asarray(op.reference(*wide, **sample.attributes)).astype(node.dtype)
        if found.dtype.kind == "f":
            found, expected = found.astype(np.float64), expected.astype(np.float64)
        assert_close(found, expected, sample.tolerance, what, scale_of(op, samples_of(op)[index]))


def check_half_gradient(op: Op, index: int, sample: Sample) -> None:
    """The gradient of a float16 operand is float16, and near the one in double precision."""
    nodes = input_nodes(sample.inputs)
    y = make(op.name, *nodes, **sample.attributes)
    if y.dtype not in FLOATS:
        return
    weights = np.random.default_rng(SEED).uniform(0.5, 1.5, y.shape).astype(np.float32)
    weight = Node("input", (), {"name": "weight"}, y.shape, "float32")
    wide = make("cast", y, dtype="float32")
    floats = [n for n in nodes if n.dtype == "float16"]
    found = gradients(_total(make("multiply", weight, wide)), floats)
    what = f"gradient of {describe(op, index, sample)}"
    assert [n.dtype for n in found] == ["float16"] * len(found), what
    graph = Graph([*nodes, weight], found)
    arrays = [*sample.inputs, weights]
    half = NumpyExecutable(graph).run(arrays, [])
    double = NumpyExecutable(graph, floating="float64").run(
        [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays], []
    )
    for a, b in zip(half, double, strict=True):
        assert_close(a.astype(np.float64), b, 1e-2, what)


def registered() -> list[Op]:
    import meganeura.ops  # noqa: F401 (fills the registry)

    return list(REGISTRY.values())
