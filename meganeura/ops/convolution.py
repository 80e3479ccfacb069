"""Convolution in one to three dimensions: the primitive and its two gradients.

Inside, tensors are channels-last: inputs (N, *spatial, C), kernels (*window, C / groups, O).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, Shape
from meganeura.ops.registry import Op, Sample, make, register

Pairs = tuple[tuple[int, int], ...]


def output_length(n: int, k: int, stride: int, pair: tuple[int, int], dilation: int) -> int:
    return (n + sum(pair) - (k - 1) * dilation - 1) // stride + 1


# --- references: one matrix product over gathered patches --------------------------------------


def window_slices(
    window: Sequence[int], strides: Sequence[int], dilation: Sequence[int], out: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each place of the window with the slice of the padded input that it meets."""
    for tap in itertools.product(*(range(k) for k in window)):
        yield (
            tap,
            tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, s, o in zip(tap, dilation, strides, out, strict=True)
            ),
        )


def _padded(x: np.ndarray, padding: Pairs) -> np.ndarray:
    return np.pad(x, [(0, 0), *padding, (0, 0)]) if any(map(any, padding)) else x


def _patches(
    x: np.ndarray, window: Any, strides: Any, padding: Pairs, dilation: Any, out: Sequence[int]
) -> np.ndarray:
    """What each window sees, as a matrix (N * prod(out), taps * C).

    Runs of (last place of the window, channel) are contiguous in the input, and are copied whole. Where
    they are short the runs along the last axis of the output are longer: then the matrix is made
    transposed, and comes as a view, which a matrix product takes as well.
    """
    padded = _padded(x, padding)
    channels, spatial = x.shape[-1], len(out)
    axes = tuple(range(1, spatial + 1))
    if channels * window[-1] < out[-1] and channels <= 4:
        found = np.empty((math.prod(window), channels, x.shape[0], *out), x.dtype)
        places = window_slices(window, strides, dilation, out)
        for index, (_, where) in enumerate(places):
            np.copyto(found[index], np.moveaxis(padded[(slice(None), *where)], -1, 0))
        return found.reshape(found.shape[0] * channels, -1).T
    reach = tuple((k - 1) * d + 1 for k, d in zip(window, dilation, strict=True))
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)  # (N, *, C, *reach)
    steps = (slice(None), *(slice(None, None, s) for s in strides), slice(None))
    seen = seen[(*steps, *(slice(None, None, d) for d in dilation))]
    seen = np.moveaxis(seen, spatial + 1, -1)
    return seen.reshape(x.shape[0] * math.prod(out), -1)


#: Gathered patches repeat each input element once per place of the window; batches whose patches
#: would hold more elements than this are worked on in parts.
_LARGEST_PATCHES = 1 << 25


def _parts(batch: int, per_item: int) -> Iterator[slice]:
    step = max(1, _LARGEST_PATCHES // max(per_item, 1))
    return (slice(at, at + step) for at in range(0, batch, step))


def conv_reference(
    x: np.ndarray, kernel: np.ndarray, strides: Any, padding: Pairs, dilation: Any, groups: int
) -> np.ndarray:
    window, (per, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    lengths = map(output_length, x.shape[1:-1], window, strides, padding, dilation)
    out = tuple(max(n, 0) for n in lengths)
    y = np.empty((x.shape[0], *out, outputs), x.dtype)
    if not y.size or not kernel.size:
        y[...] = 0
        return y
    taps = math.prod(window)
    if groups > 1 and per == 1:
        return _each_channel(x, kernel, strides, padding, dilation, y)
    weights = kernel.reshape(taps, per, groups, outputs // groups)
    for part in _parts(x.shape[0], math.prod(out) * taps * x.shape[-1]):
        patches = _patches(x[part], window, strides, padding, dilation, out)
        into = y[part].reshape(-1, outputs)
        if groups == 1:
            np.matmul(patches, kernel.reshape(taps * per, outputs), out=into)
            continue
        grouped = patches.reshape(-1, taps, groups, per)
        into[...] = np.einsum("ptgc,tcgo->pgo", grouped, weights, optimize=True).reshape(into.shape)
    return y


def _each_channel(
    x: np.ndarray, kernel: np.ndarray, strides: Any, padding: Pairs, dilation: Any, y: np.ndarray
) -> np.ndarray:
    """Every channel on its own: no product of matrices to gain from, one sum over the window instead."""
    window, channels = kernel.shape[:-2], x.shape[-1]
    each = y.shape[-1] // channels
    weights = kernel.reshape(*window, channels, each)
    total = y.reshape(*y.shape[:-1], channels, each)
    # A sample at a time: what is summed up stays in the processor's cache.
    for sample in range(len(x)):
        padded = _padded(x[sample : sample + 1], padding)[0][..., None]
        term = np.empty_like(total[sample])
        for number, (tap, where) in enumerate(
            window_slices(window, strides, dilation, y.shape[1:-1])
        ):
            np.multiply(padded[where], weights[tap], out=term if number else total[sample])
            if number:
                total[sample] += term
    return y


def _input_gradient_reference(
    dy: np.ndarray,
    kernel: np.ndarray,
    input_shape: Shape,
    strides: Any,
    padding: Pairs,
    dilation: Any,
    groups: int,
) -> np.ndarray:
    window, (per, outputs) = kernel.shape[:-2], kernel.shape[-2:]
    out, taps = dy.shape[1:-1], math.prod(window)
    lengths = [n + sum(p) for n, p in zip(input_shape[1:-1], padding, strict=True)]
    full = np.zeros((input_shape[0], *lengths, input_shape[-1]), dy.dtype)
    inside = tuple(slice(a, a + n) for (a, _), n in zip(padding, input_shape[1:-1], strict=True))
    if not dy.size:
        return full[(slice(None), *inside)]
    weights = kernel.reshape(taps, per, groups, outputs // groups)
    for part in _parts(dy.shape[0], math.prod(out) * taps * input_shape[-1]):
        upstream = dy[part]
        if (
            groups == 1
        ):  # (taps, N * prod(out), C), and each place of the window is added where it was
            turned = weights[:, :, 0].transpose(0, 2, 1)
            parts = np.matmul(upstream.reshape(-1, outputs), turned)
        else:
            grouped = upstream.reshape(-1, groups, outputs // groups)
            many = per > 1 and outputs > groups  # then a product of matrices pays
            parts = np.einsum("pgo,tcgo->tpgc", grouped, weights, optimize=many)
        parts = parts.reshape(taps, *upstream.shape[:-1], input_shape[-1])
        for index, (_, where) in enumerate(window_slices(window, strides, dilation, out)):
            full[part][(slice(None), *where)] += parts[index]
    return full[(slice(None), *inside)]


def _kernel_gradient_reference(
    x: np.ndarray,
    dy: np.ndarray,
    kernel_shape: Shape,
    strides: Any,
    padding: Pairs,
    dilation: Any,
    groups: int,
) -> np.ndarray:
    window, (per, outputs) = kernel_shape[:-2], kernel_shape[-2:]
    out, taps = dy.shape[1:-1], math.prod(window)
    dk = np.zeros((taps, per, groups, outputs // groups), dy.dtype)
    if not dy.size or not x.size:
        return dk.reshape(kernel_shape)
    for part in _parts(x.shape[0], math.prod(out) * taps * x.shape[-1]):
        upstream = dy[part].reshape(-1, groups, outputs // groups)
        if groups > 1 and per == 1:  # every channel on its own: no product of matrices to gain from
            padded = _padded(x[part], padding)
            for index, (_, where) in enumerate(window_slices(window, strides, dilation, out)):
                view = padded[(slice(None), *where)].reshape(-1, groups)
                dk[index, 0] += np.einsum("pg,pgo->go", view, upstream)
            continue
        patches = _patches(x[part], window, strides, padding, dilation, out)
        if groups == 1:
            flat = patches.T @ upstream[:, 0]
        else:
            grouped = patches.reshape(-1, taps, groups, per)
            flat = np.einsum("ptgc,pgo->tcgo", grouped, upstream, optimize=True)
        dk += flat.reshape(dk.shape)
    return dk.reshape(kernel_shape)


# --- shape rules -------------------------------------------------------------------------------


def output_shape(
    x: Shape, kernel: Shape, strides: Any, padding: Any, dilation: Any, groups: int
) -> Shape:
    """The shape of a convolution; raises ValueError where its operands do not fit."""
    spatial = len(x) - 2
    if not 1 <= spatial <= 3 or len(kernel) != spatial + 2 or 0 in kernel[:-2]:
        raise ValueError(
            f"convolution: an input of shape {x} and a kernel of shape {kernel} do not fit; "
            "expected (batch, *spatial, channels) and (*window, channels / groups, outputs) with 1 to "
            "3 spatial dimensions"
        )
    if not len(strides) == len(padding) == len(dilation) == spatial:
        raise ValueError(
            f"convolution: strides {strides}, padding {padding} and dilation {dilation} need one "
            f"entry for each of the {spatial} spatial dimensions"
        )
    if min(min(pair) for pair in padding) < 0:
        raise ValueError(f"convolution: padding {padding} must not be negative")
    if groups < 1 or x[-1] != kernel[-2] * groups or kernel[-1] % groups:
        raise ValueError(
            f"convolution: {x[-1]} input channels in {groups} groups do not fit a kernel of shape "
            f"{kernel}"
        )
    out = tuple(map(output_length, x[1:-1], kernel[:-2], strides, padding, dilation))
    if min(out) < 1 and 0 not in x:
        raise ValueError(
            f"convolution: the window {kernel[:-2]} with dilation {tuple(dilation)} does not fit into "
            f"the spatial lengths {x[1:-1]}; use padding='same', a smaller kernel, or a larger input"
        )
    return (x[0], *(max(n, 0) for n in out), kernel[-1])


def _floats(*nodes: Node) -> None:
    if any(n.dtype not in FLOATS or n.dtype != nodes[0].dtype for n in nodes):
        found = " and ".join(n.dtype for n in nodes)
        raise ValueError(
            f"convolution computes with floats of one dtype, and got {found}; cast its operands"
        )


def _infer(x: Node, kernel: Node, **geometry: Any) -> tuple[Shape, str]:
    _floats(x, kernel)
    return output_shape(x.shape, kernel.shape, **geometry), x.dtype


def _upstream_fits(dy: Shape, x: Shape, kernel: Shape, geometry: dict[str, Any]) -> None:
    """A gradient's operand must have the shape of the convolution that it belongs to."""
    expected = output_shape(x, kernel, **geometry)
    if dy != expected:
        raise ValueError(
            f"convolution gradient: the upstream gradient has the shape {dy}, but an input of shape "
            f"{x} and a kernel of shape {kernel} give {expected}"
        )


def _input_gradient_infer(
    dy: Node, kernel: Node, input_shape: Shape, **geometry: Any
) -> tuple[Shape, str]:
    _floats(dy, kernel)
    _upstream_fits(dy.shape, tuple(input_shape), kernel.shape, geometry)
    return tuple(input_shape), dy.dtype


def _kernel_gradient_infer(
    x: Node, dy: Node, kernel_shape: Shape, **geometry: Any
) -> tuple[Shape, str]:
    _floats(x, dy)
    _upstream_fits(dy.shape, x.shape, tuple(kernel_shape), geometry)
    return tuple(kernel_shape), dy.dtype


def _geometry(node: Node) -> dict[str, Any]:
    return {k: node.attributes[k] for k in ("strides", "padding", "dilation", "groups")}


def _conv_gradient(node: Node, g: Node) -> list[Node | None]:
    x, kernel = node.inputs
    geometry = _geometry(node)
    return [
        make("conv_input_gradient", g, kernel, input_shape=x.shape, **geometry),
        make("conv_kernel_gradient", x, g, kernel_shape=kernel.shape, **geometry),
    ]


def _input_gradient_gradient(node: Node, g: Node) -> list[Node | None]:
    dy, kernel = node.inputs
    geometry = _geometry(node)
    return [
        make("conv", g, kernel, **geometry),
        make("conv_kernel_gradient", g, dy, kernel_shape=kernel.shape, **geometry),
    ]


def _kernel_gradient_gradient(node: Node, g: Node) -> list[Node | None]:
    x, dy = node.inputs
    geometry = _geometry(node)
    return [
        make("conv_input_gradient", dy, g, input_shape=x.shape, **geometry),
        make("conv", x, g, **geometry),
    ]


# --- samples -----------------------------------------------------------------------------------

_CASES: tuple[tuple[Shape, Shape, Any, Any, Any, int], ...] = (
    # input, kernel, strides, padding, dilation, groups
    ((2, 5, 6, 3), (3, 3, 3, 4), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 7, 5, 2), (3, 2, 2, 5), (2, 1), ((1, 1), (0, 1)), (1, 1), 1),
    ((2, 6, 6, 4), (3, 3, 2, 6), (1, 2), ((1, 1), (1, 1)), (1, 1), 2),
    ((1, 6, 5, 3), (3, 3, 1, 6), (1, 1), ((1, 1), (1, 1)), (1, 1), 3),
    ((1, 9, 8, 2), (2, 3, 2, 3), (2, 2), ((0, 1), (2, 2)), (2, 1), 1),
    ((2, 4, 4, 3), (1, 1, 3, 5), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 4, 4, 3), (1, 1, 3, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 11, 3), (4, 3, 5), (3,), ((2, 1),), (1,), 1),
    ((1, 4, 5, 3, 2), (2, 2, 2, 2, 3), (1, 2, 1), ((0, 1), (1, 0), (0, 0)), (1, 1, 1), 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((3, 10, 9, 8), (3, 3, 8, 16), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ((2, 9, 7, 6), (3, 3, 1, 12), (2, 1), ((1, 0), (1, 1)), (1, 2), 6),
    ((1, 8, 33, 4), (5, 5, 4, 67), (1, 1), ((2, 2), (2, 2)), (1, 1), 1),
    ((0, 5, 5, 2), (3, 3, 2, 4), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
)


def _samples(which: str) -> Any:
    def samples(random: np.random.Generator) -> list[Sample]:
        found = []
        for x, kernel, strides, padding, dilation, groups in _CASES:
            out = output_shape(x, kernel, strides, padding, dilation, groups)
            geometry = {
                "strides": strides,
                "padding": padding,
                "dilation": dilation,
                "groups": groups,
            }
            shapes, extra = {
                "conv": ((x, kernel), {}),
                "input": ((out, kernel), {"input_shape": x}),
                "kernel": ((x, out), {"kernel_shape": kernel}),
            }[which]
            arrays = tuple(random.standard_normal(s).astype("float32") for s in shapes)
            small = sum(a.size for a in arrays) < 500
            found.append(Sample(arrays, {**extra, **geometry}, gradient=small))
        return found

    return samples


register(Op("conv", "template", _infer, conv_reference, _conv_gradient, samples=_samples("conv")))
register(
    Op(
        "conv_input_gradient",
        "template",
        _input_gradient_infer,
        _input_gradient_reference,
        _input_gradient_gradient,
        samples=_samples("input"),
    )
)
register(
    Op(
        "conv_kernel_gradient",
        "template",
        _kernel_gradient_infer,
        _kernel_gradient_reference,
        _kernel_gradient_gradient,
        samples=_samples("kernel"),
    )
)
