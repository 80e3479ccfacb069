"""Convolution and pooling against loops over windows, their shapes, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from meganeura import ops
from meganeura.ops.registry import REGISTRY

RANDOM = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


def value(x: Any) -> np.ndarray:
    return np.asarray(ops.convert_to_numpy(x))


def same(n: int, k: int, s: int, d: int = 1) -> tuple[int, int]:
    """'same': as many outputs as strides fit, the odd row of padding behind."""
    total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
    return total // 2, total - total // 2


def slow_conv(x: Any, w: Any, strides: Any, pads: Any, dilation: Any, groups: int) -> np.ndarray:
    """One multiplication at a time, in the order of the definition."""
    x = np.pad(x, [(0, 0), *pads, (0, 0)]).astype("float64")
    window = w.shape[:-2]
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    out = [(n - k) // s + 1 for n, k, s in zip(x.shape[1:-1], spans, strides, strict=True)]
    y = np.zeros((x.shape[0], *out, w.shape[-1]))
    per, each = w.shape[-2], w.shape[-1] // groups
    for at in itertools.product(*(range(n) for n in out)):
        for tap in itertools.product(*(range(k) for k in window)):
            place = tuple(
                a * s + t * d for a, s, t, d in zip(at, strides, tap, dilation, strict=True)
            )
            for o in range(w.shape[-1]):
                g = o // each
                seen = x[(slice(None), *place, slice(g * per, (g + 1) * per))]
                y[(slice(None), *at, o)] += seen @ w[(*tap, slice(None), o)]
    return y


CASES = [
    # shape, window, outputs, strides, padding, dilation, groups
    ((2, 6, 5, 3), (3, 2), 4, 1, "valid", 1, 1),
    ((2, 6, 5, 4), (3, 2), 6, 2, "same", 1, 2),
    ((1, 7, 6, 3), (2, 3), 3, 1, "same", 2, 3),
    ((2, 9, 4), (4,), 5, 3, "same", 1, 1),
    ((2, 9, 4), (3,), 5, 1, "causal", 2, 1),
    ((1, 3, 4, 5, 2), (2, 2, 3), 3, (1, 2, 1), "same", 1, 1),
    ((1, 5, 5, 2), (3, 3), 2, 1, ((2, 0), (1, 3)), 1, 1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_conv_by_loops(case: Any, data_format: str) -> None:
    shape, window, outputs, strides, padding, dilation, groups = case
    rank = len(window)
    x, w = normal(*shape), normal(*window, shape[-1] // groups, outputs)
    s = strides if isinstance(strides, tuple) else (strides,) * rank
    d = (dilation,) * rank
    pads = padding
    if isinstance(padding, str):
        pads = {
            "valid": [(0, 0)] * rank,
            "same": [same(*v) for v in zip(shape[1:-1], window, s, d, strict=True)],
            "causal": [((window[0] - 1) * dilation, 0)],
        }[padding]
    expected = slow_conv(x, w, s, pads, d, groups)
    first = data_format == "channels_first"
    given = np.moveaxis(x, -1, 1) if first else x
    found = value(ops.conv(given, w, strides, padding, data_format, dilation))
    found = np.moveaxis(found, 1, -1) if first else found
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_large_batches_are_worked_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference splits batches whose patches would fill the memory, with the same result."""
    from meganeura.ops import convolution

    x, w = normal(5, 6, 6, 4), normal(3, 3, 4, 8)
    geometry = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    whole = REGISTRY["conv"].reference(x, w, **geometry)
    slopes = REGISTRY["conv_kernel_gradient"].reference(x, whole, kernel_shape=w.shape, **geometry)
    monkeypatch.setattr(convolution, "_LARGEST_PATCHES", 3000)
    np.testing.assert_array_equal(REGISTRY["conv"].reference(x, w, **geometry), whole)
    parts = REGISTRY["conv_kernel_gradient"].reference(x, whole, kernel_shape=w.shape, **geometry)
    np.testing.assert_allclose(parts, slopes, rtol=1e-4, atol=1e-4)


def test_depthwise_and_separable() -> None:
    """Output channel c * multiplier + m of a depthwise convolution sees input channel c alone."""
    x, w = normal(2, 5, 6, 3), normal(3, 2, 3, 2)
    found = value(ops.depthwise_conv(x, w))
    for c, m in itertools.product(range(3), range(2)):
        one = slow_conv(
            x[..., c : c + 1], w[:, :, c : c + 1, m : m + 1], (1, 1), [(0, 0)] * 2, (1, 1), 1
        )
        np.testing.assert_allclose(found[..., 2 * c + m], one[..., 0], rtol=1e-4, atol=1e-5)
    point = normal(1, 1, 6, 4)
    np.testing.assert_allclose(
        value(ops.separable_conv(x, w, point)), found @ point[0, 0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(
    ("k", "s", "d"), [(3, 1, 1), (3, 2, 1), (2, 2, 1), (2, 3, 1), (4, 2, 1), (3, 1, 2)]
)
def test_transposed_convolution(padding: str, k: int, s: int, d: int) -> None:
    """Keras's lengths; and every input adds its multiple of the kernel, cut to that length."""
    x, w = normal(2, 5, 3), normal(k, 4, 3)
    found = value(ops.conv_transpose(x, w, s, padding, None, None, d))
    span = (k - 1) * d + 1
    length = 5 * s if padding == "same" else 5 * s + max(span - s, 0)
    assert found.shape == (2, length, 4)
    full = np.zeros((2, 4 * s + span + s, 4))
    for i, tap in itertools.product(range(5), range(k)):
        full[:, i * s + tap * d] += x[:, i] @ w[tap].T
    before = max(span - s, 0) // 2 if padding == "same" else 0
    np.testing.assert_allclose(found, full[:, before : before + length], rtol=1e-4, atol=1e-5)


def test_transposed_convolution_is_the_adjoint() -> None:
    """<conv(x), y> = <x, conv_transpose(y)> for 'same' and strides that divide the length."""
    x, y, w = normal(1, 8, 6, 3), normal(1, 4, 3, 5), normal(3, 3, 3, 5)
    left = (value(ops.conv(x, w, 2, "same")) * y).sum()
    right = (value(ops.conv_transpose(y, w, 2, "same")) * x).sum()
    np.testing.assert_allclose(left, right, rtol=1e-4)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(
    ("k", "s", "padding"), [(2, None, "valid"), (3, 2, "same"), (3, 1, "same"), (2, 3, "valid")]
)
def test_pooling_by_loops(k: int, s: int | None, padding: str, data_format: str) -> None:
    x = normal(2, 7, 6, 3)
    stride = s or k
    pads = [(0, 0)] * 2 if padding == "valid" else [same(n, k, stride) for n in (7, 6)]
    padded = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=np.nan)
    out = [(n - k) // stride + 1 for n in padded.shape[1:3]]
    best, mean = np.zeros((2, *out, 3)), np.zeros((2, *out, 3))
    for i, j in itertools.product(*map(range, out)):
        window = padded[:, i * stride : i * stride + k, j * stride : j * stride + k]
        best[:, i, j], mean[:, i, j] = np.nanmax(window, (1, 2)), np.nanmean(window, (1, 2))
    first = data_format == "channels_first"
    given = np.moveaxis(x, -1, 1) if first else x
    for function, expected in ((ops.max_pool, best), (ops.average_pool, mean)):
        found = value(function(given, k, s, padding, data_format))
        found = np.moveaxis(found, 1, -1) if first else found
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ops.conv(normal(1, 5, 5, 3), normal(3, 3, 2, 4)), "does not fit a kernel"),
        (lambda: ops.conv(normal(1, 5, 5, 3), normal(3, 3, 4)), "does not fit a kernel"),
        (lambda: ops.conv(normal(1, 2, 5, 3), normal(3, 3, 3, 4)), "does not fit into"),
        (lambda: ops.conv(normal(1, 5, 5, 3), normal(3, 3, 3, 4), strides=0), "strides 0"),
        (lambda: ops.conv(normal(1, 5, 5, 3), normal(3, 3, 3, 4), strides=(1, 2, 1)), "strides"),
        (lambda: ops.conv(normal(1, 5, 5, 3), normal(3, 3, 3, 4), padding="full"), "'full'"),
        (lambda: ops.conv(normal(1, 5, 5, 3), normal(3, 3, 3, 4), padding="causal"), "'causal'"),
        (lambda: ops.conv(normal(1, 5, 5, 3), normal(3, 3, 3, 4), data_format="nhwc"), "'nhwc'"),
        (lambda: ops.conv(normal(1, 5, 5, 4), normal(3, 3, 2, 3)), "2 groups"),
        (lambda: ops.conv_transpose(normal(1, 5, 3), normal(3, 4, 2)), "does not fit a kernel"),
        (
            lambda: ops.conv_transpose(normal(1, 5, 3), normal(3, 4, 3), padding="causal"),
            "'causal'",
        ),
        (lambda: ops.max_pool(normal(1, 2, 2, 1), 3), "does not fit into"),
        (lambda: ops.max_pool(normal(2, 3), 2), "1 to 3 spatial dimensions"),
        (lambda: ops.average_pool(normal(1, 4, 4, 1), 0), "pool_size 0"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
