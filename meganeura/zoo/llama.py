"""Decoder-only transformers of the LLaMA layout.

LLaMA 2 and 3, SmolLM2 and 3, TinyLlama, Mistral (sliding window), Qwen2 (biases on q, k, v), Qwen3
(norms on q and k), Phi-3 (joint projections), Gemma 1 to 3 (scaled embeddings, norms after each part)
differ in a few switches. Layers carry the names that the weights have in Hugging Face files, which is
how `load_weights` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops
from meganeura.zoo.generation import LanguageModel


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and switches; the defaults are SmolLM2-135M's.

    windows: for each layer how many tokens it sees, None for all; rotary: for each layer its angles
    (theta, scaling), None for no rotation. Without them all layers are alike.
    """

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
    rotary_width: int | None = None
    tied_head: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    activation: str = "silu"
    joint_projections: bool = False
    post_norms: bool = False
    embedding_scale: float | None = None
    attention_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    padding_token: int | None = None
    windows: tuple[int | None, ...] | None = None
    rotary: tuple[tuple[float, dict[str, Any] | None] | None, ...] | None = None

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> LlamaConfig:
        """From the dictionary in a `config.json`."""
        from meganeura.zoo.llama_configs import llama_config

        return cls(**llama_config(config))


def _dense(name: str, units: int, bias: bool = False) -> layers.Dense:
    return layers.Dense(units, use_bias=bias, name=name)


def _norm(config: LlamaConfig, name: str) -> layers.RMSNormalization:
    return layers.RMSNormalization(epsilon=config.epsilon, name=name)


def attention(config: LlamaConfig, x: Any, name: str, index: int, segments: Any = None) -> Any:
    """Causal self-attention of layer `index`, with rotary positions and grouped queries."""
    width = config.head_width
    heads = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
    if config.joint_projections:
        joint = _dense(f"{name}.qkv_proj", sum(heads.values()) * width, config.qkv_bias)(x)
        ends = [config.heads * width, (config.heads + config.kv_heads) * width]
        projected = dict(zip(heads, ops.split(joint, ends, axis=-1), strict=True))
    else:
        projected = {
            part: _dense(f"{name}.{part}_proj", count * width, config.qkv_bias)(x)
            for part, count in heads.items()
        }
    turns = config.rotary[index] if config.rotary else (config.theta, config.rope_scaling)
    parts = {}
    for part, count in heads.items():
        split = layers.SplitHeads(count, name=f"{name}.{part}_heads")(projected[part])
        if config.qk_norm and part != "v":
            split = _norm(config, f"{name}.{part}_norm")(split)
        if turns is not None and part != "v":
            theta, scaling = turns
            split = layers.RotaryEmbedding(
                theta,
                scaling=scaling,
                rotary_width=config.rotary_width,
                name=f"{name}.{part}_rotary",
            )(split)
        parts[part] = split
    core = layers.ScaledDotProduct(
        causal=True,
        window=config.windows[index] if config.windows else config.window,
        scale=config.attention_scale,
        softcap=config.attention_softcap,
        name=f"{name}.core",
    )
    out = core(parts["q"], parts["k"], parts["v"], segments=segments)
    return _dense(f"{name}.o_proj", config.width, config.output_bias)(out)


def feed_forward(config: LlamaConfig, x: Any, name: str) -> Any:
    """down(act(gate(x)) * up(x)), the gated unit of arXiv 2002.05202."""
    if config.joint_projections:
        joint = _dense(f"{name}.gate_up_proj", 2 * config.inner, config.mlp_bias)(x)
        gate, up = ops.split(joint, 2, axis=-1)
    else:
        gate, up = (
            _dense(f"{name}.{part}_proj", config.inner, config.mlp_bias)(x)
            for part in ("gate", "up")
        )
    act = layers.NamedActivation(config.activation, name=f"{name}.act_fn")(gate)
    return _dense(f"{name}.down_proj", config.width, config.mlp_bias)(act * up)


def decoder(config: LlamaConfig, x: Any, prefix: str = "model.", segments: Any = None) -> Any:
    """The blocks and the last norm, on embedded tokens (batch, length, width)."""
    for i in range(config.layers):
        block = f"{prefix}layers.{i}"
        h = _norm(config, f"{block}.input_layernorm")(x)
        h = attention(config, h, f"{block}.self_attn", i, segments)
        if config.post_norms:
            x = x + _norm(config, f"{block}.post_attention_layernorm")(h)
            h = _norm(config, f"{block}.pre_feedforward_layernorm")(x)
            h = feed_forward(config, h, f"{block}.mlp")
            x = x + _norm(config, f"{block}.post_feedforward_layernorm")(h)
        else:
            x = x + h
            h = _norm(config, f"{block}.post_attention_layernorm")(x)
            x = x + feed_forward(config, h, f"{block}.mlp")
    return _norm(config, f"{prefix}norm")(x)


def head(config: LlamaConfig, x: Any, embedding: Any) -> Any:
    """Logits, from the embedding's table or from one of their own."""
    x = layers.LastToken(name="last_token")(x)
    if config.tied_head:
        return embedding(x, reverse=True)
    logits = _dense("lm_head", config.vocabulary)(x)
    cap = config.logit_softcap
    return cap * ops.tanh(logits / cap) if cap else logits


def llama(
    config: LlamaConfig | None = None,
    length: int | None = None,
    packed: bool = False,
    name: str = "llama",
) -> LanguageModel:
    """A model from token ids (batch, length) to logits (batch, length, vocabulary).

    length: None for any length; packed: it takes {"ids", "segments"} instead, where segments (batch,
    length) number the texts that share a row, and tokens see those of their own text only.
    """
    config = config or LlamaConfig()
    ids = mg.Input((length,), dtype="int32", name="ids")
    segments = mg.Input((length,), dtype="int32", name="segments") if packed else None
    embedding = layers.ReversibleEmbedding(
        config.vocabulary,
        config.width,
        scale=config.embedding_scale,
        logit_soft_cap=config.logit_softcap if config.tied_head else None,
        padding_token=config.padding_token,
        name="model.embed_tokens",
    )
    x = decoder(config, embedding(ids), segments=segments)
    inputs = {"ids": ids, "segments": segments} if packed else ids
    return LanguageModel(inputs, head(config, x, embedding), name=name)
