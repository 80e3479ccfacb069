"""Pooling over the spatial dimensions of channels-last tensors, and its gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from meganeura.graph.node import Node, Shape
from meganeura.ops.convolution import (
    Pairs,
    channels_last,
    output_length,
    per_dimension,
    resolve_padding,
    turned_back,
)
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.nodes import constant, mul
from meganeura.ops.registry import Op, Sample, make, register


def _out(shape: Shape, window: Any, strides: Any, padding: Any) -> tuple[int, ...]:
    ones = (1,) * len(window)
    return tuple(map(output_length, shape[1:-1], window, strides, padding, ones))


def _infer(result: str | None = None) -> Any:
    def infer(x: Node, window: Any, strides: Any, padding: Any) -> tuple[Shape, str]:
        if x.ndim != len(window) + 2:
            raise ValueError(
                f"pooling: a window {tuple(window)} does not fit an input of shape {x.shape}"
            )
        out = _out(x.shape, window, strides, padding)
        if min(out, default=1) < 1 and 0 not in x.shape:
            raise ValueError(
                f"pooling: the window {tuple(window)} does not fit into the spatial lengths "
                f"{x.shape[1:-1]}; use padding='same' or a smaller window"
            )
        return (x.shape[0], *(max(n, 0) for n in out), x.shape[-1]), result or "float32"

    return infer


def _views(x: np.ndarray, window: Any, strides: Any, padding: Pairs, fill: float) -> np.ndarray:
    """(taps, N, *out, C): the input as each place of the window sees it."""
    out = _out(x.shape, window, strides, padding)
    padded = np.pad(x, [(0, 0), *padding, (0, 0)], constant_values=fill)
    parts = []
    for tap in itertools.product(*(range(k) for k in window)):
        where = tuple(
            slice(t, t + (o - 1) * s + 1, s) for t, s, o in zip(tap, strides, out, strict=True)
        )
        parts.append(padded[(slice(None), *where)])
    return np.stack(parts)


def _max_reference(x: np.ndarray, window: Any, strides: Any, padding: Pairs) -> np.ndarray:
    return _views(x, window, strides, padding, -np.inf).max(axis=0)


def _argmax_reference(x: np.ndarray, window: Any, strides: Any, padding: Pairs) -> np.ndarray:
    return _views(x, window, strides, padding, -np.inf).argmax(axis=0).astype(np.int32)


def _sum_reference(x: np.ndarray, window: Any, strides: Any, padding: Pairs) -> np.ndarray:
    return _views(x, window, strides, padding, 0.0).sum(axis=0)


def _scatter(
    parts: Any, input_shape: Shape, window: Any, strides: Any, padding: Pairs
) -> np.ndarray:
    """Add what each place of the window contributes back to the input."""
    out = _out(input_shape, window, strides, padding)
    lengths = [n + sum(p) for n, p in zip(input_shape[1:-1], padding, strict=True)]
    taps = list(itertools.product(*(range(k) for k in window)))
    first = parts(0)
    full = np.zeros((input_shape[0], *lengths, input_shape[-1]), first.dtype)
    for index, tap in enumerate(taps):
        where = tuple(
            slice(t, t + (o - 1) * s + 1, s) for t, s, o in zip(tap, strides, out, strict=True)
        )
        full[(slice(None), *where)] += parts(index)
    inside = tuple(slice(a, a + n) for (a, _), n in zip(padding, input_shape[1:-1], strict=True))
    return full[(slice(None), *inside)]


def _max_gradient_reference(
    indices: np.ndarray,
    dy: np.ndarray,
    input_shape: Shape,
    window: Any,
    strides: Any,
    padding: Pairs,
) -> np.ndarray:
    zero = np.zeros((), dy.dtype)
    return _scatter(
        lambda i: np.where(indices == i, dy, zero), input_shape, window, strides, padding
    )


def _sum_gradient_reference(
    dy: np.ndarray, input_shape: Shape, window: Any, strides: Any, padding: Pairs
) -> np.ndarray:
    return _scatter(lambda i: dy, input_shape, window, strides, padding)


def _gather_reference(
    indices: np.ndarray, x: np.ndarray, window: Any, strides: Any, padding: Pairs
) -> np.ndarray:
    views = _views(x, window, strides, padding, 0.0)
    return np.take_along_axis(views, indices[None].astype(np.int64), axis=0)[0]


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


def _shape_of(position: str) -> Any:
    return lambda *nodes, **attributes: (tuple(attributes[position]), "float32")


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
        lambda node, g: [None],
        samples=_samples("max_pool_argmax"),
    )
)
register(
    Op(
        "max_pool_gradient",
        "template",
        _shape_of("input_shape"),
        _max_gradient_reference,
        lambda node, g: [None, make("max_pool_gather", node.inputs[0], g, **_geometry(node))],
        samples=_samples("max_pool_gradient"),
    )
)
register(
    Op(
        "max_pool_gather",
        "template",
        lambda indices, x, window, strides, padding: (indices.shape, "float32"),
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
        _shape_of("input_shape"),
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
    """The largest value in each window; padding does not count."""
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
    """The mean of the real cells in each window; padding does not count."""
    x, turn, geometry = _window(inputs, pool_size, strides, padding, data_format)
    total = make("sum_pool", x, **geometry)
    if not any(map(any, geometry["padding"])):
        out = mul(total, constant(1.0 / float(np.prod(geometry["window"]))))
    else:
        ones = np.ones((1, *x.shape[1:-1], 1), "float32")
        counts = _sum_reference(ones, **geometry)
        out = mul(total, convert_to_node((1.0 / counts).astype("float32")))
    return turned_back(out, turn)
