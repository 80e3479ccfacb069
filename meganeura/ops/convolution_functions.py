"""Convolutions by the names of keras.ops, and what the windows of convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import config
from meganeura.graph.node import Node
from meganeura.ops.convolution import Pairs
from meganeura.ops.dispatch import operation, promote
from meganeura.ops.nodes import reshape, transpose
from meganeura.ops.registry import make


def per_dimension(value: Any, spatial: int, what: str) -> tuple[int, ...]:
    """One integer for all spatial dimensions, or one for each."""
    listed = (
        (int(value),) * spatial
        if isinstance(value, (int, np.integer))
        else tuple(int(v) for v in value)
    )
    if len(listed) != spatial or min(listed) < 1:
        raise ValueError(f"{what} {value!r} must be {spatial} positive integers, or one")
    return listed


def resolve_padding(
    padding: Any, lengths: Sequence[int], window: Any, strides: Any, dilation: Any
) -> Pairs:
    """'valid', 'same', 'causal' (1-D) or explicit (before, after) pairs as pairs."""
    if not isinstance(padding, str):
        pairs = [tuple(p) for p in padding] if isinstance(padding, (tuple, list)) else []
        if len(pairs) != len(lengths) or any(len(p) != 2 or min(p) < 0 for p in pairs):
            raise ValueError(
                f"padding {padding!r} must be a name, or {len(lengths)} pairs (before, after) of "
                "integers that are not negative"
            )
        return tuple((int(a), int(b)) for a, b in pairs)
    kind = padding.lower()
    if kind == "valid":
        return tuple((0, 0) for _ in lengths)
    if kind == "causal" and len(lengths) == 1:
        return (((window[0] - 1) * dilation[0], 0),)
    if kind == "same":
        full = [
            max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            for n, k, s, d in zip(lengths, window, strides, dilation, strict=True)
        ]
        return tuple((n // 2, n - n // 2) for n in full)
    raise ValueError(
        f"padding {padding!r} is not one of 'valid', 'same'"
        + ("" if len(lengths) > 1 else ", 'causal'")
    )


def channels_last(x: Node, data_format: str | None) -> tuple[Node, bool]:
    """The tensor with its channels last, and whether it has to be turned back."""
    kind = data_format or config.image_data_format()
    if kind not in ("channels_last", "channels_first"):
        raise ValueError(f"data_format {data_format!r} is not 'channels_last' or 'channels_first'")
    if kind == "channels_last":
        return x, False
    return transpose(x, (0, *range(2, x.ndim), 1)), True


def turned_back(x: Node, turn: bool) -> Node:
    return transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1))) if turn else x


@operation
def conv(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Convolution in 1 to 3 dimensions: y[n, i, o] = sum_t,c x[n, i s + t d - p, c] w[t, c, o].

    inputs (N, *spatial, C), or channels first; kernel (*window, C / groups, O): the number of
    groups follows from the channels, and output o sees the channels of its group. strides s and
    dilation_rate d are integers, or one for each dimension; padding p is "valid" (none), "same"
    (output lengths are the input's, divided by the strides and rounded up), "causal" (all in
    front, 1-D only) or pairs (before, after). Raises ValueError where the shapes do not fit.
    """
    x, w = promote(inputs, kernel, floating=True)
    x, turn = channels_last(x, data_format)
    if x.ndim < 3 or w.ndim != x.ndim or not w.shape[-2] or x.shape[-1] % w.shape[-2]:
        raise ValueError(
            f"conv: an input of shape {x.shape} (channels last) does not fit a kernel of shape "
            f"{w.shape}; expected the kernel (*window, {x.shape[-1]} / groups, outputs)"
        )
    spatial, window = x.ndim - 2, w.shape[:-2]
    s = per_dimension(strides, spatial, "strides")
    d = per_dimension(dilation_rate, spatial, "dilation_rate")
    pairs = resolve_padding(padding, x.shape[1:-1], window, s, d)
    out = make(
        "conv", x, w, strides=s, padding=pairs, dilation=d, groups=x.shape[-1] // w.shape[-2]
    )
    return turned_back(out, turn)


@operation
def depthwise_conv(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """One convolution per channel: y[.., c M + m] = conv(x[.., c], kernel[.., c, m]).

    kernel (*window, C, M) and outputs (N, *spatial, C M); the other arguments as those of `conv`.
    """
    x, w = promote(inputs, kernel, floating=True)
    x, turn = channels_last(x, data_format)
    if w.ndim != x.ndim or w.shape[-2] != x.shape[-1]:
        raise ValueError(
            f"depthwise_conv: an input of shape {x.shape} (channels last) does not fit a kernel of "
            f"shape {w.shape}; expected the kernel (*window, {x.shape[-1]}, multiplier)"
        )
    w = reshape(w, (*w.shape[:-2], 1, w.shape[-2] * w.shape[-1]))
    return turned_back(conv(x, w, strides, padding, "channels_last", dilation_rate), turn)


@operation
def separable_conv(
    inputs: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: Any = 1,
    padding: Any = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """A depthwise convolution, then one over the channels: conv(depthwise_conv(x, D), P).

    depthwise_kernel D (*window, C, M), pointwise_kernel P (1, .., C M, O).
    """
    x = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return conv(x, pointwise_kernel, 1, "valid", data_format)


def transposed_length(
    n: int, k: int, stride: int, padding: str, extra: int | None, dilation: int
) -> int:
    """Keras's output length of a transposed convolution."""
    k = (k - 1) * dilation + 1
    if extra is None:
        return n * stride if padding == "same" else n * stride + max(k - stride, 0)
    pad = k // 2 if padding == "same" else 0
    return (n - 1) * stride + k - 2 * pad + extra


@operation
def conv_transpose(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    output_padding: Any = None,
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """The transpose of a convolution: every input adds its multiple of the kernel to the output.

    kernel (*window, O, C): y[n, i s + t d - p, o] += x[n, i, c] w[t, o, c]. Output lengths are
    n s for "same" and n s + max(k - s, 0) for "valid", with k the dilated window; output_padding
    gives them as (n - 1) s + k - 2 p + output_padding instead. Raises ValueError where the shapes
    do not fit.
    """
    x, w = promote(inputs, kernel, floating=True)
    x, turn = channels_last(x, data_format)
    spatial, window = x.ndim - 2, w.shape[:-2]
    if w.ndim != x.ndim or w.shape[-1] != x.shape[-1]:
        raise ValueError(
            f"conv_transpose: an input of shape {x.shape} (channels last) does not fit a kernel of "
            f"shape {w.shape}; expected the kernel (*window, outputs, {x.shape[-1]})"
        )
    s = per_dimension(strides, spatial, "strides")
    d = per_dimension(dilation_rate, spatial, "dilation_rate")
    if padding not in ("same", "valid"):
        raise ValueError(f"padding {padding!r} is not one of 'valid', 'same'")
    extra: list[Any] = [None] * spatial
    if output_padding is not None:
        one = isinstance(output_padding, (int, np.integer))
        extra = [output_padding] * spatial if one else list(output_padding)
        if len(extra) != spatial or any(more < 0 for more in extra):
            raise ValueError(
                f"conv_transpose: output_padding {output_padding!r} must be {spatial} integers that "
                "are not negative, or one"
            )
    lengths, pairs = [], []
    for n, k, stride, more, dilation in zip(x.shape[1:-1], window, s, extra, d, strict=True):
        length = transposed_length(n, k, stride, padding, more, dilation)
        span = (k - 1) * dilation + 1
        if padding == "valid":
            before = 0
        else:  # how Keras shares the padding of the dilated input between its two ends
            total = span + stride - 2 if more is None else span + span % 2 - 2 + more
            left = min(-(-total // 2), span - 1)
            before = span - 1 - left
        after = (n - 1) * stride + span - before - length
        lengths.append(length)
        pairs.append((before, after))
    # The convolution whose input gradient this is may read beyond its input: negative padding is
    # taken as rows that stay zero, by asking for the longer input and cutting.
    padded = tuple((a, max(b, 0)) for a, b in pairs)
    whole = [length + min(b, 0) for length, (_, b) in zip(lengths, pairs, strict=True)]
    out = make("conv_input_gradient", x, w, input_shape=(x.shape[0], *whole, w.shape[-2]),
               strides=s, padding=padded, dilation=d, groups=1)  # fmt: skip
    if tuple(whole) != tuple(lengths):
        high = [0, *(n - m for n, m in zip(lengths, whole, strict=True)), 0]
        out = make("pad", out, low=(0,) * out.ndim, high=tuple(high), value=0.0)
    return turned_back(out, turn)
