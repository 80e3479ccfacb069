"""Activation checkpointing: the same gradients from less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers, ops
from meganeura.graph.autodiff import gradients
from meganeura.graph.node import Graph
from meganeura.graph.trace import Trace
from meganeura.rewrite import optimise
from meganeura.rewrite.stable import stable
from meganeura.schedule import Limits, Plan, schedule
from meganeura.variable import Variable

WIDTH, BATCH = 16, 512


def block(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = ops.tanh(ops.matmul(x, w) + 0.5)
    return x


def training(wrap: Callable[[Any], Any], depth: int = 6) -> Graph:
    weights = [Variable(np.eye(WIDTH, dtype="float32") * 0.5, name=f"w{i}") for i in range(depth)]
    with Trace() as trace:
        x = trace.input((BATCH, WIDTH), "float32")
        states = [trace.state(w) for w in weights]
        for w in weights:
            x = wrap(block)(x, w.value)
        (loss,) = stable([ops.sum(ops.log(ops.exp(x) + 1.0))], keep=states)
        for w, slope in zip(weights, gradients([loss], states), strict=True):
            w.assign(w.value - 0.1 * slope)
        return trace.graph([loss])


def plan_of(graph: Graph) -> Plan:
    return schedule(optimise(graph)[0], Limits())


def test_it_takes_less_memory() -> None:
    plain, saving = (plan_of(training(w)).statistics for w in (lambda f: f, mg.checkpoint))
    # of 18 activations, one for each of the 6 blocks is kept, and those of the block at hand
    assert saving["temporary_bytes"] < 0.65 * plain["temporary_bytes"]
    assert saving["dispatches"] > plain["dispatches"]


def test_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from meganeura.backend.numpy.backend import NumpyExecutable

    x = np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype("float32")
    found = []
    for wrap in (lambda f: f, mg.checkpoint):
        for change in (lambda g: g, lambda g: optimise(g)[0]):
            graph = change(training(wrap))
            states = [np.eye(WIDTH, dtype="float32") * 0.5 for _ in graph.states]
            found.append([*NumpyExecutable(graph).run([x], states), *states])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def model(marked: bool) -> Any:
    mg.utils.set_random_seed(1)
    x = inputs = layers.Input((8,))
    for _ in range(3):
        inner = mg.Sequential(
            [layers.Dense(8, activation="gelu"), layers.Dropout(0.3), layers.LayerNormalization()]
        )
        x = x + (mg.checkpoint(inner) if marked else inner)(x)
    made = mg.Model(inputs, layers.Dense(1)(x))
    made.compile(mg.optimizers.Adam(0.01), "mse")
    return made


def test_layers_in_a_functional_model_train_the_same() -> None:
    """Dropout has the same mask both times."""
    random = np.random.default_rng(0)
    x = random.standard_normal((32, 8)).astype("float32")
    y = x.sum(1, keepdims=True)
    found = []
    for marked in (False, True):
        made = model(marked)
        mg.utils.set_random_seed(2)
        made.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
        found.append(made.get_weights())
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_one_inside_another() -> None:
    inner = mg.checkpoint(lambda x: ops.tanh(x) * x)
    outer = mg.checkpoint(lambda x: inner(inner(x)) + x)
    with Trace() as trace:
        x = trace.input((4,), "float32")
        total = ops.sum(outer(x))
        (slope,) = gradients(total, [x])
        graph = trace.graph([slope, total])
    from meganeura.backend.numpy.backend import NumpyExecutable

    def exact(x: np.ndarray) -> np.ndarray:
        f, d = lambda x: np.tanh(x) * x, lambda x: np.tanh(x) + x / np.cosh(x) ** 2
        return np.asarray(d(f(x)) * d(x) + 1)

    at = np.linspace(-1, 1, 4).astype("float32")
    found, _ = NumpyExecutable(graph).run([at], [])
    np.testing.assert_allclose(found, exact(at), rtol=1e-5)
    assert sum(n.op == "tanh" for n in graph.nodes()) == 4


def test_a_function_has_no_place_in_a_functional_model() -> None:
    with pytest.raises(TypeError, match="checkpointed layer"):
        mg.checkpoint(ops.tanh)(layers.Input((3,)))
