"""Preprocessing layers: scaling, statistics, categories, bins, and random changes of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import layers

RNG = np.random.default_rng(3)


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def test_rescaling_makes_floats_of_bytes() -> None:
    x = np.array([[0, 128, 255]], np.uint8)
    result = layers.Rescaling(1 / 255, offset=-0.5)(x)
    assert str(result.dtype) == "float32"
    np.testing.assert_allclose(np.asarray(result), x / 255 - 0.5, atol=1e-6)
    per_channel = layers.Rescaling([1.0, 2.0, 3.0], offset=[0.0, 0.0, 1.0])
    np.testing.assert_allclose(np.asarray(per_channel(x)), [[0, 256, 766]])


def test_normalization_learns_over_batches() -> None:
    x = array(50, 4, 3) * 3 + 2
    whole, parts = layers.Normalization(), layers.Normalization()
    whole.adapt(x)
    parts.adapt(x[i : i + 16] for i in range(0, 50, 16))
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    for layer in (whole, parts):
        assert [w.name for w in layer.weights] == ["mean", "variance", "count"]
        np.testing.assert_allclose(layer.weights[0].numpy(), mean, rtol=1e-5)
        np.testing.assert_allclose(layer.weights[1].numpy(), variance, rtol=1e-5)
        assert int(layer.weights[2].numpy()) == 200
        np.testing.assert_allclose(
            np.asarray(layer(x)), (x - mean) / np.sqrt(variance), rtol=1e-4, atol=1e-5
        )
    again = layers.Normalization(invert=True, mean=mean, variance=variance)
    np.testing.assert_allclose(np.asarray(again(whole(x))), x, rtol=1e-4, atol=1e-4)


def test_a_constant_feature_is_not_divided_by_zero() -> None:
    layer = layers.Normalization(axis=None)
    layer.adapt(np.full((4, 2), 5.0))
    assert not np.asarray(layer(np.full((1, 2), 5.0))).any()


def test_category_encoding() -> None:
    x = np.array([[0, 2, 2], [1, 1, 5]])
    multi = np.asarray(layers.CategoryEncoding(3)(x))
    np.testing.assert_array_equal(multi, [[1, 0, 1], [0, 1, 0]])
    count = layers.CategoryEncoding(3, output_mode="count")
    np.testing.assert_array_equal(np.asarray(count(x)), [[1, 0, 2], [0, 2, 0]])
    weighted = count(x, count_weights=np.array([[0.5, 1, 1], [2, 0, 9]]))
    np.testing.assert_allclose(np.asarray(weighted), [[0.5, 0, 2], [0, 2, 0]])
    hot = layers.CategoryEncoding(3, output_mode="one_hot")
    np.testing.assert_array_equal(np.asarray(hot(np.array([[2], [0]]))), np.eye(3)[[2, 0]])


def test_discretization() -> None:
    layer = layers.Discretization([0.0, 1.0])
    np.testing.assert_array_equal(
        np.asarray(layer(np.array([[-1.0, 0.0, 0.5, 1.0]]))), [[0, 1, 1, 2]]
    )
    learnt = layers.Discretization(num_bins=4)
    learnt.adapt(np.arange(1000.0))
    counts = np.bincount(np.asarray(learnt(np.arange(1000.0)[:, None])).ravel())
    assert (np.abs(counts - 250) <= 2).all()
    again = layers.Discretization.from_config(learnt.get_config())
    assert again.bin_boundaries == learnt.bin_boundaries


X = RNG.random((3, 6, 6, 2)).astype(np.float32)


def test_flips_are_even_and_change_from_call_to_call() -> None:
    layer = layers.RandomFlip("horizontal", seed=1)
    many = np.broadcast_to(X[:1], (400, 6, 6, 2)).copy()
    first, second = np.asarray(layer(many)), np.asarray(layer(many))
    flipped = (first == many[:, :, ::-1]).all((1, 2, 3))
    assert (flipped | (first == many).all((1, 2, 3))).all()
    assert 0.4 < flipped.mean() < 0.6 and (first != second).any()
    np.testing.assert_array_equal(first, np.asarray(layers.RandomFlip("horizontal", seed=1)(many)))


@pytest.mark.parametrize(
    "layer",
    [
        layers.RandomFlip(),
        layers.RandomRotation(0.2),
        layers.RandomZoom(0.3, 0.2),
        layers.RandomTranslation(0.3, 0.2),
        layers.RandomContrast(0.5),
        layers.RandomBrightness(0.5),
    ],
)
def test_nothing_changes_in_inference(layer: Any) -> None:
    np.testing.assert_array_equal(np.asarray(layer(X, training=False)), X)
    assert np.asarray(layer(X)).shape == X.shape
    again = layers.deserialize(layers.serialize(layer))
    assert again.get_config() == layer.get_config()


def test_a_quarter_turn_is_counter_clockwise() -> None:
    layer = layers.RandomRotation((0.25, 0.25))
    np.testing.assert_allclose(np.asarray(layer(X)), np.rot90(X, 1, (1, 2)), atol=1e-6)
    turned = np.moveaxis(X, -1, 1)
    layer = layers.RandomRotation((0.25, 0.25), data_format="channels_first")
    np.testing.assert_allclose(np.asarray(layer(turned)), np.rot90(turned, 1, (2, 3)), atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "edge"),
    [("wrap", X[:, 4:]), ("reflect", X[:, 1::-1]), ("nearest", X[:, :1]), ("constant", 7.0)],
)
def test_what_fills_the_edge_of_a_shifted_image(mode: str, edge: Any) -> None:
    layer = layers.RandomTranslation((1 / 3, 1 / 3), 0.0, fill_mode=mode, fill_value=7.0)
    result = np.asarray(layer(X))
    np.testing.assert_allclose(result[:, 2:], X[:, :-2], atol=1e-6)
    np.testing.assert_allclose(result[:, :2], np.broadcast_to(edge, (3, 2, 6, 2)), atol=1e-6)


def test_zooming_out_by_two_takes_every_other_pixel() -> None:
    layer = layers.RandomZoom((1.0, 1.0), fill_mode="constant", interpolation="nearest")
    x = RNG.random((1, 5, 5, 1)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(layer(x))[0, 1:4, 1:4], x[0, ::2, ::2])


def test_contrast_and_brightness() -> None:
    darker = layers.RandomContrast((1.0, 0.0), value_range=(0, 1), seed=0)
    result = np.asarray(darker(X))
    np.testing.assert_allclose(result.mean((1, 2)), X.mean((1, 2)), rtol=1e-4)
    assert (result.std((1, 2)) <= X.std((1, 2))).all()
    brighter = layers.RandomBrightness((0.25, 0.25), value_range=(0, 1))
    np.testing.assert_allclose(np.asarray(brighter(X)), np.minimum(X + 0.25, 1), rtol=1e-6)


def test_random_crop_is_a_piece_of_the_image() -> None:
    result = np.asarray(layers.RandomCrop(4, 3)(X))
    places = [(i, j) for i in range(3) for j in range(4)]
    assert any((result == X[:, i : i + 4, j : j + 3]).all() for i, j in places)
    assert layers.RandomCrop(4, 3).compute_output_shape((None, 6, 6, 2)) == (None, 4, 3, 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layers.Normalization(mean=1.0), "variance"),
        (lambda: layers.Normalization(mean=1.0, variance=1.0).adapt(X), "cannot adapt"),
        (lambda: layers.Normalization().adapt([]), "no data"),
        (lambda: layers.CategoryEncoding(), "num_tokens"),
        (lambda: layers.CategoryEncoding(3, output_mode="int"), "'multi_hot'"),
        (lambda: layers.CategoryEncoding(3)(np.array([[1]]), count_weights=[[1.0]]), "count"),
        (lambda: layers.Discretization(), "bin_boundaries"),
        (lambda: layers.Discretization(num_bins=3)(X), "adapt"),
        (lambda: layers.RandomRotation(2.0), "factor"),
        (lambda: layers.RandomFlip("diagonal"), "'vertical'"),
        (lambda: layers.RandomZoom(0.2, fill_mode="mirror"), "'reflect'"),
        (lambda: layers.RandomFlip()(X[0, 0]), "(6, 2)"),
    ],
)
def test_errors(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        call()
    assert words in str(caught.value)
