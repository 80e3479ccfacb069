"""Scripts that run with only the import changed, against the numbers that Keras 3.15 gives for them;
and what only meganeura has for steps of one's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers, ops

sys.path.insert(0, str(Path(__file__).parents[1]))
import keras_scripts as scripts  # noqa: E402

GOLDENS = json.loads(scripts.GOLDENS.read_text())


def near(found: Any, expected: Any, place: str) -> None:
    if isinstance(expected, dict):
        assert sorted(found) == sorted(expected), place
        for key, value in expected.items():
            near(found[key], value, f"{place}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for i, value in enumerate(expected):
            near(found[i], value, f"{place}[{i}]")
    else:
        assert found == pytest.approx(expected, rel=2e-4, abs=1e-5), place


def test_every_script_has_numbers() -> None:
    assert sorted(GOLDENS) == sorted(scripts.SCRIPTS)


@pytest.mark.parametrize("name", sorted(scripts.SCRIPTS))
def test_script(name: str) -> None:
    near(scripts.SCRIPTS[name](mg), GOLDENS[name], name)


def test_a_step_of_ones_own_updates_compiled_metrics() -> None:
    class Own(mg.Model):
        def train_step(self, batch: Any) -> Any:
            x, y = batch

            def loss_of() -> Any:
                y_pred = self(x, training=True)
                return self.compute_loss(x=x, y=y, y_pred=y_pred), y_pred

            (loss, y_pred), gradients = mg.value_and_grad(
                loss_of, self.trainable_variables, has_aux=True
            )()
            self.optimizer.apply(gradients, self.trainable_variables)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.metrics}

    def made(kind: Any) -> Any:
        mg.utils.set_random_seed(0)
        x = mg.Input((4,))
        model = kind(x, layers.Dense(1, kernel_regularizer="l2")(x))
        scripts.seed_weights(model)
        model.compile("adam", "mse", metrics=["mae"])
        return model.fit(scripts.data(32, 4), scripts.data(32, 1), **scripts.ORDERED).history

    own, usual = made(Own), made(mg.Model)
    near(own, usual, "history")


def test_two_optimizers_in_one_step() -> None:
    class Adversaries(mg.Model):
        def __init__(self) -> None:
            super().__init__()
            self.judge = mg.Sequential([mg.Input((4,)), layers.Dense(8, "relu"), layers.Dense(1)])
            self.forger = mg.Sequential([mg.Input((2,)), layers.Dense(4)])
            self.seeds = mg.random.SeedGenerator(1)
            self.first, self.second = mg.optimizers.Adam(0.05), mg.optimizers.SGD(0.01)
            self.loss_of = mg.losses.BinaryCrossentropy(from_logits=True)
            self.losses_seen = [mg.metrics.Mean(name="judge"), mg.metrics.Mean(name="forger")]

        def train_step(self, batch: Any) -> Any:
            (real,) = batch
            count = ops.shape(real)[0]
            fake = self.forger(mg.random.normal((count, 2), seed=self.seeds))
            x = ops.concatenate([fake, real], axis=0)
            y = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
            weights = self.judge.trainable_weights
            loss, gradients = mg.value_and_grad(lambda: self.loss_of(y, self.judge(x)), weights)()
            self.first.apply(gradients, weights)
            noise = mg.random.normal((count, 2), seed=self.seeds)
            wrong = ops.zeros((count, 1))
            weights = self.forger.trainable_weights
            other, gradients = mg.value_and_grad(
                lambda: self.loss_of(wrong, self.judge(self.forger(noise))), weights
            )()
            self.second.apply_gradients(zip(gradients, weights, strict=True))
            for metric, value in zip(self.losses_seen, (loss, other), strict=True):
                metric.update_state(value)
            return {metric.name: metric.result() for metric in self.losses_seen}

    model = Adversaries()
    model.compile()
    before = model.get_weights()
    x = scripts.data(32, 4) + 3
    history = model.fit(x, epochs=8, batch_size=8, verbose=0).history
    assert history["judge"][-1] < history["judge"][0]
    moved = [not np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True)]
    assert all(moved)
    assert int(model.first.iterations.numpy()) == int(model.second.iterations.numpy()) == 32


def test_a_compiled_model_inside_another_keeps_its_metrics_to_itself() -> None:
    inner = mg.Sequential([mg.Input((3,)), layers.Dense(1)])
    inner.compile("sgd", "mse", metrics=["mae"])
    inner.fit(scripts.data(8, 3), scripts.data(8, 1), verbose=0)
    x = mg.Input((3,))
    outer = mg.Model(x, inner(x))
    outer.compile("sgd", "mse")
    assert [m.name for m in outer.metrics] == ["loss"]
    assert outer.train_on_batch(scripts.data(8, 3), scripts.data(8, 1)) > 0


def test_add_metric() -> None:
    class Watched(layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_metric(ops.max(x), name="largest")
            return x

    x = mg.Input((3,))
    model = mg.Model(x, layers.Dense(1)(Watched()(x)))
    model.compile("sgd", "mse")
    inputs = scripts.data(16, 3)
    history = model.fit(inputs, scripts.data(16, 1), **{**scripts.ORDERED, "epochs": 1}).history
    assert history["largest"][0] == pytest.approx((inputs[:8].max() + inputs[8:].max()) / 2)
    with pytest.raises(ValueError, match="aggregation"):
        layers.Dense(1).add_metric(1.0, name="m", aggregation="sum")


def test_function_of_a_piece_of_a_graph() -> None:
    x = mg.Input((4,))
    hidden = layers.Dense(3)(x)
    both = mg.Function([x], [hidden, ops.relu(hidden)])
    plain, positive = both([scripts.data(2, 4)])
    np.testing.assert_array_equal(np.maximum(np.asarray(plain), 0), np.asarray(positive))
    assert mg.Function(hidden, ops.relu(hidden))(np.float32([[-1, 2, 3]])).shape == (1, 3)
    assert both.compute_output_shape([(5, 4)]) == [(5, 3), (5, 3)]


def test_no_gradient_tape() -> None:
    with pytest.raises(AttributeError, match="value_and_grad"):
        _ = mg.GradientTape
