"""Whole graphs through the e-graph: the same values, the forms that were meant, nothing merged."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from rewrite_checks import all_values, assert_same, check_graph, evaluate, leaf
from rewrite_models import MODELS, attention, convnet, mlp, normalized_inference, variable

from meganeura import layers, models, ops
from meganeura.graph.node import Graph, Node
from meganeura.graph.trace import Trace
from meganeura.ops.registry import make, scope
from meganeura.rewrite import optimise
from meganeura.schedule import Limits, schedule


def operations(graph: Graph) -> Counter[str]:
    return Counter(n.op for n in graph.nodes())


@pytest.mark.parametrize("name", MODELS)
def test_models_keep_their_values(name: str) -> None:
    graph = MODELS[name]()
    before = graph.key()
    report = check_graph(graph, np.random.default_rng(0), 0.1, 1.0)
    assert graph.key() == before, "the graph that was given has changed"
    assert report["egraph_stopped"] == "saturated"
    assert report["rewrites"]


def test_products_take_bias_and_activation() -> None:
    found, report = optimise(mlp(depth=3))
    fused = [n for n in found.nodes() if n.op == "fused_matmul"]
    assert sorted(n.attributes["activation"] for n in fused) == ["linear", "relu", "relu"]
    # Forward, and for each layer the weights' gradient; the input's gradient but for the first.
    assert operations(found)["matmul"] == 3 + 2
    assert not operations(found)["transpose"]
    # The masks come from the activations: what was before them is not computed.
    masks = [n.inputs[1] for n in found.nodes() if n.op == "less" and n.dtype == "bool"]
    assert [n.op for n in masks if n.shape == (4, 8) and n.op != "cast"] == ["fused_matmul"] * 2
    assert report["rewrites"]["mask from the output"] == 2
    assert report["rewrites"]["subtraction by axpy"] == 6


def test_an_activation_is_not_fused_where_its_input_is_needed() -> None:
    """silu's gradient needs what goes into it: one product, and not a second one for the sake of
    a fused activation."""
    found, _ = optimise(mlp(depth=3, activation=ops.silu))
    fused = [n.attributes["activation"] for n in found.nodes() if n.op == "fused_matmul"]
    assert fused == ["linear"] * 3
    assert operations(found)["matmul"] == 3 + 2


def test_normalisation_in_inference_costs_no_kernel() -> None:
    """Shifts become the bias; the product's kernel scales and activates before it stores."""
    found, report = optimise(normalized_inference(batch=256, size=4))
    fused = [n for n in found.nodes() if n.op.startswith("fused_")]
    assert [n.op for n in fused] == ["fused_conv", "fused_matmul"]
    assert all(n.inputs[1].op == "state" for n in fused)  # weights are used as they are
    assert report["rewrites"]["shift of a biased convolution"] == 1
    assert len(schedule(found, Limits()).kernels) == 2


def test_normalisation_by_batch_statistics_is_left_alone() -> None:
    """The scale depends on the convolution's own results: folding it would convolve twice."""
    graph = convnet()
    found, _ = optimise(graph)
    kinds = ("conv", "fused_conv")
    assert sum(operations(found)[k] for k in kinds) == operations(graph)["conv"] == 2


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_a_model_of_layers_in_inference(data_format: str) -> None:
    last = data_format == "channels_last"
    shape = (8, 8, 3) if last else (3, 8, 8)
    model = models.Sequential(
        [
            layers.Input(shape),
            layers.Conv2D(8, 3, data_format=data_format),
            layers.BatchNormalization(axis=-1 if last else 1),
            layers.ReLU(),
            layers.Conv2D(8, 3, activation="relu", data_format=data_format),
            layers.GlobalAveragePooling2D(data_format=data_format),
            layers.Dense(4),
        ]
    )
    with Trace() as trace:
        graph = trace.graph([model(trace.input((4, *shape), "float32", "x"), training=False)])
    check_graph(graph, np.random.default_rng(0), 0.1, 1.0)
    found, _ = optimise(graph)
    kernels = [k.name.split(":")[0] for k in schedule(found, Limits()).kernels]
    assert kernels == ["fused_conv", "fused_conv", "row", "fused_matmul"]


def test_transposes_go_into_products() -> None:
    x, y = leaf((2, 4, 3)), leaf((2, 4, 5))
    turned = make("transpose", x, axes=(0, 2, 1))
    product = make("matmul", turned, y, transpose_a=False, transpose_b=False)
    graph = Graph([x, y], [make("transpose", product, axes=(0, 2, 1))])
    check_graph(graph, np.random.default_rng(0))
    assert operations(optimise(graph)[0]) == {"input": 2, "matmul": 1}
    # One that also moves the batch stays.
    other = make("transpose", leaf((4, 3, 2)), axes=(2, 1, 0))
    product = make("matmul", other, y, transpose_a=False, transpose_b=False)
    graph = Graph([other.inputs[0], y], [product])
    assert operations(optimise(graph)[0])["transpose"] == 1


def test_attention_reads_its_keys_transposed() -> None:
    graph = attention()
    found, _ = optimise(graph)
    swapped = [
        n for n in found.nodes() if n.op == "transpose" and n.attributes["axes"] == (0, 1, 3, 2)
    ]
    assert any(n.op == "transpose" and n.attributes["axes"] == (0, 1, 3, 2) for n in graph.nodes())
    assert not swapped


@pytest.mark.parametrize(
    ("formula", "op"),
    [
        (lambda x: x * (1 / (1 + ops.exp(-x))), "silu"),
        (lambda x: x / (1 + ops.exp(-x)), "silu"),
        (lambda x: ops.exp(x) / (ops.exp(x) + 1), "sigmoid"),
        (lambda x: 0.5 * x * (1 + ops.erf(x / 2**0.5)), "gelu"),
        (lambda x: x * 0.5 * (ops.erf(x * 0.70710678) + 1.0), "gelu"),
        (lambda x: x * (1 + ops.erf(x / np.sqrt(2))) / 2, "gelu"),
        (lambda x: 0.5 * x * (1 + ops.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))), "gelu"),
        (lambda x: x * 0.5 * (1 + ops.tanh(0.79788456 * x * (1 + 0.044715 * x * x))), "gelu"),
        (lambda x: ops.log(1 + ops.exp(x)), "softplus"),
        (lambda x: ops.log1p(ops.exp(x)), "softplus"),
        (lambda x: (ops.exp(x) - ops.exp(-x)) / (ops.exp(x) + ops.exp(-x)), "tanh"),
        (lambda x: ops.maximum(x, 0.0), "relu"),
        (lambda x: ops.maximum(0.0, x), "relu"),
    ],
)
def test_activations_are_recognised_in_formulas(formula: object, op: str) -> None:
    x = leaf((3, 5))
    with Trace() as trace:
        graph = Graph([x], trace.graph([ops.sin(formula(x))]).outputs)  # type: ignore[operator]
    check_graph(graph, np.random.default_rng(0))
    assert operations(optimise(graph)[0]) == {"input": 1, op: 1, "sin": 1}


def test_swiglu_is_one_operation() -> None:
    g, u = leaf((3, 5)), leaf((3, 5))
    graph = Graph([g, u], [ops.multiply(g * ops.sigmoid(g), u)])
    assert operations(optimise(graph)[0]) == {"input": 2, "swiglu": 1}


# --- what must not be merged -------------------------------------------------------------------


def test_random_numbers_are_told_apart_by_seed_and_shape() -> None:
    a, b = leaf((2,), "uint32", "state"), leaf((2,), "uint32", "state")

    def bits(seed: Node, shape: tuple[int, ...]) -> Node:
        return make("random_bits", seed, shape=shape)

    roots = [bits(a, (4,)), bits(b, (4,)), bits(a, (2, 2)), bits(a, (4,))]
    graph = Graph([], roots, [a, b])
    found, _ = optimise(graph)
    one, other, shaped, again = found.outputs
    assert one is again
    assert len({id(one), id(other), id(shaped)}) == 3
    arrays = [np.array([1, 2], "uint32"), np.array([3, 4], "uint32")]
    for x, y in zip(evaluate(found, [], arrays), evaluate(graph, [], arrays), strict=True):
        assert_same(x, y, "random bits")


def test_attributes_are_part_of_what_an_operation_is() -> None:
    x = leaf((4, 6))
    roots = [
        make("reshape", x, shape=(24,)),
        make("reshape", x, shape=(2, 12)),
        make("sum", x, axes=(0,), keepdims=True),
        make("sum", x, axes=(0,), keepdims=False),
        make("pad", x, low=(1, 0), high=(0, 0), value=0.0),
        make("pad", x, low=(1, 0), high=(0, 0), value=-0.0),
        make("pad", x, low=(1, 0), high=(0, 0), value=1.0),
        make("add", x, make("constant", value=1e-3, dtype="float32")),
        make("add", x, make("constant", value=1e-7, dtype="float32")),
        make("gelu", x, approximate=True),
        make("gelu", x, approximate=False),
    ]
    found, _ = optimise(Graph([x], roots))
    assert len({id(n) for n in found.outputs}) == len(roots)
    assert np.signbit(found.outputs[5].attributes["value"])


def test_nan_and_infinities_are_kept() -> None:
    x = leaf((3,))
    zero, infinite, missing, negative = (
        make("constant", value=v, dtype="float32") for v in (0.0, np.inf, np.nan, -0.0)
    )
    roots = [
        make("multiply", x, zero),
        make("multiply", x, infinite),
        make("add", x, missing),
        make("multiply", x, negative),
        make("divide", x, x),
        make("subtract", x, x),
    ]
    graph = Graph([x], roots)
    array = np.array([np.nan, np.inf, 2.0])
    found, _ = optimise(graph)
    for a, b in zip(evaluate(found, [array]), evaluate(graph, [array]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.signbit(evaluate(found, [array])[3][2])


def test_whole_numbers_are_not_taken_for_floats() -> None:
    x, y = leaf((4,), "int32"), leaf((4,), "uint8")
    five, two = (make("constant", value=v, dtype="int32") for v in (5, 2))
    roots = [
        make("floor_divide", make("multiply", x, five), two),
        make("cast", make("cast", y, dtype="int32"), dtype="float32"),
        make("cast", make("cast", x, dtype="float32"), dtype="int32"),
        make("abs", make("negative", y)),
        make("multiply", x, make("constant", value=1, dtype="int32")),
        make("add", make("add", five, two), x),
    ]
    graph = Graph([x, y], roots)
    check_graph(graph, np.random.default_rng(0))
    found, _ = optimise(graph)
    assert [n.op for n in found.outputs[1:3]] == ["cast", "cast"]
    assert found.outputs[1].inputs[0] is y, "bytes go straight to float32"
    assert found.outputs[2].inputs[0] is not x, "float32 does not hold every int32"
    assert found.outputs[4] is x


def test_a_bias_that_widens_is_not_fused() -> None:
    x, w = leaf((1, 4)), leaf((4, 1))
    product = make("matmul", x, w, transpose_a=False, transpose_b=False)
    for shape in ((3,), (5, 1), (2, 1, 1), ()):
        b = leaf(shape)
        graph = Graph([x, w, b], [make("relu", make("add", product, b))])
        check_graph(graph, np.random.default_rng(0))
        assert not operations(optimise(graph)[0])["fused_matmul"], shape


# --- the ends of a graph -----------------------------------------------------------------------


def test_roots_keep_their_order_and_leaves_their_identity() -> None:
    x, s, t = leaf((3,)), leaf((3,), op="state"), leaf((3,), op="state")
    zero = make("constant", value=0.0, dtype="float32")
    same = make("add", x, zero)
    graph = Graph([x], [same, x, make("negative", s), same, zero], [s, t], {1: s, 0: same})
    found, _ = optimise(graph)
    assert found.inputs == [x] and found.states == [s, t]
    assert found.outputs[0] is found.outputs[1] is found.outputs[3] is x
    assert found.updates == {0: x, 1: s}
    assert found.outputs[4].op == "constant"


def test_graphs_with_nothing_in_them() -> None:
    assert optimise(Graph([], []))[0].roots == []
    x = leaf((0, 3))
    graph = Graph(
        [x], [make("sum", make("exp", make("negative", x)), axes=(0,), keepdims=False), x]
    )
    check_graph(graph, np.random.default_rng(0))


def test_scopes_are_carried_over() -> None:
    w, b = variable(4, 4, seed=1), variable(4, seed=2)
    with Trace() as trace:
        x = trace.input((2, 4), "float32", "x")
        with scope("outer"), scope("dense"):
            y = ops.relu(ops.matmul(x, w.value) + b.value)
        graph = trace.graph([y])
    (fused,) = [n for n in optimise(graph)[0].nodes() if n.op == "fused_matmul"]
    assert fused.scope == "outer/dense"


def test_constants_are_computed() -> None:
    x = leaf((3, 4))
    two = make("constant", value=2.0, dtype="float32")
    root = make("sqrt", make("multiply", two, make("constant", value=8.0, dtype="float32")))
    wide = make("broadcast_to", make("reshape", make("exp", root), shape=(1, 1)), shape=(3, 4))
    graph = Graph([x], [make("multiply", x, wide)])
    check_graph(graph, np.random.default_rng(0))
    found, report = optimise(graph)
    assert operations(found) == {"input": 1, "constant": 1, "multiply": 1}
    assert report["rewrites"]["constants computed"] >= 3


def test_literals_are_moved_at_compile_time() -> None:
    array = np.arange(6, dtype="float32").reshape(2, 3)
    literal = make("literal", data=array.tobytes(), shape=(2, 3), dtype="float32")
    x = leaf((3, 2))
    graph = Graph([x], [make("add", x, make("transpose", literal, axes=(1, 0)))])
    check_graph(graph, np.random.default_rng(0))
    (found,) = [n for n in optimise(graph)[0].nodes() if n.op == "literal"]
    assert found.shape == (3, 2) and found.attributes["data"] == array.T.tobytes()


def test_equal_work_is_done_once() -> None:
    x = leaf((4, 4))
    a = make("tanh", make("exp", x))
    b = make("tanh", make("exp", x))
    found, _ = optimise(Graph([x], [a, b, make("add", a, b)]))
    assert operations(found) == {"input": 1, "exp": 1, "tanh": 1, "add": 1}


@pytest.mark.parametrize("depth", [20_000])
def test_depth_is_no_limit(depth: int) -> None:
    x = leaf((2,))
    y: Node = x
    for i in range(depth):
        y = make(("tanh", "negative", "relu", "sin")[i % 4], y)
    graph = Graph([x], [y])
    found, report = optimise(graph)
    assert report["egraph_stopped"] == "saturated"
    assert len(found.nodes()) == depth + 1
    array = np.array([0.3, -0.7])
    assert_same(evaluate(found, [array])[0], evaluate(graph, [array])[0], "a deep chain")
    y = x
    for i in range(depth):
        y = make("add" if i % 2 else "maximum", y, y)
    found, _ = optimise(Graph([x], [y]))  # as a tree it would have 2^20000 nodes
    values = all_values(found.nodes(), {id(x): np.array([0.0, 0.0])})
    assert_same(values[id(found.outputs[0])], np.zeros(2), "a deep chain with sharing")
