"""ONNX's attention operator (version 23 on)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.onnx.registry import Call, dtype_of, floating, handles, rank

#: The score of a position that may not be seen: finite, so that no kernel meets inf - inf.
HIDDEN = -1e9


def _heads(x: Any, count: int) -> Any:
    """(batch, length, heads * width) -> (batch, heads, length, width)."""
    batch, length, _ = x.shape
    return ops.transpose(ops.reshape(x, (batch, length, count, -1)), (0, 2, 1, 3))


def _seen(call: Call, queries: int, keys: int, past: int) -> Any:
    """Which keys each query may see by causality, window and length; None where all."""
    row = np.arange(queries, dtype="int32")[:, None]
    column = np.arange(keys, dtype="int32")[None, :]
    lengths = None
    position: Any = row + past
    if call.has(6):
        lengths = ops.reshape(ops.cast(call.tensor(6), "int32"), (-1, 1, 1, 1))
        position = row + lengths - queries
    left, right = call.get("left_window_size", -1), call.get("right_window_size", -1)
    rules = []
    if call.get("is_causal", 0):
        rules.append(ops.less_equal(column, position))
    if left >= 0:
        rules.append(ops.less_equal(position - column, left))
    if right >= 0:
        rules.append(ops.less_equal(column - position, right))
    if lengths is not None:
        rules.append(ops.less(column, lengths))
    seen = None
    for rule in rules:
        seen = rule if seen is None else ops.logical_and(seen, rule)
    return seen


def _mask(call: Call, keys: int) -> tuple[Any, Any]:
    """The mask input as (which keys may be seen, what is added to the scores)."""
    if not call.has(3):
        return None, None
    mask = call.tensor(3)
    boolean = dtype_of(mask) == "bool"
    if mask.shape[-1] < keys:
        widths = [(0, 0)] * (rank(mask) - 1) + [(0, keys - mask.shape[-1])]
        padded = ops.pad(floating(mask), widths, constant_values=0.0 if boolean else HIDDEN)
        mask = ops.greater(padded, 0.5) if boolean else padded
    if boolean:
        return mask, None
    # Additive masks hide by -inf or by something very negative: a select, not a sum, hides it.
    return ops.greater(mask, HIDDEN / 10), ops.maximum(mask, HIDDEN)


@handles("Attention")
def _attention(call: Call) -> Any:
    q, k, v = call.tensor(0), call.tensor(1), call.tensor(2)
    flat = rank(q) == 3
    if flat:
        q = _heads(q, call.get("q_num_heads"))
        k, v = (_heads(x, call.get("kv_num_heads")) for x in (k, v))
    past = 0
    if call.has(4):
        past = call.tensor(4).shape[2]
        k = ops.concatenate([call.tensor(4), k], axis=2)
        v = ops.concatenate([call.tensor(5), v], axis=2)
    present_k, present_v = k, v
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (ops.repeat(x, groups, axis=1) for x in (k, v))
    scale = math.sqrt(call.get("scale", 1 / math.sqrt(q.shape[-1])))
    queries, keys = q.shape[2], k.shape[2]
    scores = ops.matmul(q * scale, ops.transpose(k * scale, (0, 1, 3, 2)))
    cap = call.get("softcap", 0.0)
    capped = cap * ops.tanh(scores / cap) if cap else scores
    allowed, added = _mask(call, keys)
    seen = _seen(call, queries, keys, past)
    if allowed is not None:
        seen = allowed if seen is None else ops.logical_and(seen, allowed)
    masked = capped if added is None else capped + added
    biased = masked
    if seen is not None:
        seen = ops.broadcast_to(seen, tuple(masked.shape))
        biased = ops.where(seen, masked, -np.inf)
        masked = ops.where(seen, masked, HIDDEN)
    weights = ops.softmax(masked, axis=-1)
    if seen is not None:  # a query that sees no key attends to nothing
        weights = ops.where(seen, weights, 0.0)
        v = ops.where(ops.isfinite(v), v, 0.0) if call.has(6) else v
    out = ops.matmul(weights, v)
    if flat:
        out = ops.reshape(ops.transpose(out, (0, 2, 1, 3)), (q.shape[0], queries, -1))
    traced = (scores, capped, biased, weights)[call.get("qk_matmul_output_mode", 0)]
    return (out, present_k, present_v, traced)[: max(call.outputs, 1)]
