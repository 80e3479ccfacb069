"""Running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, Shape
from meganeura.ops.dispatch import convert_to_node, operation
from meganeura.ops.elementwise import cast
from meganeura.ops.nodes import normalize_axis, reshape, running_product
from meganeura.ops.registry import Op, Sample, make, register


def _infer(x: Node, axis: int, reverse: bool) -> tuple[Shape, str]:
    if not 0 <= axis < x.ndim:
        raise ValueError(f"cumsum: axis {axis} is out of range for the shape {x.shape}")
    if x.dtype not in (*FLOATS, "int32", "uint32"):
        raise ValueError(f"cumsum adds floats, int32 or uint32, and got {x.dtype}")
    return x.shape, x.dtype


def _reference(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    x = np.flip(x, axis) if reverse else x
    out = np.cumsum(x, axis=axis, dtype=x.dtype)
    return np.flip(out, axis) if reverse else out


register(
    Op(
        "cumsum",
        "template",
        _infer,
        _reference,
        lambda node, g: [
            make("cumsum", g, axis=node.attributes["axis"], reverse=not node.attributes["reverse"])
        ],
        samples=lambda random: (
            [
                Sample((random.standard_normal(s).astype("float32"),), {"axis": a, "reverse": r})
                for s, a, r in (
                    ((5,), 0, False),
                    ((3, 4, 2), 1, True),
                    ((2, 70), 1, False),
                    ((1, 1), 0, False),
                    ((0, 3), 1, False),
                    ((3, 300), 1, True),
                    ((600, 2), 0, False),
                )
            ]
            + [
                Sample(
                    (random.integers(-9, 10, (4, 9)).astype("int32"),),
                    {"axis": 1, "reverse": False},
                    gradient=False,
                )
            ]
        ),
    )
)


@operation
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """out[i] = x[0] + ... + x[i] along a dimension (of the flattened tensor by default).

    Computed in `dtype`, which is that of x by default (int32 for bools and bytes).
    """
    node, axis = _line(x, axis, dtype)
    return make("cumsum", node, axis=axis, reverse=False)


@operation
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """out[i] = x[0] * ... * x[i] along a dimension (of the flattened tensor by default).

    Computed in `dtype`, which is that of x by default (int32 for bools and bytes).
    """
    return running_product(*_line(x, axis, dtype))


def _line(x: Any, axis: int | None, dtype: Any) -> tuple[Node, int]:
    """The tensor in the dtype that it is accumulated in, and the dimension to go along."""
    node: Node = convert_to_node(x)
    if dtype is not None:
        node = cast(node, dtype)
    if node.dtype in ("bool", "uint8"):
        node = cast(node, "int32")
    if axis is None:
        return reshape(node, (node.size,)), 0
    return node, normalize_axis(axis, node.ndim)
