"""SmolVLM2 (arXiv 2504.05299): pictures as tokens in a text, through a SigLIP tower and pixel shuffle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops
from meganeura.layers.decoding import decoding
from meganeura.layers.settings import Settings
from meganeura.utils import register_keras_serializable
from meganeura.zoo.generation import LanguageModel
from meganeura.zoo.llama import LlamaConfig, decoder, head
from meganeura.zoo.vit import ViTConfig, siglip_tower

#: SmolVLM2-500M's tower.
TOWER = ViTConfig(
    image=512, patch=16, width=768, layers=12, heads=12, inner=3072, epsilon=1e-6,
    activation="gelu_pytorch_tanh",
)  # fmt: skip
#: SmolVLM2-500M's text model.
TEXT = LlamaConfig(
    vocabulary=49280, width=960, layers=32, heads=15, kv_heads=5, head_width=64, inner=2560,
    theta=100000.0,
)  # fmt: skip


#: What a configuration of the tower means where it does not say it.
_TOWER_DEFAULTS = {
    "hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 16,
    "num_channels": 3, "image_size": 224, "patch_size": 32, "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}  # fmt: skip


@dataclass(frozen=True)
class SmolVLMConfig:
    """The tower, the text model, and how they meet; the defaults are SmolVLM2-500M's."""

    tower: ViTConfig = TOWER
    text: LlamaConfig = TEXT
    shuffle: int = 4
    image_token: int = 49190

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> SmolVLMConfig:
        """From the dictionary in a `config.json`."""
        text = {"rms_norm_eps": 1e-5, **config["text_config"]}
        text["tie_word_embeddings"] = config.get("tie_word_embeddings", False)
        return cls(
            tower=ViTConfig.from_huggingface({**_TOWER_DEFAULTS, **config["vision_config"]}),
            text=LlamaConfig.from_huggingface(text),
            shuffle=config.get("scale_factor", 2),
            image_token=config.get("image_token_id", 128257),
        )


@register_keras_serializable("meganeura")
class PlacePictures(Settings, layers.Layer):
    """The embedded text with the features of its pictures, in order, in place of its image tokens.

    ids (batch, length), embedded (batch, length, width), features (batch, count, width). Image tokens
    beyond the count get the last feature.
    """

    arguments = ("image_token",)

    def __init__(self, image_token: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.image_token = image_token

    def call(self, ids: Any, embedded: Any, features: Any) -> Any:
        now = decoding()
        if now is not None and not now.first:
            return embedded  # what is written is text
        here = ops.equal(ids, self.image_token)
        order = ops.maximum(ops.cumsum(ops.cast(here, "int32"), axis=1) - 1, 0)
        order = ops.minimum(order, features.shape[1] - 1)
        index = ops.broadcast_to(ops.expand_dims(order, -1), embedded.shape)
        found = ops.take_along_axis(features, index, axis=1)
        return ops.where(ops.expand_dims(here, -1), found, embedded)

    def compute_output_shape(self, ids_shape: Any, embedded_shape: Any, features_shape: Any) -> Any:
        return tuple(embedded_shape)


@register_keras_serializable("meganeura")
class JoinPictures(Settings, layers.Layer):
    """(batch * count, tokens, width) as (batch, count * tokens, width)."""

    arguments = ("count",)

    def __init__(self, count: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.count = count

    def call(self, x: Any) -> Any:
        return ops.reshape(x, (-1, self.count * x.shape[1], x.shape[2]))


def smolvlm(
    config: SmolVLMConfig | None = None, pictures: int = 1, name: str = "smolvlm"
) -> LanguageModel:
    """A model from {ids (batch, length), images (batch, pictures, size, size, 3)} to logits.

    Each picture (or part of one) takes (size / patch / shuffle)^2 image tokens of the text.
    """
    config = config or SmolVLMConfig()
    side = config.tower.image
    ids = mg.Input((None,), dtype="int32", name="ids")
    images = mg.Input((pictures, side, side, config.tower.channels), name="images")
    flat = ops.reshape(images, (-1, side, side, config.tower.channels))
    tower = siglip_tower(config.tower, prefix="model.vision_model.", images=flat)
    features = layers.PixelShuffle(config.shuffle, name="model.connector.shuffle")(tower)
    features = layers.Dense(
        config.text.width, use_bias=False, name="model.connector.modality_projection.proj"
    )(features)
    features = JoinPictures(pictures, name="model.connector.join")(features)
    embedding = layers.ReversibleEmbedding(
        config.text.vocabulary,
        config.text.width,
        padding_token=config.text.padding_token,
        name="model.text_model.embed_tokens",
    )
    x = PlacePictures(config.image_token, name="place_pictures")(ids, embedding(ids), features)
    x = decoder(config.text, x, "model.text_model.")
    logits = head(config.text, x, embedding)
    return LanguageModel({"ids": ids, "images": images}, logits, name=name)
