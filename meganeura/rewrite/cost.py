"""What an operation costs: bytes moved, or arithmetic where that is more, and the launch of a kernel.

Pointwise and movement operations fuse, so they cost little: the share of traffic that is theirs
when a chain of them is one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meganeura.ops.registry import REGISTRY

#: Bytes that could be moved in the time of one launch, and operations in that of one byte.
LAUNCH = 4096.0
BALANCE = 15.0

Shape = tuple[int, ...]


def cost(op: str, attributes: dict[str, Any], inputs: Sequence[Shape], out: Shape) -> float:
    """The cost of one node on operands of these shapes."""
    kind = REGISTRY[op].kind
    size = float(math.prod(out))
    if kind == "leaf":
        return 0.0
    if kind == "movement":
        return 1.0 + 0.01 * size
    if kind in ("pointwise", "generator", "index"):
        return 32.0 + 1.0 * size
    read = sum(float(math.prod(s)) for s in dict.fromkeys(inputs))
    if kind == "reduction":
        return LAUNCH + 4.0 * (read + size)
    return LAUNCH + max(4.0 * (read + size), _operations(op, attributes, inputs, size) / BALANCE)


def _operations(op: str, attributes: dict[str, Any], inputs: Sequence[Shape], size: float) -> float:
    if op in ("matmul", "fused_matmul"):
        return 2 * size * (inputs[0][-2] if attributes["transpose_a"] else inputs[0][-1])
    if op in ("conv", "fused_conv"):
        return 2 * size * math.prod(inputs[1][:-1])
    if op == "conv_input_gradient":
        return 2 * math.prod(inputs[0]) * math.prod(inputs[1][:-1])
    if op == "conv_kernel_gradient":
        return 2 * math.prod(inputs[1]) * math.prod(attributes["kernel_shape"][:-1])
    return 0.0
