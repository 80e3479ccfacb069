"""Running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura.graph.node import Node
from meganeura.ops.dispatch import convert_to_node, operation
from meganeura.ops.elementwise import cast
from meganeura.ops.nodes import normalize_axis, reshape
from meganeura.ops.registry import Op, Sample, make, register


def _reference(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    x = np.flip(x, axis) if reverse else x
    out = np.cumsum(x, axis=axis, dtype=x.dtype)
    return np.flip(out, axis) if reverse else out


register(
    Op(
        "cumsum",
        "template",
        lambda x, axis, reverse: (x.shape, x.dtype),
        _reference,
        lambda node, g: [
            make("cumsum", g, axis=node.attributes["axis"], reverse=not node.attributes["reverse"])
        ],
        samples=lambda random: [
            Sample((random.standard_normal(s).astype("float32"),), {"axis": a, "reverse": r})
            for s, a, r in (
                ((5,), 0, False),
                ((3, 4, 2), 1, True),
                ((2, 70), 1, False),
                ((1, 1), 0, False),
                ((0, 3), 1, False),
            )
        ],
    )
)


@operation
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """out[i] = x[0] + ... + x[i] along a dimension (of the flattened tensor by default)."""
    node: Node = convert_to_node(x)
    if node.dtype in ("bool", "uint8"):
        node = cast(node, "int32")
    if axis is None:
        node, axis = reshape(node, (node.size,)), 0
    out = make("cumsum", node, axis=normalize_axis(axis, node.ndim), reverse=False)
    return out if dtype is None else cast(out, dtype)
