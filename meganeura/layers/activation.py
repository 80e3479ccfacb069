"""Activations as layers."""

from __future__ import annotations

from typing import Any

from meganeura import activations, ops
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings


class _Pointwise(Settings, Layer):
    """A layer whose output has the shape of its input."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True

    def _number(self, name: str, value: Any, low: float | None = None) -> float:
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise ValueError(f"layer {self.name!r}: {name} must be a number, got {value!r}")
        if low is not None and float(value) < low:
            raise ValueError(f"layer {self.name!r}: {name} must be at least {low}, got {value}")
        return float(value)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return tuple(input_shape)


class ReLU(_Pointwise):
    """min(x, max_value) for x >= threshold, negative_slope * (x - threshold) below."""

    arguments = ("max_value", "negative_slope", "threshold")

    def __init__(
        self,
        max_value: float | None = None,
        negative_slope: float = 0.0,
        threshold: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.max_value = None if max_value is None else self._number("max_value", max_value, 0)
        self.negative_slope = self._number("negative_slope", negative_slope, 0)
        self.threshold = self._number("threshold", threshold, 0)

    def call(self, inputs: Any) -> Any:
        return activations.relu(inputs, self.negative_slope, self.max_value, self.threshold)


class LeakyReLU(_Pointwise):
    """x for x >= 0, negative_slope * x below."""

    arguments = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.3, **kwargs: Any):
        if "alpha" in kwargs:  # its name in Keras 2
            negative_slope = kwargs.pop("alpha")
        super().__init__(**kwargs)
        self.negative_slope = self._number("negative_slope", negative_slope, 0)

    def call(self, inputs: Any) -> Any:
        return activations.leaky_relu(inputs, self.negative_slope)


class PReLU(_Pointwise):
    """x for x >= 0, alpha * x below, with a learned alpha for each feature.

    alpha has the shape of one sample, but with length 1 along `shared_axes`.
    """

    arguments = ("alpha_initializer", "alpha_regularizer", "alpha_constraint", "shared_axes")

    def __init__(
        self,
        alpha_initializer: Any = "Zeros",
        alpha_regularizer: Any = None,
        alpha_constraint: Any = None,
        shared_axes: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.settle(
            alpha_initializer=alpha_initializer,
            alpha_regularizer=alpha_regularizer,
            alpha_constraint=alpha_constraint,
        )
        self.shared_axes = [shared_axes] if isinstance(shared_axes, int) else shared_axes
        if self.shared_axes is not None:
            self.shared_axes = list(self.shared_axes)

    def build(self, input_shape: Any) -> None:
        shape = list(input_shape[1:])
        for axis in self.shared_axes or ():
            if not 1 <= axis < len(input_shape):
                raise ValueError(
                    f"layer {self.name!r}: shared_axes has the axis {axis}, which an input of "
                    f"shape {tuple(input_shape)} does not have (0 is the batch)"
                )
            shape[axis - 1] = 1
        if any(length is None for length in shape):
            raise ValueError(
                f"layer {self.name!r}: an input of shape {tuple(input_shape)} has unknown lengths; "
                "name their axes in shared_axes"
            )
        self.alpha = self.add_weight(
            shape=tuple(shape),
            name="alpha",
            initializer=self.alpha_initializer,
            regularizer=self.alpha_regularizer,
            constraint=self.alpha_constraint,
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        negative = ops.multiply(self.alpha, ops.minimum(inputs, 0.0))
        return ops.add(ops.relu(inputs), negative)


class ELU(_Pointwise):
    """x for x > 0, alpha * (exp(x) - 1) below."""

    arguments = ("alpha",)

    def __init__(self, alpha: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.alpha = self._number("alpha", alpha)

    def call(self, inputs: Any) -> Any:
        return activations.elu(inputs, self.alpha)


class Softmax(_Pointwise):
    """exp(x) / sum(exp(x)) along `axis`, over the places where `mask` is true.

    Places that the mask leaves out get 0, also where it leaves out all.
    """

    arguments = ("axis",)

    def __init__(self, axis: Any = -1, **kwargs: Any):
        super().__init__(**kwargs)
        self.axis = axis if isinstance(axis, int) else tuple(axis)

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return activations.softmax(inputs, self.axis)
        inputs, mask = ops.convert_to_tensor(inputs), ops.convert_to_tensor(mask)
        fits = zip(reversed(mask.shape), reversed(inputs.shape), strict=False)
        if mask.ndim > inputs.ndim or any(m not in (1, n) for m, n in fits):
            raise ValueError(
                f"layer {self.name!r}: a mask of shape {mask.shape} does not broadcast to inputs "
                f"of shape {inputs.shape}"
            )
        if mask.dtype != "bool":
            mask = ops.greater(ops.cast(mask, "float32"), 0.5)
        kept = ops.where(mask, ops.cast(inputs, "float32"), -1e9)  # which no half precision holds
        weights = ops.cast(activations.softmax(kept, self.axis), inputs.dtype)
        return ops.where(mask, weights, 0.0)
