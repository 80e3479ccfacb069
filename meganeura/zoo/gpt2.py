"""GPT-2 (https://openai.com/research/better-language-models): learnt positions, pre-norm, tanh GELU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops
from meganeura.zoo.attention import ScaledDotProduct
from meganeura.zoo.llama import TiedHead


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
        )


class LearntPositions(layers.Layer):
    """x[b, t] + table[offset + t]: one learnt vector per position."""

    def __init__(self, positions: int, offset: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.positions = positions
        self.offset = offset

    def build(self, input_shape: Any) -> None:
        self.embeddings = self.add_weight(
            shape=(self.positions, input_shape[-1]), initializer="uniform", name="embeddings"
        )

    def call(self, x: Any) -> Any:
        return x + self.embeddings[self.offset : self.offset + x.shape[1]]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "positions": self.positions, "offset": self.offset}


def gpt2(config: GPT2Config | None = None, length: int = 128, name: str = "gpt2") -> Any:
    """A model from token ids (batch, length) to logits (batch, length, vocabulary)."""
    config = config or GPT2Config()
    if length > config.positions:
        raise ValueError(f"length {length} is more than the {config.positions} positions it knows")
    width, heads = config.width, config.heads

    def norm(path: str, x: Any) -> Any:
        return layers.LayerNormalization(epsilon=config.epsilon, name=path)(x)

    ids = mg.Input((length,), dtype="int32", name="ids")
    embedding = layers.Embedding(config.vocabulary, width, name="transformer.wte")
    x = LearntPositions(config.positions, name="transformer.wpe")(embedding(ids))
    for i in range(config.layers):
        block = f"transformer.h.{i}"
        joint = layers.Dense(3 * width, name=f"{block}.attn.c_attn")(norm(f"{block}.ln_1", x))
        q, k, v = (
            ops.reshape(part, (-1, length, heads, width // heads))
            for part in ops.split(joint, 3, axis=-1)
        )
        attended = ScaledDotProduct(causal=True, name=f"{block}.attn.core")(q, k, v)
        x = x + layers.Dense(width, name=f"{block}.attn.c_proj")(attended)
        h = layers.Dense(config.inner, name=f"{block}.mlp.c_fc")(norm(f"{block}.ln_2", x))
        x = x + layers.Dense(width, name=f"{block}.mlp.c_proj")(ops.gelu(h, approximate=True))
    logits = TiedHead(embedding, name="tied_head")(norm("transformer.ln_f", x))
    return mg.Model(ids, logits, name=name)


#: Weights that Hugging Face stores as (inputs, outputs), unlike its other dense layers.
STORED_TRANSPOSED = ("c_attn", "c_proj", "c_fc")
