"""Formulas that users write compile to the kernels of the library's own layers and functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import layers, ops
from meganeura.graph.autodiff import gradients
from meganeura.graph.trace import Trace
from meganeura.layers.dot_product import ScaledDotProduct
from meganeura.rewrite import optimise
from meganeura.rewrite.stable import stable
from meganeura.schedule import Limits, schedule

Arrays = tuple[tuple[int, ...], ...]


def softmax(x: Any) -> Any:
    e = ops.exp(x)
    return e / ops.sum(e, axis=-1, keepdims=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / math.sqrt(q.shape[-1])
    return ops.matmul(softmax(scores), v)


def library_attention(q: Any, k: Any, v: Any) -> Any:
    """The zoo's, which has the heads behind the positions and puts them side by side."""
    batch, heads, length, width = q.shape
    turned = [ops.transpose(x, (0, 2, 1, 3)) for x in (q, k, v)]
    out = ScaledDotProduct()(*turned)
    return ops.transpose(ops.reshape(out, (batch, length, heads, width)), (0, 2, 1, 3))


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    mean = ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / ops.sqrt(variance + 1e-3) * gamma + beta


def library_layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    plain = layers.LayerNormalization(epsilon=1e-3, center=False, scale=False)
    return plain(x) * gamma + beta


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + ops.erf(x / math.sqrt(2.0)))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def cross_entropy(x: Any) -> Any:
    labels = ops.arange(x.shape[0]) % x.shape[1]
    chosen = ops.one_hot(labels, x.shape[1])
    return -ops.sum(chosen * ops.log(softmax(x)), axis=-1)


def library_cross_entropy(x: Any) -> Any:
    labels = ops.arange(x.shape[0]) % x.shape[1]
    return ops.categorical_crossentropy(ops.one_hot(labels, x.shape[1]), x, from_logits=True)


HEADS = ((2, 2, 6, 8),) * 3
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Arrays]] = {
    "softmax": (softmax, lambda x: ops.softmax(x, axis=-1), ((6, 8),)),
    "attention": (attention, library_attention, HEADS),
    "layer norm": (layer_norm, library_layer_norm, ((6, 8), (8,), (8,))),
    "gelu": (gelu, lambda x: ops.gelu(x, approximate=False), ((6, 8),)),
    "gelu by tanh": (gelu_tanh, lambda x: ops.gelu(x, approximate=True), ((6, 8),)),
    "cross-entropy": (cross_entropy, library_cross_entropy, ((6, 8),)),
}


def kernels(function: Callable[..., Any], shapes: Arrays, backward: bool) -> list[str]:
    """What a step launches: the kinds of kernels, in order."""
    with Trace() as trace:
        inputs = [trace.input(shape, "float32") for shape in shapes]
        out = function(*inputs)
        outputs = [out]
        if backward:
            (total,) = stable([ops.sum(out * out)], keep=inputs)
            outputs = gradients([total], inputs)
        graph = trace.graph(outputs)
    found = [
        part.split(":")[0]
        for kernel in schedule(optimise(graph)[0], Limits(storage_buffers=16)).kernels
        for part in kernel.name.split(" | ")
    ]
    return sorted(found)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_kernels(name: str, backward: bool) -> None:
    own, library, shapes = CASES[name]
    mine, theirs = (kernels(f, shapes, backward) for f in (own, library))
    assert mine == theirs


@pytest.mark.parametrize("name", CASES)
def test_the_same_values(name: str) -> None:
    own, library, shapes = CASES[name]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("float32") for shape in shapes]
    np.testing.assert_allclose(
        np.asarray(own(*map(ops.convert_to_tensor, arrays))),
        np.asarray(library(*map(ops.convert_to_tensor, arrays))),
        rtol=2e-5, atol=2e-6,
    )  # fmt: skip
