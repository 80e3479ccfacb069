"""Convolution and pooling layers against plain loops, and the sentences for wrong input."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import layers

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def fill(layer: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    """Build a layer and give it random weights; returns them."""
    layer(*inputs)
    weights = [array(*w.shape) for w in layer.weights]
    layer.set_weights(weights)
    return weights


def margins(n: int, k: int, s: int, d: int, padding: str) -> tuple[int, int]:
    """Keras's padding: "same" puts the odd one at the end."""
    if padding == "valid":
        return 0, 0
    total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
    return total // 2, total - total // 2


def windows(
    x: np.ndarray, size: Any, strides: Any, padding: str, dilation: Any, value: float
) -> Any:
    """For every output place, the window of x (batch, *window, channels)."""
    rank = x.ndim - 2
    pads = [margins(x.shape[1 + i], size[i], strides[i], dilation[i], padding) for i in range(rank)]
    x = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=value)
    lengths = [
        (x.shape[1 + i] - (size[i] - 1) * dilation[i] - 1) // strides[i] + 1 for i in range(rank)
    ]
    for place in itertools.product(*map(range, lengths)):
        window = tuple(
            slice(p * s, p * s + (k - 1) * d + 1, d)
            for p, s, k, d in zip(place, strides, size, dilation, strict=True)
        )
        yield place, lengths, x[(slice(None), *window)]


def convolve(
    x: np.ndarray, kernel: np.ndarray, strides: Any, padding: str, dilation: Any, groups: int
) -> np.ndarray:
    size, filters = kernel.shape[:-2], kernel.shape[-1]
    result: Any = None
    for place, lengths, window in windows(x, size, strides, padding, dilation, 0.0):
        if result is None:
            result = np.zeros((len(x), *lengths, filters))
        for g in range(groups):
            part = slice(g * kernel.shape[-2], (g + 1) * kernel.shape[-2])
            out = slice(g * filters // groups, (g + 1) * filters // groups)
            axes = list(range(1, x.ndim))
            result[(slice(None), *place, out)] = np.tensordot(
                window[..., part], kernel[..., out], (axes, list(range(x.ndim - 1)))
            )
    return result


CASES = [
    (1, "valid", 1, 1, 1), (1, "same", 2, 1, 1), (1, "valid", 1, 2, 1), (2, "valid", 1, 1, 1),
    (2, "same", 1, 1, 1), (2, "same", 2, 1, 1), (2, "valid", 2, 1, 2), (2, "same", 1, 2, 1),
    (2, "same", 1, 1, 4), (3, "same", 2, 1, 1), (3, "valid", 1, 1, 2),
]  # fmt: skip


@pytest.mark.parametrize(("rank", "padding", "stride", "dilation", "groups"), CASES)
def test_convolution(rank: int, padding: str, stride: int, dilation: int, groups: int) -> None:
    x = array(2, *(7, 6, 5)[:rank], 4)
    size = (3, 2, 2)[:rank]
    kind = getattr(layers, f"Conv{rank}D")
    layer = kind(8, size, strides=stride, padding=padding, dilation_rate=dilation, groups=groups)
    kernel, bias = fill(layer, x)
    assert kernel.shape == (*size, 4 // groups, 8)
    expected = convolve(x, kernel, (stride,) * rank, padding, (dilation,) * rank, groups) + bias
    np.testing.assert_allclose(np.asarray(layer(x)), expected, rtol=1e-4, atol=1e-5)
    assert layer.compute_output_shape((None, *x.shape[1:])) == (None, *expected.shape[1:])


def test_channels_first_is_the_transposed_computation() -> None:
    x = array(2, 6, 5, 3)
    first, last = (layers.Conv2D(4, 3, data_format=f"channels_{n}") for n in ("first", "last"))
    weights = fill(last, x)
    turned = np.moveaxis(x, -1, 1)
    first(turned)
    first.set_weights(weights)
    expected = np.moveaxis(np.asarray(last(x)), -1, 1)
    np.testing.assert_allclose(np.asarray(first(turned)), expected, rtol=1e-5, atol=1e-6)


def test_causal_convolution_sees_no_future() -> None:
    layer = layers.Conv1D(2, 3, padding="causal", dilation_rate=2)
    x = array(1, 8, 3)
    kernel, bias = fill(layer, x)
    padded = np.pad(x, ((0, 0), (4, 0), (0, 0)))
    expected = convolve(padded, kernel, (1,), "valid", (2,), 1) + bias
    np.testing.assert_allclose(np.asarray(layer(x)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_depthwise_and_separable(padding: str) -> None:
    x = array(2, 7, 6, 3)
    layer = layers.DepthwiseConv2D(3, padding=padding, depth_multiplier=2, strides=2)
    kernel, bias = fill(layer, x)
    full = np.zeros((3, 3, 3, 6))
    for c, m in itertools.product(range(3), range(2)):
        full[:, :, c, c * 2 + m] = kernel[:, :, c, m]
    middle = convolve(x, full, (2, 2), padding, (1, 1), 1)
    np.testing.assert_allclose(np.asarray(layer(x)), middle + bias, rtol=1e-4, atol=1e-5)
    separable = layers.SeparableConv2D(4, 3, padding=padding, depth_multiplier=2, strides=2)
    _, pointwise, bias = fill(separable, x)
    separable.set_weights([kernel, pointwise, bias])
    np.testing.assert_allclose(
        np.asarray(separable(x)), middle @ pointwise[0, 0] + bias, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (2, 3), (4, 2)])
def test_transposed_convolution_scatters(padding: str, size: int, stride: int) -> None:
    """Each input adds its value times the kernel; "same" then crops to n * stride."""
    x = array(2, 5, 3)
    layer = layers.Conv1DTranspose(2, size, strides=stride, padding=padding)
    kernel, bias = fill(layer, x)
    wide = np.zeros((2, 5 * stride + max(size - stride, 0), 2))
    for n in range(5):
        wide[:, n * stride : n * stride + size] += np.einsum("bc,koc->bko", x[:, n], kernel)
    cut = max(size - stride, 0) // 2 if padding == "same" else 0
    length = 5 * stride if padding == "same" else wide.shape[1]
    expected = wide[:, cut : cut + length] + bias
    np.testing.assert_allclose(np.asarray(layer(x)), expected, rtol=1e-4, atol=1e-5)
    assert layer.compute_output_shape((None, 5, 3)) == (None, *expected.shape[1:])


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pooling(rank: int, padding: str) -> None:
    x = array(2, *(7, 5, 4)[:rank], 3)
    size, strides = (3, 2, 2)[:rank], (2, 2, 1)[:rank]
    ones = (1,) * rank
    for kind, value in (("Max", -np.inf), ("Average", np.nan)):
        layer = getattr(layers, f"{kind}Pooling{rank}D")(size, strides=strides, padding=padding)
        result = np.asarray(layer(x))
        for place, lengths, window in windows(x, size, strides, padding, ones, value):
            assert result.shape[1:-1] == tuple(lengths)
            axes = tuple(range(1, rank + 1))
            # the mean counts the cells that are there, not the padding
            expected = window.max(axes) if kind == "Max" else np.nanmean(window, axes)
            np.testing.assert_allclose(result[(slice(None), *place)], expected, rtol=1e-5)


def test_strides_default_to_the_pool_size() -> None:
    assert layers.MaxPooling2D(3).strides == (3, 3)
    assert np.asarray(layers.MaxPooling2D(3)(array(1, 7, 7, 1))).shape == (1, 2, 2, 1)


def test_global_pooling() -> None:
    x = array(2, 4, 3, 5)
    np.testing.assert_allclose(
        np.asarray(layers.GlobalAveragePooling2D()(x)), x.mean((1, 2)), rtol=1e-5, atol=1e-6
    )
    kept = layers.GlobalMaxPooling2D(data_format="channels_first", keepdims=True)
    np.testing.assert_allclose(np.asarray(kept(x)), x.max((2, 3), keepdims=True))


def test_masked_steps_do_not_count_in_the_mean() -> None:
    x = array(2, 4, 3)
    mask = np.array([[True, True, False, False], [True, False, True, True]])
    result = np.asarray(layers.GlobalAveragePooling1D()(x, mask=mask))
    expected = [x[i][mask[i]].mean(0) for i in range(2)]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_adaptive_pooling_covers_everything() -> None:
    x = array(2, 7, 2)
    bounds = [(0, 3), (2, 5), (4, 7)]
    means = np.stack([x[:, a:b].mean(1) for a, b in bounds], 1)
    np.testing.assert_allclose(
        np.asarray(layers.AdaptiveAveragePooling1D(3)(x)), means, rtol=1e-5, atol=1e-6
    )
    largest = np.stack([x[:, a:b].max(1) for a, b in bounds], 1)
    np.testing.assert_allclose(np.asarray(layers.AdaptiveMaxPooling1D(3)(x)), largest)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layers.Conv2D(0, 3), "filters"),
        (lambda: layers.Conv2D(4, (3, 3, 3)), "kernel_size"),
        (lambda: layers.Conv2D(4, 3, padding="full"), "'same'"),
        (lambda: layers.Conv2D(4, 3, padding="causal"), "'causal'"),
        (lambda: layers.Conv2D(4, 3, groups=3), "multiple of groups"),
        (lambda: layers.Conv2D(4, 3, groups=2)(array(1, 5, 5, 3)), "groups=2"),
        (lambda: layers.Conv2D(4, 3)(array(1, 5, 5)), "4 dimensions"),
        (lambda: layers.Conv2D(4, 6)(array(1, 5, 5, 1)), "smaller than the window"),
        (lambda: layers.MaxPooling1D(9)(array(1, 5, 2)), "smaller than the window"),
        (lambda: layers.Conv2DTranspose(4, 3, strides=2, output_padding=2), "output_padding"),
        (lambda: layers.Conv2D(4, 3, data_format="last"), "channels_last"),
        (lambda: layers.Conv2D(4, 3, 2, dilation_rate=(2, 1)), "cannot both be greater"),
        (lambda: layers.Conv1DTranspose(4, 3, 2, dilation_rate=2), "cannot both be greater"),
        (lambda: layers.ConvLSTM1D(4, 3, 2, dilation_rate=2), "cannot both be greater"),
    ],
)
def test_errors(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        call()
    assert words in str(caught.value)


CONFIGS: dict[str, dict[str, Any]] = {
    "Conv1D": {"filters": 4, "kernel_size": 3, "padding": "causal", "activation": "relu"},
    "Conv2D": {"filters": 4, "kernel_size": (3, 2), "kernel_regularizer": "l2", "groups": 2},
    "Conv3D": {"filters": 4, "kernel_size": 3, "bias_constraint": "non_neg"},
    "DepthwiseConv1D": {"kernel_size": 3},
    "DepthwiseConv2D": {"kernel_size": 3, "depth_multiplier": 2},
    "SeparableConv1D": {"filters": 4, "kernel_size": 3},
    "SeparableConv2D": {"filters": 4, "kernel_size": 3, "pointwise_initializer": "he_normal"},
    "Conv1DTranspose": {"filters": 4, "kernel_size": 3},
    "Conv2DTranspose": {"filters": 4, "kernel_size": 3, "strides": 2, "output_padding": 1},
    "Conv3DTranspose": {"filters": 4, "kernel_size": 3},
    "MaxPooling2D": {"pool_size": 3, "strides": 2, "padding": "same"},
    "AveragePooling3D": {"pool_size": 2},
    "GlobalMaxPooling1D": {"keepdims": True},
    "AdaptiveMaxPooling2D": {"output_size": 2},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_config_round_trip(name: str) -> None:
    layer = getattr(layers, name)(**CONFIGS[name])
    again = layers.deserialize(layers.serialize(layer))
    assert type(again) is type(layer) and again.get_config() == layer.get_config()
