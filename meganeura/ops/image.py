"""Images: `resize`, by products with matrices of weights that are known when the graph is recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura import config
from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node
from meganeura.ops.dispatch import convert_to_node, operation
from meganeura.ops.elementwise import clip
from meganeura.ops.matmul import product
from meganeura.ops.nodes import broadcast_to, cast, reshape, transpose
from meganeura.ops.registry import make

# --- weights -----------------------------------------------------------------------------------


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - x)


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys's kernel with a = -1/2, which reproduces quadratics."""
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(radius: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


#: interpolation -> weight of a pixel by its distance, in pixels, from the place that is sampled
KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "bilinear": _triangle,
    "bicubic": _cubic,
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
}


def weights(before: int, after: int, interpolation: str, antialias: bool = False) -> np.ndarray:
    """The matrix (after, before) that resizes a line of pixels; each row sums to one.

    Pixel i covers i .. i + 1, so that the middle of output pixel j lies at (j + 1/2) before / after.
    Pixels beyond the border do not take part. `antialias` widens the kernel when shrinking.
    """
    scale = before / after
    place = (np.arange(after) + 0.5) * scale - 0.5
    width = max(scale, 1.0) if antialias else 1.0
    matrix = KERNELS[interpolation](np.abs(place[:, None] - np.arange(before)) / width)
    return matrix / matrix.sum(axis=1, keepdims=True)


def _weighted(x: Node, axis: int, matrix: np.ndarray) -> Node:
    """out[.., j, ..] = sum_i matrix[j, i] x[.., i, ..]"""
    w = convert_to_node(matrix.astype(np.float32))
    shape = (*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1 :])
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if columns == 1:
        out = product(reshape(x, (rows, x.shape[axis])), w, transpose_b=True)
    else:
        out = product(w, reshape(x, (rows, x.shape[axis], columns)))
    return reshape(out, shape)


def _nearest(x: Node, axis: int, after: int) -> Node:
    """The pixel that the middle of each output pixel falls into."""
    before = x.shape[axis]
    if before and not after % before:  # every pixel repeated: a broadcast, with a sum as gradient
        times = after // before
        spread = reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
        wide = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
        return reshape(broadcast_to(spread, wide), (*x.shape[:axis], after, *x.shape[axis + 1 :]))
    places = (2 * np.arange(after, dtype=np.int64) + 1) * before // (2 * after)
    return make("take", x, convert_to_node(places.astype(np.int32)), axis=axis)


# --- aspect ratio ------------------------------------------------------------------------------


def _cropped(x: Node, height: int, width: int) -> Node:
    """The largest middle part of (N, H, W, C) that has the proportions of height by width."""
    h, w = x.shape[1:3]
    lengths = (min(h, int(w * height / width)), min(w, int(h * width / height)))
    if 0 in lengths:
        raise ValueError(
            f"resize: nothing is left of images of shape {x.shape[1:]} when they are cropped to the "
            f"proportions of {(height, width)}"
        )
    low = [int((n - m) / 2) for n, m in zip((h, w), lengths, strict=True)]
    start = (0, *low, 0)
    stop = (x.shape[0], low[0] + lengths[0], low[1] + lengths[1], x.shape[3])
    return make("slice", x, start=start, stop=stop, step=(1, 1, 1, 1))


def _padded(x: Node, height: int, width: int, value: float) -> Node:
    """(N, H, W, C) with equal margins that give it, but for a pixel, the proportions of height by width.

    Both sides get the same margin, as in Keras, so that the middle stays in the middle.
    """
    h, w = x.shape[1:3]
    lengths = (max(h, int(w * height / width)), max(w, int(h * width / height)))
    low = [int((m - n) / 2) for n, m in zip((h, w), lengths, strict=True)]
    kind = float if x.dtype in FLOATS else bool if x.dtype == "bool" else int
    return make("pad", x, low=(0, *low, 0), high=(0, *low, 0), value=kind(value))


# --- the function ------------------------------------------------------------------------------


@operation
def resize(
    images: Any,
    size: Sequence[int],
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> Any:
    """Images resampled to `size` = (height, width): out = A x B^T for each channel.

    images (N, H, W, C) or (H, W, C), or with channels first. A and B hold the weights of the
    `interpolation`: "nearest", "bilinear", "bicubic" (Keys, a = -1/2), "lanczos3" or "lanczos5",
    with pixel centres at half-integers. `antialias` averages over more pixels when shrinking.
    crop_to_aspect_ratio cuts the longer side first, pad_to_aspect_ratio fills up the shorter one
    with `fill_value`. Integer images come back in their dtype, rounded, bytes kept in 0 .. 255.
    Raises ValueError for other shapes, sizes, interpolations and fill modes.
    """
    if interpolation != "nearest" and interpolation not in KERNELS:
        names = ", ".join(["nearest", *KERNELS])
        raise ValueError(f"resize: interpolation {interpolation!r} is not one of {names}")
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError("resize: crop_to_aspect_ratio and pad_to_aspect_ratio exclude each other")
    if fill_mode != "constant":
        raise ValueError(f"resize: fill_mode {fill_mode!r} is not offered; use 'constant'")
    x = convert_to_node(images)
    lengths = tuple(int(n) for n in size)
    if x.ndim not in (3, 4) or len(lengths) != 2 or min(lengths) < 1:
        raise ValueError(
            "resize needs images of shape (batch, height, width, channels) or (height, width, "
            f"channels) and a size of two positive integers, and got {x.shape} and {size}"
        )
    kind = data_format or config.image_data_format()
    if kind not in ("channels_last", "channels_first"):
        raise ValueError(f"data_format {data_format!r} is not 'channels_last' or 'channels_first'")
    single, first = x.ndim == 3, kind == "channels_first"
    x = reshape(x, (1, *x.shape)) if single else x
    x = transpose(x, (0, 2, 3, 1)) if first else x
    if 0 in x.shape[1:3]:
        raise ValueError(f"resize: images of shape {x.shape[1:]} have no pixels")
    if crop_to_aspect_ratio:
        x = _cropped(x, *lengths)
    if pad_to_aspect_ratio:
        x = _padded(x, *lengths, fill_value)
    x = _resampled(x, lengths, interpolation, antialias)
    x = transpose(x, (0, 3, 1, 2)) if first else x
    return reshape(x, x.shape[1:]) if single else x


def _resampled(x: Node, lengths: Sequence[int], interpolation: str, antialias: bool) -> Node:
    axes = [axis for axis in (1, 2) if x.shape[axis] != lengths[axis - 1]]
    # The axis that shrinks most goes first, so that the other one has fewer pixels to work on.
    axes.sort(key=lambda axis: lengths[axis - 1] / x.shape[axis])
    if interpolation == "nearest":
        for axis in axes:
            x = _nearest(x, axis, lengths[axis - 1])
        return x
    dtype = x.dtype
    x = cast(x, "float32")
    for axis in axes:
        before, after = x.shape[axis], lengths[axis - 1]
        x = _weighted(x, axis, weights(before, after, interpolation, antialias))
    if dtype in FLOATS:
        return cast(x, dtype)
    x = make("round", x)
    return cast(clip(x, 0.0, 255.0) if dtype == "uint8" else x, dtype)
