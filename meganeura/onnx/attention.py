"""ONNX's attention operator (version 23 on)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.onnx.registry import Call, dtype_of, handles, rank

HIDDEN = -1e9


def _heads(x: Any, count: int) -> Any:
    """(batch, length, heads * width) -> (batch, heads, length, width)."""
    batch, length, _ = x.shape
    return ops.transpose(ops.reshape(x, (batch, length, count, -1)), (0, 2, 1, 3))


@handles("Attention")
def _attention(call: Call) -> Any:
    q, k, v = call.tensor(0), call.tensor(1), call.tensor(2)
    flat = rank(q) == 3
    if flat:
        q = _heads(q, call.get("q_num_heads"))
        k, v = (_heads(x, call.get("kv_num_heads")) for x in (k, v))
    present_k, present_v, past = k, v, 0
    if call.has(4):
        past = call.tensor(4).shape[2]
        present_k = k = ops.concatenate([call.tensor(4), k], axis=2)
        present_v = v = ops.concatenate([call.tensor(5), v], axis=2)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = (ops.repeat(x, groups, axis=1) for x in (k, v))
    scale = math.sqrt(call.get("scale", 1 / math.sqrt(q.shape[-1])))
    scores = ops.matmul(q * scale, ops.transpose(k * scale, (0, 1, 3, 2)))
    wanted = call.get("qk_matmul_output_mode", 0)
    traced = scores
    queries, keys = q.shape[2], k.shape[2]
    masked = scores
    if call.get("is_causal", 0):
        seen = np.tri(queries, keys, past, dtype=bool)
        masked = ops.where(seen, masked, HIDDEN)
    if call.has(3):
        mask = call.tensor(3)
        if mask.shape[-1] < keys:
            widths = [(0, 0)] * (rank(mask) - 1) + [(0, keys - mask.shape[-1])]
            fill = False if dtype_of(mask) == "bool" else HIDDEN
            mask = ops.pad(mask, widths, constant_values=fill)
        masked = ops.where(mask, masked, HIDDEN) if dtype_of(mask) == "bool" else masked + mask
    if call.has(6):
        lengths = ops.reshape(ops.cast(call.tensor(6), "int32"), (-1, 1, 1, 1))
        masked = ops.where(ops.less(np.arange(keys, dtype="int32"), lengths), masked, HIDDEN)
    cap = call.get("softcap", 0.0)
    capped = cap * ops.tanh(masked / cap) if cap else masked
    weights = ops.softmax(capped, axis=-1)
    traced = {0: scores, 1: masked, 2: capped, 3: weights}[wanted]
    out = ops.matmul(weights, v)
    if flat:
        out = ops.reshape(ops.transpose(out, (0, 2, 1, 3)), (q.shape[0], queries, -1))
    return (out, present_k, present_v, traced)[: max(call.outputs, 1)]
