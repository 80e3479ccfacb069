"""Pooling: the largest or the mean value of windows, or of everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.layers.layer import Layer
from meganeura.layers.settings import (
    Settings,
    as_tuple,
    check_rank,
    checked_data_format,
    checked_output,
    one_of,
    window_length,
)


class _Pooling(Settings, Layer):
    arguments = ("pool_size", "padding", "strides", "data_format")
    rank: int
    pool: Callable[..., Any]

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        kind = type(self).__name__
        self.pool_size = as_tuple(kind, "pool_size", pool_size, self.rank)
        self.strides = as_tuple(
            kind, "strides", self.pool_size if strides is None else strides, self.rank
        )
        self.padding = one_of(kind, "padding", padding, ("valid", "same"))
        self.data_format = checked_data_format(kind, data_format)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        check_rank(self, input_shape, self.rank + 2)
        first = 1 if self.data_format == "channels_last" else 2
        shape = list(input_shape)
        for i in range(self.rank):
            shape[first + i] = window_length(
                shape[first + i], self.pool_size[i], self.strides[i], self.padding
            )
        return checked_output(self, tuple(shape), input_shape)

    def call(self, inputs: Any) -> Any:
        self.compute_output_shape(inputs.shape)
        return type(self).pool(
            inputs,
            self.pool_size,
            strides=self.strides,
            padding=self.padding,
            data_format=self.data_format,
        )


class MaxPooling1D(_Pooling):
    """The largest value of each window of `pool_size` steps."""

    rank, pool = 1, staticmethod(ops.max_pool)


class MaxPooling2D(_Pooling):
    """The largest value of each window of an image; padding never wins."""

    rank, pool = 2, staticmethod(ops.max_pool)


class MaxPooling3D(_Pooling):
    """The largest value of each window of a volume; padding never wins."""

    rank, pool = 3, staticmethod(ops.max_pool)


class AveragePooling1D(_Pooling):
    """The mean of each window of `pool_size` steps; padding does not count."""

    rank, pool = 1, staticmethod(ops.average_pool)


class AveragePooling2D(_Pooling):
    """The mean of each window of an image; padding does not count."""

    rank, pool = 2, staticmethod(ops.average_pool)


class AveragePooling3D(_Pooling):
    """The mean of each window of a volume; padding does not count."""

    rank, pool = 3, staticmethod(ops.average_pool)


class _GlobalPooling(Settings, Layer):
    arguments = ("data_format", "keepdims")
    rank: int

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.data_format = checked_data_format(type(self).__name__, data_format)
        self.keepdims = keepdims

    @property
    def axes(self) -> tuple[int, ...]:
        first = 1 if self.data_format == "channels_last" else 2
        return tuple(range(first, first + self.rank))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        check_rank(self, input_shape, self.rank + 2)
        if self.keepdims:
            return tuple(1 if i in self.axes else n for i, n in enumerate(input_shape))
        return tuple(n for i, n in enumerate(input_shape) if i not in self.axes)


class _GlobalMax(_GlobalPooling):
    def call(self, inputs: Any) -> Any:
        check_rank(self, inputs.shape, self.rank + 2)
        return ops.max(inputs, axis=self.axes, keepdims=self.keepdims)


class _GlobalAverage(_GlobalPooling):
    def call(self, inputs: Any) -> Any:
        check_rank(self, inputs.shape, self.rank + 2)
        return ops.mean(inputs, axis=self.axes, keepdims=self.keepdims)


class GlobalMaxPooling1D(_GlobalMax):
    """The largest value over time of each channel."""

    rank = 1


class GlobalMaxPooling2D(_GlobalMax):
    """The largest value over an image of each channel."""

    rank = 2


class GlobalMaxPooling3D(_GlobalMax):
    """The largest value over a volume of each channel."""

    rank = 3


class GlobalAveragePooling1D(_GlobalAverage):
    """The mean over time of each channel; steps that the mask leaves out do not count."""

    rank = 1

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any):
        super().__init__(data_format, keepdims, **kwargs)
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return super().call(inputs)
        check_rank(self, inputs.shape, 3)
        axis = self.axes[0]
        weights = ops.expand_dims(ops.cast(mask, "float32"), 3 - axis)
        total = ops.sum(
            ops.multiply(inputs, weights), axis=axis, keepdims=self.keepdims
        )  # in float32
        return ops.divide(total, ops.sum(weights, axis=axis, keepdims=self.keepdims))

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:
        return None


class GlobalAveragePooling2D(_GlobalAverage):
    """The mean over an image of each channel."""

    rank = 2


class GlobalAveragePooling3D(_GlobalAverage):
    """The mean over a volume of each channel."""

    rank = 3


class _AdaptivePooling(Settings, Layer):
    """Pools n values into m: window i reaches from floor(i n / m) to ceil((i + 1) n / m)."""

    arguments = ("output_size", "data_format")
    rank: int

    def __init__(self, output_size: Any, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        kind = type(self).__name__
        self.output_size = as_tuple(kind, "output_size", output_size, self.rank)
        self.data_format = checked_data_format(kind, data_format)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        check_rank(self, input_shape, self.rank + 2)
        if self.data_format == "channels_last":
            return (input_shape[0], *self.output_size, input_shape[-1])
        return (input_shape[0], input_shape[1], *self.output_size)

    def call(self, inputs: Any) -> Any:
        check_rank(self, inputs.shape, self.rank + 2)
        first = 1 if self.data_format == "channels_last" else 2
        for i, size in enumerate(self.output_size):
            length = inputs.shape[first + i]
            starts = [j * length // size for j in range(size)]
            ends = [-(-(j + 1) * length // size) for j in range(size)]
            inputs = self.pool_axis(inputs, first + i, starts, ends)
        return inputs

    def pool_axis(self, x: Any, axis: int, starts: list[int], ends: list[int]) -> Any:
        raise NotImplementedError


class _AdaptiveMax(_AdaptivePooling):
    def pool_axis(self, x: Any, axis: int, starts: list[int], ends: list[int]) -> Any:
        widest = max(e - s for s, e in zip(starts, ends, strict=True))
        # Shorter windows see their last value again, which changes no maximum.
        places = [[min(s + k, e - 1) for k in range(widest)] for s, e in zip(starts, ends)]  # noqa: B905
        windows = ops.take(x, np.asarray(places, np.int32), axis=axis)
        return ops.max(windows, axis=axis + 1)


class _AdaptiveAverage(_AdaptivePooling):
    def pool_axis(self, x: Any, axis: int, starts: list[int], ends: list[int]) -> Any:
        weights = np.zeros((len(starts), x.shape[axis]), np.float32)
        for row, start, end in zip(weights, starts, ends, strict=True):
            row[start:end] = 1.0 / (end - start)
        return ops.moveaxis(ops.matmul(ops.moveaxis(x, axis, -1), weights.T), -1, axis)


class AdaptiveMaxPooling1D(_AdaptiveMax):
    """The largest values of `output_size` windows that cover all steps."""

    rank = 1


class AdaptiveMaxPooling2D(_AdaptiveMax):
    """The largest values of `output_size` windows that cover an image."""

    rank = 2


class AdaptiveMaxPooling3D(_AdaptiveMax):
    """The largest values of `output_size` windows that cover a volume."""

    rank = 3


class AdaptiveAveragePooling1D(_AdaptiveAverage):
    """The means of `output_size` windows that cover all steps."""

    rank = 1


class AdaptiveAveragePooling2D(_AdaptiveAverage):
    """The means of `output_size` windows that cover an image."""

    rank = 2


class AdaptiveAveragePooling3D(_AdaptiveAverage):
    """The means of `output_size` windows that cover a volume."""

    rank = 3
