"""Layers that bring data into shape: scaling, normalising, encoding of categories, binning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import config, ops
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings, as_tuple, one_of


class Rescaling(Settings, Layer):
    """x * scale + offset, as float32."""

    arguments = ("scale", "offset")

    def __init__(self, scale: Any, offset: Any = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale = _plain(scale)
        self.offset = _plain(offset)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        x = ops.cast(ops.convert_to_tensor(inputs), "float32")
        scaled = ops.multiply(x, _constant(self.scale))
        return ops.add(scaled, _constant(self.offset))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return tuple(input_shape)


def _plain(value: Any) -> Any:
    """A number or nested list, as configs hold it."""
    return value if isinstance(value, (int, float)) else np.asarray(value).tolist()


def _constant(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else np.asarray(value, np.float32)


class Normalization(Settings, Layer):
    """(x - mean) / max(sqrt(variance), epsilon), with statistics given or learnt by `adapt`.

    They are kept for each entry along `axis` (None: one for all). `invert` maps back:
    x * sqrt(variance) + mean.
    """

    arguments = ("axis", "invert", "mean", "variance")

    def __init__(
        self,
        axis: Any = -1,
        mean: Any = None,
        variance: Any = None,
        invert: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if (mean is None) != (variance is None):
            raise ValueError(
                f"layer {self.name!r}: give both mean and variance, or none and call adapt(data)"
            )
        self.axis = () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        self.mean = None if mean is None else _plain(mean)
        self.variance = None if variance is None else _plain(variance)
        self.invert = invert
        self.supports_masking = True
        self._kept: tuple[int, ...] = ()

    def build(self, input_shape: Any) -> None:
        rank = len(input_shape)
        if any(not -rank <= a < rank for a in self.axis):
            raise ValueError(
                f"layer {self.name!r}: axis {self.axis} does not fit an input of shape "
                f"{tuple(input_shape)}"
            )
        self._kept = tuple(sorted(a % rank for a in self.axis))
        if 0 in self._kept:
            raise ValueError(f"layer {self.name!r}: axis 0 is the batch and cannot be kept")
        shape = tuple(input_shape[a] for a in self._kept)
        if any(length is None for length in shape):
            raise ValueError(
                f"layer {self.name!r}: the lengths along axis {self.axis} must be known, got the "
                f"shape {tuple(input_shape)}"
            )
        if self.mean is None and not self.built:
            for name, initializer in (("mean", "zeros"), ("variance", "ones")):
                weight = self.add_weight(
                    name=name, shape=shape, initializer=initializer, trainable=False
                )
                setattr(self, f"adapt_{name}", weight)
            self.count = self.add_weight(
                name="count", shape=(), dtype="int32", initializer="zeros", trainable=False
            )
        self.built = True

    def adapt(self, data: Any) -> None:
        """Learn mean and (population) variance of an array, or of an iterable of batches."""
        if self.mean is not None:
            raise ValueError(
                f"layer {self.name!r} was given its mean and variance and cannot adapt"
            )
        batches = [data] if hasattr(data, "shape") or isinstance(data, list) else data
        count, mean, square = 0, np.zeros(()), np.zeros(())
        for batch in batches:
            batch = batch[0] if isinstance(batch, tuple) else batch
            values = np.asarray(batch, np.float64)
            if values.ndim == 1:
                values = values[:, None]
            if not self.built:
                self.build((None, *values.shape[1:]))
            axes = tuple(i for i in range(values.ndim) if i not in self._kept)
            size = int(np.prod([values.shape[a] for a in axes]))
            if not size:
                continue
            new_mean, total = values.mean(axes), count + size
            apart = new_mean - mean
            square = square + values.var(axes) * size + apart**2 * (count * size / total)
            mean = mean + apart * (size / total)
            count = total
        if not count:
            raise ValueError(f"layer {self.name!r}: adapt got no data")
        self.adapt_mean.assign(mean.astype(np.float32))
        self.adapt_variance.assign((square / count).astype(np.float32))
        self.count.assign(np.int32(min(count, 2**31 - 1)))

    def call(self, inputs: Any) -> Any:
        x = ops.cast(ops.convert_to_tensor(inputs), "float32")
        shape = [n if i in self._kept else 1 for i, n in enumerate(x.shape)]
        if self.mean is None:
            mean = ops.reshape(self.adapt_mean, shape)
            variance = ops.reshape(self.adapt_variance, shape)
        else:
            wanted = [x.shape[a] for a in self._kept]
            mean, variance = (
                np.broadcast_to(np.asarray(v, np.float32), wanted).reshape(shape)
                for v in (self.mean, self.variance)
            )
        deviation = ops.maximum(ops.sqrt(ops.convert_to_tensor(variance)), config.epsilon())
        if self.invert:
            return ops.add(ops.multiply(x, deviation), mean)
        return ops.divide(ops.subtract(x, mean), deviation)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return tuple(input_shape)


def encode_categories(layer: Layer, numbers: Any, mode: str, size: int, weights: Any = None) -> Any:
    """Category numbers as they are ("int"), or one-hot, multi-hot or counted vectors of `size`.

    "one_hot" adds an axis (or fills a last axis of length one); the others sum the one-hot
    vectors over the last axis. Numbers outside of [0, size) give zeros.
    """
    numbers = ops.cast(ops.convert_to_tensor(numbers), "int32")
    if mode == "int":
        return numbers
    if mode == "one_hot":
        if numbers.ndim > 1 and numbers.shape[-1] == 1:
            numbers = ops.squeeze(numbers, -1)
        return ops.cast(ops.one_hot(numbers, size), "float32")
    hot = ops.cast(ops.one_hot(numbers, size), "float32")
    if numbers.ndim == 0:
        return hot
    if mode == "multi_hot":
        return ops.max(hot, axis=-2)
    if weights is not None:
        weights = ops.cast(ops.convert_to_tensor(weights), "float32")
        if weights.shape != numbers.shape:
            raise ValueError(
                f"layer {layer.name!r}: count_weights have the shape {weights.shape}, the "
                f"categories {numbers.shape}"
            )
        hot = ops.multiply(hot, ops.expand_dims(weights, -1))
    return ops.sum(hot, axis=-2)


def encoded_shape(shape: Sequence[int | None], mode: str, size: int) -> tuple[int | None, ...]:
    if mode == "int":
        return tuple(shape)
    if mode == "one_hot" and (len(shape) < 2 or shape[-1] != 1):
        return (*shape, size)
    return (*shape[:-1], size)


class CategoryEncoding(Settings, Layer):
    """Category numbers as vectors of `num_tokens`.

    output_mode: "multi_hot" (1 for each category that occurs along the last axis), "one_hot" (a
    vector for each number), "count" (how often each occurs, weighted by `count_weights`).
    """

    arguments = ("num_tokens", "output_mode")

    def __init__(
        self,
        num_tokens: int | None = None,
        output_mode: str = "multi_hot",
        sparse: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        kind = type(self).__name__
        if sparse:
            raise ValueError(f"layer {kind}: sparse outputs are not offered")
        if num_tokens is None:
            raise ValueError(f"layer {kind}: num_tokens, the number of categories, must be given")
        self.num_tokens = as_tuple(kind, "num_tokens", num_tokens, 1)[0]
        mode = "multi_hot" if output_mode == "binary" else output_mode
        self.output_mode = one_of(kind, "output_mode", mode, ("multi_hot", "one_hot", "count"))

    def call(self, inputs: Any, count_weights: Any = None) -> Any:
        if count_weights is not None and self.output_mode != "count":
            raise ValueError(f"layer {self.name!r}: count_weights are for output_mode='count' only")
        return encode_categories(self, inputs, self.output_mode, self.num_tokens, count_weights)

    def compute_output_shape(self, input_shape: Any, *_: Any) -> tuple[int | None, ...]:
        return encoded_shape(input_shape, self.output_mode, self.num_tokens)


class Discretization(Settings, Layer):
    """The number of the bin that a value falls into: how many boundaries are not above it.

    The boundaries are given, or learnt by `adapt` as quantiles, for `num_bins` bins.
    output_mode "int" gives the number; the others encode it as `CategoryEncoding` does.
    """

    arguments = ("bin_boundaries", "num_bins", "epsilon", "output_mode", "sparse")

    def __init__(
        self,
        bin_boundaries: Any = None,
        num_bins: int | None = None,
        epsilon: float = 0.01,
        output_mode: str = "int",
        sparse: bool = False,
        dtype: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        kind = type(self).__name__
        if sparse:
            raise ValueError(f"layer {kind}: sparse outputs are not offered")
        if (bin_boundaries is None) == (num_bins is None):
            raise ValueError(f"layer {kind}: give either bin_boundaries or num_bins")
        self.sparse = False
        self.num_bins = None if num_bins is None else as_tuple(kind, "num_bins", num_bins, 1)[0]
        self.bin_boundaries = None if bin_boundaries is None else sorted(_plain(bin_boundaries))
        self.epsilon = epsilon
        self.output_mode = one_of(
            kind, "output_mode", output_mode, ("int", "one_hot", "multi_hot", "count")
        )

    def adapt(self, data: Any) -> None:
        """Learn the boundaries as quantiles of an array, or of an iterable of batches."""
        if self.num_bins is None:
            raise ValueError(f"layer {self.name!r} was given its bin_boundaries and cannot adapt")
        batches = [data] if hasattr(data, "shape") or isinstance(data, list) else list(data)
        values = np.concatenate([np.asarray(b, np.float64).ravel() for b in batches])
        if not values.size:
            raise ValueError(f"layer {self.name!r}: adapt got no data")
        shares = np.arange(1, self.num_bins) / self.num_bins
        self.bin_boundaries = np.quantile(values, shares, method="higher").tolist()

    def _boundaries(self) -> list[float]:
        if self.bin_boundaries is None:
            raise ValueError(f"layer {self.name!r} has no boundaries yet; call adapt(data) first")
        return self.bin_boundaries

    def call(self, inputs: Any) -> Any:
        x = ops.expand_dims(ops.cast(ops.convert_to_tensor(inputs), "float32"), -1)
        bounds = np.asarray(self._boundaries(), np.float32)
        reached = ops.cast(ops.greater_equal(x, bounds), "int32")
        number = ops.sum(reached, axis=-1)
        return encode_categories(self, number, self.output_mode, len(bounds) + 1)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        size = 0 if self.output_mode == "int" else len(self._boundaries()) + 1
        return encoded_shape(input_shape, self.output_mode, size)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("trainable", None)  # an argument that Keras's own layer does not take
        if self.num_bins is not None and self.bin_boundaries is not None:
            config["num_bins"] = None  # what was learnt is kept as boundaries
        return config
