"""Long reductions with few rows as two: over chunks, then over the chunks' results.

Each has a fixed order, so the result does not depend on timing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, Shape
from meganeura.ops.nodes import cast, reshape
from meganeura.ops.registry import make
from meganeura.schedule.plan import Limits

_NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
#: A column of no more than so many elements for each thread of eight columns' workgroup is not split.
_LONGEST_COLUMN = 100
_COLUMNS = 8


@dataclass
class _Sum:
    """A sum that was split: of what, and its stages. `at` is the dimension of the chunks."""

    of: Node
    axes: tuple[int, ...]
    flat: Node
    partial: Node
    total: Node
    at: int
    padded: bool


class Splits:
    """The splits of one graph. A variance, which needs the mean first, takes no more passes than the
    mean: each chunk has deviations from its own mean, and the means of chunks deviate from the whole."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._sums: dict[int, _Sum] = {}

    def of(self, node: Node) -> Node | None:
        """The same value in two stages; None where one is enough."""
        if node.op not in _NEUTRAL or node.dtype not in (*FLOATS, "bool"):
            return None
        (x,) = node.inputs
        axes = node.attributes["axes"]
        length = math.prod(x.shape[a] for a in axes)
        kept = [i for i in range(x.ndim) if i not in axes]
        along = bool(axes) and max(axes) == x.ndim - 1
        chunks = self._chunks(length, math.prod(x.shape[i] for i in kept), along)
        if chunks < 2:
            return None
        found = self._variance(node)
        if found is None:
            found = self._split(node, length, kept, along, chunks)
        return cast(reshape(found, node.shape), node.dtype)

    def _chunks(self, length: int, rows: int, along: bool) -> int:
        """How many parts keep the device busy; an even share for each, where that costs little."""
        limits = self.limits
        lanes = 1 if limits.software else 256 if along else 8
        # A few long rows keep a large device busy in many chunks only; their results are few as well.
        wanted = 32 if limits.software else 262144 if along and rows <= 8 else 32768
        if length < 1024 or rows * lanes >= wanted:
            return 1
        threads = min(limits.invocations, 1024) // _COLUMNS
        if not limits.software and not along and length <= _LONGEST_COLUMN * threads:
            return 1
        most = min(length // (64 * lanes) or 1, max(wanted // (rows * lanes), 1), 512)
        return next((n for n in range(most, most // 2, -1) if length % n == 0), most)

    def _split(self, node: Node, length: int, kept: list[int], along: bool, chunks: int) -> Node:
        (x,) = node.inputs
        axes = node.attributes["axes"]
        each = -(-length // chunks)
        lengths = [x.shape[i] for i in kept]
        # What varies fastest in memory stays last, so that neighbouring threads read neighbours.
        order = (*kept, *axes) if along else (*axes, *kept)
        # What the chunks give is kept as it is added up.
        flat = cast(x, "float32") if node.dtype == "float16" else x
        flat = make("transpose", flat, axes=order) if order != tuple(range(x.ndim)) else flat
        flat = make("reshape", flat, shape=(*lengths, length) if along else (length, *lengths))
        more = each * chunks - length
        if more:
            none = (0,) * len(kept)
            low = (*none, 0)
            high = (*none, more) if along else (more, *none)
            # Of truth values the smallest is whether all are true, the largest whether one is.
            neutral = node.op == "min" if node.dtype == "bool" else _NEUTRAL[node.op]
            flat = make("pad", flat, low=low, high=high, value=neutral)
        at = len(kept) if along else 0
        shape = (*lengths, chunks, each) if along else (chunks, each, *lengths)
        flat = make("reshape", flat, shape=shape)
        partial = make(node.op, flat, axes=(at + 1,), keepdims=False)
        total = make(node.op, partial, axes=(at,), keepdims=False)
        for made in (flat, partial, total):
            made.scope = node.scope
        if node.op == "sum":
            self._sums[id(total)] = _Sum(x, axes, flat, partial, total, at, bool(more))
        return total

    def _variance(self, node: Node) -> Node | None:
        """sum((x - mean)^2) from the chunks of the mean's sum, where it is the same reduction of x:
        the sum over chunks of sum((x - own mean)^2) + n (own mean - mean)^2."""
        square = node.inputs[0]
        if node.op != "sum" or square.op != "multiply" or square.inputs[0] is not square.inputs[1]:
            return None
        centred = square.inputs[0]
        if centred.op != "subtract":
            return None
        x, mean = centred.inputs
        known = self._summed(mean)
        axes = node.attributes["axes"]
        if known is None or known.padded or known.of is not x or known.axes != axes:
            return None
        aligned: Shape = (*(1,) * (x.ndim - mean.ndim), *mean.shape)
        if aligned != tuple(1 if i in axes else n for i, n in enumerate(x.shape)):
            return None
        at, flat = known.at, known.flat
        each = flat.shape[at + 1]
        own = _times(known.partial, 1 / each)
        below = reshape(own, (*flat.shape[: at + 1], 1, *flat.shape[at + 2 :]))
        inside = make("subtract", flat, below)
        inside = make("multiply", inside, inside)
        partial = make("sum", inside, axes=(at + 1,), keepdims=False)
        whole = _times(known.total, 1 / (each * flat.shape[at]))
        whole = reshape(whole, (*flat.shape[:at], 1, *flat.shape[at + 2 :]))
        between = make("subtract", own, whole)
        between = _times(make("multiply", between, between), float(each))
        total = make("sum", make("add", partial, between), axes=(at,), keepdims=False)
        for made in (partial, total):
            made.scope = node.scope
        return total

    def _summed(self, mean: Node) -> _Sum | None:
        """The sum that `mean` is the mean of."""
        mean = _base(mean)
        if mean.op not in ("multiply", "divide"):
            return None
        total, factor = mean.inputs
        if factor.op != "constant":
            total, factor = factor, total
        known = self._sums.get(id(_base(total)))
        if (
            known is None
            or factor.op != "constant"
            or (mean.op == "divide" and factor is not mean.inputs[1])
        ):
            return None
        value = float(factor.attributes["value"])
        count = math.prod(known.of.shape[a] for a in known.axes)
        exact = value * count if mean.op == "multiply" else value / count
        return known if abs(exact - 1) < 1e-6 else None


def _base(node: Node) -> Node:
    while node.op in ("reshape", "broadcast_to"):
        (node,) = node.inputs
    return node


def _times(x: Node, value: float) -> Node:
    return make("multiply", x, make("constant", value=value, dtype="float32"))
