"""Whisper's audio encoder (arXiv 2212.04356): a convolutional stem and a pre-norm transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops
from meganeura.zoo.attention import ScaledDotProduct
from meganeura.zoo.gpt2 import LearntPositions


@dataclass(frozen=True)
class WhisperConfig:
    """Sizes of the encoder; the defaults are Whisper-tiny's."""

    mels: int = 80
    positions: int = 1500
    width: int = 384
    layers: int = 4
    heads: int = 6
    inner: int = 1536

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> WhisperConfig:
        """From the dictionary in a `config.json`."""
        return cls(
            mels=config["num_mel_bins"],
            positions=config["max_source_positions"],
            width=config["d_model"],
            layers=config["encoder_layers"],
            heads=config["encoder_attention_heads"],
            inner=config["encoder_ffn_dim"],
        )


def whisper_encoder(config: WhisperConfig | None = None, name: str = "whisper_encoder") -> Any:
    """A model from log-mel frames (batch, 2 * positions, mels) to features (batch, positions, width)."""
    config = config or WhisperConfig()
    width, length = config.width, config.positions

    def norm(path: str, x: Any) -> Any:
        return layers.LayerNormalization(epsilon=1e-5, name=path)(x)

    mel = mg.Input((2 * length, config.mels), name="mel")
    x = layers.Conv1D(width, 3, padding="same", name="conv1")(mel)
    x = layers.ZeroPadding1D(1, name="conv2_padding")(ops.gelu(x, approximate=False))
    x = layers.Conv1D(width, 3, strides=2, name="conv2")(x)
    x = ops.gelu(x, approximate=False)
    positions = LearntPositions(length, name="embed_positions")
    positions.trainable = False  # they are sinusoids, kept as a table
    x = positions(x)
    for i in range(config.layers):
        block = f"layers.{i}"
        h = norm(f"{block}.self_attn_layer_norm", x)
        q, k, v = (
            ops.reshape(
                layers.Dense(width, use_bias=part != "k", name=f"{block}.self_attn.{part}_proj")(h),
                (-1, length, config.heads, width // config.heads),
            )
            for part in ("q", "k", "v")
        )
        attended = ScaledDotProduct(name=f"{block}.self_attn.core")(q, k, v)
        x = x + layers.Dense(width, name=f"{block}.self_attn.out_proj")(attended)
        h = layers.Dense(config.inner, name=f"{block}.fc1")(norm(f"{block}.final_layer_norm", x))
        x = x + layers.Dense(width, name=f"{block}.fc2")(ops.gelu(h, approximate=False))
    return mg.Model(mel, norm("layer_norm", x), name=name)
