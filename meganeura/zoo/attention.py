"""The parts of attention that have no weights, shared by the transformers of the zoo."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.layers import Layer

#: Added to the scores of positions that may not be seen: finite, so that no kernel sees inf - inf.
HIDDEN = -1e9


def rotary_frequencies(width: int, theta: float, scaling: dict[str, Any] | None) -> np.ndarray:
    """The angle per position of each of the width/2 pairs: theta^(-2i/width), scaled.

    `scaling` is the "rope_scaling" of a Hugging Face configuration; the types default, linear and
    llama3 (arXiv 2407.21783) are known. Raises ValueError for others.
    """
    angles = theta ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if kind == "default" or scaling is None:
        return angles
    factor = float(scaling["factor"])
    if kind == "linear":
        return angles / factor
    if kind == "llama3":
        low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
        length = float(scaling["original_max_position_embeddings"])
        turns = length * angles / (2 * math.pi)
        blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
        return angles * (blend + (1 - blend) / factor)
    raise ValueError(f"rotary scaling {kind!r} is not offered; use default, linear or llama3")


class RotaryEmbedding(Layer):
    """Rotate pairs of features by their position (RoPE, arXiv 2104.09864).

    out = x * cos(p w) + rotate(x) * sin(p w), for x of shape (batch, length, heads, width) and
    positions p = offset, offset + 1, ... The pairs are (i, i + width/2), or with `interleaved`
    (2i, 2i + 1). Only the first `rotary_width` features turn where it is given.
    """

    def __init__(
        self,
        theta: float = 10000.0,
        interleaved: bool = False,
        scaling: dict[str, Any] | None = None,
        rotary_width: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.theta = theta
        self.interleaved = interleaved
        self.scaling = scaling
        self.rotary_width = rotary_width

    def call(self, x: Any, offset: Any = 0) -> Any:
        length, width = x.shape[1], self.rotary_width or x.shape[-1]
        turning = x[..., :width]
        angles = rotary_frequencies(width, self.theta, self.scaling).astype("float32")
        positions = ops.cast(ops.arange(length), "float32") + ops.cast(offset, "float32")
        turn = ops.expand_dims(positions, 1) * ops.expand_dims(ops.convert_to_tensor(angles), 0)
        cosine, sine = (
            ops.reshape(f(turn), (1, length, 1, width // 2)) for f in (ops.cos, ops.sin)
        )
        if self.interleaved:
            first, second = turning[..., 0::2], turning[..., 1::2]
        else:
            first, second = turning[..., : width // 2], turning[..., width // 2 :]
        turned = (first * cosine - second * sine, second * cosine + first * sine)
        if self.interleaved:
            out = ops.reshape(ops.stack(turned, axis=-1), ops.shape(turning))
        else:
            out = ops.concatenate(turned, axis=-1)
        return out if width == x.shape[-1] else ops.concatenate([out, x[..., width:]], axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "theta": self.theta,
            "interleaved": self.interleaved,
            "scaling": self.scaling,
            "rotary_width": self.rotary_width,
        }


class ScaledDotProduct(Layer):
    """softmax(q k^T * scale + mask) v over heads, with grouped queries.

    q has the shape (batch, queries, heads, width), k and v (batch, keys, kv_heads, width), where
    heads is a multiple of kv_heads. The result is (batch, queries, heads * width).
    `key_mask` is (batch, keys), true (or 1) where a key may be seen. `window` limits how far back a
    causal query sees; `scale` defaults to 1/sqrt(width).
    """

    def __init__(
        self,
        causal: bool = False,
        window: int | None = None,
        scale: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.causal = causal
        self.window = window
        self.scale = scale

    def call(self, q: Any, k: Any, v: Any, key_mask: Any = None) -> Any:
        queries, heads, width = q.shape[1:]
        keys, kv_heads = k.shape[1:3]
        groups = heads // kv_heads
        scale = self.scale or 1 / math.sqrt(width)
        q = ops.transpose(ops.reshape(q, (-1, queries, kv_heads, groups, width)), (0, 2, 3, 1, 4))
        k = ops.reshape(ops.transpose(k, (0, 2, 3, 1)), (-1, kv_heads, 1, width, keys))
        v = ops.reshape(ops.transpose(v, (0, 2, 1, 3)), (-1, kv_heads, 1, keys, v.shape[-1]))
        scores = ops.matmul(q, k) * scale
        if self.causal:
            row = ops.expand_dims(ops.arange(queries), 1) + (keys - queries)
            column = ops.expand_dims(ops.arange(keys), 0)
            seen = ops.less_equal(column, row)
            if self.window is not None:
                seen = ops.logical_and(seen, ops.less(row - column, self.window))
            scores = ops.where(seen, scores, HIDDEN)
        if key_mask is not None:
            seen = ops.cast(ops.reshape(key_mask, (-1, 1, 1, 1, keys)), "bool")
            scores = ops.where(seen, scores, HIDDEN)
        out = ops.matmul(ops.softmax(scores, axis=-1), v)
        return ops.reshape(ops.transpose(out, (0, 3, 1, 2, 4)), (-1, queries, heads * v.shape[-1]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "causal": self.causal,
            "window": self.window,
            "scale": self.scale,
        }
