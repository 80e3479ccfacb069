"""Before kernels are formed: padding goes into convolutions, and long reductions into stages."""

from __future__ import annotations

import numpy as np
import pytest

from meganeura.backend.numpy.backend import NumpyExecutable
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
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
    [((50000, 24), (0,)), ((5, 7000, 3), (0, 1)), ((3, 90001), (1,)), ((4, 3000, 5), (1,))],
)
def test_long_reductions_go_in_stages(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    (x,) = inputs(shape)
    after = compare([x], make("sum", x, axes=axes, keepdims=False))
    assert ops_of(after).count("sum") == 2
