"""Whole graphs for tests of the rewriter: forward, backward and update, from ops and autodiff."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.graph.autodiff import gradients
from meganeura.graph.node import Graph
from meganeura.graph.trace import Trace
from meganeura.variable import Variable


def variable(*shape: int, seed: int = 0) -> Variable:
    values = np.random.default_rng(seed).uniform(0.2, 1.0, shape)
    return Variable(values.astype("float32"), name=f"w{seed}")


def training(
    loss_of: Callable[[Trace], Any], variables: Sequence[Variable], momentum: float | None = None
) -> Graph:
    """One step of gradient descent on a loss, by hand."""
    with Trace() as trace:
        loss = loss_of(trace)
        rate = trace.input((), "float32", "rate")
        slopes = gradients(loss, [trace.state(v) for v in variables])
        for v, slope in zip(variables, slopes, strict=True):
            if momentum is None:
                v.assign(v.value - rate * slope)
                continue
            velocity = Variable(np.zeros(v.shape, "float32"), name="velocity")
            velocity.assign(momentum * velocity.value - rate * slope)
            v.assign(v.value + velocity.value)
        return trace.graph([loss])


def mlp(depth: int = 3, width: int = 8, activation: Any = ops.relu, batch: int = 4) -> Graph:
    weights = [variable(width, width, seed=i) for i in range(depth)]
    biases = [variable(width, seed=100 + i) for i in range(depth)]

    def loss(trace: Trace) -> Any:
        x = trace.input((batch, width), "float32", "x")
        labels = trace.input((batch,), "int32", "labels")
        for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
            x = ops.matmul(x, w.value) + b.value
            x = activation(x) if i < depth - 1 else x
        return ops.mean(ops.sparse_categorical_crossentropy(labels, x, from_logits=True))

    return training(loss, [*weights, *biases])


def residual(depth: int = 3, width: int = 8, batch: int = 4) -> Graph:
    """x + W2 (silu(W1 x) * W3 x), with weight decay and momentum."""
    weights = [variable(width, width, seed=i) for i in range(3 * depth)]

    def loss(trace: Trace) -> Any:
        x = trace.input((batch, width), "float32", "x")
        y = trace.input((batch, width), "float32", "y")
        for i in range(depth):
            a, b, c = (w.value for w in weights[3 * i : 3 * i + 3])
            gate = ops.matmul(x, a)
            x = x + ops.matmul(gate * ops.sigmoid(gate) * ops.matmul(x, c), b)
        decay = sum(ops.sum(w.value * w.value) for w in weights)
        return ops.mean((x - y) * (x - y)) + 0.01 * decay

    return training(loss, weights, momentum=0.9)


def convnet(batch: int = 2, size: int = 6, channels: int = 4) -> Graph:
    """Convolution, batch normalisation by batch statistics, relu, pooling, a dense layer."""
    kernels = [variable(3, 3, 2, channels, seed=1), variable(3, 3, channels, channels, seed=2)]
    scales = [variable(channels, seed=3 + i) for i in range(2)]
    shifts = [variable(channels, seed=5 + i) for i in range(2)]
    dense = variable((size // 2) ** 2 * channels, 3, seed=7)

    def loss(trace: Trace) -> Any:
        x = trace.input((batch, size, size, 2), "float32", "x")
        labels = trace.input((batch,), "int32", "labels")
        for kernel, scale, shift in zip(kernels, scales, shifts, strict=True):
            x = ops.conv(x, kernel.value, padding="same")
            mean = ops.mean(x, axis=(0, 1, 2))
            variance = ops.mean(ops.square(x - mean), axis=(0, 1, 2))
            x = ops.relu((x - mean) * (ops.rsqrt(variance + 1e-3) * scale.value) + shift.value)
        x = ops.max_pool(x, 2)
        x = ops.matmul(ops.reshape(x, (batch, -1)), dense.value)
        return ops.mean(ops.sparse_categorical_crossentropy(labels, x, from_logits=True))

    return training(loss, [*kernels, *scales, *shifts, dense])


def normalized_inference(batch: int = 4, size: int = 8) -> Graph:
    """A convolution and a dense layer, each with a bias, batch normalisation by moving averages,
    and an activation."""
    kernel, dense = variable(3, 3, 3, 8, seed=1), variable(size * size * 8, 5, seed=2)
    vectors = {n: [variable(n, seed=3 + i) for i in range(5)] for n in (8, 5)}

    def normalize(x: Any, parts: list[Variable]) -> Any:
        bias, mean, variance, gamma, beta = (v.value for v in parts)
        return (x + bias - mean) * (ops.rsqrt(variance + 1e-3) * gamma) + beta

    with Trace() as trace:
        x = trace.input((batch, size, size, 3), "float32", "x")
        y = ops.relu(normalize(ops.conv(x, kernel.value, padding="same"), vectors[8]))
        y = ops.matmul(ops.reshape(y, (batch, -1)), dense.value)
        return trace.graph([ops.tanh(normalize(y, vectors[5]))])


def attention(batch: int = 2, length: int = 5, heads: int = 2, width: int = 8) -> Graph:
    weights = [variable(width, width, seed=i) for i in range(4)]

    def loss(trace: Trace) -> Any:
        x = trace.input((batch, length, width), "float32", "x")
        q, k, v = (
            ops.transpose(
                ops.reshape(ops.matmul(x, w.value), (batch, length, heads, -1)), (0, 2, 1, 3)
            )
            for w in weights[:3]
        )
        scores = ops.softmax(
            ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * (width // heads) ** -0.5
        )
        y = ops.reshape(ops.transpose(ops.matmul(scores, v), (0, 2, 1, 3)), (batch, length, width))
        return ops.mean(ops.square(ops.matmul(y, weights[3].value)))

    return training(loss, weights)


MODELS: dict[str, Callable[[], Graph]] = {
    "mlp relu": mlp,
    "mlp silu": lambda: mlp(activation=ops.silu),
    "mlp x * sigmoid(x)": lambda: mlp(activation=lambda x: x * ops.sigmoid(x)),
    "mlp gelu": lambda: mlp(activation=lambda x: ops.gelu(x, approximate=False)),
    "mlp tanh": lambda: mlp(activation=ops.tanh),
    "mlp softplus": lambda: mlp(activation=lambda x: ops.log(1.0 + ops.exp(x))),
    "residual swiglu": residual,
    "convnet": convnet,
    "normalised inference": normalized_inference,
    "attention": attention,
}
