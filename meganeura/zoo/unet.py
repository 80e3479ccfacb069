"""A reduced Stable Diffusion U-Net: residual blocks, concatenated skips, nearest upsampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops


@dataclass(frozen=True)
class UNetConfig:
    """Sizes; the defaults are the small variant (5.3 million weights)."""

    base: int = 64
    groups: int = 16
    levels: int = 3
    channels: int = 4

    @classmethod
    def from_dictionary(cls, config: dict[str, Any]) -> UNetConfig:
        return cls(**{k: config[k] for k in ("base", "groups", "levels", "channels")})


UNET_TINY = UNetConfig(base=32, groups=8)


def _conv(path: str, x: Any, filters: int, kernel: int = 3, stride: int = 1) -> Any:
    if kernel > 1:
        x = layers.ZeroPadding2D(kernel // 2, name=f"{path}.padding")(x)
    return layers.Conv2D(filters, kernel, strides=stride, use_bias=False, name=path)(x)


def _norm(path: str, groups: int, x: Any) -> Any:
    return ops.silu(layers.GroupNormalization(groups, epsilon=1e-5, name=path)(x))


def _block(path: str, x: Any, filters: int, groups: int) -> Any:
    """skip(x) + conv2(act(conv1(act(x))))."""
    h = _conv(f"{path}.conv1", _norm(f"{path}.norm1", groups, x), filters)
    h = _conv(f"{path}.conv2", _norm(f"{path}.norm2", groups, h), filters)
    if x.shape[-1] != filters:
        x = _conv(f"{path}.skip", x, filters, 1)
    return x + h


def unet(config: UNetConfig | None = None, size: int = 32, name: str = "unet") -> Any:
    """A model from (batch, size, size, channels) to the same shape."""
    config = config or UNetConfig()
    widths = [config.base * 2**level for level in range(config.levels)]
    image = mg.Input((size, size, config.channels), name="x")
    x, skips = _conv("conv_in", image, config.base), []
    for level, width in enumerate(widths):
        x = _block(f"encoder.{level}", x, width, config.groups)
        skips.append(x)
        if level < config.levels - 1:
            x = _conv(f"down.{level}", x, width, stride=2)
    x = _block("middle", x, widths[-1], config.groups)
    for i, width in enumerate(reversed(widths)):
        if i:
            x = layers.UpSampling2D(2, name=f"up.{i}")(x)
        x = layers.Concatenate(name=f"decoder.{i}.concatenate")([x, skips.pop()])
        x = _block(f"decoder.{i}", x, width, config.groups)
    x = _conv("conv_out", _norm("norm_out", config.groups, x), config.channels)
    return mg.Model(image, x, name=name)
