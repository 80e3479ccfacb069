"""What an operation costs: an estimate in bytes moved, where a launch and arithmetic count as bytes.

It follows what the scheduler makes of a graph. Products and reductions are kernels: a launch, and
their operands and result moved, or their arithmetic where that takes longer. Pointwise operations
join other kernels: what they cost is arithmetic, and one byte per element for the share of them
that is stored after all. Movement is only another way of indexing. Leaves cost nothing.

Costs are whole numbers, so that sums are exact and do not depend on their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meganeura.ops.registry import REGISTRY

Shape = tuple[int, ...]

#: Bytes that could be moved in the time of one launch.
LAUNCH = 4096
#: Operations in the time in which one byte is moved: 50 TFLOP/s and 3.4 TB/s are 15.
BALANCE = 15
#: What a pointwise operation costs whatever its size: two small ones are dearer than one.
NODE = 32

_SLOW = (
    "exp", "expm1", "log", "log1p", "tanh", "sigmoid", "silu", "softplus", "erf", "gelu", "sin",
    "cos", "tan", "sinh", "cosh", "arcsin", "arccos", "arctan", "arctan2", "power", "swiglu",
)  # fmt: skip
#: Operations per element, in additions; 1 where nothing is said.
_WORK = {name: 12 for name in _SLOW} | {"divide": 4, "sqrt": 4, "rsqrt": 4, "mod": 8}
_WORK |= {"floor_divide": 8, "random_bits": 100, "axpy": 2}


def cost(op: str, attributes: dict[str, Any], inputs: Sequence[Shape], out: Shape) -> int:
    """The cost of one operation on operands of these shapes; larger shapes never cost less."""
    kind = REGISTRY[op].kind
    size = math.prod(out)
    if kind == "leaf":
        return 0
    if kind == "movement":
        return 1 + size // 64
    if kind in ("pointwise", "generator"):
        return NODE + len(inputs) + size + size * _WORK.get(op, 1) // BALANCE
    read = sum(math.prod(s) for s in inputs[: 2 if op.startswith("fused_") else None])
    if kind == "index":
        return NODE + 8 * size
    traffic = 4 * (read + size)
    after = size * _WORK.get(attributes.get("activation", ""), 0) // BALANCE
    return LAUNCH + max(traffic, _operations(op, attributes, inputs, size) // BALANCE) + after


def _operations(op: str, attributes: dict[str, Any], inputs: Sequence[Shape], size: int) -> int:
    """Additions and multiplications of a product."""
    if op in ("matmul", "fused_matmul"):
        return 2 * size * (inputs[0][-2] if attributes["transpose_a"] else inputs[0][-1])
    if op in ("conv", "fused_conv"):
        return 2 * size * math.prod(inputs[1][:-1])
    if op == "conv_input_gradient":
        return 2 * math.prod(inputs[0]) * math.prod(inputs[1][:-1])
    if op == "conv_kernel_gradient":
        return 2 * math.prod(inputs[1]) * math.prod(attributes["kernel_shape"][:-1])
    return 0
