"""Random but reproducible shapes of products, convolutions and pooling, for the fuzz tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from meganeura.ops.registry import REGISTRY, Sample


@st.composite
def products(draw: Any, largest: int = 9) -> Sample:
    """Operands of matmul whose batches broadcast in every way."""
    m, k, n = (draw(st.integers(0 if largest < 10 else 1, largest)) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))

    def thinned() -> list[int]:
        kept = [draw(st.sampled_from([1, b])) for b in batch]
        return kept[draw(st.integers(0, len(kept))) :]

    ta, tb = draw(st.booleans()), draw(st.booleans())
    a = (*thinned(), *((k, m) if ta else (m, k)))
    b = (*thinned(), *((n, k) if tb else (k, n)))
    return Sample(_arrays(draw, a, b), {"transpose_a": ta, "transpose_b": tb})


@st.composite
def convolutions(draw: Any, largest: int = 8) -> dict[str, Sample]:
    """One geometry as samples of the convolution and of its two gradients."""
    rank = draw(st.integers(1, 3 if largest <= 8 else 2))
    window = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    strides = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank))
    groups = draw(st.integers(1, 3))
    per, each, batch = (draw(st.integers(1, 3 if largest <= 8 else 6)) for _ in range(3))
    lengths = []
    for k, d, pair in zip(window, dilation, padding, strict=True):
        shortest = max((k - 1) * d + 1 - sum(pair), 1)
        lengths.append(draw(st.integers(shortest, max(shortest, largest))))
    x, kernel = (batch, *lengths, per * groups), (*window, per, each * groups)
    geometry = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    a, w = _arrays(draw, x, kernel)
    y = REGISTRY["conv"].reference(a, w, **geometry)
    (dy,) = _arrays(draw, y.shape)
    return {
        "conv": Sample((a, w), geometry),
        "conv_input_gradient": Sample((dy, w), {**geometry, "input_shape": x}),
        "conv_kernel_gradient": Sample((a, dy), {**geometry, "kernel_shape": kernel}),
    }


@st.composite
def poolings(draw: Any) -> dict[str, Sample]:
    """One geometry as samples of all pooling primitives; few values, so that many of them tie."""
    rank = draw(st.integers(1, 3))
    window = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    strides = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    padding = tuple(
        (draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in window
    )  # a window in the padding alone has no maximum
    lengths = []
    for k, pair in zip(window, padding, strict=True):
        lengths.append(draw(st.integers(max(k - sum(pair), 1), 9)))
    shape = (draw(st.integers(1, 2)), *lengths, draw(st.integers(1, 5)))
    geometry: dict[str, Any] = {"window": window, "strides": strides, "padding": padding}
    seed = draw(st.integers(0, 2**31))
    x = np.random.default_rng(seed).integers(-2, 3, shape).astype("float32")
    indices = REGISTRY["max_pool_argmax"].reference(x, **geometry)
    (dy,) = _arrays(draw, indices.shape)
    wide = {**geometry, "input_shape": shape}
    return {
        "max_pool": Sample((x,), geometry),
        "max_pool_argmax": Sample((x,), geometry),
        "max_pool_gather": Sample((indices, x), geometry),
        "max_pool_gradient": Sample((indices, dy), wide),
        "sum_pool": Sample((x,), geometry),
        "sum_pool_gradient": Sample((dy,), wide),
    }


def _arrays(draw: Any, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    return tuple(random.standard_normal(s).astype("float32") for s in shapes)
