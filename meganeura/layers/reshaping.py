"""Layers that change shapes: reshape, permute, pad, crop, repeat, upsample."""

from __future__ import annotations

import math
from typing import Any

from meganeura import ops
from meganeura.layers.calling import InputSpec
from meganeura.layers.layer import Layer
from meganeura.layers.settings import as_tuple, checked_data_format, one_of
from meganeura.symbolic import KerasTensor


class Flatten(Layer):
    """Everything but the batch in one dimension, channels last."""

    def __init__(self, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.data_format = checked_data_format(self.name, data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Any:
        x = inputs
        if self.data_format == "channels_first" and len(x.shape) > 2:
            x = ops.transpose(x, (0, *range(2, len(x.shape)), 1))
        return ops.reshape(x, (x.shape[0], math.prod(x.shape[1:])))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "data_format": self.data_format}


class Reshape(Layer):
    """The elements of each sample in another shape; one length may be -1."""

    def __init__(self, target_shape: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self.target_shape = tuple(-1 if n is None else int(n) for n in target_shape)
        if self.target_shape.count(-1) > 1 or any(n < -1 for n in self.target_shape):
            raise ValueError(
                f"layer {self.name!r}: target_shape {tuple(target_shape)} may hold -1 (or None) once, and "
                "lengths otherwise; the batch is not part of it"
            )

    def _target(self, shape: Any) -> list[int | None]:
        """The shape of a sample; where the input's is not known, -1 is not known either."""
        if None in shape[1:]:
            return [None if n == -1 else n for n in self.target_shape]
        count = math.prod(shape[1:])
        known = math.prod(n for n in self.target_shape if n != -1)
        fits = known == count if -1 not in self.target_shape else known and count % known == 0
        if not fits:
            raise ValueError(
                f"layer {self.name!r}: {count} elements per sample of shape {tuple(shape)} do not fit "
                f"target_shape {self.target_shape}"
            )
        return [count // known if n == -1 else n for n in self.target_shape]

    def call(self, inputs: Any) -> Any:
        return ops.reshape(inputs, (inputs.shape[0], *self._target(inputs.shape)))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return (input_shape[0], *self._target(input_shape))

    def compute_output_spec(self, inputs: Any) -> Any:
        return KerasTensor(self.compute_output_shape(inputs.shape), inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "target_shape": list(self.target_shape)}


class Permute(Layer):
    """The dimensions of each sample in another order; dims are counted from 1."""

    def __init__(self, dims: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(
                f"layer {self.name!r}: dims {self.dims} must be a permutation counted from 1"
            )
        self.input_spec = InputSpec(ndim=len(self.dims) + 1)

    def call(self, inputs: Any) -> Any:
        return ops.transpose(inputs, (0, *self.dims))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dims": list(self.dims)}


class RepeatVector(Layer):
    """(batch, features) -> (batch, n, features)."""

    def __init__(self, n: int, **kwargs: Any):
        super().__init__(**kwargs)
        if not isinstance(n, int):
            raise TypeError(f"layer {self.name!r}: n must be an integer, not {n!r}")
        if n < 1:
            raise ValueError(f"layer {self.name!r}: n must be at least 1, not {n}")
        self.n = n
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs: Any) -> Any:
        x = ops.expand_dims(inputs, 1)
        return ops.broadcast_to(x, (x.shape[0], self.n, x.shape[2]))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "n": self.n}


def _pairs(layer: str, name: str, value: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """An integer, one per dimension, or a (before, after) pair per dimension."""
    if isinstance(value, int):
        return ((value, value),) * rank
    listed = list(value) if isinstance(value, (list, tuple)) else []
    if rank == 1:
        listed = [listed]  # one pair, not a list of pairs
    if len(listed) != rank or not listed[0]:
        wanted = "an integer or a pair" if rank == 1 else f"{rank} integers or pairs"
        raise ValueError(f"layer {layer!r}: {name} needs {wanted}, and got {value!r}")
    pairs = tuple((n, n) if isinstance(n, int) else tuple(int(v) for v in n) for n in listed)
    if any(len(p) != 2 or min(p) < 0 for p in pairs):
        raise ValueError(
            f"layer {layer!r}: {name} must hold pairs of non-negative integers, not {value!r}"
        )
    return pairs  # type: ignore[return-value]


class _Border(Layer):
    """What padding and cropping have in common: a pair of widths per spatial dimension."""

    rank: int
    word: str

    def __init__(self, widths: Any, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self._pairs = _pairs(self.name, self.word, widths, self.rank)
        setattr(self, self.word, self._pairs if self.rank > 1 else self._pairs[0])
        self.data_format = checked_data_format(self.name, data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _first_axis(self) -> int:
        return 2 if self.data_format == "channels_first" else 1

    def get_config(self) -> dict[str, Any]:
        own = {self.word: getattr(self, self.word), "data_format": self.data_format}
        return {**super().get_config(), **own}


class _ZeroPadding(_Border):
    word = "padding"

    def call(self, inputs: Any) -> Any:
        widths = [(0, 0)] * len(inputs.shape)
        at = self._first_axis()
        widths[at : at + self.rank] = self._pairs
        return ops.pad(inputs, widths)


class ZeroPadding1D(_ZeroPadding):
    """Zeros before and after the time steps."""

    rank = 1

    def __init__(self, padding: Any = 1, data_format: str | None = None, **kwargs: Any):
        super().__init__(padding, data_format, **kwargs)


class ZeroPadding2D(_ZeroPadding):
    """Zeros around images: ((top, bottom), (left, right))."""

    rank = 2

    def __init__(self, padding: Any = (1, 1), data_format: str | None = None, **kwargs: Any):
        super().__init__(padding, data_format, **kwargs)


class ZeroPadding3D(_ZeroPadding):
    """Zeros around volumes."""

    rank = 3

    def __init__(
        self, padding: Any = ((1, 1), (1, 1), (1, 1)), data_format: str | None = None, **kwargs: Any
    ):
        super().__init__(padding, data_format, **kwargs)


class _Cropping(_Border):
    word = "cropping"

    def call(self, inputs: Any) -> Any:
        at = self._first_axis()
        index: list[Any] = [slice(None)] * len(inputs.shape)
        for axis, (low, high) in enumerate(self._pairs, start=at):
            length = inputs.shape[axis]
            if low + high >= length:
                raise ValueError(
                    f"layer {self.name!r}: cropping {low} and {high} leaves nothing of length {length} "
                    f"at axis {axis} of the shape {tuple(inputs.shape)}"
                )
            index[axis] = slice(low, length - high)
        return inputs[tuple(index)]


class Cropping1D(_Cropping):
    """Time steps cut off at both ends."""

    rank = 1

    def __init__(self, cropping: Any = (1, 1), **kwargs: Any):
        super().__init__(cropping, "channels_last", **kwargs)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["data_format"]  # it takes none, as in Keras
        return config


class Cropping2D(_Cropping):
    """Rows and columns cut off images: ((top, bottom), (left, right))."""

    rank = 2

    def __init__(
        self, cropping: Any = ((0, 0), (0, 0)), data_format: str | None = None, **kwargs: Any
    ):
        super().__init__(cropping, data_format, **kwargs)


class Cropping3D(_Cropping):
    """Slices cut off volumes."""

    rank = 3

    def __init__(
        self,
        cropping: Any = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(cropping, data_format, **kwargs)


class _UpSampling(Layer):
    rank: int

    def __init__(self, size: Any, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self._size = as_tuple(self.name, "size", size, self.rank)
        self.size: Any = self._size if self.rank > 1 else self._size[0]
        self.data_format = checked_data_format(self.name, data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _first_axis(self) -> int:
        return 2 if self.data_format == "channels_first" and self.rank > 1 else 1

    def call(self, inputs: Any) -> Any:
        x = inputs
        for axis, times in enumerate(self._size, start=self._first_axis()):
            x = ops.repeat(x, times, axis=axis)
        return x

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "size": list(self._size) if self.rank > 1 else self.size}
        return {**config, "data_format": self.data_format} if self.rank > 1 else config


class UpSampling1D(_UpSampling):
    """Each time step repeated."""

    rank = 1

    def __init__(self, size: Any = 2, **kwargs: Any):
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"layer UpSampling1D: size must be an integer, got {size!r}")
        super().__init__(size, **kwargs)


class UpSampling2D(_UpSampling):
    """Images enlarged by whole factors: nearest or bilinear."""

    rank = 2

    def __init__(
        self,
        size: Any = (2, 2),
        data_format: str | None = None,
        interpolation: str = "nearest",
        **kwargs: Any,
    ):
        super().__init__(size, data_format, **kwargs)
        allowed = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
        self.interpolation = one_of(self.name, "interpolation", interpolation, allowed)

    def call(self, inputs: Any) -> Any:
        if self.interpolation == "nearest":
            return super().call(inputs)
        from meganeura.ops.image import resize

        at = self._first_axis()
        size = [n * s for n, s in zip(inputs.shape[at : at + 2], self._size, strict=True)]
        return resize(inputs, size, self.interpolation, data_format=self.data_format)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "interpolation": self.interpolation}


class UpSampling3D(_UpSampling):
    """Volumes enlarged by whole factors."""

    rank = 3

    def __init__(self, size: Any = (2, 2, 2), data_format: str | None = None, **kwargs: Any):
        super().__init__(size, data_format, **kwargs)
