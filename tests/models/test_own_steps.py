"""Steps, losses and metrics of the user's own; eager running; functions compiled by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers, ops

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(50, 6)).astype("float32")
LABELS = RANDOM.integers(0, 3, 50)
TARGETS = RANDOM.normal(size=(50, 2)).astype("float32")


def classifier(**arguments: Any) -> Any:
    mg.utils.set_random_seed(3)
    model = mg.Sequential(
        [
            layers.Input((6,)),
            layers.Dense(8, "relu"),
            layers.Dropout(0.3),
            layers.Dense(3, "softmax"),
        ]
    )
    options = {"metrics": ["accuracy"], **arguments}
    model.compile("adam", "sparse_categorical_crossentropy", **options)
    return model


def regression(**arguments: Any) -> Any:
    mg.utils.set_random_seed(3)
    model = mg.Sequential([layers.Input((6,)), layers.Dense(2)])
    model.compile(mg.optimizers.SGD(0.1), "mse", **arguments)
    return model


class TwoLosses(mg.Model):
    """A model with a step of its own, in Keras's manner."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(2)
        self.running = mg.metrics.Mean(name="running")

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        x, y = data

        def loss_of() -> Any:
            return self.compute_loss(x, y, self(x, training=True))

        loss, gradients = mg.value_and_grad(loss_of, self.trainable_variables)()
        self.optimizer.apply(gradients, self.trainable_variables)
        self.running.update_state(loss)
        return {
            "loss": loss,
            "running": self.running.result(),
            "batch": ops.sum(x) * 0 + x.shape[0],
        }


def test_a_step_of_ones_own() -> None:
    mg.utils.set_random_seed(1)
    model = TwoLosses()
    model.compile("sgd", "mse")
    seen: list[float] = []
    look = mg.callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: seen.append(logs["loss"]))
    history = model.fit(
        X, TARGETS, batch_size=20, epochs=2, shuffle=False, verbose=0, callbacks=[look]
    )
    assert list(history.history) == ["batch", "loss", "running"]
    assert history.history["batch"] == [10.0, 10.0]  # what the last step returned
    assert history.history["loss"][0] == seen[2]
    assert history.history["running"][0] == pytest.approx(np.mean(seen[:3]), rel=1e-5)
    assert history.history["running"][1] < history.history["running"][0]
    quiet = TwoLosses()
    quiet.compile("sgd", "mse")
    logs = quiet.fit(X, TARGETS, batch_size=20, verbose=0, validation_data=(X, TARGETS)).history
    assert list(logs) == ["batch", "loss", "running", "val_loss", "val_running"]


def test_metrics_of_ones_own_step_in_keras_manner() -> None:
    class Loop(TwoLosses):
        def train_step(self, data: Any) -> Any:
            x, y = data
            y_pred = self(x)
            loss = self.compute_loss(x, y, y_pred)
            for metric in self.metrics:
                if metric.name in ("loss", "running"):
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    model = Loop()
    model.compile("sgd", "mse", metrics=["mae"])
    model.evaluate(X, TARGETS, verbose=0)  # resolves the metrics by their names
    logs = model.fit(X, TARGETS, batch_size=20, verbose=0).history
    assert list(logs) == ["loss", "mae", "running"]
    expected = np.abs(model.predict(X, verbose=0) - TARGETS).mean()
    assert logs["mae"] == pytest.approx([expected], rel=1e-5)


def test_a_model_that_is_nothing_but_its_steps() -> None:
    """Two networks and two optimizers, and no call()."""

    class Pair(mg.Model):
        def __init__(self) -> None:
            super().__init__()
            self.one = mg.Sequential([layers.Input((6,)), layers.Dense(2)])
            self.two = mg.Sequential([layers.Input((2,)), layers.Dense(2)])

        def compile(self, first: Any, second: Any) -> None:
            super().compile()
            self.first, self.second = first, second

        def train_step(self, data: Any) -> Any:
            x, y = data
            squared = lambda a, b: ops.mean(ops.square(a - b))  # noqa: E731
            a, da = mg.value_and_grad(
                lambda: squared(self.one(x), y), self.one.trainable_variables
            )()
            b, db = mg.value_and_grad(
                lambda: squared(self.two(y), y), self.two.trainable_variables
            )()
            self.first.apply(da, self.one.trainable_variables)
            self.second.apply(db, self.two.trainable_variables)
            return {"a": a, "b": b}

    model = Pair()
    model.compile(mg.optimizers.SGD(0.1), mg.optimizers.Adam(0.1))
    history = model.fit(X, TARGETS, epochs=5, verbose=0).history
    assert list(history) == ["a", "b"]
    assert history["a"][-1] < history["a"][0] and history["b"][-1] < history["b"][0]


def test_compute_loss_and_compute_metrics_of_ones_own() -> None:
    class Extra(mg.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(2)
            self.largest = mg.metrics.Mean(name="largest")

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, **rest: Any
        ) -> Any:
            return super().compute_loss(x, y, y_pred, **rest) + 100.0

        def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            found = super().compute_metrics(x, y, y_pred, sample_weight)
            self.largest.update_state(ops.max(y_pred))
            found["largest"] = self.largest.result()
            return found

    model = Extra()
    model.compile("sgd", "mse", metrics=["mae"])
    logs = model.fit(X, TARGETS, batch_size=50, verbose=0).history
    assert list(logs) == ["largest", "loss", "mae"]
    assert logs["loss"][0] > 100
    assert logs["largest"][0] != 0


def test_a_metric_that_computes_with_numpy() -> None:
    class Median(mg.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="median")
            self.last = self.add_variable((50,), name="last")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.last.assign(y_pred[:, 0])

        def result(self) -> Any:
            return float(np.median(self.last.numpy()))

    model = regression(metrics=[Median()])
    found = model.evaluate(X, TARGETS, batch_size=50, verbose=0, return_dict=True)
    assert found["median"] == pytest.approx(np.median(model.predict(X, verbose=0)[:, 0]), rel=1e-5)


def test_run_eagerly_shows_values_and_computes_the_same() -> None:
    found = []
    for eagerly in (False, True):
        model = classifier(run_eagerly=eagerly)
        logs = model.fit(X, LABELS, batch_size=20, epochs=2, verbose=0).history
        found.append((model.get_weights()[0], logs["loss"]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)
    looking = Looking()
    looking.compile("sgd", "mse", run_eagerly=True)
    looking.fit(X, TARGETS, batch_size=20, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        looking.sums, [X[i : i + 20].sum() for i in (0, 0, 20, 40)], rtol=1e-4
    )
    strict = Looking()
    strict.compile("sgd", "mse")
    with pytest.raises(TypeError, match="run_eagerly=True"):
        strict.fit(X, TARGETS, verbose=0)


class Looking(mg.Model):
    """Looks at values while it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(2)
        self.sums: list[float] = []

    def call(self, x: Any) -> Any:
        self.sums.append(float(ops.sum(x)))
        return self.dense(x) if self.sums[-1] < 1e9 else x


def test_value_and_grad_by_hand() -> None:
    dense = layers.Dense(2)
    dense.build((None, 6))
    weights = dense.trainable_variables

    def loss_of(x: Any, y: Any) -> Any:
        return ops.mean(ops.square(dense(x) - y))

    value, (kernel, bias) = mg.value_and_grad(loss_of, weights)(X, TARGETS)
    error = X @ dense.get_weights()[0] + dense.get_weights()[1] - TARGETS
    assert float(value) == pytest.approx(np.square(error).mean(), rel=1e-5)
    np.testing.assert_allclose(np.asarray(kernel), X.T @ error / 50, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.asarray(bias), error.mean(0), rtol=1e-4, atol=1e-6)
    by_input = mg.grad(lambda x: ops.sum(x["a"] ** 3))({"a": X})
    np.testing.assert_allclose(np.asarray(by_input["a"]), 3 * X**2, rtol=1e-5)
    with pytest.raises(ValueError, match="must return a scalar"):
        mg.grad(lambda x: x * 2)(X)


def test_jit_records_once_and_assigns_every_time() -> None:
    runs: list[int] = []
    total = mg.Variable(np.zeros((), np.float32), name="total")

    @mg.function
    def step(x: Any, factor: float, options: Any = None) -> Any:
        runs.append(1)
        total.assign_add(ops.sum(x) * factor)
        return {"sum": ops.sum(x), "options": options}

    for i in range(3):
        found = step(X + i, 2.0)
        assert float(found["sum"]) == pytest.approx(float((X + i).sum()), rel=1e-4)
    assert runs == [1]
    assert float(total.numpy()) == pytest.approx(sum(2 * (X + i).sum() for i in range(3)), rel=1e-4)
    step(X, 3.0)
    step(X[:5], 3.0)
    assert len(runs) == 3
    with pytest.raises(TypeError, match="an argument of type set is neither an array nor hashable"):
        step(X, 1.0, {1, 2})


def test_many_kinds_of_arguments_are_told_of() -> None:
    double = mg.function(lambda x: x * 2.0)
    for n in range(1, 16):
        double(np.zeros((n, 2), "float32"))
    with pytest.warns(UserWarning, match=r"the shapes .*\(16, 2\)"):
        double(np.zeros((16, 2), "float32"))
    double(np.zeros((17, 2), "float32"))  # once is enough
