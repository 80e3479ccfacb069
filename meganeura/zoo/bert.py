"""BERT (arXiv 1810.04805): a post-norm encoder with token types, and a pooled classification head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers


@dataclass(frozen=True)
class BertConfig:
    """Sizes; the defaults are BERT-base's."""

    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    classes: int = 2
    epsilon: float = 1e-12
    activation: str = "gelu"
    padding_token: int | None = 0

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> BertConfig:
        """From the dictionary in a `config.json`."""
        return cls(
            vocabulary=config["vocab_size"],
            positions=config["max_position_embeddings"],
            types=config.get("type_vocab_size", 2),
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            inner=config["intermediate_size"],
            classes=len(config.get("id2label") or {0: 0, 1: 1}),
            epsilon=config.get("layer_norm_eps", 1e-12),
            activation=config.get("hidden_act", "gelu"),
            padding_token=config.get("pad_token_id", 0),
        )


def bert_classifier(
    config: BertConfig | None = None, length: int | None = None, name: str = "bert"
) -> Any:
    """A model from {ids, mask, types}, each (batch, length), to logits (batch, classes).

    mask is 1 for tokens and 0 for padding.
    """
    config = config or BertConfig()
    width = config.width

    def norm(path: str, x: Any) -> Any:
        return layers.LayerNormalization(epsilon=config.epsilon, name=path)(x)

    def dense(path: str, units: int, x: Any, activation: str | None = None) -> Any:
        return layers.Dense(units, activation=activation, name=path)(x)

    ids, mask, types = (
        mg.Input((length,), dtype="int32", name=n) for n in ("ids", "mask", "types")
    )
    words = layers.ReversibleEmbedding(
        config.vocabulary,
        width,
        padding_token=config.padding_token,
        name="bert.embeddings.word_embeddings",
    )
    kinds = layers.Embedding(config.types, width, name="bert.embeddings.token_type_embeddings")
    x = words(ids) + kinds(types)
    places = layers.PositionEmbedding(config.positions, name="bert.embeddings.position_embeddings")
    x = norm("bert.embeddings.LayerNorm", x + places(x))
    for i in range(config.layers):
        block = f"bert.encoder.layer.{i}"
        q, k, v = (
            layers.SplitHeads(config.heads, name=f"{block}.attention.{part}_heads")(
                dense(f"{block}.attention.self.{part}", width, x)
            )
            for part in ("query", "key", "value")
        )
        attended = layers.ScaledDotProduct(name=f"{block}.attention.core")(q, k, v, key_mask=mask)
        attended = dense(f"{block}.attention.output.dense", width, attended)
        x = norm(f"{block}.attention.output.LayerNorm", x + attended)
        h = dense(f"{block}.intermediate.dense", config.inner, x)
        h = layers.NamedActivation(config.activation, name=f"{block}.intermediate.act")(h)
        h = dense(f"{block}.output.dense", width, h)
        x = norm(f"{block}.output.LayerNorm", x + h)
    pooled = dense("bert.pooler.dense", width, x[:, 0], "tanh")
    return mg.Model(
        {"ids": ids, "mask": mask, "types": types},
        dense("classifier", config.classes, pooled),
        name=name,
    )
