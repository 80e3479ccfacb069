"""Images as sequences: patches that become tokens, and squares of tokens that become one."""

from __future__ import annotations

from typing import Any

from meganeura import ops
from meganeura.layers.convolution import Conv2D
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings, as_tuple, check_rank


class PatchEmbedding(Settings, Layer):
    """A vector for each patch of an image: (batch, height, width, channels) to (batch, patches, units).

    Patches do not overlap, and go row by row; what is left at the right and at the bottom is dropped.

    Raises ValueError where the image is smaller than a patch.
    """

    arguments = ("patch_size", "units", "use_bias")

    def __init__(
        self, patch_size: int | tuple[int, int], units: int, use_bias: bool = True, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.patch_size = as_tuple(self.name, "patch_size", patch_size, 2)
        self.units = units
        self.use_bias = use_bias
        self.projection = Conv2D(
            units, self.patch_size, strides=self.patch_size, use_bias=use_bias, name="projection",
            dtype=self.dtype_policy,
        )  # fmt: skip

    def build(self, input_shape: Any) -> None:
        check_rank(self, input_shape, 4)
        self.projection.build(input_shape)

    def call(self, images: Any) -> Any:
        patches = self.projection(images)
        return ops.reshape(patches, (patches.shape[0], -1, self.units))


class PixelShuffle(Settings, Layer):
    """Squares of `factor` by `factor` tokens side by side in one: (batch, tokens, width) to
    (batch, tokens / factor^2, width * factor^2), for tokens that are a square image row by row.

    The order within the result is that of SmolVLM (arXiv 2504.05299): row in the square, column,
    feature. Raises ValueError where the tokens are no square whose side the factor divides.
    """

    arguments = ("factor",)

    def __init__(self, factor: int = 2, **kwargs: Any):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        side, factor = round(tokens**0.5), self.factor
        if side * side != tokens or side % factor:
            raise ValueError(
                f"layer {self.name!r}: {tokens} tokens are no square with a side of a multiple of {factor}"
            )
        small = side // factor
        squares = ops.reshape(x, (batch, small, factor, small, factor, width))
        together = ops.transpose(squares, (0, 1, 3, 2, 4, 5))
        return ops.reshape(together, (batch, small * small, factor * factor * width))
