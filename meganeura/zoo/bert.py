"""Encoders of text: BERT (arXiv 1810.04805), RoBERTa (1907.11692) and DistilBERT (1910.01108).

Post-norm blocks on word, position and (in BERT and RoBERTa) type embeddings, with one of several heads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import meganeura as mg
from meganeura import layers, ops
from meganeura.layers.settings import Settings
from meganeura.utils import register_keras_serializable


@dataclass(frozen=True)
class BertConfig:
    """Sizes; the defaults are BERT-base's. family: "bert", "roberta" or "distilbert"."""

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
    family: str = "bert"

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> BertConfig:
        """From the dictionary in a `config.json`."""
        kind = config.get("model_type", "bert")
        distilled = kind == "distilbert"
        common = {
            "vocabulary": config["vocab_size"],
            "positions": config["max_position_embeddings"],
            "classes": len(config.get("id2label") or {0: 0, 1: 1}),
            "padding_token": config.get("pad_token_id", 1 if kind == "roberta" else 0),
            "family": kind,
        }
        if distilled:
            if config.get("sinusoidal_pos_embds"):
                raise ValueError("distilbert: sinusoidal_pos_embds=true is not offered")
            names = {
                "width": "dim",
                "layers": "n_layers",
                "heads": "n_heads",
                "inner": "hidden_dim",
            }
            sizes = {own: config[name] for own, name in names.items()}
            return cls(**common, **sizes, types=0, activation=config.get("activation", "gelu"))
        return cls(
            **common,
            types=config.get("type_vocab_size", 2),
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            inner=config["intermediate_size"],
            epsilon=config.get("layer_norm_eps", 1e-12),
            activation=config.get("hidden_act", "gelu"),
        )


#: Part of a block -> the name of its layer in files.
_BERT = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "out": "attention.output.dense", "norm1": "attention.output.LayerNorm",
    "up": "intermediate.dense", "down": "output.dense", "norm2": "output.LayerNorm",
}  # fmt: skip
_DISTILBERT = {
    "q": "attention.q_lin", "k": "attention.k_lin", "v": "attention.v_lin",
    "out": "attention.out_lin", "norm1": "sa_layer_norm", "up": "ffn.lin1", "down": "ffn.lin2",
    "norm2": "output_layer_norm",
}  # fmt: skip

#: What a model may give, see `bert`.
HEADS = ("classifier", "token_classifier", "masked", "features")


@register_keras_serializable("meganeura")
class TokenPositions(Settings, layers.Layer):
    """RoBERTa's positions of ids (batch, length): counted from padding_token + 1, padding not counted."""

    arguments = ("padding_token",)

    def __init__(self, padding_token: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.padding_token = padding_token

    def call(self, ids: Any) -> Any:
        real = ops.cast(ops.not_equal(ids, self.padding_token), "int32")
        return ops.cumsum(real, axis=1) * real + self.padding_token


@register_keras_serializable("meganeura")
class OutputBias(layers.Layer):
    """x + b, a bias of its own for logits that come from an embedding's table."""

    def build(self, input_shape: Any) -> None:
        self.bias = self.add_weight((input_shape[-1],), "zeros", name="bias")

    def call(self, x: Any) -> Any:
        return x + self.bias


def _norm(config: BertConfig, path: str, x: Any) -> Any:
    return layers.LayerNormalization(epsilon=config.epsilon, name=path)(x)


def _embedded(config: BertConfig, prefix: str, words: Any, ids: Any, types: Any) -> Any:
    """Words, positions and types, normalised."""
    path, width = f"{prefix}embeddings", config.width
    x = words(ids)
    if types is not None:
        kinds = layers.Embedding(config.types, width, name=f"{path}.token_type_embeddings")
        x = x + kinds(types)
    name = f"{path}.position_embeddings"
    if config.family == "roberta":
        pad = config.padding_token
        pad = 1 if pad is None else pad
        table = layers.ReversibleEmbedding(config.positions, width, padding_token=pad, name=name)
        x = x + table(TokenPositions(pad, name=f"{path}.positions")(ids))
    else:
        x = x + layers.PositionEmbedding(config.positions, name=name)(x)
    return _norm(config, f"{path}.LayerNorm", x)


def _block(config: BertConfig, path: str, x: Any, mask: Any) -> Any:
    names = _DISTILBERT if config.family == "distilbert" else _BERT

    def dense(part: str, units: int, x: Any) -> Any:
        return layers.Dense(units, name=f"{path}.{names[part]}")(x)

    q, k, v = (
        layers.SplitHeads(config.heads, name=f"{path}.{part}_heads")(dense(part, config.width, x))
        for part in "qkv"
    )
    attended = layers.ScaledDotProduct(name=f"{path}.core")(q, k, v, key_mask=mask)
    x = _norm(config, f"{path}.{names['norm1']}", x + dense("out", config.width, attended))
    h = dense("up", config.inner, x)
    h = layers.NamedActivation(config.activation, name=f"{path}.act")(h)
    return _norm(config, f"{path}.{names['norm2']}", x + dense("down", config.width, h))


def _head(config: BertConfig, head: str, prefix: str, x: Any, words: Any) -> Any:
    width, family = config.width, config.family

    def dense(path: str, units: int, x: Any, act: str | None = None) -> Any:
        return layers.Dense(units, activation=act, name=path)(x)

    if head == "token_classifier":
        return dense("classifier", config.classes, x)
    if head == "masked":
        paths = {
            "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                     "cls.predictions"),
            "roberta": ("lm_head.dense", "lm_head.layer_norm", "lm_head"),
            "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector"),
        }[family]  # fmt: skip
        act = "gelu" if family == "roberta" else config.activation
        h = layers.NamedActivation(act, name="head_act")(dense(paths[0], width, x))
        return OutputBias(name=paths[2])(words(_norm(config, paths[1], h), reverse=True))
    if head == "features":
        return x
    first = x[:, 0]
    if family == "roberta":
        first = dense("classifier.dense", width, first, "tanh")
        return dense("classifier.out_proj", config.classes, first)
    if family == "distilbert":
        return dense("classifier", config.classes, dense("pre_classifier", width, first, "relu"))
    first = dense(f"{prefix}pooler.dense", width, first, "tanh")
    return dense("classifier", config.classes, first)


def bert(
    config: BertConfig | None = None,
    head: str = "classifier",
    length: int | None = None,
    prefix: str | None = None,
    name: str = "bert",
) -> Any:
    """A model from {ids, mask, types}, each (batch, length) (DistilBERT has no types), by its head to

    classifier: logits (batch, classes); token_classifier: (batch, length, classes); masked: (batch, length,
    vocabulary); features: (batch, length, width). mask is 1 for tokens and 0 for padding; `prefix` is
    in front of the names of layers. Raises ValueError for another head.
    """
    config = config or BertConfig()
    if head not in HEADS:
        raise ValueError(f"bert: head is {head!r}; use {', '.join(map(repr, HEADS))}")
    prefix = f"{config.family}." if prefix is None else prefix
    names = ("ids", "mask", "types") if config.types else ("ids", "mask")
    inputs = {n: mg.Input((length,), dtype="int32", name=n) for n in names}
    words = layers.ReversibleEmbedding(
        config.vocabulary,
        config.width,
        padding_token=config.padding_token,
        name=f"{prefix}embeddings.word_embeddings",
    )
    x = _embedded(config, prefix, words, inputs["ids"], inputs.get("types"))
    blocks = "transformer.layer" if config.family == "distilbert" else "encoder.layer"
    for i in range(config.layers):
        x = _block(config, f"{prefix}{blocks}.{i}", x, inputs["mask"])
    return mg.Model(inputs, _head(config, head, prefix, x, words), name=name)


def bert_classifier(
    config: BertConfig | None = None, length: int | None = None, name: str = "bert"
) -> Any:
    """`bert` with a head that classifies texts: logits (batch, classes)."""
    return bert(config, "classifier", length, name=name)


def bert_of_files(source: dict[str, Any], names: Iterable[str], **sizes: Any) -> Any:
    """The model whose tensors have these names: its head and prefix follow from them."""
    config = BertConfig.from_huggingface(source)
    names = tuple(names)
    whole = any(n.startswith(f"{config.family}.") for n in names)
    if any(n.startswith(("cls.predictions.", "lm_head.", "vocab_transform.")) for n in names):
        head = "masked"
    elif not any(n.startswith("classifier.") for n in names):
        head = "features"
    else:
        texts = ("pre_classifier.weight", "classifier.dense.weight", "bert.pooler.dense.weight")
        head = "classifier" if any(n in texts for n in names) else "token_classifier"
    if not any("token_type_embeddings" in n for n in names):
        config = replace(config, types=0)
    return bert(config, head, prefix=None if whole else "", **sizes)
