"""ONNX operators of neural networks: convolution, pooling, resizing, recurrence, attention."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.onnx.registry import Call, dtype_of, floating, handles, normal_axis, rank


def _padding(
    call: Call,
    lengths: tuple[int, ...],
    window: list[int],
    strides: list[int],
    dilations: list[int],
) -> list[tuple[int, int]]:
    """Explicit (before, after) padding of each spatial dimension."""
    spatial = len(window)
    mode = call.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for n, k, s, d in zip(lengths, window, strides, dilations, strict=True):
            total = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
            small, large = total // 2, total - total // 2
            pairs.append((small, large) if mode == "SAME_UPPER" else (large, small))
        return pairs
    pads = [0] * (2 * spatial) if mode == "VALID" else call.get("pads") or [0] * (2 * spatial)
    return [(pads[i], pads[i + spatial]) for i in range(spatial)]


def _sizes(call: Call, spatial: int) -> tuple[list[int], list[int]]:
    strides = list(call.get("strides") or [1] * spatial)
    return strides, list(call.get("dilations") or [1] * spatial)


@handles("Conv")
def _conv(call: Call) -> Any:
    x, w = call.tensor(0), call.tensor(1)
    spatial = rank(x) - 2
    strides, dilations = _sizes(call, spatial)
    padding = _padding(call, tuple(x.shape[2:]), list(w.shape[2:]), strides, dilations)
    x = ops.pad(x, [(0, 0), (0, 0), *padding]) if any(map(any, padding)) else x
    x = ops.transpose(x, (0, *range(2, spatial + 2), 1))
    kernel = ops.transpose(w, (*range(2, spatial + 2), 1, 0))
    out = ops.conv(x, kernel, strides=tuple(strides), padding="valid",
                   dilation_rate=tuple(dilations), data_format="channels_last")  # fmt: skip
    if call.has(2):
        out = out + call.tensor(2)
    return ops.transpose(out, (0, spatial + 1, *range(1, spatial + 1)))


@handles("ConvTranspose")
def _conv_transpose(call: Call) -> Any:
    x, w = call.tensor(0), call.tensor(1)
    spatial, group = rank(x) - 2, call.get("group", 1)
    strides, dilations = _sizes(call, spatial)
    window = list(w.shape[2:])
    extra = list(call.get("output_padding") or [0] * spatial)
    whole = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(x.shape[2:], strides, window, dilations, strict=True)
    ]
    wanted = call.get("output_shape")
    mode = call.get("auto_pad", "NOTSET")
    if wanted is None and mode.startswith("SAME"):
        wanted = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is not None:
        crops = []
        for full, extra_n, n in zip(whole, extra, wanted[-spatial:], strict=True):
            total = full + extra_n - n  # negative: zeros are appended instead
            half = max(total, 0) // 2
            low = max(total, 0) - half if mode == "SAME_LOWER" else half
            crops.append((low, total - low))
    else:
        crops = _padding(call, tuple(x.shape[2:]), window, strides, dilations)
    # Zeros between the inputs, then a convolution with the flipped kernel.
    x = _spread(x, strides)
    borders = [((k - 1) * d, (k - 1) * d) for k, d in zip(window, dilations, strict=True)]
    x = ops.pad(x, [(0, 0), (0, 0), *borders])
    channels, outputs = w.shape[:2]
    kernel = ops.reshape(w, (group, channels // group, outputs, *window))
    kernel = ops.transpose(kernel, (*range(3, spatial + 3), 1, 0, 2))
    kernel = ops.reshape(kernel, (*window, channels // group, group * outputs))
    for axis in range(spatial):
        kernel = ops.flip(kernel, axis)
    x = ops.transpose(x, (0, *range(2, spatial + 2), 1))
    out = ops.conv(x, kernel, strides=(1,) * spatial, padding="valid",
                   dilation_rate=tuple(dilations), data_format="channels_last")  # fmt: skip
    out = ops.transpose(out, (0, spatial + 1, *range(1, spatial + 1)))
    grow = [max(extra_n - high, 0) for extra_n, (_, high) in zip(extra, crops, strict=True)]
    if any(grow):
        out = ops.pad(out, [(0, 0), (0, 0), *((0, n) for n in grow)])
    index = [slice(None), slice(None)]
    for full, extra_n, (low, high) in zip(whole, extra, crops, strict=True):
        index.append(slice(low, full + extra_n - high))
    out = out[tuple(index)]
    if call.has(2):
        out = out + ops.reshape(call.tensor(2), (1, -1, *([1] * spatial)))
    return out


def _spread(x: Any, strides: list[int]) -> Any:
    """Zeros inserted between neighbours: (n - 1) * stride + 1 positions a dimension."""
    for axis, stride in enumerate(strides, start=2):
        if stride == 1:
            continue
        length = x.shape[axis]
        wide = ops.expand_dims(x, axis + 1)
        widths = [(0, 0)] * rank(wide)
        widths[axis + 1] = (0, stride - 1)
        shape = list(x.shape)
        shape[axis] = length * stride
        wide = ops.reshape(ops.pad(wide, widths), tuple(shape))
        index = [slice(None)] * rank(x)
        index[axis] = slice(0, (length - 1) * stride + 1)
        x = wide[tuple(index)]
    return x


def _windows(call: Call, x: Any, fill: float) -> tuple[list[Any], list[Any]]:
    """The shifted views of a pooling window, and of a mask of real cells."""
    window = list(call.get("kernel_shape"))
    spatial = len(window)
    strides, dilations = _sizes(call, spatial)
    lengths = tuple(x.shape[2:])
    padding = _padding(call, lengths, window, strides, dilations)
    counts, right = [], []
    for n, k, s, d, (low, high) in zip(lengths, window, strides, dilations, padding, strict=True):
        span = n + low + high - ((k - 1) * d + 1)
        count = (math.ceil(span / s) if call.get("ceil_mode", 0) else span // s) + 1
        if call.get("ceil_mode", 0) and (count - 1) * s >= n + low:
            count -= 1  # a window that would start in the padding after the end
        counts.append(count)
        right.append(max((count - 1) * s + (k - 1) * d + 1 - n - low, 0))
    pairs = [(low, after) for (low, _), after in zip(padding, right, strict=True)]
    padded = ops.pad(x, [(0, 0), (0, 0), *pairs], constant_values=fill)
    real = np.zeros([n + a + b for n, (a, b) in zip(lengths, pairs, strict=True)], "float32")
    inner = call.get("count_include_pad", 0)
    spans = []
    for n, (low, high) in zip(lengths, padding, strict=True):
        spans.append(slice(0, n + low + high) if inner else slice(low, low + n))
    real[tuple(spans)] = 1
    views, masks = [], []
    for offset in itertools.product(*(range(k) for k in window)):
        index = tuple(
            slice(o * d, o * d + (count - 1) * s + 1, s)
            for o, d, s, count in zip(offset, dilations, strides, counts, strict=True)
        )
        views.append(padded[(slice(None), slice(None), *index)])
        masks.append(real[index])
    return views, masks


@handles("MaxPool")
def _max_pool(call: Call) -> Any:
    x = call.tensor(0)
    kind = dtype_of(x)
    views, _ = _windows(call, floating(x), -float(np.finfo("float32").max))
    out = views[0]
    for view in views[1:]:
        out = ops.maximum(out, view)
    if call.outputs > 1:
        call.refuse("the indices of a max pooling")
    return ops.cast(out, kind)


@handles("AveragePool")
def _average_pool(call: Call) -> Any:
    views, masks = _windows(call, call.tensor(0), 0.0)
    return sum(views[1:], views[0]) / np.maximum(sum(masks[1:], masks[0]), 1.0)


@handles("LpPool")
def _lp_pool(call: Call) -> Any:
    p = call.get("p", 2)
    views, _ = _windows(call, ops.abs(call.tensor(0)), 0.0)
    powers = [ops.power(v, float(p)) for v in views]
    return ops.power(sum(powers[1:], powers[0]), 1.0 / p)


@handles("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(call: Call) -> Any:
    x = call.tensor(0)
    axes = tuple(range(2, rank(x)))
    if call.kind == "GlobalLpPool":
        p = float(call.get("p", 2))
        return ops.power(ops.sum(ops.power(ops.abs(x), p), axis=axes, keepdims=True), 1 / p)
    function = ops.mean if call.kind == "GlobalAveragePool" else ops.max
    return function(x, axis=axes, keepdims=True)


@handles("Resize", "Upsample")
def _resize(call: Call) -> Any:
    x = call.tensor(0)
    old = call.opset < 11
    scales_at, sizes_at = (1, -1) if old else (2, 3)
    scales = call.attributes.get("scales")
    if scales is None and call.has(scales_at) and np.size(call.static(scales_at)):
        scales = np.asarray(call.static(scales_at), np.float64).tolist()
    axes = call.get("axes") or list(range(rank(x)))
    mode = call.get("mode", "nearest")
    transform = call.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    if call.get("antialias", 0) or transform == "tf_crop_and_resize":
        call.refuse("antialiasing and cropping while resizing")
    if scales is None:
        sizes = call.ints(sizes_at) or []
        scales = [size / x.shape[a] for size, a in zip(sizes, axes, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = (min if policy == "not_larger" else max)(scales)
            scales = [scale] * len(axes)
            sizes = [math.floor(scale * x.shape[a] + 0.5) for a in axes]
    else:
        sizes = [math.floor(x.shape[a] * s) for a, s in zip(axes, scales, strict=True)]
    for axis, scale, size in zip(axes, scales, sizes, strict=True):
        if size != x.shape[axis] or scale != 1.0:
            matrix = _resize_matrix(call, mode, transform, x.shape[axis], size, scale)
            x = ops.moveaxis(ops.matmul(ops.moveaxis(x, axis, -1), matrix.T), -1, axis)
    return x


def _resize_matrix(
    call: Call, mode: str, transform: str, length: int, size: int, scale: float
) -> np.ndarray:
    """The (size, length) weights with which one axis is resampled."""
    out = np.arange(size, dtype=np.float64)
    if transform == "align_corners":
        at = out * (length - 1) / max(size - 1, 1)
    elif transform == "asymmetric":
        at = out / scale
    elif transform == "pytorch_half_pixel":
        at = (out + 0.5) / scale - 0.5 if size > 1 else np.zeros(size)
    elif transform == "half_pixel_symmetric":
        centre = length / 2 * (1 - size / (scale * length))
        at = centre + (out + 0.5) / scale - 0.5
    else:
        at = (out + 0.5) / scale - 0.5
    weights = np.zeros((size, length))
    rows = np.arange(size)
    if mode == "nearest":
        rounding = call.get("nearest_mode", "floor" if call.opset < 11 else "round_prefer_floor")
        nearest = {
            "floor": np.floor,
            "ceil": np.ceil,
            "round_prefer_floor": lambda v: np.ceil(v - 0.5),
            "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        }[rounding](at)
        weights[rows, np.clip(nearest, 0, length - 1).astype(int)] = 1
        return weights.astype("float32")
    base = np.floor(at)
    part = at - base
    if mode == "linear":
        taps = {0: 1 - part, 1: part}
    elif mode == "cubic":
        a = call.get("cubic_coeff_a", -0.75)
        taps = {
            o: np.where(
                abs(part - o) <= 1,
                ((a + 2) * abs(part - o) - (a + 3)) * abs(part - o) ** 2 + 1,
                ((a * abs(part - o) - 5 * a) * abs(part - o) + 8 * a) * abs(part - o) - 4 * a,
            )
            for o in (-1, 0, 1, 2)
        }
    else:
        call.refuse(f"the resize mode {mode!r} is not known")
    for offset, weight in taps.items():
        index = base + offset
        if call.get("exclude_outside", 0):
            weight = np.where((index < 0) | (index >= length), 0.0, weight)
        np.add.at(weights, (rows, np.clip(index, 0, length - 1).astype(int)), weight)
    if call.get("exclude_outside", 0):
        weights /= weights.sum(1, keepdims=True)
    return weights.astype("float32")


@handles("RotaryEmbedding")
def _rotary(call: Call) -> Any:
    x, cosines, sines = call.tensor(0), call.tensor(1), call.tensor(2)
    shape = tuple(x.shape)
    if rank(x) == 3:
        heads = call.get("num_heads")
        x = ops.reshape(x, (shape[0], shape[1], heads, -1))
    else:
        x = ops.transpose(x, (0, 2, 1, 3))
    if call.has(3):
        positions = ops.cast(call.tensor(3), "int32")
        cosines, sines = (ops.take(t, positions, axis=0) for t in (cosines, sines))
    width = call.get("rotary_embedding_dim", 0) or x.shape[-1]
    cosines, sines = (ops.expand_dims(t[..., : width // 2], 2) for t in (cosines, sines))
    turning, rest = x[..., :width], x[..., width:]
    interleaved = call.get("interleaved", 0)
    if interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning[..., : width // 2], turning[..., width // 2 :]
    parts = (first * cosines - second * sines, first * sines + second * cosines)
    if interleaved:
        out = ops.reshape(ops.stack(parts, axis=-1), tuple(turning.shape))
    else:
        out = ops.concatenate(parts, axis=-1)
    if width != x.shape[-1]:
        out = ops.concatenate([out, rest], axis=-1)
    return ops.reshape(out, shape) if len(shape) == 3 else ops.transpose(out, (0, 2, 1, 3))


#: Integers that a tensor may be quantized to, by their numbers in ONNX; 0: not said.
_NARROW = {0: "uint8", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16"}
_RANGES = {
    "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)
}  # fmt: skip


@handles("QuantizeLinear")
def _quantize(call: Call) -> Any:
    x, scale = call.tensor(0), call.tensor(1)
    kind = dtype_of(call.tensor(2)) if call.has(2) else _NARROW.get(call.get("output_dtype", 0))
    zero = floating(call.tensor(2)) if call.has(2) else 0.0
    if kind not in _RANGES:
        call.refuse("quantization to other types than 8- and 16-bit integers")
    axis = normal_axis(call.get("axis", 1), rank(x))
    low, high = _RANGES[kind]
    scale, zero = (_along(call, v, axis, x) for v in (scale, zero))
    return ops.cast(ops.clip(ops.round(x / scale) + zero, low, high), kind)


@handles("DequantizeLinear")
def _dequantize(call: Call) -> Any:
    x, scale = call.tensor(0), call.tensor(1)
    axis = normal_axis(call.get("axis", 1), rank(x)) if rank(x) else 0
    zero = floating(call.tensor(2)) if call.has(2) else None
    out = floating(x)
    if zero is not None:
        out = out - _along(call, zero, axis, x)
    return out * _along(call, scale, axis, x)


def _along(call: Call, v: Any, axis: int, x: Any) -> Any:
    """A scale or zero point, given once, per axis, or per block of the axis."""
    if isinstance(v, (int, float)):
        return v
    if len(v.shape) == 0 or tuple(v.shape) == (1,):
        return ops.reshape(v, ())
    if len(v.shape) == 1:
        shape = [1] * rank(x)
        shape[axis] = v.shape[0]
        return ops.reshape(v, tuple(shape))
    return ops.repeat(v, x.shape[axis] // v.shape[axis], axis=axis)
