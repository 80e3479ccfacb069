"""Random functional models: JSON, clones, copies and nesting compute what the model computes."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

import meganeura
from meganeura import Model, layers, models, ops
from meganeura.layers import Input

WIDTH = 4


def random_model(rng: np.random.Generator, depth: int = 0) -> Model:
    """Inputs of one width, steps on randomly chosen earlier tensors, some layers used again."""
    inputs = [Input((WIDTH,)) for _ in range(rng.integers(1, 4))]
    tensors, shared = list(inputs), layers.Dense(WIDTH, activation="tanh")

    def one() -> Any:
        return tensors[rng.integers(len(tensors))]

    def nested() -> Any:
        inner = random_model(rng, depth + 1)
        found = inner([one() for _ in inner.inputs])
        return found[0] if isinstance(found, (list, tuple)) else next(iter(found.values()))

    steps = [
        lambda: shared(one()),
        lambda: layers.Dense(WIDTH, use_bias=False)(one()),
        lambda: layers.Add()([one(), one()]),
        lambda: layers.Dense(WIDTH)(layers.Concatenate()([one(), one(), one()])),
        lambda: one() * 0.5 - ops.relu(one()),
        lambda: ops.where(one() > 0.0, one(), -one()),
        lambda: layers.BatchNormalization()(one()),
        lambda: ops.concatenate([one()[:, 2:], one()[:, :2]], axis=1),
        lambda: layers.Dropout(0.5)(one()),
    ]
    if depth < 2:
        steps.append(nested)
    for _ in range(rng.integers(2, 9)):
        tensors.append(steps[rng.integers(len(steps))]())
    outputs = [tensors[i] for i in rng.permutation(len(tensors))[: rng.integers(1, 4)]]
    outputs.append(tensors[-1])
    return Model(
        inputs, {f"out{i}": t for i, t in enumerate(outputs)} if rng.random() < 0.3 else outputs
    )


def values(model: Any, data: list[np.ndarray]) -> list[np.ndarray]:
    found = model(data if len(data) > 1 else data[0])
    listed = found.values() if isinstance(found, dict) else found
    return [np.asarray(t) for t in (listed if isinstance(listed, list) else list(listed))]


@pytest.mark.parametrize("seed", range(40))
def test_descriptions_and_clones(seed: int) -> None:
    meganeura.utils.clear_session()
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    data = [rng.normal(size=(3, WIDTH)).astype("float32") for _ in model.inputs]
    for weight in model.weights:
        weight.assign(rng.uniform(0.1, 1.0, weight.shape))
    expected = values(model, data)
    text = model.to_json()
    read = models.model_from_json(text)
    assert json.loads(read.to_json()) == json.loads(text)
    assert [w.path for w in read.weights] == [w.path for w in model.weights]
    for twin in (read, models.clone_model(model), copy.deepcopy(model)):
        twin.set_weights(model.get_weights())
        for found, wanted in zip(values(twin, data), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert [layer.name for layer in twin.layers] == [layer.name for layer in model.layers]
    outer = [Input((WIDTH,)) for _ in data]
    nested = Model(outer, model(outer))
    for found, wanted in zip(values(nested, data), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
