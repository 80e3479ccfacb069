"""Layers that join several tensors into one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.layers.layer import Layer
from meganeura.masking import get_mask


def _ranks_equal(layer: str, inputs: Sequence[Any]) -> list[Any]:
    """Inputs of fewer dimensions get new ones after the batch, so that they broadcast."""
    rank = max(len(x.shape) for x in inputs)
    out = []
    for x in inputs:
        missing = rank - len(x.shape)
        if missing:
            x = ops.reshape(x, (x.shape[0], *[1] * missing, *x.shape[1:]))
        out.append(x)
    for x in out:
        for axis, (a, b) in enumerate(zip(out[0].shape, x.shape, strict=True)):
            if a != b and 1 not in (a, b):
                shapes = ", ".join(str(tuple(v.shape)) for v in inputs)
                raise ValueError(
                    f"layer {layer!r}: the shapes {shapes} cannot be merged; they differ at axis {axis}"
                )
    return out


class _Merge(Layer):
    """Combines a list of tensors that broadcast together."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        self.built = True

    def _checked(self, inputs: Any) -> list[Any]:
        if not isinstance(inputs, (list, tuple)) or len(inputs) < 1:
            raise ValueError(
                f"layer {self.name!r} ({type(self).__name__}) takes a list of tensors, and got "
                f"{type(inputs).__name__}"
            )
        return list(inputs)

    def call(self, inputs: Any) -> Any:
        return self._merge(_ranks_equal(self.name, self._checked(inputs)))

    def _merge(self, inputs: list[Any]) -> Any:
        raise NotImplementedError

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """True where one of the inputs' masks is; None where an input has no mask: nothing of it is masked."""
        if mask is None:
            return None
        self._check_masks(inputs, mask)
        if any(m is None for m in mask):
            return None
        return functools.reduce(ops.logical_or, mask)

    def _check_masks(self, inputs: Any, mask: Any) -> None:
        if not isinstance(mask, (list, tuple)) or not isinstance(inputs, (list, tuple)):
            raise ValueError(
                f"layer {self.name!r}: compute_mask takes a list of inputs and a list of masks"
            )
        if len(mask) != len(inputs):
            raise ValueError(
                f"layer {self.name!r}: there are {len(inputs)} inputs, and {len(mask)} masks"
            )


class Add(_Merge):
    """The sum of the inputs."""

    def _merge(self, inputs: list[Any]) -> Any:
        return functools.reduce(ops.add, inputs)


class Subtract(_Merge):
    """The first input minus the second."""

    def _merge(self, inputs: list[Any]) -> Any:
        if len(inputs) != 2:
            raise ValueError(
                f"layer {self.name!r} (Subtract) takes two tensors, and got {len(inputs)}"
            )
        return ops.subtract(*inputs)


class _Selective(_Merge):
    """What is masked in an input counts as the value that changes nothing; what is masked in all is 0."""

    def _neutral(self, dtype: str) -> float:
        raise NotImplementedError

    def _without_masked(self, inputs: list[Any], fold: Callable[[Any, Any], Any]) -> Any:
        masks = [get_mask(x) for x in inputs]
        if all(m is None for m in masks):
            return functools.reduce(fold, inputs)
        filled = [
            x if m is None else ops.where(_over(m, x), x, ops.full_like(x, self._neutral(x.dtype)))
            for x, m in zip(inputs, masks, strict=True)
        ]
        result = functools.reduce(fold, filled)
        if any(m is None for m in masks):
            return result
        anywhere = functools.reduce(ops.logical_or, masks)
        return ops.where(_over(anywhere, result), result, ops.zeros_like(result))


def _over(mask: Any, x: Any) -> Any:
    """A mask of the first dimensions, which broadcasts over the others."""
    return ops.reshape(mask, (*mask.shape, *[1] * (len(x.shape) - len(mask.shape))))


def _extreme(dtype: str, sign: int) -> float:
    if "float" in dtype:
        return sign * float(np.finfo(dtype).max)
    limits = np.iinfo(dtype)
    return limits.max if sign > 0 else limits.min


class Multiply(_Selective):
    """The product of the inputs."""

    def _neutral(self, dtype: str) -> float:
        return 1

    def _merge(self, inputs: list[Any]) -> Any:
        return self._without_masked(inputs, ops.multiply)


class Average(_Merge):
    """The mean of the inputs."""

    def _merge(self, inputs: list[Any]) -> Any:
        return ops.divide(functools.reduce(ops.add, inputs), float(len(inputs)))


class Maximum(_Selective):
    """The largest of the inputs."""

    def _neutral(self, dtype: str) -> float:
        return _extreme(dtype, -1)

    def _merge(self, inputs: list[Any]) -> Any:
        return self._without_masked(inputs, ops.maximum)


class Minimum(_Selective):
    """The smallest of the inputs."""

    def _neutral(self, dtype: str) -> float:
        return _extreme(dtype, 1)

    def _merge(self, inputs: list[Any]) -> Any:
        return self._without_masked(inputs, ops.minimum)


class Concatenate(_Merge):
    """The inputs side by side along `axis`."""

    def __init__(self, axis: int = -1, **kwargs: Any):
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs: Any) -> Any:
        tensors = self._checked(inputs)
        first = tuple(tensors[0].shape)
        axis = self.axis % len(first) if first else 0
        for x in tensors[1:]:
            same = len(x.shape) == len(first) and all(
                a == b for i, (a, b) in enumerate(zip(x.shape, first, strict=True)) if i != axis
            )
            if not same:
                shapes = ", ".join(str(tuple(v.shape)) for v in tensors)
                raise ValueError(
                    f"layer {self.name!r}: the shapes {shapes} must agree but for axis {self.axis}"
                )
        return ops.concatenate(tensors, axis=axis)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return None
        self._check_masks(inputs, mask)
        if all(m is None for m in mask):
            return None
        if self.axis % len(inputs[0].shape) != 1:  # a step is there if it is in one of the inputs
            if any(m is None for m in mask):
                return ops.ones(tuple(inputs[0].shape[:2]), "bool")
            return functools.reduce(ops.logical_or, mask)
        parts = []
        for x, m in zip(inputs, mask, strict=True):
            parts.append(ops.ones(tuple(x.shape[:2]), "bool") if m is None else m)
        return ops.concatenate(parts, axis=1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axis": self.axis}


class Dot(_Merge):
    """Products summed over `axes` of two tensors, per sample."""

    def __init__(self, axes: Any, normalize: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.axes = axes if isinstance(axes, int) else tuple(axes)
        self.normalize = normalize

    def call(self, inputs: Any) -> Any:
        tensors = self._checked(inputs)
        if len(tensors) != 2:
            raise ValueError(f"layer {self.name!r} (Dot) takes two tensors, and got {len(tensors)}")
        a, b = tensors
        pair = (self.axes, self.axes) if isinstance(self.axes, int) else self.axes
        i, j = pair[0] % len(a.shape), pair[1] % len(b.shape)
        if a.shape[i] != b.shape[j]:
            raise ValueError(
                f"layer {self.name!r}: axes {self.axes} of the shapes {tuple(a.shape)} and {tuple(b.shape)} differ"
            )
        if self.normalize:
            a, b = ops.normalize(a, axis=i), ops.normalize(b, axis=j)
        return dot_product(a, b, i, j)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return None

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axes": self.axes, "normalize": self.normalize}


def dot_product(a: Any, b: Any, i: int, j: int) -> Any:
    """Batched contraction of axis i of a with axis j of b."""
    left, right = list(a.shape), list(b.shape)
    rest_a = [n for n in range(1, len(left)) if n != i]
    rest_b = [n for n in range(1, len(right)) if n != j]
    a = ops.reshape(ops.transpose(a, (0, *rest_a, i)), (left[0], -1, left[i]))
    b = ops.reshape(ops.transpose(b, (0, j, *rest_b)), (right[0], right[j], -1))
    shape = (left[0], *(left[n] for n in rest_a), *(right[n] for n in rest_b))
    out = ops.matmul(a, b)
    return ops.reshape(out, shape if len(shape) > 1 else (left[0], 1))


def _function(layer: Callable[..., Layer], summary: str) -> Callable[..., Any]:
    def merge(inputs: Any, **kwargs: Any) -> Any:
        return layer(**kwargs)(inputs)

    merge.__doc__ = summary
    return merge


add = _function(Add, "Functional form of Add.")
subtract = _function(Subtract, "Functional form of Subtract.")
multiply = _function(Multiply, "Functional form of Multiply.")
average = _function(Average, "Functional form of Average.")
maximum = _function(Maximum, "Functional form of Maximum.")
minimum = _function(Minimum, "Functional form of Minimum.")


def concatenate(inputs: Any, axis: int = -1, **kwargs: Any) -> Any:
    """Functional form of Concatenate."""
    return Concatenate(axis=axis, **kwargs)(inputs)


def dot(inputs: Any, axes: Any = -1, **kwargs: Any) -> Any:
    """Functional form of Dot."""
    return Dot(axes=axes, **kwargs)(inputs)
