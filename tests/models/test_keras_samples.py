"""Whole models written by Keras: predictions and gradients of every layer family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meganeura import models, ops
from meganeura.backend import backend_object
from meganeura.execution import compiled
from meganeura.graph.autodiff import gradients
from meganeura.graph.trace import Trace
from meganeura.tensor import Tensor, to_tensor
from meganeura.utils import custom_object_scope

SAMPLES = Path(__file__).parents[2].parent / "shared" / "keras" / "samples"
NAMES = (
    "act_zoo conv2d_zoo norm_zoo pool_pad_up_zoo lstm_stack mha_block seq_cnn_bn "
    "func_nested_shared seq_mlp"
).split()

pytestmark = pytest.mark.skipif(not SAMPLES.exists(), reason="the Keras samples are not here")


def keras_sparsemax(x: Any) -> Any:
    """What Keras 3.15 computes under this name: it adds up all partial sums of the support.

    Ours is the projection onto the simplex, whose values add up to 1, so only here Keras's is used.
    """
    mine, other = ops.expand_dims(x, -1), ops.expand_dims(x, -2)
    at_least = ops.greater_equal(other, mine)
    count = ops.sum(ops.cast(at_least, "float32"), axis=-1)
    partial = ops.sum(ops.where(at_least, other, 0.0), axis=-1)
    support = ops.greater(x * count + 1.0, partial)
    kept = ops.sum(ops.where(support, partial, 0.0), axis=-1, keepdims=True)
    size = ops.sum(ops.cast(support, "float32"), axis=-1, keepdims=True)
    return ops.relu(x - (kept - 1.0) / size)


def load(name: str) -> tuple[Any, dict[str, np.ndarray]]:
    """The model with Keras's weights, and the arrays that Keras computed."""
    with np.load(SAMPLES / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    with custom_object_scope({"sparsemax": keras_sparsemax}):
        model = models.model_from_json((SAMPLES / f"{name}.json").read_text())
    model.set_weights(numbered(arrays, "w"))
    return model, arrays


def numbered(arrays: dict[str, np.ndarray], prefix: str) -> list[np.ndarray]:
    names = [k for k in arrays if k.startswith(f"{prefix}_") and k[len(prefix) + 1 :].isdigit()]
    return [arrays[k] for k in sorted(names, key=lambda k: int(k.rpartition("_")[2]))]


def leaves(outputs: Any) -> list[Any]:
    if isinstance(outputs, dict):
        return [outputs[k] for k in sorted(outputs)]
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def close(ours: Any, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_predictions(name: str) -> None:
    model, arrays = load(name)
    paths = [w.path.rpartition("/")[2] for w in model.weights]
    assert paths == [str(p).rpartition("/")[2] for p in arrays["weight_paths"]]
    inputs = numbered(arrays, "x")
    outputs = leaves(model(inputs if len(inputs) > 1 else inputs[0]))
    expected = numbered(arrays, "y64")
    assert len(outputs) == len(expected)
    for ours, theirs in zip(outputs, expected, strict=True):
        close(ours, theirs)


def slopes(
    model: Any, arrays: dict[str, np.ndarray], training: bool
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Outputs, and gradients of sum(output * cotangent) by weights and by float inputs."""
    inputs = numbered(arrays, "x")
    with Trace() as trace:
        nodes = [trace.input(x.shape, str(to_tensor(x).dtype)) for x in inputs]
        outputs = leaves(model(nodes if len(nodes) > 1 else nodes[0], training=training))
        total = sum(
            ops.sum(ops.multiply(y, ct))
            for y, ct in zip(outputs, numbered(arrays, "ct"), strict=True)
        )
        weights = [trace.state(w) for w in model.trainable_weights]
        floats = [n for n in nodes if n.dtype == "float32"]
        found = gradients(total, [*weights, *floats])
    executable = compiled(trace.graph([*outputs, *found]), optimize=False)
    handles = [to_tensor(x).handle for x in inputs] + [t.handle for t in trace.captured]
    computed = executable.run(handles, [v.handle for v in trace.variables])
    backend = backend_object()
    results = [
        Tensor(h, n.shape, n.dtype, backend).numpy()
        for h, n in zip(computed, [*outputs, *found], strict=True)
    ]
    cut = len(outputs) + len(weights)
    return results[: len(outputs)], results[len(outputs) : cut], results[cut:]


def compare_gradients(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        scale = max(float(np.abs(other).max()), 1e-3)
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-4 * scale + 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str) -> None:
    model, arrays = load(name)
    _, by_weight, by_input = slopes(model, arrays, training=False)
    compare_gradients(by_weight, numbered(arrays, "gw"))
    compare_gradients(by_input, numbered(arrays, "gx"))


def test_norm_zoo_in_training() -> None:
    model, arrays = load("norm_zoo")
    outputs, by_weight, by_input = slopes(model, arrays, training=True)
    for ours, theirs in zip(outputs, numbered(arrays, "y_train"), strict=True):
        close(ours, theirs)
    compare_gradients(by_weight, numbered(arrays, "gw_train"))
    compare_gradients(by_input, numbered(arrays, "gx_train"))
    after = numbered(arrays, "w_after_train_call")
    for weight, theirs in zip(model.weights, after, strict=True):
        close(weight.numpy(), theirs)
