"""Layers and models by the policies "mixed_float16" and "float16": dtypes as in Keras, and training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers as L
from meganeura import ops
from meganeura.backend import backend_object

RANDOM = np.random.default_rng(3)
IMAGES = RANDOM.standard_normal((2, 8, 8, 4)).astype("float32")
SERIES = RANDOM.standard_normal((2, 5, 4)).astype("float32")
WORDS = np.array([[1, 2, 0], [3, 0, 0]], "int32")


@pytest.fixture
def mixed() -> Iterator[None]:
    if not backend_object().half:
        pytest.skip("the device has no half precision")
    mg.config.set_dtype_policy("mixed_float16")
    yield
    mg.config.set_dtype_policy("float32")


#: Layers of the kinds that compute in different ways: (made by, called on).
CASES: dict[str, tuple[Any, list[Any]]] = {
    "Dense": (lambda: L.Dense(3, "gelu"), [IMAGES]),
    "EinsumDense": (lambda: L.EinsumDense("abc,cd->abd", (5, 3), bias_axes="d"), [SERIES]),
    "Embedding": (lambda: L.Embedding(5, 3), [WORDS]),
    "Conv1D": (lambda: L.Conv1D(3, 2, padding="causal"), [SERIES]),
    "Conv2D": (lambda: L.Conv2D(3, 3, strides=2, padding="same"), [IMAGES]),
    "Conv2DTranspose": (lambda: L.Conv2DTranspose(3, 3), [IMAGES]),
    "SeparableConv2D": (lambda: L.SeparableConv2D(3, 3), [IMAGES]),
    "DepthwiseConv2D": (lambda: L.DepthwiseConv2D(3), [IMAGES]),
    "BatchNormalization": (lambda: L.BatchNormalization(), [IMAGES]),
    "LayerNormalization": (lambda: L.LayerNormalization(), [IMAGES]),
    "GroupNormalization": (lambda: L.GroupNormalization(2), [IMAGES]),
    "RMSNormalization": (lambda: L.RMSNormalization(), [IMAGES]),
    "UnitNormalization": (lambda: L.UnitNormalization(), [IMAGES]),
    "SpectralNormalization": (lambda: L.SpectralNormalization(L.Dense(3)), [SERIES]),
    "MaxPooling2D": (lambda: L.MaxPooling2D(3, padding="same"), [IMAGES]),
    "AveragePooling2D": (lambda: L.AveragePooling2D(3, padding="same"), [IMAGES]),
    "GlobalAveragePooling2D": (lambda: L.GlobalAveragePooling2D(), [IMAGES]),
    "GlobalMaxPooling1D": (lambda: L.GlobalMaxPooling1D(), [SERIES]),
    "AdaptiveAveragePooling2D": (lambda: L.AdaptiveAveragePooling2D(3), [IMAGES]),
    "UpSampling2D": (lambda: L.UpSampling2D(2, interpolation="bilinear"), [IMAGES]),
    "Rescaling": (lambda: L.Rescaling(2.0, 1.0), [IMAGES]),
    "Normalization": (lambda: L.Normalization(mean=0.5, variance=2.0), [IMAGES]),
    "RandomFlip": (lambda: L.RandomFlip(), [IMAGES]),
    "ZeroPadding2D": (lambda: L.ZeroPadding2D(1), [IMAGES]),
    "Softmax": (lambda: L.Softmax(), [SERIES]),
    "PReLU": (lambda: L.PReLU(), [SERIES]),
    "ELU": (lambda: L.ELU(), [SERIES]),
    "LeakyReLU": (lambda: L.LeakyReLU(), [SERIES]),
    "Dropout": (lambda: L.Dropout(0.5), [SERIES]),
    "GaussianNoise": (lambda: L.GaussianNoise(0.5), [SERIES]),
    "Masking": (lambda: L.Masking(), [SERIES]),
    "Add": (lambda: L.Add(), [[SERIES, SERIES]]),
    "Maximum": (lambda: L.Maximum(), [[SERIES, SERIES]]),
    "Dot": (lambda: L.Dot(2), [[SERIES, SERIES]]),
    "Lambda": (lambda: L.Lambda(lambda x: 2 * x), [SERIES]),
    "SimpleRNN": (lambda: L.SimpleRNN(3), [SERIES]),
    "LSTM": (lambda: L.LSTM(3, return_sequences=True), [SERIES]),
    "GRU": (lambda: L.GRU(3), [SERIES]),
    "Bidirectional": (lambda: L.Bidirectional(L.LSTM(3)), [SERIES]),
    "TimeDistributed": (lambda: L.TimeDistributed(L.Dense(3)), [SERIES]),
    "ConvLSTM1D": (lambda: L.ConvLSTM1D(2, 2), [IMAGES]),
    "Attention": (lambda: L.Attention(), [[SERIES, SERIES]]),
    "AdditiveAttention": (lambda: L.AdditiveAttention(), [[SERIES, SERIES]]),
    "MultiHeadAttention": (lambda: L.MultiHeadAttention(2, 3), [SERIES, SERIES]),
    "GroupQueryAttention": (lambda: L.GroupQueryAttention(4, 2, 2), [SERIES, SERIES]),
    "ScaledDotProduct": (lambda: L.ScaledDotProduct(causal=True), [IMAGES, IMAGES, IMAGES]),
}


@pytest.mark.parametrize("name", CASES)
def test_layers_by_the_mixed_policy(mixed: None, name: str) -> None:
    """Results are halves, weights are not, and both policies agree to half precision."""
    make, inputs = CASES[name]
    layer = make()
    found = layer(*inputs)
    assert found.dtype == "float16"
    assert (layer.compute_dtype, layer.variable_dtype) == ("float16", "float32")
    assert {w.dtype for w in layer.weights} <= {"float32"}
    again = layer.from_config(layer.get_config()) if name != "Lambda" else layer
    assert again.dtype_policy == mg.DTypePolicy("mixed_float16")
    mg.config.set_dtype_policy("float32")
    single = make()
    expected = single(*inputs)
    assert expected.dtype == "float32"
    single.set_weights(layer.get_weights())
    expected = single(*inputs).numpy()
    if name == "RandomFlip":  # with a seed of its own each time
        return
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.numpy(), expected, atol=4e-3 * scale, rtol=4e-3)


def test_group_normalization_takes_what_a_half_cannot_hold(mixed: None) -> None:
    x = np.arange(32, dtype=np.float32).reshape(1, 2, 16) * 70000
    assert np.isfinite(L.GroupNormalization(2)(x).numpy()).all()


def test_one_layer_by_a_policy_of_its_own(mixed: None) -> None:
    mg.config.set_dtype_policy("float32")
    for make, inputs in (CASES[n] for n in ("Dense", "LSTM", "MultiHeadAttention")):
        config = make().get_config()
        layer = type(make()).from_config({**config, "dtype": "mixed_float16", "name": "x"})
        assert layer(*inputs).dtype == "float16"
    assert L.Dense(2, dtype="float16")(SERIES).dtype == "float16"
    pure = L.Dense(2, dtype="float16")
    pure.build((None, 4))
    assert {w.dtype for w in pure.weights} == {"float16"}
    assert pure.kernel.numpy().std() > 0


class Looking(L.Layer):
    """Keeps the dtypes that its call saw."""

    def build(self, input_shape: Any) -> None:
        self.weight = self.add_weight(shape=(4,), name="weight")
        self.exact = self.add_weight(shape=(4,), name="exact", autocast=False)
        self.count = self.add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, name="count"
        )
        self.inner = L.Dense(4, dtype="float32")

    def call(self, x: Any) -> Any:
        self.seen = [x.dtype, self.weight.value.dtype, (self.weight * 1).dtype]
        self.seen += [self.exact.value.dtype, self.count.value.dtype, self.inner(x).dtype]
        return x * self.weight


def test_autocast_inside_calls(mixed: None) -> None:
    layer = Looking()
    layer(SERIES)
    assert layer.seen == ["float16", "float16", "float16", "float32", "int32", "float32"]
    assert layer.weight.value.dtype == "float32"  # outside of a call
    plain = Looking(autocast=False)
    plain(SERIES)
    assert plain.seen[:3] == ["float32"] * 3


def test_assignments_inside_calls_are_exact(mixed: None) -> None:
    class Counting(L.Layer):
        def build(self, input_shape: Any) -> None:
            self.total = self.add_weight(initializer="zeros", trainable=False, name="total")

        def call(self, x: Any) -> Any:
            self.total.assign_add(1.0)
            return x

    layer = Counting()
    layer.build(None)
    layer.total.assign(4096.0)  # 4097 is no half
    layer(SERIES)
    assert layer.total.numpy() == 4097


def test_normalisation_is_in_single_precision(mixed: None) -> None:
    x = np.full((2, 4, 4, 8), 300.0, np.float32)  # squares are beyond 65504
    x[..., ::2] = -300
    for layer in (L.LayerNormalization(), L.BatchNormalization(), L.GroupNormalization(2)):
        for inputs in (x, 300 * x):  # the second is beyond 65504 by itself
            assert np.isfinite(layer(inputs, training=True).numpy()).all()
    layer = L.RMSNormalization()
    np.testing.assert_allclose(layer(x).numpy(), np.sign(x), rtol=1e-3)


def test_rows_that_see_nothing(mixed: None) -> None:
    """-1e9 is no half: masks are applied in single precision, and nothing becomes NaN."""
    nothing = np.zeros((2, 5, 5), bool)
    for layer in (L.MultiHeadAttention(2, 3), L.MultiHeadAttention(2, 3, dropout=0.5)):
        assert np.isfinite(layer(SERIES, SERIES, attention_mask=nothing).numpy()).all()
    out = L.Attention()([SERIES, SERIES], mask=[None, nothing[:, 0]])
    assert np.isfinite(out.numpy()).all()
    assert np.isfinite(L.Softmax()(SERIES, mask=nothing[..., :4]).numpy()).all()


def test_the_policy_in_configs(mixed: None) -> None:
    model = mg.Sequential([mg.Input((4,)), L.Dense(3), L.Dense(2, dtype="float32")])
    config = model.get_config()
    kinds = [entry["config"]["dtype"] for entry in config["layers"]]
    assert [k if isinstance(k, str) else k["config"]["name"] for k in kinds] == [
        "float32", "mixed_float16", "float32",
    ]  # fmt: skip
    mg.config.set_dtype_policy("float32")
    again = mg.Sequential.from_config(config)
    assert [layer.compute_dtype for layer in again.layers] == ["float16", "float32"]
    assert again.dtype_policy.name == "mixed_float16"


def test_files_keep_policy_and_weights(mixed: None, tmp_path: Any) -> None:
    model = mg.Sequential([mg.Input((4,)), L.Dense(3), L.BatchNormalization(), L.Dense(2)])
    model.compile("adam", "mse")
    x = SERIES.reshape(-1, 4)
    model.fit(x, x[:, :2], epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    mg.config.set_dtype_policy("float32")
    again = mg.models.load_model(tmp_path / "model.keras")
    assert again.layers[0].dtype_policy.name == "mixed_float16"
    for a, b in zip(model.weights, again.weights, strict=True):
        assert b.dtype == "float32"
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    np.testing.assert_array_equal(model.predict(x, verbose=0), again.predict(x, verbose=0))
    assert again.predict(x, verbose=0).dtype == np.float16
    again.fit(x, x[:, :2], epochs=1, verbose=0)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bfloat16", "WGSL has no bfloat16"),
        ("mixed_bfloat16", "WGSL has no bfloat16"),
        ("float64", "WGSL has no float64.*use 'float32'"),
        ("mixed_int8", "not known"),
        ("nonsense", "not known"),
    ],
)
def test_policies_that_are_not_offered(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.DTypePolicy(name)
    with pytest.raises(ValueError, match=message):
        L.Dense(2, dtype=name)


def test_files_with_other_policies_open(monkeypatch: pytest.MonkeyPatch) -> None:
    config = L.Dense(2).get_config()
    config["dtype"] = {**config["dtype"], "config": {"name": "mixed_bfloat16"}}
    with pytest.warns(UserWarning, match="no bfloat16.*computes in float32"):
        assert L.Dense.from_config(config).compute_dtype == "float32"


def test_a_device_without_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backend_object()
    config = {"name": "dense", "units": 2, "dtype": "mixed_float16"}
    monkeypatch.setattr(backend, "half", False)
    for make in (mg.DTypePolicy, mg.config.set_dtype_policy, lambda p: L.Dense(2, dtype=p)):
        with pytest.raises(ValueError, match="shader-f16.*use float32"):
            make("mixed_float16")
    with pytest.warns(UserWarning, match="shader-f16"):
        assert L.Dense.from_config(config).compute_dtype == "float32"
    x = SERIES.astype("float16")
    assert L.Dense(2)(x).dtype == "float32"
    model = mg.Sequential([L.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(x, x[..., :2], verbose=0)
    assert model.predict(x, verbose=0).dtype == np.float32


def test_float16_data_without_a_policy() -> None:
    """Layers by "float32" cast it, as Keras's do."""
    assert L.Dense(2)(SERIES.astype("float16")).dtype == "float32"


# --- training ------------------------------------------------------------------------------------


def squares(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with a bright square in one of four corners."""
    random = np.random.default_rng(7)
    y = random.integers(0, 4, count)
    x = random.standard_normal((count, 8, 8, 1)).astype("float32")
    for image, corner in zip(x, y, strict=True):
        row, column = 4 * (corner // 2), 4 * (corner % 2)
        image[row : row + 4, column : column + 4] += 1.5
    return x, y


def convnet() -> Any:
    return mg.Sequential([
        mg.Input((8, 8, 1)), L.Conv2D(8, 3, padding="same", use_bias=False), L.BatchNormalization(),
        L.ReLU(), L.MaxPooling2D(2), L.Conv2D(16, 3, activation="relu"), L.GlobalAveragePooling2D(),
        L.Dropout(0.1), L.Dense(4, activation="softmax", dtype="float32"),
    ])  # fmt: skip


def sorted_words(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of eight words occurs most often."""
    random = np.random.default_rng(8)
    y = random.integers(0, 8, count)
    x = random.integers(0, 8, (count, 12))
    x[:, :5] = y[:, None]
    return random.permuted(x, axis=1).astype("int32"), y


def transformer() -> Any:
    words = mg.Input((12,), dtype="int32")
    x = L.Embedding(8, 16)(words)
    for _ in range(2):
        h = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(2, 8)(h, h)
        h = L.LayerNormalization()(x)
        x = x + L.Dense(16)(L.Dense(32, "gelu")(h))
    x = L.GlobalAveragePooling1D()(L.LayerNormalization()(x))
    return mg.Model(words, L.Dense(8)(x))


TRAINED = {
    "convnet": (convnet, squares, mg.losses.SparseCategoricalCrossentropy()),
    "transformer": (
        transformer, sorted_words, mg.losses.SparseCategoricalCrossentropy(from_logits=True),
    ),
}  # fmt: skip


def trained(name: str, policy: str) -> tuple[Any, float]:
    make, data, loss = TRAINED[name]
    mg.config.set_dtype_policy(policy)
    mg.utils.set_random_seed(5)
    model = make()
    model.compile(mg.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    x, y = data(512)
    model.fit(x, y, batch_size=64, epochs=6, verbose=0)
    _, accuracy = model.evaluate(*data(256), verbose=0)
    return model, accuracy


@pytest.mark.parametrize("name", TRAINED)
def test_training_reaches_what_float32_does(mixed: None, name: str) -> None:
    model, half = trained(name, "mixed_float16")
    assert isinstance(model.optimizer, mg.optimizers.LossScaleOptimizer)
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    _, single = trained(name, "float32")
    assert single > 0.85
    assert half > single - 0.05


def test_when_the_loss_is_scaled(mixed: None) -> None:
    """By the model's own policy, and not if compile is told not to: as in Keras."""
    model = mg.Sequential([mg.Input((4,)), L.Dense(2)])
    model.compile(mg.optimizers.SGD(0.1), "mse", auto_scale_loss=False)
    assert isinstance(model.optimizer, mg.optimizers.SGD)
    model.compile(mg.optimizers.SGD(0.1), "mse")
    scaled = model.optimizer
    assert isinstance(scaled, mg.optimizers.LossScaleOptimizer)
    assert isinstance(scaled.inner_optimizer, mg.optimizers.SGD)
    model.compile(scaled, "mse")
    assert model.optimizer is scaled
    mg.config.set_dtype_policy("float32")
    model = mg.Sequential([mg.Input((4,)), L.Dense(2, dtype="mixed_float16")])
    model.compile(mg.optimizers.SGD(0.1), "mse")
    assert isinstance(model.optimizer, mg.optimizers.SGD)


def test_a_step_that_overflows_is_skipped(mixed: None) -> None:
    """The scale halves until gradients fit, and weights stay until then; nothing is read back."""
    model = mg.Sequential([mg.Input((4,)), L.Dense(1, use_bias=False, kernel_initializer="ones")])
    optimizer = mg.optimizers.LossScaleOptimizer(mg.optimizers.SGD(0.01), initial_scale=2.0**20)
    model.compile(optimizer, "mse")
    x = np.full((8, 4), 10.0, np.float32)
    before = model.get_weights()[0]
    model.fit(x, np.zeros((8, 1)), epochs=1, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], before)
    assert float(optimizer.dynamic_scale.numpy()) == 2.0**19
    model.fit(x, np.zeros((8, 1)), epochs=20, verbose=0)
    assert float(optimizer.dynamic_scale.numpy()) < 2.0**19
    assert not np.array_equal(model.get_weights()[0], before)
    assert np.isfinite(model.get_weights()[0]).all()


def test_small_gradients_survive(mixed: None) -> None:
    """A gradient below the smallest half reaches the weights by way of the scale."""
    x = np.full((1, 1), 1e-4, np.float32)
    moved = []
    for scale in (True, False):
        dense = L.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = mg.Sequential([mg.Input((1,)), L.Lambda(lambda v: v * 1e-3), dense])
        model.compile(mg.optimizers.SGD(1e6), "mae", auto_scale_loss=scale)
        model.fit(x, np.ones((1, 1)), verbose=0)
        moved.append(float(model.get_weights()[0][0, 0]))
    assert moved[0] == pytest.approx(0.1, rel=0.3)  # 1e-7 is a subnormal half


@pytest.mark.parametrize("name", TRAINED)
def test_less_memory(mixed: None, name: str) -> None:
    """What lies in memory during a step, as the plan for a GPU has it."""
    from meganeura.schedule import schedule
    from meganeura.schedule.plan import Limits

    found = {}
    for policy in ("float32", "mixed_float16"):
        graph = step_graph(name, policy)
        found[policy] = schedule(graph, Limits(storage_buffers=16)).statistics["temporary_bytes"]
    assert found["mixed_float16"] < 0.7 * found["float32"], found


def step_graph(name: str, policy: str) -> Any:
    """The optimised graph of one training step."""
    from meganeura.graph.trace import Trace
    from meganeura.rewrite import optimise

    make, data, loss = TRAINED[name]
    mg.config.set_dtype_policy(policy)
    model = make()
    model.compile("adam", loss)
    x, y = data(64)
    model.optimizer.build(model.trainable_variables)
    with Trace() as trace, warnings.catch_warnings():
        nodes = trace.input(x.shape, str(x.dtype)), trace.input(y.shape, "int32")
        model.train_step(nodes)
        graph = trace.graph([])
    return optimise(graph)[0]


def test_ops_on_variables_outside_of_layers_are_exact(mixed: None) -> None:
    v = mg.Variable(np.float32([1 / 3]), name="v")
    assert ops.add(v, 0.0).dtype == "float32"


# --- Keras's own numbers ---------------------------------------------------------------------------


def waves(shape: tuple[int, ...], phase: float) -> np.ndarray:
    count = int(np.prod(shape))
    return (np.sin(np.arange(count) * 1.7 + phase) * 0.5).reshape(shape).astype("float32")


#: By Keras 3.15.1 on PyTorch 2.13: a model, its input and loss; the predictions for the first two samples;
#: the losses of three epochs; the predictions after them; and the scale, which halves where a step overflowed.
KERAS: dict[str, tuple[Any, tuple[int, ...], Any, list[float], list[float], list[float], float]] = {
    "dense": (
        lambda: [mg.Input((5,)), L.Dense(8, "gelu"), L.LayerNormalization(), L.Dense(3, "softmax")],
        (16, 5), mg.losses.SparseCategoricalCrossentropy(),
        [0.1354, 0.5557, 0.3091, 0.0376, 0.3591, 0.6030], [1.2657, 1.0628, 1.1302],
        [0.9863, 0.0126, 0.0013, 0.5820, 0.4050, 0.0131], 2.0**12,
    ),
    "convolution": (
        lambda: [mg.Input((6, 6, 2)), L.Conv2D(4, 3, padding="same", activation="relu"),
                 L.BatchNormalization(), L.AveragePooling2D(2), L.Flatten(), L.Dense(3)],
        (16, 6, 6, 2), mg.losses.SparseCategoricalCrossentropy(from_logits=True),
        [0.3806, 1.1562, -0.6787, 0.0973, 0.9131, -0.3330], [1.6415, 1.1239, 1.0824],
        [-0.2646, 1.0879, 0.1672, -0.0122, 1.0723, -0.2275], 2.0**15,
    ),
    "recurrence": (
        lambda: [mg.Input((7, 4)), L.LSTM(6), L.Dense(3, "softmax", dtype="float32")],
        (16, 7, 4), mg.losses.SparseCategoricalCrossentropy(),
        [0.2302, 0.3161, 0.4537, 0.2268, 0.3091, 0.4641], [1.1608, 1.1386, 1.1132],
        [0.3449, 0.3206, 0.3345, 0.3412, 0.3217, 0.3370], 2.0**15,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERAS)
def test_keras_numbers(mixed: None, name: str) -> None:
    """Predictions and training agree with Keras to half precision, skipped steps included."""
    stack, shape, loss, before, losses, after, scale = KERAS[name]
    model = mg.Sequential(stack())
    weights = []
    for i, w in enumerate(model.weights):
        ones = any(word in w.path for word in ("gamma", "variance"))
        weights.append(waves(w.shape, i) + float(ones))
    model.set_weights(weights)
    x, y = waves(shape, 3.0), np.arange(16) % 3
    close = {"rtol": 4e-3, "atol": 2e-3}
    np.testing.assert_allclose(model.predict(x, verbose=0)[:2].ravel(), before, **close)
    model.compile(mg.optimizers.SGD(0.1, momentum=0.9), loss)
    history = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], losses, rtol=1e-3)
    np.testing.assert_allclose(model.predict(x, verbose=0)[:2].ravel(), after, **close)
    assert float(model.optimizer.dynamic_scale.numpy()) == scale
