"""Every optimizer against a run of Keras: losses of each step, final weights, final variables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meganeura import losses, ops, optim
from meganeura.execution import compiled
from meganeura.graph.autodiff import gradients
from meganeura.graph.trace import Trace
from meganeura.tensor import to_tensor
from meganeura.variable import Variable

SAMPLES = Path(__file__).parents[2].parent / "shared" / "keras" / "samples"
NAMES = json.loads(text.read_text()) if (text := SAMPLES / "train_optimizers.json").exists() else {}
PATHS = ("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias")

pytestmark = pytest.mark.skipif(not NAMES, reason="the Keras samples are not here")


@pytest.fixture(scope="module")
def samples() -> dict[str, np.ndarray]:
    with np.load(SAMPLES / "train_optimizers.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def first_weights(samples: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The weights that all runs began with, which the file does not hold.

    Plain gradient descent can be run backwards: the weights before a step solve
    w = w_after + learning_rate * gradient(w), by iteration.
    """
    x, y = samples["x"].astype(np.float64), samples["y"]

    def gradient(w: list[np.ndarray], rows: slice) -> list[np.ndarray]:
        hidden = np.tanh(x[rows] @ w[0] + w[1])
        scores = hidden @ w[2] + w[3]
        error = np.exp(scores - scores.max(1, keepdims=True))
        error /= error.sum(1, keepdims=True)
        error[np.arange(16), y[rows]] -= 1
        error /= 16
        inner = error @ w[2].T * (1 - hidden**2)
        return [x[rows].T @ inner, inner.sum(0), hidden.T @ error, error.sum(0)]

    weights = [samples[f"sgd/w_{i:03d}"].astype(np.float64) for i in range(4)]
    for step in reversed(range(20)):
        start = step % 4 * 16
        after = weights
        for _ in range(60):
            slopes = gradient(weights, slice(start, start + 16))
            weights = [a + 0.1 * g for a, g in zip(after, slopes, strict=True)]
    return [w.astype(np.float32) for w in weights]


def train(
    optimizer: optim.Optimizer, weights: list[np.ndarray], x: np.ndarray, y: np.ndarray
) -> tuple[list[float], list[Variable]]:
    """Twenty steps of a two-layer perceptron, each the same compiled graph."""
    variables = [
        Variable(w, name=p.rpartition("/")[2], path=f"sequential/{p}")
        for w, p in zip(weights, PATHS, strict=True)
    ]
    optimizer.build(variables)
    with Trace() as trace:
        features, labels = trace.input((16, 8), "float32"), trace.input((16,), "int32")
        hidden = ops.tanh(ops.add(ops.matmul(features, variables[0]), variables[1]))
        scores = ops.softmax(ops.add(ops.matmul(hidden, variables[2]), variables[3]))
        loss = losses.SparseCategoricalCrossentropy()(labels, scores)
        slopes = gradients(optimizer.scale_loss(loss), [trace.state(v) for v in variables])
        optimizer.apply(slopes, variables)
    executable = compiled(trace.graph([loss]), optimize=False)
    states = [v.handle for v in trace.variables]
    result = []
    for step in range(20):
        rows = slice(step % 4 * 16, step % 4 * 16 + 16)
        inputs = [to_tensor(x[rows]).handle, to_tensor(y[rows].astype(np.int32)).handle]
        inputs += [t.handle for t in trace.captured]
        (value,) = executable.run(inputs, states)
        result.append(float(np.asarray(value)))
    return result, variables


@pytest.mark.parametrize("name", NAMES)
def test_training_run(
    name: str, samples: dict[str, np.ndarray], first_weights: list[np.ndarray]
) -> None:
    description = NAMES[name]
    optimizer = optim.deserialize(
        {"class_name": description["class"], "config": description["config"]}
    )
    values, variables = train(optimizer, first_weights, samples["x"], samples["y"])
    np.testing.assert_allclose(values, samples[f"{name}/loss64"], rtol=1e-4)
    names = [str(p) for p in samples[f"{name}/opt_var_paths"]]
    known = [v.path for v in optimizer.variables]
    if name != "nadam":  # whose last variable has no name in Keras
        assert [p.rpartition("/")[2] for p in known] == [p.rpartition("/")[2] for p in names]
    assert len(known) == len(names)
    for i, variable in enumerate(optimizer.variables):
        expected = samples[f"{name}/opt_{i:03d}"]
        assert variable.shape == expected.shape and variable.dtype == str(expected.dtype)
        scale = np.abs(expected).max() + 1e-8
        np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=3e-4 * scale)
    for i, variable in enumerate(variables):
        np.testing.assert_allclose(
            variable.numpy(), samples[f"{name}/w_{i:03d}"], rtol=0, atol=2e-4
        )


def test_finalising_copies_the_averages(
    samples: dict[str, np.ndarray], first_weights: list[np.ndarray]
) -> None:
    config = NAMES["sgd_ema"]["config"]
    optimizer = optim.SGD.from_config(config)
    _, variables = train(optimizer, first_weights, samples["x"], samples["y"])
    optimizer.finalize_variable_values(variables)
    for i, variable in enumerate(variables):
        expected = samples[f"sgd_ema/opt_{i + 2:03d}"]
        np.testing.assert_allclose(variable.numpy(), expected, atol=2e-5)
