"""The parts of transformers that have few weights or none: heads, attention, gated units, tied heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meganeura import activations, ops
from meganeura.layers.core import Dense, Embedding
from meganeura.layers.decoding import decoding
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings, known_channels

#: The score of a position that may not be seen: finite, so that no kernel sees inf - inf.
HIDDEN = -1e9


def alibi_slopes(heads: int) -> np.ndarray:
    """The slopes of ALiBi (arXiv 2108.12409): 2^(-8i/n) for a power of two, interleaved beyond it."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    more = 2.0 ** (-4.0 * np.arange(1, 2 * (heads - power), 2) / power)
    return np.concatenate([slopes, more]).astype("float32")


class SplitHeads(Settings, Layer):
    """(batch, length, heads * width) as (batch, length, heads, width)."""

    arguments = ("heads",)

    def __init__(self, heads: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.heads = heads

    def call(self, x: Any) -> Any:
        batch, length, width = x.shape
        if width % self.heads:
            raise ValueError(
                f"layer {self.name!r}: {width} features do not split into {self.heads} heads"
            )
        return ops.reshape(x, (batch, length, self.heads, width // self.heads))


class ScaledDotProduct(Settings, Layer):
    """softmax(q k^T * scale + bias) v over heads, with grouped queries.

    q (batch, queries, heads, width), k and v (batch, keys, kv_heads, width), where heads is a multiple
    of kv_heads. The result is (batch, queries, heads * width). `key_mask` (batch, keys) is true (or 1)
    where a key may be seen; `segments` (batch, length) are numbers of the texts that were packed into a
    row: tokens see those of their own text only.

    causal:  tokens see themselves and what is before them
    window:  how many tokens a causal query sees, itself included
    scale:   1/sqrt(width) without it
    softcap: scores become softcap * tanh(score / softcap) (arXiv 2408.00118)
    alibi:   scores fall with the distance, by a slope for each head (arXiv 2108.12409)
    cross:   the keys are not of this text: while it grows, they stay as they were
    """

    arguments = ("causal", "window", "scale", "softcap", "alibi", "cross")

    def __init__(
        self,
        causal: bool = False,
        window: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        alibi: bool = False,
        cross: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if window is not None and (not causal or window < 1):
            raise ValueError(
                f"layer {self.name!r}: a window is a positive number of tokens of causal attention, got "
                f"window={window!r} and causal={causal}"
            )
        self.causal = causal
        self.window = window
        self.scale = scale
        self.softcap = softcap
        self.alibi = alibi
        self.cross = cross

    def call(self, q: Any, k: Any, v: Any, key_mask: Any = None, segments: Any = None) -> Any:
        batch, queries, heads, width = q.shape
        kv_heads = k.shape[2]
        if heads % kv_heads:
            raise ValueError(
                f"layer {self.name!r}: {heads} heads of queries are no multiple of {kv_heads} of keys"
            )
        groups = heads // kv_heads
        q, k, v = (ops.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
        row, k, v, column = self._positions(k, v, queries)
        keys = k.shape[2]
        q = ops.reshape(q, (batch, kv_heads, groups * queries, width))
        scores = ops.matmul(q, ops.swapaxes(k, 2, 3)) * (self.scale or 1 / math.sqrt(width))
        scores = ops.reshape(scores, (batch, kv_heads, groups, queries, keys))
        if self.softcap:
            scores = self.softcap * ops.tanh(scores / self.softcap)
        # (batch or 1, 1, 1, queries, keys): how far back a key is
        back = ops.expand_dims(row, -1) - ops.expand_dims(column, -2)
        back = ops.reshape(back, (-1, 1, 1, queries, keys))
        if self.alibi:
            slopes = ops.reshape(alibi_slopes(heads), (1, kv_heads, groups, 1, 1))
            scores = scores - slopes * ops.cast(ops.abs(back), "float32")
        seen = []
        if self.causal:
            seen.append(ops.greater_equal(back, 0))
            if not isinstance(column, np.ndarray):  # slots of a cache that hold nothing yet
                seen.append(ops.reshape(ops.greater_equal(column, 0), (-1, 1, 1, 1, keys)))
            if self.window is not None:
                seen.append(ops.less(back, self.window))
        if key_mask is not None:
            seen.append(ops.cast(ops.reshape(key_mask, (-1, 1, 1, 1, keys)), "bool"))
        if segments is not None:
            same = ops.equal(ops.expand_dims(segments, -1), ops.expand_dims(segments, -2))
            seen.append(ops.reshape(same, (-1, 1, 1, queries, keys)))
        scores = ops.cast(scores, "float32")  # half precision does not reach as far as HIDDEN
        for condition in seen:
            scores = ops.where(condition, scores, HIDDEN)
        weights = ops.reshape(
            ops.cast(ops.softmax(scores, axis=-1), v.dtype),
            (batch, kv_heads, groups * queries, keys),
        )
        out = ops.reshape(ops.matmul(weights, v), (batch, heads, queries, v.shape[-1]))
        return ops.reshape(
            ops.transpose(out, (0, 2, 1, 3)), (batch, queries, heads * out.shape[-1])
        )

    def _positions(self, k: Any, v: Any, queries: int) -> tuple[Any, Any, Any, Any]:
        """Positions of the queries, the keys and values to look at, and their positions."""
        now = decoding()
        if now is None or not (self.causal or self.cross):
            keys = k.shape[2]
            column = np.arange(keys, dtype="int32")[None]
            return np.arange(queries, dtype="int32")[None] + (keys - queries), k, v, column
        if self.cross:
            k, v = now.keep(self, k, v)
            column = np.arange(k.shape[2], dtype="int32")[None]
            return np.zeros((1, queries), "int32"), k, v, column
        row = now.positions(queries)
        return (row, *now.remember(self, k, v, self.window))

    def compute_output_shape(
        self, q_shape: Any, k_shape: Any = None, v_shape: Any = None, **_: Any
    ) -> Any:
        width = (v_shape or q_shape)[-1]
        return (*q_shape[:2], q_shape[2] * width)


class GatedFeedForward(Settings, Layer):
    """down(act(gate(x)) * up(x)), the gated units of arXiv 2002.05202.

    intermediate_dim: the length of gate(x) and up(x); the result is as long as x
    activation:       "silu" makes it SwiGLU, "gelu" GeGLU (or "gelu_tanh": GELU by its tanh formula)
    use_bias:         whether the three products have biases
    """

    arguments = ("intermediate_dim", "use_bias")

    def __init__(
        self,
        intermediate_dim: int,
        activation: Any = "silu",
        use_bias: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.use_bias = use_bias
        self.supports_masking = True
        own: dict[str, Any] = {"use_bias": use_bias, "dtype": self.dtype_policy}
        self.gate_proj = Dense(intermediate_dim, name="gate_proj", **own)
        self.up_proj = Dense(intermediate_dim, name="up_proj", **own)
        self.down_proj: Any = None

    def get_config(self) -> dict[str, Any]:
        chosen = self.activation  # a name stays one: activations.get knows fewer
        named = chosen if isinstance(chosen, str) else activations.serialize(chosen)
        return {**super().get_config(), "activation": named}

    def build(self, input_shape: Any) -> None:
        width = known_channels(self, input_shape, -1)
        self.down_proj = Dense(
            width, use_bias=self.use_bias, dtype=self.dtype_policy, name="down_proj"
        )
        self.gate_proj.build(input_shape)
        self.up_proj.build(input_shape)
        self.down_proj.build((*tuple(input_shape)[:-1], self.intermediate_dim))

    def call(self, x: Any) -> Any:
        act = activation(self.activation)
        return self.down_proj(act(self.gate_proj(x)) * self.up_proj(x))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return tuple(input_shape)


def activation(name: Any) -> Any:
    """An activation by Keras's name or by one of those that Hugging Face's configurations use."""
    if name in ("gelu_new", "gelu_pytorch_tanh", "gelu_tanh", "gelu_fast"):
        return lambda x: ops.gelu(x, approximate=True)
    if name == "gelu":
        return lambda x: ops.gelu(x, approximate=False)
    if name == "quick_gelu":
        return lambda x: x * ops.sigmoid(1.702 * x)
    return activations.get(name)


class NamedActivation(Settings, Layer):
    """out = f(x), where `activation` names f as Hugging Face's configurations do; gelu is the exact one."""

    arguments = ("activation_name",)

    def __init__(self, activation_name: str, **kwargs: Any):
        super().__init__(**kwargs)
        activation(activation_name)  # an unknown name is told of now
        self.activation_name = activation_name
        self.supports_masking = True

    def call(self, x: Any) -> Any:
        return activation(self.activation_name)(x)


class LastToken(Layer):
    """Nothing, but when prompts are read to be continued: then of each row its last token alone."""

    def call(self, x: Any) -> Any:
        now = decoding()
        if now is None or not now.first:
            return x
        last = ops.reshape(now.counts, (-1, 1, 1)) - 1
        index = ops.broadcast_to(last, (x.shape[0], 1, x.shape[2]))
        return ops.take_along_axis(x, index, axis=1)


class ReversibleEmbedding(Embedding):
    """An embedding whose table also gives the logits: `layer(x, reverse=True)` is x E^T.

    logit_soft_cap: logits become cap * tanh(logits / cap) (arXiv 2408.00118)
    scale:          what the looked up vectors are multiplied by
    padding_token:  a token whose vector looking it up does not train
    """

    arguments: tuple[str, ...] = (  # type: ignore[assignment]
        *Embedding.arguments, "logit_soft_cap", "scale", "padding_token",
    )  # fmt: skip

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        logit_soft_cap: float | None = None,
        scale: float | None = None,
        padding_token: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(input_dim, output_dim, **kwargs)
        self.padding_token = padding_token
        self.logit_soft_cap = logit_soft_cap
        self.scale = scale

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if not reverse:
            rows = super().call(inputs)
            if self.padding_token is not None:
                padding = ops.expand_dims(ops.equal(inputs, self.padding_token), -1)
                rows = ops.where(padding, ops.stop_gradient(rows), rows)
            return rows * self.scale if self.scale else rows
        logits, cap = ops.matmul(inputs, ops.transpose(self.embeddings)), self.logit_soft_cap
        if self.lora is not None and not self.lora.merged:
            thin = ops.matmul(inputs, ops.transpose(self.lora.b)) * self.lora.scale
            logits = logits + ops.matmul(thin, ops.transpose(self.lora.a))
        return cap * ops.tanh(logits / cap) if cap else logits

    def compute_output_shape(self, input_shape: Any, reverse: bool = False) -> Any:
        if reverse:
            return (*tuple(input_shape)[:-1], self.input_dim)
        return (*tuple(input_shape), self.output_dim)
