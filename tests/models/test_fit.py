"""What fit, evaluate and predict do with models, steps and state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers, ops
from meganeura.backend import backend_object
from meganeura.models import loops

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


def test_two_fits_with_one_seed_are_bitwise_equal() -> None:
    def fit() -> Any:
        model = classifier()
        history = model.fit(X, LABELS, batch_size=8, epochs=3, validation_split=0.2, verbose=0)
        return model.get_weights(), history.history

    (one, logs), (other, other_logs) = fit(), fit()
    assert logs == other_logs
    for a, b in zip(one, other, strict=True):
        assert a.tobytes() == b.tobytes()


def test_shuffling_is_new_each_epoch_and_takes_every_sample_once() -> None:
    class Keep(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.seen = self.add_weight((12,), "zeros", trainable=False, name="seen")
            self.order = self.add_weight((), "zeros", trainable=False, name="order")

        def call(self, x: Any) -> Any:
            index = ops.cast(x[:, 0], "int32")
            self.seen.assign(ops.add(self.seen, ops.sum(ops.one_hot(index, 12), 0)))
            self.order.assign(ops.add(ops.multiply(self.order, 3.0), ops.sum(x) * 1e-3))
            return x * 1.0

    keep = Keep()
    model = mg.Sequential([layers.Input((1,)), keep, layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.arange(12, dtype="float32")[:, None]
    orders = []
    for epoch in range(1, 4):
        keep.order.assign(0.0)
        model.fit(x, x, batch_size=4, verbose=0)
        np.testing.assert_array_equal(keep.seen.numpy(), np.full(12, float(epoch)))
        orders.append(float(keep.order.numpy()))
    assert len(set(orders)) == 3


def test_many_steps_make_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regression()
    model.fit(X, TARGETS, batch_size=5, verbose=0)
    backend = backend_object()
    made: list[str] = []
    for name in ("compile", "allocate"):
        original = getattr(backend, name)
        monkeypatch.setattr(
            backend, name, lambda *a, n=name, f=original, **k: made.append(n) or f(*a, **k)
        )
    pool = getattr(backend, "pool", None)
    before = getattr(pool, "created", None)
    model.fit(X, TARGETS, batch_size=5, epochs=100, verbose=0)
    assert made == []
    if before is not None:
        assert pool.created - before <= 8
    assert int(model.optimizer.iterations.numpy()) == 1010


def test_steps_are_kept_from_fit_to_fit() -> None:
    model = classifier()
    model.fit(X, LABELS, batch_size=16, verbose=0)
    steps = dict(model._steps)
    model.fit(X + 1, LABELS, batch_size=16, verbose=0)
    assert model._steps == steps
    model.layers[0].trainable = False
    frozen = model.layers[0].get_weights()
    model.fit(X, LABELS, batch_size=16, verbose=0)
    assert len(model._steps) == 2 * len(steps)
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], frozen[0])


CUT = [(X[i : i + 8], TARGETS[i : i + 8]) for i in range(0, 50, 8)]


class Batches(mg.utils.PyDataset):
    def __len__(self) -> int:
        return len(CUT)

    def __getitem__(self, index: int) -> Any:
        return CUT[index]


class Old:
    """Keras 2's Sequence, by its methods alone."""

    __len__ = Batches.__len__
    __getitem__ = Batches.__getitem__


class Frame:
    """What a data frame is to us."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def to_numpy(self) -> np.ndarray:
        return self.array.astype("float64")


def torch_loader() -> Any:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(TARGETS))
    return torch.utils.data.DataLoader(data, 8), None


def torch_tensors() -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(X), torch.from_numpy(TARGETS).requires_grad_()


#: The same batches of 8 in every form: (x, y), y None where x brings it.
SOURCES = {
    "generator": lambda: (iter(CUT), None),
    "dataset": lambda: (Batches(), None),
    "threads": lambda: (Batches(workers=3, max_queue_size=2), None),
    "no threads": lambda: (Batches(workers=0), None),
    "by number": lambda: (Old(), None),
    "torch loader": torch_loader,
    "torch tensors": torch_tensors,
    "frame": lambda: (Frame(X), Frame(TARGETS)),
    "device": lambda: (ops.convert_to_tensor(X), ops.convert_to_tensor(TARGETS)),
    "float64": lambda: (X.astype("float64"), TARGETS.astype("float64")),
}


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_source_trains_alike(name: str) -> None:
    plain = regression()
    expected = plain.fit(X, TARGETS, batch_size=8, shuffle=False, verbose=0)
    x, y = SOURCES[name]()
    model = regression()
    size = {} if y is None else {"batch_size": 8}
    history = model.fit(x, y, shuffle=False, verbose=0, **size)
    np.testing.assert_allclose(history.history["loss"], expected.history["loss"], rtol=1e-6)
    for a, b in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_arrays_beyond_the_budget_are_streamed() -> None:
    def fit(**options: Any) -> Any:
        model = regression()
        logs = model.fit(X, TARGETS, batch_size=8, epochs=2, verbose=0, **options).history
        return (
            logs,
            model.get_weights(),
            model.evaluate(X, TARGETS, verbose=0),
            model.predict(X, verbose=0),
        )

    kept = fit()
    budget = mg.config.resident_bytes()
    mg.config.set_resident_bytes(100)
    try:
        streamed = fit()
    finally:
        mg.config.set_resident_bytes(budget)
    np.testing.assert_allclose(streamed[0]["loss"], kept[0]["loss"], rtol=1e-6)
    for a, b in zip(streamed[1], kept[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert streamed[2] == pytest.approx(kept[2], rel=1e-6)
    np.testing.assert_allclose(streamed[3], kept[3], rtol=1e-5)


def test_integers_stay_integers_on_the_device() -> None:
    model = mg.Sequential([layers.Input((6,)), layers.Rescaling(1 / 255.0), layers.Dense(2)])
    model.compile("sgd", "mse")
    pixels = RANDOM.integers(0, 256, (50, 6)).astype("uint8")
    before = model.get_weights()
    one = model.fit(pixels, TARGETS, shuffle=False, verbose=0).history["loss"]
    model.set_weights(before)
    other = model.fit(pixels.astype("float32"), TARGETS, shuffle=False, verbose=0).history["loss"]
    assert one == pytest.approx(other, rel=1e-6)


def test_generators_go_on_and_end() -> None:
    def batches(count: int) -> Any:
        for i in range(count):
            yield X[i : i + 4], TARGETS[i : i + 4]

    model = regression()
    history = model.fit(batches(6), epochs=3, steps_per_epoch=2, verbose=0)
    assert len(history.epoch) == 3
    with pytest.warns(UserWarning, match="ended before 4 steps"):
        history = model.fit(batches(6), epochs=5, steps_per_epoch=4, verbose=0)
    assert len(history.epoch) == 2
    assert history.params["steps"] == 4
    with pytest.warns(UserWarning, match="ended before"):
        history = model.fit(batches(3), epochs=2, verbose=0)
    assert history.params["steps"] is None
    with pytest.warns(UserWarning, match="batch_size is ignored"):
        model.fit(batches(3), batch_size=4, verbose=0)


def test_a_dataset_is_told_of_its_passes_and_shuffled_by_batches() -> None:
    class Data(mg.utils.PyDataset):
        def __init__(self) -> None:
            super().__init__(workers=0)
            self.log: list[Any] = []

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            self.log.append(index)
            return X[index : index + 2], TARGETS[index : index + 2]

        def on_epoch_end(self) -> None:
            self.log.append("end")

    mg.utils.set_random_seed(1)
    data = Data()
    regression().fit(data, epochs=2, shuffle=False, verbose=0)
    assert data.log == [0, 1, 2, 3, "end", 0, 1, 2, 3, "end"]
    data = Data()
    regression().fit(data, epochs=2, verbose=0)
    assert sorted(data.log[:4]) == [0, 1, 2, 3] and data.log[4] == "end"
    assert data.log[:4] != data.log[5:9] or data.log[:4] != [0, 1, 2, 3]
    with pytest.warns(UserWarning, match="ended before 3 steps"):
        model = regression()
        history = model.fit(Data(), epochs=4, steps_per_epoch=3, shuffle=False, verbose=0)
    assert len(history.epoch) == 4
    assert int(model.optimizer.iterations.numpy()) == 8


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    class Broken(mg.utils.PyDataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            if index == 2:
                raise OSError("the disk is gone")
            return X[:2], TARGETS[:2]

    with pytest.raises(OSError, match="the disk is gone"):
        regression().fit(Broken(workers=2), shuffle=False, verbose=0)


def test_validation_starts_anew_each_time() -> None:
    model = regression()
    model.optimizer.learning_rate = 0.0
    history = model.fit(
        X, TARGETS, epochs=3, verbose=0, validation_data=(X, TARGETS), validation_steps=1,
        validation_batch_size=10,
    )  # fmt: skip
    first = model.evaluate(X[:10], TARGETS[:10], verbose=0)
    np.testing.assert_allclose(history.history["val_loss"], [first] * 3, rtol=1e-6)
    history = model.fit(
        X, TARGETS, epochs=4, verbose=0, validation_data=[(X[:10], TARGETS[:10])].__iter__(),
        validation_freq=[2],
    )  # fmt: skip
    assert len(history.history["val_loss"]) == 1


def test_predict_keeps_the_structure() -> None:
    inputs = {"a": layers.Input((6,), name="a"), "b": layers.Input((2,), name="b")}
    joined = layers.Concatenate()([inputs["a"], inputs["b"]])
    model = mg.Model(inputs, {"sum": layers.Dense(2)(joined), "same": inputs["b"] * 2.0})
    found = model.predict({"b": TARGETS, "a": X}, batch_size=7, verbose=0)
    assert set(found) == {"sum", "same"}
    np.testing.assert_allclose(found["same"], TARGETS * 2, rtol=1e-6)
    single = model.predict_on_batch({"a": X, "b": TARGETS})
    np.testing.assert_allclose(single["sum"], found["sum"], rtol=1e-5, atol=1e-6)
    model.compile("sgd", {"sum": "mse", "same": "mae"}, metrics={"same": "mse"})
    logs = model.fit({"a": X, "b": TARGETS}, {"same": TARGETS, "sum": TARGETS}, verbose=0).history
    assert list(logs) == ["loss", "same_loss", "same_mse", "sum_loss"]
    assert logs["same_loss"] == pytest.approx([np.abs(TARGETS).mean()], rel=1e-5)


def test_single_batches() -> None:
    model = classifier()
    loss, accuracy = model.train_on_batch(X[:8], LABELS[:8])
    assert type(loss) is float and 0 <= accuracy <= 1
    found = model.test_on_batch(X[8:16], LABELS[8:16], return_dict=True)
    assert list(found) == ["accuracy", "loss"]
    probabilities = model.predict_on_batch(X[8:16])
    expected = -np.log(probabilities[np.arange(8), LABELS[8:16]]).mean()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    weighted = model.test_on_batch(X[8:16], LABELS[8:16], sample_weight=np.full(8, 2.0))
    assert weighted[0] == pytest.approx(2 * expected, rel=1e-5)
    assert model.metrics_names == ["loss", "accuracy"]


def test_regularizers_and_added_losses_are_in_the_loss() -> None:
    class Adds(layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(ops.mean(ops.square(x)) * 0.5)
            return x

    dense = layers.Dense(2, kernel_regularizer=mg.regularizers.L2(0.1))
    model = mg.Sequential([layers.Input((6,)), Adds(), dense])
    model.compile("sgd", "mse")
    kernel = dense.get_weights()[0]
    loss = model.evaluate(X, TARGETS, batch_size=50, verbose=0)
    expected = np.square(model.predict(X, verbose=0) - TARGETS).mean()
    expected += 0.1 * np.square(kernel).sum() + 0.5 * np.square(X).mean()
    assert loss == pytest.approx(expected, rel=1e-5)
    model.compile("sgd")  # what layers add is enough to train on
    assert model.fit(X, verbose=0).history["loss"][0] > 0


def test_masks_weigh_losses_and_metrics() -> None:
    # The values are those of Keras 3.15 on the same weights.
    model = mg.Sequential(
        [
            layers.Input((4,), dtype="int32"),
            layers.Embedding(5, 3, mask_zero=True),
            layers.Dense(2, "softmax"),
        ]
    )
    model.compile(
        "sgd", "sparse_categorical_crossentropy",
        metrics=["accuracy", mg.metrics.SparseCategoricalCrossentropy()], weighted_metrics=["accuracy"],
    )  # fmt: skip
    kernel = np.linspace(-1, 2, 6).reshape(3, 2)[::-1]
    model.set_weights([np.linspace(-1, 1, 15).reshape(5, 3), kernel, np.zeros(2)])
    x = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 1, 1, 0]])
    y = np.array([[0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 0, 0]])
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    expected = {
        "accuracy": 0.8333333134651184, "loss": 0.4322296380996704,
        "sparse_categorical_crossentropy": 0.4322296679019928, "weighted_accuracy": 0.8333333134651184,
    }  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-5)
    found = model.evaluate(
        x, y, sample_weight=np.arange(12.0).reshape(3, 4), verbose=0, return_dict=True
    )
    expected |= {"loss": 2.0790963172912598, "weighted_accuracy": 0.96875}
    assert found == pytest.approx(expected, rel=1e-5)


def test_some_outputs_have_no_loss() -> None:
    inputs = layers.Input((6,))
    one, two = layers.Dense(2, name="one")(inputs), layers.Dense(2, name="two")(inputs)
    model = mg.Model(inputs, [one, two])
    model.compile("sgd", loss=["mse", None], metrics=["mae", "mse"])
    history = model.fit(X, [TARGETS, TARGETS], verbose=0).history
    assert list(history) == ["loss", "one_mae", "two_mse"]


def test_weights_of_samples_for_each_output() -> None:
    inputs = layers.Input((6,))
    one, two = layers.Dense(2, name="one")(inputs), layers.Dense(2, name="two")(inputs)
    model = mg.Model(inputs, [one, two])
    model.compile("sgd", "mse")
    w = RANDOM.random(50).astype("float32")
    found = model.evaluate(
        X, [TARGETS, TARGETS], sample_weight=[w, None], batch_size=50, verbose=0, return_dict=True
    )
    a, b = model.predict(X, verbose=0)
    expected = (np.square(a - TARGETS).mean(-1) * w).mean()
    assert found["one_loss"] == pytest.approx(expected, rel=1e-5)
    assert found["two_loss"] == pytest.approx(np.square(b - TARGETS).mean(), rel=1e-5)


def test_schedules_and_averages_of_weights() -> None:
    rates = mg.optimizers.schedules.PiecewiseConstantDecay([3], [0.5, 0.0])
    model = regression()
    model.compile(mg.optimizers.SGD(rates), "mse")
    model.fit(X, TARGETS, batch_size=10, verbose=0)
    weights = model.get_weights()[0]
    model.fit(X, TARGETS, batch_size=10, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], weights)
    model = regression()
    model.compile(mg.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse")
    model.fit(X, TARGETS, batch_size=10, verbose=0)
    average = model.optimizer.slot("average", model.weights[0]).numpy()
    np.testing.assert_array_equal(model.get_weights()[0], average)


def test_compiling_again_as_the_config_says() -> None:
    model = classifier(weighted_metrics=[mg.metrics.SparseCategoricalAccuracy(name="w")])
    config = model.get_compile_config()
    other = mg.models.clone_model(model)
    other.compile_from_config(config)
    other.set_weights(model.get_weights())
    assert other.optimizer.built
    assert other.evaluate(X, LABELS, verbose=0, return_dict=True) == pytest.approx(
        model.evaluate(X, LABELS, verbose=0, return_dict=True)
    )


def test_data_of_ever_new_shapes_are_told_of() -> None:
    model = mg.Sequential([layers.Input((None, 2)), layers.GlobalAveragePooling1D()])
    model.compile("sgd", "mse")
    with pytest.warns(UserWarning, match=r"\(1, 32, 2\).*pad the data to a few lengths") as told:
        for length in range(1, 36):
            model.predict_on_batch(np.ones((1, length, 2), np.float32))
    assert len(told) == 1


def test_names_of_weighted_metrics_of_several_outputs() -> None:
    inputs = layers.Input((6,))
    model = mg.Model(inputs, [layers.Dense(2, name="p")(inputs), layers.Dense(2, name="q")(inputs)])
    model.compile(
        "sgd", "mse", metrics={"p": ["mae"]}, weighted_metrics={"p": ["mse", "mae"], "q": ["mae"]}
    )
    found = model.evaluate(X, [TARGETS, TARGETS], verbose=0, return_dict=True)
    assert list(found) == ["loss", "p_loss", "p_mae", "p_mse", "p_weighted_mae", "q_loss", "q_mae"]
    with pytest.raises(ValueError, match="metrics has 1 entries for 2 outputs"):
        model.compile("sgd", "mse", metrics=["mae"])
        model.evaluate(X, [TARGETS, TARGETS], verbose=0)
    single = regression(metrics=[["mae", "mse"]])
    assert list(single.evaluate(X, TARGETS, verbose=0, return_dict=True)) == ["loss", "mae", "mse"]


def test_predictions_of_many_batches_come_in_order() -> None:
    """In groups that grow, of which one is computed while another is on its way."""
    model = mg.Sequential([layers.Input((1,)), layers.Rescaling(2.0)])
    x = np.arange(1003, dtype="float32")[:, None]
    np.testing.assert_array_equal(model.predict(x, batch_size=1, verbose=0), 2 * x)
    outputs = loops._Outputs()
    sizes = []
    collect = outputs._collect
    outputs._collect = lambda wait: (sizes.append(len(outputs._group)), collect(wait))
    for row in x[:100]:
        outputs.add(model(row[None]))
    np.testing.assert_array_equal(np.concatenate(outputs.all()), 2 * x[:100])
    assert sizes[:2] == [1, 1] and sum(sizes[:-1]) == 100
