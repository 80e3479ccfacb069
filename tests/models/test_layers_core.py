"""Core, merging, reshaping and regularization layers against NumPy, with shapes, configs, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import Sequential, layers, utils
from meganeura.layers import Input, Layer
from meganeura.masking import get_mask, set_mask
from meganeura.tensor import to_tensor


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


X = values(2, 4, 6)
IMAGE = values(2, 4, 5, 3)
FIRST = "channels_first"
VOLUME = values(2, 3, 4, 5, 2)


def first(x: np.ndarray) -> np.ndarray:
    """Channels first."""
    return np.moveaxis(x, -1, 1)


def pad(x: np.ndarray, *widths: tuple[int, int]) -> np.ndarray:
    return np.pad(x, [(0, 0), *widths])


CASES: list[tuple[Callable[[], Layer], np.ndarray, Callable[[np.ndarray], np.ndarray]]] = [
    (lambda: layers.Activation("relu"), X, lambda x: np.maximum(x, 0)),
    (lambda: layers.Activation(lambda x: x * 3.0), X, lambda x: x * 3),
    (lambda: layers.Identity(), X, lambda x: x),
    (lambda: layers.Lambda(lambda x, by: x + by, arguments={"by": 2.0}), X, lambda x: x + 2),
    (lambda: layers.Flatten(), IMAGE, lambda x: x.reshape(2, -1)),
    (lambda: layers.Flatten(data_format=FIRST), first(IMAGE), lambda x: np.moveaxis(x, 1, -1).reshape(2, -1)),
    (lambda: layers.Flatten(), values(3), lambda x: x.reshape(3, 1)),
    (lambda: layers.Reshape((3, 8)), X, lambda x: x.reshape(2, 3, 8)),
    (lambda: layers.Reshape((-1, 2)), X, lambda x: x.reshape(2, -1, 2)),
    (lambda: layers.Permute((2, 1)), X, lambda x: x.transpose(0, 2, 1)),
    (lambda: layers.RepeatVector(3), X[:, 0], lambda x: np.repeat(x[:, None], 3, 1)),
    (lambda: layers.ZeroPadding1D(2), X, lambda x: pad(x, (2, 2), (0, 0))),
    (lambda: layers.ZeroPadding1D((1, 0)), X, lambda x: pad(x, (1, 0), (0, 0))),
    (lambda: layers.ZeroPadding1D(1, data_format=FIRST), X, lambda x: pad(x, (0, 0), (1, 1))),
    (lambda: layers.ZeroPadding2D((1, 2)), IMAGE, lambda x: pad(x, (1, 1), (2, 2), (0, 0))),
    (lambda: layers.ZeroPadding2D(((1, 0), (0, 2))), IMAGE, lambda x: pad(x, (1, 0), (0, 2), (0, 0))),
    (lambda: layers.ZeroPadding2D(1, data_format=FIRST), first(IMAGE), lambda x: pad(x, (0, 0), (1, 1), (1, 1))),
    (lambda: layers.ZeroPadding3D(1), VOLUME, lambda x: pad(x, (1, 1), (1, 1), (1, 1), (0, 0))),
    (lambda: layers.Cropping1D((1, 2)), X, lambda x: x[:, 1:-2]),
    (lambda: layers.Cropping2D(((1, 0), (2, 1))), IMAGE, lambda x: x[:, 1:, 2:-1]),
    (lambda: layers.Cropping2D(1, data_format=FIRST), first(IMAGE), lambda x: x[:, :, 1:-1, 1:-1]),
    (lambda: layers.Cropping3D(1), VOLUME, lambda x: x[:, 1:-1, 1:-1, 1:-1]),
    (lambda: layers.UpSampling1D(3), X, lambda x: x.repeat(3, 1)),
    (lambda: layers.UpSampling2D((2, 3)), IMAGE, lambda x: x.repeat(2, 1).repeat(3, 2)),
    (lambda: layers.UpSampling2D(2, data_format=FIRST), first(IMAGE), lambda x: x.repeat(2, 2).repeat(2, 3)),
    (lambda: layers.UpSampling3D((1, 2, 1)), VOLUME, lambda x: x.repeat(2, 2)),
    (lambda: layers.Dropout(0.4), X, lambda x: x),
    (lambda: layers.SpatialDropout1D(0.4), X, lambda x: x),
    (lambda: layers.GaussianNoise(0.4), X, lambda x: x),
    (lambda: layers.GaussianDropout(0.4), X, lambda x: x),
    (lambda: layers.AlphaDropout(0.4), X, lambda x: x),
    (lambda: layers.ActivityRegularization(l2=0.1), X, lambda x: x),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CASES)))
def test_values_shapes_and_configs(index: int) -> None:
    make, x, reference = CASES[index]
    layer = make()
    expected = reference(x)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-6)
    assert layer(Input(x.shape[1:])).shape == (None, *expected.shape[1:])
    assert layer.compute_output_shape((None, *x.shape[1:])) == (None, *expected.shape[1:])
    if (
        isinstance(layer, layers.Lambda)
        or callable(getattr(layer, "activation", ""))
        and index == 1
    ):
        return
    config = json.loads(json.dumps(layers.serialize(layer)))
    again = layers.deserialize(config)
    assert type(again) is type(layer) and again.name == layer.name
    assert json.loads(json.dumps(layers.serialize(again))) == config
    np.testing.assert_allclose(again(x), expected, rtol=1e-6)


# --- Dense and Embedding -----------------------------------------------------------------------


def test_dense_on_the_last_axis() -> None:
    layer = layers.Dense(3, activation="tanh")
    out = layer(X)
    w, b = layer.get_weights()
    np.testing.assert_allclose(out, np.tanh(X @ w + b), rtol=1e-5, atol=1e-6)
    assert layers.Dense(3, use_bias=False)(X).shape == (2, 4, 3)
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        layer(values(4))


def test_embedding() -> None:
    layer = layers.Embedding(5, 3)
    ids = np.array([[0, 4], [2, 2]])
    np.testing.assert_array_equal(layer(ids), layer.get_weights()[0][ids])
    np.testing.assert_array_equal(layer(ids.astype("float32")), layer.get_weights()[0][ids])
    table = values(5, 3)
    np.testing.assert_array_equal(layers.Embedding(5, 3, weights=[table])(ids), table[ids])
    model = Sequential([layers.Embedding(5, 3)])
    assert model(ids).shape == (2, 2, 3) and model.inputs[0].dtype == "int32"


# --- merging -----------------------------------------------------------------------------------

A, B, C = values(2, 4), values(2, 4) * 2 + 1, values(2, 4) - 3


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("Add", lambda *x: sum(x)),
        ("Multiply", lambda *x: x[0] * x[1] * x[2]),
        ("Average", lambda *x: sum(x) / 3),
        ("Maximum", lambda *x: np.maximum(np.maximum(x[0], x[1]), x[2])),
        ("Minimum", lambda *x: np.minimum(np.minimum(x[0], x[1]), x[2])),
        ("Concatenate", lambda *x: np.concatenate(x, -1)),
    ],
)
def test_merging_several(name: str, reference: Callable[..., np.ndarray]) -> None:
    np.testing.assert_allclose(getattr(layers, name)()([A, B, C]), reference(A, B, C), rtol=1e-6)
    np.testing.assert_allclose(
        getattr(layers, name.lower())([A, B, C]), reference(A, B, C), rtol=1e-6
    )
    with pytest.raises(ValueError, match=f"{name}.*takes a list of tensors"):
        getattr(layers, name)()(A)


def test_merging_broadcasts_after_the_batch() -> None:
    wide = values(2, 5, 4)
    np.testing.assert_allclose(layers.Add()([wide, A]), wide + A[:, None], rtol=1e-6)
    np.testing.assert_allclose(
        layers.Multiply()([wide, wide[:, :1]]), wide * wide[:, :1], rtol=1e-6
    )
    with pytest.raises(
        ValueError, match=r"\(2, 4\), \(2, 3\) cannot be merged; they differ at axis 1"
    ):
        layers.Add()([A, values(2, 3)])


def test_subtract_and_concatenate() -> None:
    np.testing.assert_allclose(layers.Subtract()([A, B]), A - B, rtol=1e-6)
    np.testing.assert_allclose(layers.subtract([A, B]), A - B, rtol=1e-6)
    with pytest.raises(ValueError, match="takes two tensors, and got 3"):
        layers.Subtract()([A, B, C])
    np.testing.assert_allclose(
        layers.Concatenate(axis=1)([X, X[:, :1]]), np.concatenate([X, X[:, :1]], 1)
    )
    with pytest.raises(ValueError, match=r"\(2, 4\), \(2, 4, 6\) must agree but for axis -1"):
        layers.Concatenate()([A, X])


@pytest.mark.parametrize(
    ("axes", "equation"),
    [(1, "btc,btd->bcd"), ((1, 1), "btc,btd->bcd"), ((2, 1), "btc,bcd->btd"), (-1, "btc,bsc->bts")],
)
def test_dot(axes: Any, equation: str) -> None:
    right = {"btd": (2, 4, 5), "bcd": (2, 6, 5), "bsc": (2, 5, 6)}[equation.split(",")[1][:3]]
    y = values(*right)
    np.testing.assert_allclose(
        layers.Dot(axes)([X, y]), np.einsum(equation, X, y), rtol=1e-4, atol=1e-5
    )
    assert layers.dot([X, y], axes=axes).shape == np.einsum(equation, X, y).shape


def test_dot_of_vectors() -> None:
    cosine = (A * B).sum(1) / np.linalg.norm(A, axis=1) / np.linalg.norm(B, axis=1)
    np.testing.assert_allclose(layers.Dot(1, normalize=True)([A, B]), cosine[:, None], rtol=1e-5)
    with pytest.raises(ValueError, match=r"axes 1 of the shapes \(2, 4\) and \(2, 3\) differ"):
        layers.Dot(1)([A, values(2, 3)])


def test_masks_of_merged_tensors() -> None:
    x, y = to_tensor(X), to_tensor(X)
    set_mask(x, to_tensor(np.array([[True, True, False, False]] * 2)))
    set_mask(y, to_tensor(np.array([[True, False, True, False]] * 2)))
    either = [True, True, True, False]  # as in Keras: a step is there if it is in one of the inputs
    assert get_mask(layers.Add()([x, y])).numpy()[0].tolist() == either
    assert get_mask(layers.Concatenate(axis=2)([x, y])).numpy()[0].tolist() == either
    assert get_mask(layers.Add()([x, to_tensor(X)])) is None
    joined = get_mask(layers.Concatenate(axis=1)([x, to_tensor(X[:, :2])]))
    assert joined.numpy()[0].tolist() == [True, True, False, False, True, True]


# --- regularization ----------------------------------------------------------------------------

MANY = np.ones((200, 50, 4), "float32")


def test_dropout_keeps_the_mean_and_draws_anew() -> None:
    layer = layers.Dropout(0.25, seed=5)
    out = np.asarray(layer(MANY, training=True))
    assert set(np.unique(out).tolist()) == {0.0, np.float32(1 / 0.75)}
    assert abs(out.mean() - 1) < 0.02
    assert not np.array_equal(out, layer(MANY, training=True))
    np.testing.assert_array_equal(out, layers.Dropout(0.25, seed=5)(MANY, training=True))
    assert not np.any(np.asarray(layers.Dropout(1.0)(MANY, training=True)))
    np.testing.assert_array_equal(layers.Dropout(0.0)(MANY, training=True), MANY)


def test_dropout_of_whole_axes() -> None:
    shared = np.asarray(layers.Dropout(0.5, noise_shape=(None, 1, None))(MANY, training=True))
    assert np.array_equal(shared, np.repeat(shared[:, :1], 50, 1)) and shared.std() > 0.5
    spatial = np.asarray(layers.SpatialDropout1D(0.5)(MANY, training=True))
    assert np.array_equal(spatial, np.repeat(spatial[:, :1], 50, 1)) and spatial.std() > 0.5
    images = np.ones((50, 6, 5, 8), "float32")
    last = np.asarray(layers.SpatialDropout2D(0.5)(images, training=True))
    assert np.array_equal(last, np.broadcast_to(last[:, :1, :1], last.shape)) and last.std() > 0.5
    channels = layers.SpatialDropout2D(0.5, data_format="channels_first")
    out = np.asarray(channels(first(images), training=True))
    assert np.array_equal(out, np.broadcast_to(out[:, :, :1, :1], out.shape)) and out.std() > 0.5
    volumes = np.asarray(
        layers.SpatialDropout3D(0.5)(np.ones((9, 2, 2, 2, 8), "float32"), training=True)
    )
    assert np.array_equal(volumes, np.broadcast_to(volumes[:, :1, :1, :1], volumes.shape))


def test_noise() -> None:
    noise = np.asarray(layers.GaussianNoise(0.5)(MANY, training=True)) - 1
    assert abs(noise.mean()) < 0.01 and abs(noise.std() - 0.5) < 0.01
    scaled = np.asarray(layers.GaussianDropout(0.2)(MANY, training=True))
    assert abs(scaled.mean() - 1) < 0.01 and abs(scaled.std() - 0.5) < 0.01
    normal = np.random.default_rng(0).normal(size=(200, 500)).astype("float32")
    kept = np.asarray(layers.AlphaDropout(0.3)(normal, training=True))
    assert abs(kept.mean()) < 0.02 and abs(kept.std() - 1) < 0.02


def test_generators_are_state_but_no_weights() -> None:
    layer = layers.Dropout(0.5, seed=1)
    assert layer.weights == [] and len(layer.variables) == len(layer.non_trainable_variables) == 1
    assert layers.Dropout(0.0).variables == []
    utils.set_random_seed(3)
    one = np.asarray(layers.Dropout(0.5)(MANY, training=True))
    utils.set_random_seed(3)
    np.testing.assert_array_equal(one, layers.Dropout(0.5)(MANY, training=True))


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "x", "message"),
    [
        (lambda: layers.Dense(-1), None, "units must be a positive integer, not -1"),
        (lambda: layers.Dropout(1.5), None, "rate must lie between 0 and 1, and is 1.5"),
        (lambda: layers.Dropout(0.5, noise_shape=(0,)), None, "noise_shape"),
        (lambda: layers.Dropout(0.5, noise_shape=(1, 1.5)), None, "positive integers or None"),
        (lambda: layers.Dropout(0.5, noise_shape="all"), None, "got 'all'"),
        (lambda: layers.GaussianNoise(-1.0), None, "stddev must lie between 0"),
        (lambda: layers.Permute((1, 3)), None, r"dims \(1, 3\) must be a permutation"),
        (lambda: layers.Reshape((-1, -1)), None, "may hold -1"),
        (
            lambda: layers.Reshape((5,)),
            X,
            r"24 elements per sample of shape \(2, 4, 6\) do not fit",
        ),
        (lambda: layers.Reshape((5, -1)), X, "24 elements"),
        (lambda: layers.Cropping1D(2), X, "leaves nothing of length 4 at axis 1"),
        (lambda: layers.Cropping2D((1, 2, 3)), None, "cropping needs 2 integers or pairs"),
        (lambda: layers.ZeroPadding1D((1, -1)), None, "pairs of non-negative integers"),
        (lambda: layers.ZeroPadding1D((1,)), None, "pairs of non-negative integers"),
        (lambda: layers.Cropping1D("1"), None, "cropping needs an integer or a pair"),
        (lambda: layers.ZeroPadding2D(1), X, "expects an input of 4 dimensions"),
        (lambda: layers.UpSampling2D((0, 1)), None, "size must be an integer of at least 1"),
        (lambda: layers.UpSampling2D(2, interpolation="nope"), None, "interpolation is 'nope'"),
        (lambda: layers.Flatten(data_format="last"), None, "data_format is 'last'"),
        (lambda: layers.Activation("rellu"), None, "'rellu' is not known.*'relu'"),
        (lambda: layers.RepeatVector(2), X, "expects an input of 2 dimensions"),
    ],
)
def test_errors(make: Callable[[], Layer], x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer = make()
        layer(x)
    if x is not None:
        with pytest.raises(ValueError, match=message.replace("2,", "None,")):
            make()(Input(x.shape[1:]))


def test_types_of_arguments() -> None:
    with pytest.raises(TypeError, match="n must be an integer"):
        layers.RepeatVector(2.5)
    for size in (2.5, "2", True):
        with pytest.raises(TypeError, match="size must be an integer"):
            layers.UpSampling1D(size)
    with pytest.raises(TypeError, match="Lambda takes a function"):
        layers.Lambda(3)
    with pytest.raises(AttributeError, match="no 'Dens'.*'Dense'"):
        _ = layers.Dens
