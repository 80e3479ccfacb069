"""Vision transformers: ViT (arXiv 2010.11929), and the SigLIP tower of SmolVLM2 (arXiv 2504.05299)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops
from meganeura.utils import register_keras_serializable


@dataclass(frozen=True)
class ViTConfig:
    """Sizes; the defaults are ViT-base's for patches of 16."""

    image: int = 224
    patch: int = 16
    channels: int = 3
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    classes: int = 1000
    epsilon: float = 1e-12
    activation: str = "gelu"
    qkv_bias: bool = True

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> ViTConfig:
        """From the dictionary in a `config.json`."""
        return cls(
            image=config["image_size"],
            patch=config["patch_size"],
            channels=config.get("num_channels", 3),
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            inner=config["intermediate_size"],
            classes=len(config.get("id2label") or {0: 0, 1: 1}),
            epsilon=config.get("layer_norm_eps", 1e-12),
            activation=config.get("hidden_act", "gelu"),
            qkv_bias=config.get("qkv_bias", True),
        )


@register_keras_serializable("meganeura")
class ClassToken(layers.Layer):
    """A learnt token in front of the others, and a learnt vector added to each of them."""

    def build(self, input_shape: Any) -> None:
        _, tokens, width = input_shape
        self.cls_token = self.add_weight(shape=(1, 1, width), name="cls_token")
        self.position_embeddings = self.add_weight(
            shape=(1, tokens + 1, width), name="position_embeddings"
        )

    def call(self, x: Any) -> Any:
        first = ops.broadcast_to(self.cls_token, (x.shape[0], 1, x.shape[2]))
        return ops.concatenate([first, x], axis=1) + self.position_embeddings


def encoder_block(x: Any, heads: int, inner: int, epsilon: float, act: str, names: dict[str, str],
                  qkv_bias: bool = True) -> Any:  # fmt: skip
    """x + attention(norm(x)), then x + mlp(norm(x)); `names` are those of the layers."""
    width = x.shape[-1]
    h = layers.LayerNormalization(epsilon=epsilon, name=names["norm1"])(x)
    q, k, v = (
        layers.SplitHeads(heads, name=f"{names[part]}_heads")(
            layers.Dense(width, use_bias=qkv_bias, name=names[part])(h)
        )
        for part in "qkv"
    )
    attended = layers.ScaledDotProduct(name=f"{names['out']}_core")(q, k, v)
    x = x + layers.Dense(width, name=names["out"])(attended)
    h = layers.LayerNormalization(epsilon=epsilon, name=names["norm2"])(x)
    h = layers.Dense(inner, name=names["up"])(h)
    h = layers.NamedActivation(act, name=f"{names['up']}_act")(h)
    return x + layers.Dense(width, name=names["down"])(h)


#: Part of a block -> its name in files: as published, and as in modules of transformers 5.
PUBLISHED = {
    "norm1": "layernorm_before", "norm2": "layernorm_after", "q": "attention.attention.query",
    "k": "attention.attention.key", "v": "attention.attention.value",
    "out": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
}  # fmt: skip
NEWER = {
    "norm1": "layernorm_before", "norm2": "layernorm_after", "q": "attention.q_proj",
    "k": "attention.k_proj", "v": "attention.v_proj", "out": "attention.o_proj",
    "up": "mlp.fc1", "down": "mlp.fc2",
}  # fmt: skip
SIGLIP = {
    "norm1": "layer_norm1", "norm2": "layer_norm2", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
    "v": "self_attn.v_proj", "out": "self_attn.out_proj", "up": "mlp.fc1", "down": "mlp.fc2",
}  # fmt: skip


def vit(config: ViTConfig | None = None, name: str = "vit", newer: bool = False) -> Any:
    """A model from images (batch, image, image, channels) to logits (batch, classes).

    newer: layers have the names of transformers 5's modules rather than those of published files
    """
    config = config or ViTConfig()
    size = (config.image, config.image, config.channels)
    images = mg.Input(size, name="image")
    path = "vit.embeddings.patch_embeddings"
    x = layers.PatchEmbedding(config.patch, config.width, name=path)(images)
    x = ClassToken(name="vit.embeddings")(x)
    for i in range(config.layers):
        block = f"vit.layers.{i}" if newer else f"vit.encoder.layer.{i}"
        names = {k: f"{block}.{v}" for k, v in (NEWER if newer else PUBLISHED).items()}
        x = encoder_block(
            x, config.heads, config.inner, config.epsilon, config.activation, names, config.qkv_bias
        )
    x = layers.LayerNormalization(epsilon=config.epsilon, name="vit.layernorm")(x)
    return mg.Model(images, layers.Dense(config.classes, name="classifier")(x[:, 0]), name=name)


def siglip_tower(
    config: ViTConfig, prefix: str = "", images: Any = None, name: str = "vision_model"
) -> Any:
    """SmolVLM2's vision tower: from images (batch, image, image, channels) to (batch, patches, width).

    With `images`, a KerasTensor, the features of these; without, a model.
    """
    x = images
    if images is None:
        x = images_input = mg.Input((config.image, config.image, config.channels), name="image")
    path = f"{prefix}embeddings"
    x = layers.PatchEmbedding(config.patch, config.width, name=f"{path}.patch_embedding")(x)
    count = (config.image // config.patch) ** 2
    x = x + layers.PositionEmbedding(count, name=f"{path}.position_embedding")(x)
    for i in range(config.layers):
        names = {k: f"{prefix}encoder.layers.{i}.{v}" for k, v in SIGLIP.items()}
        x = encoder_block(x, config.heads, config.inner, config.epsilon, config.activation, names)
    x = layers.LayerNormalization(epsilon=config.epsilon, name=f"{prefix}post_layernorm")(x)
    return x if images is not None else mg.Model(images_input, x, name=name)
