"""Random changes of images, in training only: flips, turns, zooms, shifts, contrast, brightness, crops."""

from __future__ import annotations

import math
from typing import Any

from meganeura import ops, random
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings, as_tuple, checked_data_format, one_of

_FILLS = ("reflect", "wrap", "constant", "nearest")
_INTERPOLATIONS = ("bilinear", "nearest")


def resample(
    images: Any, rows: Any, columns: Any, interpolation: str, fill_mode: str, fill_value: float
) -> Any:
    """The images (batch, height, width, channels) at places (batch, h, w) given in pixels.

    Places outside are filled: "reflect" (b a | a b | b a), "wrap", "nearest", or "constant".
    """
    batch, height, width, channels = images.shape
    flat = ops.reshape(images, (batch * height * width, channels))
    first = ops.reshape(ops.arange(batch, dtype="int32"), (batch, 1, 1))

    def fold(place: Any, length: int) -> Any:
        if fill_mode == "wrap":
            return ops.mod(place, length)
        if fill_mode == "reflect":
            place = ops.mod(place, 2 * length)
            return ops.minimum(place, ops.subtract(2 * length - 1, place))
        return ops.clip(place, 0, length - 1)

    def pixel(row: Any, column: Any) -> Any:
        row, column = ops.cast(row, "int32"), ops.cast(column, "int32")
        inside_row, inside_column = fold(row, height), fold(column, width)
        place = ops.add(
            ops.multiply(ops.add(ops.multiply(first, height), inside_row), width), inside_column
        )
        values = ops.take(flat, place, axis=0)
        if fill_mode != "constant":
            return values
        known = ops.logical_and(ops.equal(row, inside_row), ops.equal(column, inside_column))
        return ops.where(ops.expand_dims(known, -1), values, float(fill_value))

    if interpolation == "nearest":
        return pixel(ops.round(rows), ops.round(columns))
    top, left = ops.floor(rows), ops.floor(columns)
    down, right = (
        ops.expand_dims(ops.subtract(at, low), -1) for at, low in ((rows, top), (columns, left))
    )

    def between(a: Any, b: Any, share: Any) -> Any:
        return ops.add(a, ops.multiply(ops.subtract(b, a), share))

    below, beside = ops.add(top, 1.0), ops.add(left, 1.0)
    upper = between(pixel(top, left), pixel(top, beside), right)
    lower = between(pixel(below, left), pixel(below, beside), right)
    return between(upper, lower, down)


class _Augmentation(Settings, Layer):
    """Base: batches (or single images) with the channels last while `change` works on them."""

    def __init__(self, seed: Any = None, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.seed = seed
        self.data_format = checked_data_format(type(self).__name__, data_format)
        self.generator = random.SeedGenerator(seed)

    def call(self, inputs: Any, training: Any = True) -> Any:
        x = ops.cast(ops.convert_to_tensor(inputs), "float32")
        if not training:
            return self.without_change(x)
        return self._channels_last(x, self.change)

    def _channels_last(self, x: Any, function: Any) -> Any:
        if x.ndim not in (3, 4):
            raise ValueError(
                f"layer {self.name!r} works on images (height, width, channels), alone or in "
                f"batches, got the shape {tuple(x.shape)}"
            )
        single, first = x.ndim == 3, self.data_format == "channels_first"
        if single:
            x = ops.expand_dims(x, 0)
        if first:
            x = ops.transpose(x, (0, 2, 3, 1))
        x = function(x)
        if first:
            x = ops.transpose(x, (0, 3, 1, 2))
        return ops.squeeze(x, 0) if single else x

    def change(self, images: Any) -> Any:
        raise NotImplementedError

    def without_change(self, images: Any) -> Any:
        return images

    def _uniform(self, images: Any, low: float, high: float) -> Any:
        """One number for each image."""
        shape = (images.shape[0], 1, 1, 1)
        return random.uniform(shape, low, high, seed=self.generator)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return tuple(input_shape)


def _range(
    layer: str, name: str, factor: Any, low: float, high: float, symmetric: bool = True
) -> tuple[float, float]:
    """A factor f as (-f, f), or two numbers in order."""
    pair = factor if isinstance(factor, (list, tuple)) else (-factor if symmetric else 0, factor)
    if len(pair) != 2 or not all(isinstance(v, (int, float)) for v in pair):
        raise ValueError(f"layer {layer}: {name} must be a number or two, got {factor!r}")
    lower, upper = sorted(float(v) for v in pair)
    if lower < low or upper > high:
        raise ValueError(f"layer {layer}: {name} must lie in [{low}, {high}], got {factor!r}")
    return lower, upper


class RandomFlip(_Augmentation):
    """Mirrors each image with probability 1/2: "horizontal", "vertical" or both at once."""

    arguments = ("data_format", "seed", "mode")

    def __init__(
        self,
        mode: str = "horizontal_and_vertical",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(seed, data_format, **kwargs)
        modes = ("horizontal", "vertical", "horizontal_and_vertical")
        self.mode = one_of(type(self).__name__, "mode", mode, modes)

    def change(self, images: Any) -> Any:
        for name, axis in (("horizontal", 2), ("vertical", 1)):
            if name in self.mode:
                chosen = ops.less(self._uniform(images, 0.0, 1.0), 0.5)
                images = ops.where(chosen, ops.flip(images, axis=axis), images)
        return images


class _Moved(_Augmentation):
    """Base of the changes that move pixels."""

    def __init__(
        self,
        fill_mode: str,
        interpolation: str,
        seed: Any,
        fill_value: float,
        data_format: str | None,
        **kwargs: Any,
    ):
        super().__init__(seed, data_format, **kwargs)
        kind = type(self).__name__
        self.fill_mode = one_of(kind, "fill_mode", fill_mode, _FILLS)
        self.interpolation = one_of(kind, "interpolation", interpolation, _INTERPOLATIONS)
        self.fill_value = float(fill_value)

    def places(self, images: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
        """Where each pixel of the result comes from; rows and columns from the middle."""
        raise NotImplementedError

    def change(self, images: Any) -> Any:
        _, height, width, _ = images.shape
        middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
        rows = ops.subtract(ops.arange(height, dtype="float32"), middle_row)
        columns = ops.subtract(ops.arange(width, dtype="float32"), middle_column)
        rows, columns = self.places(
            images, ops.reshape(rows, (1, -1, 1)), ops.reshape(columns, (1, 1, -1))
        )
        shape = images.shape[:3]
        rows = ops.broadcast_to(ops.add(rows, middle_row), shape)
        columns = ops.broadcast_to(ops.add(columns, middle_column), shape)
        return resample(images, rows, columns, self.interpolation, self.fill_mode, self.fill_value)

    def _number(self, images: Any, low: float, high: float) -> Any:
        return ops.squeeze(self._uniform(images, low, high), -1)


class RandomRotation(_Moved):
    """Turns each image around its middle by an angle from `factor` * 2 pi, counter-clockwise."""

    arguments = ("data_format", "factor", "fill_mode", "fill_value", "interpolation", "seed")

    def __init__(
        self,
        factor: Any,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **kwargs)
        self.factor = _range(type(self).__name__, "factor", factor, -1.0, 1.0)

    def places(self, images: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
        low, high = (f * 2 * math.pi for f in self.factor)
        angle = self._number(images, low, high)
        sine, cosine = ops.sin(angle), ops.cos(angle)
        down = ops.add(ops.multiply(columns, sine), ops.multiply(rows, cosine))
        right = ops.subtract(ops.multiply(columns, cosine), ops.multiply(rows, sine))
        return down, right


class RandomZoom(_Moved):
    """Zooms each image by 1 + a number from the factor: above 0 it shrinks, below 0 it grows.

    Without `width_factor` both directions are zoomed alike.
    """

    arguments = (
        "data_format", "height_factor", "width_factor", "fill_mode", "interpolation", "seed",
        "fill_value",
    )  # fmt: skip

    def __init__(
        self,
        height_factor: Any,
        width_factor: Any = None,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **kwargs)
        kind = type(self).__name__
        self.height_factor = height_factor
        self.width_factor = width_factor
        self._height = _range(kind, "height_factor", height_factor, -1.0, 1.0)
        self._width = (
            None if width_factor is None else _range(kind, "width_factor", width_factor, -1.0, 1.0)
        )

    def places(self, images: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
        tall = self._number(images, 1 + self._height[0], 1 + self._height[1])
        wide = tall
        if self._width is not None:
            wide = self._number(images, 1 + self._width[0], 1 + self._width[1])
        return ops.multiply(rows, tall), ops.multiply(columns, wide)


class RandomTranslation(_Moved):
    """Moves each image by shares of its size from the factors: down and right where positive."""

    arguments = RandomZoom.arguments

    def __init__(
        self,
        height_factor: Any,
        width_factor: Any,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(fill_mode, interpolation, seed, fill_value, data_format, **kwargs)
        kind = type(self).__name__
        self.height_factor = height_factor
        self.width_factor = width_factor
        self._height = _range(kind, "height_factor", height_factor, -1.0, 1.0)
        self._width = _range(kind, "width_factor", width_factor, -1.0, 1.0)

    def places(self, images: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
        _, height, width, _ = images.shape
        down = self._number(images, self._height[0] * height, self._height[1] * height)
        right = self._number(images, self._width[0] * width, self._width[1] * width)
        return ops.subtract(rows, down), ops.subtract(columns, right)


class RandomContrast(_Augmentation):
    """(x - mean) * c + mean for each image and channel, c from 1 - factor to 1 + factor, clipped."""

    arguments = ("data_format", "factor", "value_range", "seed")

    def __init__(
        self,
        factor: Any,
        value_range: Any = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(seed, data_format, **kwargs)
        kind = type(self).__name__
        self.factor = factor
        pair = factor if isinstance(factor, (list, tuple)) else (factor, factor)
        if len(pair) != 2 or not all(0 <= v <= 1 for v in pair):
            raise ValueError(f"layer {kind}: factor must lie in [0, 1], got {factor!r}")
        self._factor = (float(pair[0]), float(pair[1]))
        self.value_range = _bounds(kind, value_range)

    def change(self, images: Any) -> Any:
        mean = ops.mean(images, axis=(1, 2), keepdims=True)
        contrast = self._uniform(images, 1 - self._factor[0], 1 + self._factor[1])
        changed = ops.add(ops.multiply(ops.subtract(images, mean), contrast), mean)
        return ops.clip(changed, *self.value_range)


class RandomBrightness(_Augmentation):
    """Adds a share of the value range, from the factor, to each image, and clips."""

    arguments = ("data_format", "factor", "value_range", "seed")

    def __init__(
        self,
        factor: Any,
        value_range: Any = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(seed, data_format, **kwargs)
        kind = type(self).__name__
        self.factor = _range(kind, "factor", factor, -1.0, 1.0)
        self.value_range = _bounds(kind, value_range)

    def change(self, images: Any) -> Any:
        low, high = self.value_range
        added = self._uniform(images, self.factor[0], self.factor[1])
        return ops.clip(ops.add(images, ops.multiply(added, high - low)), low, high)


def _bounds(layer: str, value_range: Any) -> tuple[float, float]:
    pair = tuple(value_range) if isinstance(value_range, (list, tuple)) else ()
    if len(pair) != 2 or pair[0] == pair[1]:
        raise ValueError(f"layer {layer}: value_range must be two numbers, got {value_range!r}")
    low, high = sorted(float(v) for v in pair)
    return low, high


class RandomCrop(_Augmentation):
    """A piece of height x width from a random place, the same for the whole batch.

    In inference, and where the images are too small, the largest middle piece of that form is
    taken and resized.
    """

    arguments = ("data_format", "height", "width", "seed")

    def __init__(
        self,
        height: int,
        width: int,
        seed: Any = None,
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(seed, data_format, name=name, **kwargs)
        kind = type(self).__name__
        self.height = as_tuple(kind, "height", height, 1)[0]
        self.width = as_tuple(kind, "width", width, 1)[0]

    def change(self, images: Any) -> Any:
        _, height, width, _ = images.shape
        if height < self.height or width < self.width:
            return self._middle(images)
        for axis, length, wanted in ((1, height, self.height), (2, width, self.width)):
            start = random.randint((), 0, length - wanted + 1, seed=self.generator)
            places = ops.add(ops.arange(wanted, dtype="int32"), start)
            images = ops.take(images, places, axis=axis)
        return images

    def without_change(self, images: Any) -> Any:
        return self._channels_last(images, self._middle)

    def _middle(self, images: Any) -> Any:
        _, height, width, _ = images.shape
        tall = max(min(height, int(width * self.height / self.width)), 1)
        wide = max(min(width, int(height * self.width / self.height)), 1)
        top, left = (height - tall) // 2, (width - wide) // 2
        images = images[:, top : top + tall, left : left + wide]
        if (tall, wide) == (self.height, self.width):
            return images
        return ops.image.resize(images, (self.height, self.width), data_format="channels_last")

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        shape = list(input_shape)
        first = len(shape) - (3 if self.data_format == "channels_last" else 2)
        shape[first : first + 2] = [self.height, self.width]
        return tuple(shape)
