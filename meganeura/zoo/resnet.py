"""Residual networks (arXiv 1512.03385) with the stride on the 3x3 convolution (version 1.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops


@dataclass(frozen=True)
class ResNetConfig:
    """Sizes; the defaults are ResNet-50's."""

    channels: int = 3
    stem: int = 64
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    depths: tuple[int, ...] = (3, 4, 6, 3)
    bottleneck: bool = True
    first_stride: int = 1
    classes: int = 1000
    stride_first: bool = False

    @classmethod
    def from_huggingface(cls, config: dict[str, Any]) -> ResNetConfig:
        """From the dictionary in a `config.json`. Raises ValueError for another activation than ReLU."""
        if config.get("hidden_act", "relu") != "relu":
            raise ValueError(
                f"resnet: hidden_act={config['hidden_act']!r} is not offered, only 'relu'"
            )
        return cls(
            channels=config["num_channels"],
            stem=config["embedding_size"],
            widths=tuple(config["hidden_sizes"]),
            depths=tuple(config["depths"]),
            bottleneck=config["layer_type"] == "bottleneck",
            first_stride=2 if config.get("downsample_in_first_stage") else 1,
            classes=len(config.get("id2label") or {0: 0, 1: 1}),
            stride_first=bool(config.get("downsample_in_bottleneck")),
        )


RESNET18 = ResNetConfig(widths=(64, 128, 256, 512), depths=(2, 2, 2, 2), bottleneck=False)


def _convolution(path: str, x: Any, filters: int, kernel: int, stride: int = 1) -> Any:
    """Convolution with symmetric padding, and batch normalization; no bias."""
    if kernel > 1:
        x = layers.ZeroPadding2D(kernel // 2, name=f"{path}.padding")(x)
    conv = layers.Conv2D(
        filters, kernel, strides=stride, use_bias=False, name=f"{path}.convolution"
    )
    norm = layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name=f"{path}.normalization")
    return norm(conv(x))


def _block(config: ResNetConfig, path: str, x: Any, width: int, stride: int) -> Any:
    """act(F(x) + shortcut(x))."""
    if config.bottleneck:
        first, second = (stride, 1) if config.stride_first else (1, stride)
        plan = [(width // 4, 1, first), (width // 4, 3, second), (width, 1, 1)]
    else:
        plan = [(width, 3, stride), (width, 3, 1)]
    shortcut = x
    if stride != 1 or x.shape[-1] != width:
        shortcut = _convolution(f"{path}.shortcut", x, width, 1, stride)
    for i, (filters, kernel, step) in enumerate(plan):
        x = _convolution(f"{path}.layer.{i}", x, filters, kernel, step)
        if i < len(plan) - 1:
            x = ops.relu(x)
    return ops.relu(x + shortcut)


def resnet(
    config: ResNetConfig | None = None, size: tuple[int, int] = (224, 224), name: str = "resnet"
) -> Any:
    """A model from images (batch, height, width, channels) to logits (batch, classes)."""
    config = config or ResNetConfig()
    image = mg.Input((*size, config.channels), name="image")
    x = ops.relu(_convolution("resnet.embedder.embedder", image, config.stem, 7, 2))
    # The values are not negative after the ReLU, so padding by zeros is padding by -inf.
    x = layers.ZeroPadding2D(1, name="resnet.embedder.pooler.padding")(x)
    x = layers.MaxPooling2D(3, 2, name="resnet.embedder.pooler")(x)
    for stage, (width, depth) in enumerate(zip(config.widths, config.depths, strict=True)):
        for i in range(depth):
            stride = (2 if stage else config.first_stride) if i == 0 else 1
            path = f"resnet.encoder.stages.{stage}.layers.{i}"
            x = _block(config, path, x, width, stride)
    x = layers.GlobalAveragePooling2D(name="resnet.pooler")(x)
    return mg.Model(image, layers.Dense(config.classes, name="classifier.1")(x), name=name)


def resnet18(classes: int = 1000, size: tuple[int, int] = (224, 224)) -> Any:
    """ResNet-18."""
    config = ResNetConfig(**{**RESNET18.__dict__, "classes": classes})
    return resnet(config, size, name="resnet18")


def resnet50(classes: int = 1000, size: tuple[int, int] = (224, 224)) -> Any:
    """ResNet-50."""
    return resnet(ResNetConfig(classes=classes), size, name="resnet50")
