"""GPT-2 (https://openai.com/research/better-language-models): learnt positions, pre-norm, tanh GELU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops
from meganeura.zoo.generation import LanguageModel


@dataclass(frozen=True)
class GPT2Config:
    """Sizes; the defaults are the smallest GPT-2's (124 million weights)."""

    vocabulary: int = 50257
    positions: int = 1024
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    epsilon: float = 1e-5
    activation: str = "gelu_new"

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> GPT2Config:
        """From the dictionary in a `config.json`."""
        return cls(
            vocabulary=config["vocab_size"],
            positions=config["n_positions"],
            width=config["n_embd"],
            layers=config["n_layer"],
            heads=config["n_head"],
            inner=config.get("n_inner") or 4 * config["n_embd"],
            epsilon=config.get("layer_norm_epsilon", 1e-5),
            activation=config.get("activation_function", "gelu_new"),
        )


def gpt2(
    config: GPT2Config | None = None, length: int | None = None, name: str = "gpt2"
) -> LanguageModel:
    """A model from token ids (batch, length) to logits (batch, length, vocabulary)."""
    config = config or GPT2Config()
    if length is not None and length > config.positions:
        raise ValueError(f"length {length} is more than the {config.positions} positions it knows")
    width, heads = config.width, config.heads

    def norm(path: str, x: Any) -> Any:
        return layers.LayerNormalization(epsilon=config.epsilon, name=path)(x)

    ids = mg.Input((length,), dtype="int32", name="ids")
    embedding = layers.ReversibleEmbedding(config.vocabulary, width, name="transformer.wte")
    x = embedding(ids)
    x = x + layers.PositionEmbedding(config.positions, name="transformer.wpe")(x)
    for i in range(config.layers):
        block = f"transformer.h.{i}"
        joint = layers.Dense(3 * width, name=f"{block}.attn.c_attn")(norm(f"{block}.ln_1", x))
        q, k, v = (
            layers.SplitHeads(heads, name=f"{block}.attn.{part}_heads")(split)
            for part, split in zip("qkv", ops.split(joint, 3, axis=-1), strict=True)
        )
        attended = layers.ScaledDotProduct(causal=True, name=f"{block}.attn.core")(q, k, v)
        x = x + layers.Dense(width, name=f"{block}.attn.c_proj")(attended)
        h = layers.Dense(config.inner, name=f"{block}.mlp.c_fc")(norm(f"{block}.ln_2", x))
        h = layers.NamedActivation(config.activation, name=f"{block}.mlp.act")(h)
        x = x + layers.Dense(width, name=f"{block}.mlp.c_proj")(h)
    x = layers.LastToken(name="last_token")(norm("transformer.ln_f", x))
    return LanguageModel(ids, embedding(x, reverse=True), name=name)


#: Weights that Hugging Face stores as (inputs, outputs), unlike its other dense layers.
STORED_TRANSPOSED = ("c_attn", "c_proj", "c_fc")
