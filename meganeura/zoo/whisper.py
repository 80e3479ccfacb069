"""Whisper (arXiv 2212.04356): a convolutional stem, an encoder, and a decoder that writes text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers
from meganeura.zoo.generation import LanguageModel


@dataclass(frozen=True)
class WhisperConfig:
    """Sizes; the defaults are Whisper-tiny's."""

    mels: int = 80
    positions: int = 1500
    width: int = 384
    layers: int = 4
    heads: int = 6
    inner: int = 1536
    vocabulary: int = 51865
    text_positions: int = 448
    text_layers: int = 4
    text_heads: int = 6
    text_inner: int = 1536
    activation: str = "gelu"
    padding_token: int | None = 50256

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> WhisperConfig:
        """From the dictionary in a `config.json`. Raises ValueError for scaled embeddings."""
        if config.get("scale_embedding"):
            raise ValueError("whisper: scale_embedding=true is not offered")
        return cls(
            mels=config["num_mel_bins"],
            positions=config["max_source_positions"],
            width=config["d_model"],
            layers=config["encoder_layers"],
            heads=config["encoder_attention_heads"],
            inner=config["encoder_ffn_dim"],
            vocabulary=config["vocab_size"],
            text_positions=config["max_target_positions"],
            text_layers=config["decoder_layers"],
            text_heads=config["decoder_attention_heads"],
            text_inner=config["decoder_ffn_dim"],
            activation=config.get("activation_function", "gelu"),
            padding_token=config.get("pad_token_id", 50256),
        )


def _norm(path: str, x: Any) -> Any:
    return layers.LayerNormalization(epsilon=1e-5, name=path)(x)


def _attention(path: str, width: int, heads: int, x: Any, source: Any, **kind: Any) -> Any:
    """Multi-head attention; keys have no bias."""
    q, k, v = (
        layers.SplitHeads(heads, name=f"{path}.{part}_heads")(
            layers.Dense(width, use_bias=part != "k", name=f"{path}.{part}_proj")(origin)
        )
        for part, origin in (("q", x), ("k", source), ("v", source))
    )
    attended = layers.ScaledDotProduct(name=f"{path}.core", **kind)(q, k, v)
    return layers.Dense(width, name=f"{path}.out_proj")(attended)


def _feed_forward(block: str, config: WhisperConfig, inner: int, x: Any) -> Any:
    h = layers.Dense(inner, name=f"{block}.fc1")(_norm(f"{block}.final_layer_norm", x))
    h = layers.NamedActivation(config.activation, name=f"{block}.act")(h)
    return layers.Dense(config.width, name=f"{block}.fc2")(h)


def _encode(config: WhisperConfig, mel: Any, prefix: str) -> Any:
    """Features (batch, positions, width) from log-mel frames (batch, 2 * positions, mels)."""
    width = config.width
    act = layers.NamedActivation("gelu", name=f"{prefix}conv1_act")
    x = act(layers.Conv1D(width, 3, padding="same", name=f"{prefix}conv1")(mel))
    x = layers.ZeroPadding1D(1, name=f"{prefix}conv2_padding")(x)
    x = layers.Conv1D(width, 3, strides=2, name=f"{prefix}conv2")(x)
    x = layers.NamedActivation("gelu", name=f"{prefix}conv2_act")(x)
    positions = layers.PositionEmbedding(config.positions, name=f"{prefix}embed_positions")
    x = x + positions(x)
    positions.trainable = False  # they are sinusoids, kept as a table
    for i in range(config.layers):
        block = f"{prefix}layers.{i}"
        h = _norm(f"{block}.self_attn_layer_norm", x)
        x = x + _attention(f"{block}.self_attn", width, config.heads, h, h)
        x = x + _feed_forward(block, config, config.inner, x)
    return _norm(f"{prefix}layer_norm", x)


def whisper_encoder(
    config: WhisperConfig | None = None, name: str = "whisper_encoder", prefix: str = ""
) -> Any:
    """A model from log-mel frames (batch, 2 * positions, mels) to features (batch, positions, width)."""
    config = config or WhisperConfig()
    mel = mg.Input((2 * config.positions, config.mels), name="mel")
    return mg.Model(mel, _encode(config, mel, prefix), name=name)


def whisper(config: WhisperConfig | None = None, name: str = "whisper") -> LanguageModel:
    """A model from {ids (batch, length), mel (batch, 2 * positions, mels)} to logits (batch, length, vocabulary).

    `zoo.audio.log_mel` makes mel from sound; `generate(ids, inputs={"mel": mel})` writes down what is said.
    """
    config = config or WhisperConfig()
    width = config.width
    mel = mg.Input((2 * config.positions, config.mels), name="mel")
    ids = mg.Input((None,), dtype="int32", name="ids")
    features = _encode(config, mel, "model.encoder.")
    embedding = layers.ReversibleEmbedding(
        config.vocabulary,
        width,
        padding_token=config.padding_token,
        name="model.decoder.embed_tokens",
    )
    x = embedding(ids)
    x = x + layers.PositionEmbedding(config.text_positions, name="model.decoder.embed_positions")(x)
    for i in range(config.text_layers):
        block = f"model.decoder.layers.{i}"
        h = _norm(f"{block}.self_attn_layer_norm", x)
        x = x + _attention(f"{block}.self_attn", width, config.text_heads, h, h, causal=True)
        h = _norm(f"{block}.encoder_attn_layer_norm", x)
        x = x + _attention(
            f"{block}.encoder_attn", width, config.text_heads, h, features, cross=True
        )
        x = x + _feed_forward(block, config, config.text_inner, x)
    x = layers.LastToken(name="last_token")(_norm("model.decoder.layer_norm", x))
    return LanguageModel({"ids": ids, "mel": mel}, embedding(x, reverse=True), name=name)
