"""Pooling over the spatial dimensions of channels-last tensors, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.autodiff import zero_gradient
from meganeura.graph.node import Node, Shape
from meganeura.ops.convolution import Pairs, output_length, window_slices
from meganeura.ops.convolution_functions import (
    channels_last,
    per_dimension,
    resolve_padding,
    turned_back,
)
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.nodes import cast, mul
from meganeura.ops.references import select
from meganeura.ops.registry import Op, Sample, make, register


def _out(shape: Shape, window: Any, strides: Any, padding: Any) -> tuple[int, ...]:
    ones = (1,) * len(window)
    lengths = map(output_length, shape[1:-1], window, strides, padding, ones)
    return tuple(max(n, 0) for n in lengths)


def _pooled(shape: Shape, window: Any, strides: Any, padding: Any) -> Shape:
    """The shape of a pooled tensor; raises ValueError where the window does not fit."""
    if len(shape) != len(window) + 2 or min((*window, *strides), default=0) < 1:
        raise ValueError(
            f"pooling: a window {tuple(window)} with strides {tuple(strides)} does not fit an input "
            f"of shape {shape}; expected (batch, *spatial, channels) and one positive integer of "
            "both for each spatial dimension"
        )
    out = _out(shape, window, strides, padding)
    if min(out) < 1 and 0 not in shape:
        raise ValueError(
            f"pooling: the window {tuple(window)} does not fit into the spatial lengths "
            f"{shape[1:-1]}; use padding='same' or a smaller window"
        )
    return (shape[0], *out, shape[-1])


def _infer(result: str | None = None) -> Any:
    def infer(x: Node, window: Any, strides: Any, padding: Any) -> tuple[Shape, str]:
        if x.dtype not in FLOATS:
            raise ValueError(f"pooling computes with floats, and got {x.dtype}; cast the input")
        return _pooled(x.shape, window, strides, padding), result or x.dtype

    return infer


def _gradient_infer(*nodes: Node, input_shape: Shape, **geometry: Any) -> tuple[Shape, str]:
    """Of max_pool_gradient(indices, dy) and sum_pool_gradient(dy)."""
    expected = _pooled(tuple(input_shape), **geometry)
    for node in nodes:
        if node.shape != expected:
            raise ValueError(
                f"pooling gradient: an operand of shape {node.shape}, but an input of shape "
                f"{tuple(input_shape)} is pooled to {expected}"
            )
    return tuple(input_shape), nodes[-1].dtype


def _gather_infer(indices: Node, x: Node, **geometry: Any) -> tuple[Shape, str]:
    expected = _pooled(x.shape, **geometry)
    if indices.shape != expected:
        raise ValueError(
            f"max_pool_gather: indices of shape {indices.shape}, but an input of shape {x.shape} is "
            f"pooled to {expected}"
        )
    return expected, x.dtype


# --- references: the places of the window, one after another -------------------------------------


def _padded(x: np.ndarray, padding: Pairs, fill: float) -> np.ndarray:
    if not any(map(any, padding)):
        return x
    return np.pad(x, [(0, 0), *padding, (0, 0)], constant_values=fill)


def _views(
    x: np.ndarray, window: Any, strides: Any, padding: Pairs, fill: float
) -> Iterator[np.ndarray]:
    """The input as each place of the window sees it: (N, *out, C)."""
    padded = _padded(x, padding, fill)
    out = _out(x.shape, window, strides, padding)
    if 0 in out:
        empty = np.zeros((x.shape[0], *out, x.shape[-1]), x.dtype)
        yield from (empty for _ in range(math.prod(window)))
        return
    for _, where in window_slices(window, strides, (1,) * len(window), out):
        yield padded[(slice(None), *where)]


def _max_reference(x: np.ndarray, window: Any, strides: Any, padding: Pairs) -> np.ndarray:
    views = _views(x, window, strides, padding, -np.inf)
    best = next(views).copy()
    for view in views:
        np.maximum(best, view, out=best)  # keeps a NaN on either side
    return best


def _argmax_reference(x: np.ndarray, window: Any, strides: Any, padding: Pairs) -> np.ndarray:
    """How many places of the window come before the first that holds the maximum."""
    best = _max_reference(x, window, strides, padding)
    odd = bool(np.isnan(best).any())  # a NaN is the maximum, and equal to nothing
    index = np.zeros(best.shape, np.uint8 if math.prod(window) <= 256 else np.int32)
    missed = np.ones(best.shape, np.bool_)
    for place, view in enumerate(_views(x, window, strides, padding, -np.inf)):
        if place == math.prod(window) - 1:
            break  # the last place needs no look: it holds what no other does
        missed &= view != best
        if odd:
            missed &= view == view
        index += missed
    return index.astype(np.int32)


def _sum_reference(x: np.ndarray, window: Any, strides: Any, padding: Pairs) -> np.ndarray:
    views = _views(x, window, strides, padding, 0.0)
    total = next(views).copy()
    for view in views:
        total += view
    return total


def _scatter(
    parts: Callable[[int], np.ndarray],
    dtype: Any,
    input_shape: Shape,
    window: Any,
    strides: Any,
    padding: Pairs,
) -> np.ndarray:
    """Add what each place of the window contributes back to the input."""
    out = _out(input_shape, window, strides, padding)
    lengths = [n + sum(p) for n, p in zip(input_shape[1:-1], padding, strict=True)]
    full = np.zeros((input_shape[0], *lengths, input_shape[-1]), dtype)
    apart = all(s >= k for s, k in zip(strides, window, strict=True))  # windows do not overlap
    if 0 not in out:
        places = window_slices(window, strides, (1,) * len(window), out)
        for index, (_, where) in enumerate(places):
            target = full[(slice(None), *where)]
            if apart:
                target[...] = parts(index)
            else:
                target += parts(index)
    inside = tuple(slice(a, a + n) for (a, _), n in zip(padding, input_shape[1:-1], strict=True))
    return full[(slice(None), *inside)]


def _max_gradient_reference(
    indices: np.ndarray, dy: np.ndarray, input_shape: Shape, **geometry: Any
) -> np.ndarray:
    zero = np.zeros((), dy.dtype)
    small = indices.astype(np.uint8) if math.prod(geometry["window"]) <= 256 else indices
    return _scatter(
        lambda place: select(small == place, dy, zero), dy.dtype, input_shape, **geometry
    )


def _sum_gradient_reference(dy: np.ndarray, input_shape: Shape, **geometry: Any) -> np.ndarray:
    return _scatter(lambda place: dy, dy.dtype, input_shape, **geometry)


def _gather_reference(
    indices: np.ndarray, x: np.ndarray, window: Any, strides: Any, padding: Pairs
) -> np.ndarray:
    out = np.zeros(indices.shape, x.dtype)
    for place, view in enumerate(_views(x, window, strides, padding, 0.0)):
        np.copyto(out, view, where=indices == place)
    return out


# --- gradients and samples -----------------------------------------------------------------------


def _geometry(node: Node) -> dict[str, Any]:
    return {k: node.attributes[k] for k in ("window", "strides", "padding")}


def _max_gradient(node: Node, g: Node) -> list[Node | None]:
    (x,) = node.inputs
    indices = make("max_pool_argmax", x, **_geometry(node))
    return [make("max_pool_gradient", indices, g, input_shape=x.shape, **_geometry(node))]


_CASES: tuple[tuple[Shape, Any, Any, Any], ...] = (
    ((2, 6, 4, 3), (2, 2), (2, 2), ((0, 0), (0, 0))),
    ((1, 5, 7, 2), (3, 2), (2, 1), ((1, 1), (0, 1))),
    ((2, 7, 7, 1), (3, 3), (1, 1), ((1, 1), (1, 1))),
    ((1, 9, 4), (3,), (2,), ((1, 0),)),
    ((1, 4, 5, 4, 2), (2, 2, 2), (2, 2, 2), ((0, 0), (0, 1), (0, 0))),
    ((1, 5, 5, 3), (2, 2), (3, 3), ((0, 0), (0, 0))),
    ((1, 1, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))),
    ((0, 4, 4, 2), (2, 2), (2, 2), ((0, 0), (0, 0))),
    ((2, 13, 11, 33), (3, 3), (2, 2), ((0, 1), (1, 1))),
)


def _samples(kind: str) -> Any:
    def samples(random: np.random.Generator) -> list[Sample]:
        found = []
        for shape, window, strides, padding in _CASES:
            geometry: dict[str, Any] = {"window": window, "strides": strides, "padding": padding}
            # Distinct values, far apart: a finite difference must not change the winner.
            x = random.permutation(int(np.prod(shape))).reshape(shape).astype("float32")
            out = (shape[0], *_out(shape, window, strides, padding), shape[-1])
            dy = random.standard_normal(out).astype("float32")
            indices = _argmax_reference(x, window, strides, padding)
            if kind in ("max_pool_gradient", "sum_pool_gradient"):
                geometry["input_shape"] = shape
            arrays = {
                "max_pool": (x,), "max_pool_argmax": (x,), "sum_pool": (x,),
                "max_pool_gradient": (indices, dy), "max_pool_gather": (indices, x),
                "sum_pool_gradient": (dy,),
            }[kind]  # fmt: skip
            found.append(
                Sample(arrays, geometry, gradient=kind != "max_pool_argmax" and x.size < 200)
            )
        if kind in ("max_pool", "max_pool_argmax"):
            odd = np.array([[1, np.nan], [2, 3], [-np.inf, -np.inf], [-np.inf, -np.inf]], "float32")
            geometry = {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0))}
            found.append(Sample((odd.reshape(1, 4, 2, 1),), geometry, gradient=False))
        return found

    return samples


register(
    Op(
        "max_pool",
        "template",
        _infer(),
        _max_reference,
        _max_gradient,
        samples=_samples("max_pool"),
    )
)
register(
    Op(
        "max_pool_argmax",
        "template",
        _infer("int32"),
        _argmax_reference,
        zero_gradient,
        samples=_samples("max_pool_argmax"),
    )
)
register(
    Op(
        "max_pool_gradient",
        "template",
        _gradient_infer,
        _max_gradient_reference,
        lambda node, g: [None, make("max_pool_gather", node.inputs[0], g, **_geometry(node))],
        samples=_samples("max_pool_gradient"),
    )
)
register(
    Op(
        "max_pool_gather",
        "template",
        _gather_infer,
        _gather_reference,
        lambda node, g: [
            None,
            make(
                "max_pool_gradient",
                node.inputs[0],
                g,
                input_shape=node.inputs[1].shape,
                **_geometry(node),
            ),
        ],
        samples=_samples("max_pool_gather"),
    )
)
register(
    Op(
        "sum_pool",
        "template",
        _infer(),
        _sum_reference,
        lambda node, g: [
            make("sum_pool_gradient", g, input_shape=node.inputs[0].shape, **_geometry(node))
        ],
        samples=_samples("sum_pool"),
    )
)
register(
    Op(
        "sum_pool_gradient",
        "template",
        _gradient_infer,
        _sum_gradient_reference,
        lambda node, g: [make("sum_pool", g, **_geometry(node))],
        samples=_samples("sum_pool_gradient"),
    )
)


# --- the functions -----------------------------------------------------------------------------


def _window(
    inputs: Any, pool_size: Any, strides: Any, padding: Any, data_format: str | None
) -> Any:
    (x,) = promote(inputs, floating=True)
    x, turn = channels_last(x, data_format)
    spatial = x.ndim - 2
    if not 1 <= spatial <= 3:
        raise ValueError(f"pooling needs 1 to 3 spatial dimensions, and got the shape {x.shape}")
    window = per_dimension(pool_size, spatial, "pool_size")
    s = window if strides is None else per_dimension(strides, spatial, "strides")
    pairs = resolve_padding(padding, x.shape[1:-1], window, s, (1,) * spatial)
    return x, turn, {"window": window, "strides": s, "padding": pairs}


@operation
def max_pool(
    inputs: Any,
    pool_size: Any,
    strides: Any = None,
    padding: Any = "valid",
    data_format: str | None = None,
) -> Any:
    """The largest value in each window: y[n, i, c] = max_t x[n, i s + t - p, c].

    inputs (N, *spatial, C), or channels first. pool_size and strides s (pool_size by default) are
    integers, or one for each dimension; padding is "valid" or "same", and does not count. The
    gradient goes to the first of the largest values. Raises ValueError where nothing fits.
    """
    x, turn, geometry = _window(inputs, pool_size, strides, padding, data_format)
    return turned_back(make("max_pool", x, **geometry), turn)


@operation
def average_pool(
    inputs: Any,
    pool_size: Any,
    strides: Any = None,
    padding: Any = "valid",
    data_format: str | None = None,
) -> Any:
    """The mean of each window: y[n, i, c] = mean_t x[n, i s + t - p, c], without padding.

    inputs (N, *spatial, C), or channels first; the arguments are those of `max_pool`. A window at
    the border divides by the number of its cells inside.
    """
    x, turn, geometry = _window(inputs, pool_size, strides, padding, data_format)
    total = make("sum_pool", cast(x, "float32"), **geometry)
    if not any(map(any, geometry["padding"])):
        out = mul(total, 1.0 / float(np.prod(geometry["window"])))
    else:
        ones = np.ones((1, *x.shape[1:-1], 1), "float32")
        counts = _sum_reference(ones, **geometry)
        out = mul(total, convert_to_node((1.0 / counts).astype("float32")))
    return turned_back(cast(out, x.dtype), turn)
