"""Decoder-only transformers of the LLaMA layout.

LLaMA 2 and 3, SmolLM2, TinyLlama, Mistral (sliding window), Qwen2 (biases on q, k, v), Qwen3
(norms on q and k) and their kin differ in a few switches. Layers carry the names that the weights
have in Hugging Face files, which is how `load_pretrained` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops
from meganeura.zoo.attention import RotaryEmbedding, ScaledDotProduct


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and switches; the defaults are SmolLM2-135M's."""

    vocabulary: int = 49152
    width: int = 576
    layers: int = 30
    heads: int = 9
    kv_heads: int = 3
    head_width: int = 64
    inner: int = 1536
    epsilon: float = 1e-5
    theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    tied_head: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    activation: str = "silu"

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> LlamaConfig:
        """From the dictionary in a `config.json`."""
        kind = config.get("model_type", "llama")
        heads = config["num_attention_heads"]
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        scaled = rope.get("rope_type", rope.get("type", "default")) != "default"
        window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
        bias = bool(config.get("attention_bias", kind == "qwen2"))
        return cls(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_width=config.get("head_dim") or config["hidden_size"] // heads,
            inner=config["intermediate_size"],
            epsilon=config.get("rms_norm_eps", 1e-6),
            theta=float(rope.get("rope_theta", config.get("rope_theta", 10000.0))),
            rope_scaling=rope if scaled else None,
            tied_head=config.get("tie_word_embeddings", False),
            qkv_bias=bias,
            output_bias=bias and kind != "qwen2",
            qk_norm=kind == "qwen3",
            window=window if kind in ("mistral", "qwen2", "qwen3") else None,
            activation=config.get("hidden_act", "silu"),
        )


class TiedHead(layers.Layer):
    """Logits from the transposed embedding matrix: x E^T."""

    def __init__(self, embedding: layers.Embedding, **kwargs: Any):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, x: Any) -> Any:
        return ops.matmul(x, ops.transpose(self.embedding.embeddings))


def attention(config: LlamaConfig, x: Any, name: str, length: int) -> Any:
    """Causal self-attention with rotary positions and grouped queries."""
    width, heads = (
        config.head_width,
        {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads},
    )
    parts = {}
    for part, count in heads.items():
        projected = layers.Dense(
            count * width, use_bias=config.qkv_bias, name=f"{name}.{part}_proj"
        )(x)
        split = ops.reshape(projected, (-1, length, count, width))
        if config.qk_norm and part != "v":
            norm = layers.RMSNormalization(epsilon=config.epsilon, name=f"{name}.{part}_norm")
            split = norm(split)
        if part != "v":
            rotary = RotaryEmbedding(
                config.theta, scaling=config.rope_scaling, name=f"{name}.{part}_rotary"
            )
            split = rotary(split)
        parts[part] = split
    core = ScaledDotProduct(causal=True, window=config.window, name=f"{name}.core")
    out = core(parts["q"], parts["k"], parts["v"])
    return layers.Dense(config.width, use_bias=config.output_bias, name=f"{name}.o_proj")(out)


def feed_forward(config: LlamaConfig, x: Any, name: str) -> Any:
    """down(act(gate(x)) * up(x)), the gated unit of arXiv 2002.05202."""
    gate = layers.Dense(config.inner, use_bias=False, name=f"{name}.gate_proj")(x)
    up = layers.Dense(config.inner, use_bias=False, name=f"{name}.up_proj")(x)
    act = layers.Activation(config.activation, name=f"{name}.act_fn")(gate)
    return layers.Dense(config.width, use_bias=False, name=f"{name}.down_proj")(act * up)


def llama(config: LlamaConfig | None = None, length: int = 128, name: str = "llama") -> Any:
    """A model from token ids (batch, length) to logits (batch, length, vocabulary)."""
    config = config or LlamaConfig()
    ids = mg.Input((length,), dtype="int32", name="ids")
    embedding = layers.Embedding(config.vocabulary, config.width, name="model.embed_tokens")
    x = embedding(ids)
    for i in range(config.layers):
        block = f"model.layers.{i}"
        norm = layers.RMSNormalization(epsilon=config.epsilon, name=f"{block}.input_layernorm")
        x = x + attention(config, norm(x), f"{block}.self_attn", length)
        norm = layers.RMSNormalization(
            epsilon=config.epsilon, name=f"{block}.post_attention_layernorm"
        )
        x = x + feed_forward(config, norm(x), f"{block}.mlp")
    x = layers.RMSNormalization(epsilon=config.epsilon, name="model.norm")(x)
    if config.tied_head:
        logits = TiedHead(embedding, name="tied_head")(x)
    else:
        logits = layers.Dense(config.vocabulary, use_bias=False, name="lm_head")(x)
    return mg.Model(ids, logits, name=name)
