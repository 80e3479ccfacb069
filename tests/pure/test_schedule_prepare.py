"""Before kernels are formed: padding goes into convolutions, and long reductions into stages."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from meganeura.backend.numpy.backend import NumpyExecutable
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.schedule import schedule
from meganeura.schedule.plan import Limits
from meganeura.schedule.prepare import prepared

GPU = Limits(16, 1 << 30, 32768, 1024, 65535, software=False)
PAD = {"low": (0, 1, 2, 0), "high": (0, 2, 0, 0), "value": 0.0}
ATTRIBUTES = {"strides": (2, 1), "padding": ((0, 1), (1, 0)), "dilation": (1, 1), "groups": 1}


def inputs(*shapes: tuple[int, ...]) -> list[Node]:
    return [Node("input", (), {"name": str(i)}, s, "float32") for i, s in enumerate(shapes)]


def compare(nodes: list[Node], out: Node) -> Graph:
    """The prepared graph, which computes what the written one does."""
    written = Graph(nodes, [out], [], {})
    after = prepared(written, GPU)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(n.shape) for n in nodes]
    (a,), (b,) = (NumpyExecutable(g, "float64").run(arrays, []) for g in (written, after))
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return after


def ops_of(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes()]


def test_a_padded_input() -> None:
    x, kernel = inputs((2, 7, 8, 3), (3, 3, 3, 4))
    after = compare([x, kernel], make("conv", make("pad", x, **PAD), kernel, **ATTRIBUTES))
    assert "pad" not in ops_of(after)


def test_padded_channels_stay() -> None:
    x, kernel = inputs((2, 7, 8, 2), (3, 3, 3, 4))
    more = {"low": (0, 1, 0, 1), "high": (0, 0, 0, 0), "value": 0.0}
    after = compare([x, kernel], make("conv", make("pad", x, **more), kernel, **ATTRIBUTES))
    assert "pad" in ops_of(after)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_kernels_gradient(value: float) -> None:
    x, dy = inputs((2, 7, 8, 3), (2, 5, 9, 4))
    out = make(
        "conv_kernel_gradient", make("pad", x, **{**PAD, "value": value}), dy,
        kernel_shape=(3, 3, 3, 4), **ATTRIBUTES,
    )  # fmt: skip
    assert ("pad" in ops_of(compare([x, dy], out))) == (value != 0.0)


@pytest.mark.parametrize("shared", [False, True])
def test_the_inputs_gradient(shared: bool) -> None:
    dy, kernel = inputs((2, 5, 9, 4), (3, 3, 3, 4))
    whole = make(
        "conv_input_gradient", dy, kernel, input_shape=(2, 10, 10, 3), **ATTRIBUTES
    )  # fmt: skip
    out = make("slice", whole, start=(0, 1, 2, 0), stop=(2, 8, 10, 3), step=(1, 1, 1, 1))
    if shared:  # the whole is needed as well: nothing is gained
        total = make("sum", whole, axes=(0, 1, 2, 3), keepdims=False)
        out = make("add", out, make("reshape", total, shape=(1, 1, 1, 1)))
    assert ("slice" in ops_of(compare([dy, kernel], out))) == shared


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((50000, 24), (0,)), ((5, 7000, 3), (0, 1)), ((3, 90001), (1,)), ((4, 30000, 5), (1,))],
)
def test_long_reductions_go_in_stages(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    (x,) = inputs(shape)
    after = compare([x], make("sum", x, axes=axes, keepdims=False))
    assert ops_of(after).count("sum") == 2


def columns(
    shape: tuple[int, ...], keepdims: bool, axes: tuple[int, ...]
) -> tuple[Node, Node, Node]:
    """x, its mean and its variance along `axes`, as layers write them."""
    (x,) = inputs(shape)
    share = make("constant", value=1 / math.prod(shape[a] for a in axes), dtype="float32")
    mean = make("multiply", make("sum", x, axes=axes, keepdims=True), share)
    centred = make("subtract", x, mean)
    square = make("multiply", centred, centred)
    variance = make("multiply", make("sum", square, axes=axes, keepdims=keepdims), share)
    return x, mean, variance


@pytest.mark.parametrize("limits", [GPU, dataclasses.replace(GPU, software=True)])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((8, 56, 56, 16), (0, 1, 2)),  # columns
        ((2, 4, 96 * 96), (2,)),  # rows
        ((2, 60, 60, 4), (1, 2)),  # between other dimensions
        ((4, 112 * 112, 2, 2), (1, 3)),
    ],
)
@pytest.mark.parametrize("keepdims", [True, False])
def test_a_variance_takes_the_chunks_of_the_mean(
    limits: Limits, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool
) -> None:
    """Both in two kernels, where the second pass over everything would need two more."""
    x, mean, variance = columns(shape, keepdims, axes)
    written = Graph([x], [mean, variance], [], {})
    after = prepared(written, limits)
    values = 100 + np.random.default_rng(0).standard_normal(shape)
    for a, b in zip(
        NumpyExecutable(written, "float64").run([values], []),
        NumpyExecutable(after, "float64").run([values], []), strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(a, b, rtol=1e-6)
    sums = [n for n in after.nodes() if n.op == "sum"]
    if len(sums) > 2:
        # of x and of squares by chunks, and over the chunks: nothing else reads every element
        assert sum(n.inputs[0].size >= x.size for n in sums) == 2
        assert not any(n.op == "subtract" and n.shape == shape for n in after.nodes())
        assert len(schedule(written, limits).kernels) == 2


def test_a_variance_of_single_precision_cancels_nothing() -> None:
    """A mean of a thousand deviations: E[x^2] - E[x]^2 would have no digit left."""
    x, _, variance = columns((8, 56, 56, 16), False, (0, 1, 2))
    values = (1000 + np.random.default_rng(0).standard_normal(x.shape)).astype("float32")
    after = prepared(Graph([x], [variance], [], {}), GPU)
    assert sum(n.op == "sum" for n in after.nodes()) == 4
    (found,) = NumpyExecutable(after).run([values], [])
    np.testing.assert_allclose(found, values.astype("float64").var((0, 1, 2)), rtol=2e-4)


@pytest.mark.parametrize("change", ["another tensor", "another factor", "other axes"])
def test_deviations_from_something_else_are_summed_as_they_are(change: str) -> None:
    x, y = inputs((8, 56, 56, 16), (8, 56, 56, 16))
    axes = (0, 1) if change == "other axes" else (0, 1, 2)
    share = make(
        "constant", value=1e-5 if change == "another factor" else 1 / (8 * 56 * 56), dtype="float32"
    )
    source = y if change == "another tensor" else x
    mean = make("multiply", make("sum", source, axes=axes, keepdims=True), share)
    centred = make("subtract", x, mean)
    out = make("sum", make("multiply", centred, centred), axes=(0, 1, 2), keepdims=False)
    compare([x, y], out)
