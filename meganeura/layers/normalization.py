"""Normalisation over the batch, over features, over groups of channels, and of weights.

All of it is computed in float32, whatever the policy: squares leave the range of half precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meganeura import config, initializers, ops
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings, known_channels


def checked_axes(layer: Layer, axis: Any, shape: Sequence[int | None]) -> tuple[int, ...]:
    """The axes as sorted non-negative integers. Raises ValueError where one is out of range."""
    axes = [axis] if isinstance(axis, int) else list(axis)
    rank = len(shape)
    if any(not -rank <= a < rank for a in axes):
        raise ValueError(
            f"layer {layer.name!r}: axis {axis} does not fit an input of shape {tuple(shape)}"
        )
    return tuple(sorted(a % rank for a in axes))


def listed_axes(kind: str, axis: Any) -> Any:
    """`axis` as an integer or a list of them. Raises TypeError for anything else."""
    if isinstance(axis, int):
        return axis
    if isinstance(axis, (list, tuple)) and all(isinstance(a, int) for a in axis):
        return list(axis)
    raise TypeError(f"layer {kind}: axis must be an integer or a list of integers, got {axis!r}")


def along(weight: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
    """A weight of the lengths at `axes`, reshaped so that it broadcasts against `shape`."""
    if tuple(axes) == tuple(range(len(shape) - len(axes), len(shape))):
        return weight
    return ops.reshape(weight, [n if i in axes else 1 for i, n in enumerate(shape)])


class _Normalization(Settings, Layer):
    def _casts_inputs(self) -> bool:
        return False  # values beyond half precision's 65504 come back into its range here


class _Affine(_Normalization):
    """A normalisation followed by an optional scale gamma and shift beta."""

    def __init__(
        self,
        axis: Any = -1,
        epsilon: float = 0.001,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.settle(
            axis=listed_axes(type(self).__name__, axis),
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
        )
        self.gamma: Any = None
        self.beta: Any = None

    def _add_gamma_beta(self, shape: tuple[int, ...]) -> None:
        if self.scale:
            self.gamma = self.add_weight(
                shape=shape,
                name="gamma",
                initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
                trainable=True,
                autocast=False,
            )
        if self.center:
            self.beta = self.add_weight(
                shape=shape,
                name="beta",
                initializer=self.beta_initializer,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
                trainable=True,
                autocast=False,
            )

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        checked_axes(self, self.axis, input_shape)
        return tuple(input_shape)


class BatchNormalization(_Affine):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, over all axes but `axis`.

    In training mean and (biased) variance are those of the batch, and the moving ones follow:
    moving = momentum * moving + (1 - momentum) * batch. In inference, and whenever the layer is
    not trainable, the moving ones are used. Steps that a mask leaves out do not count.
    `renorm` corrects the batch statistics towards the moving ones (batch renormalisation), within
    `renorm_clipping` {"rmin", "rmax", "dmax"}.
    """

    arguments = (
        "axis", "momentum", "epsilon", "center", "scale", "beta_initializer", "gamma_initializer",
        "moving_mean_initializer", "moving_variance_initializer", "beta_regularizer",
        "gamma_regularizer", "beta_constraint", "gamma_constraint", "synchronized", "renorm",
        "renorm_clipping", "renorm_momentum",
    )  # fmt: skip

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 0.001,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros",
        moving_variance_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: dict[str, float] | None = None,
        renorm_momentum: float = 0.99,
        synchronized: bool = False,
        **kwargs: Any,
    ):
        if isinstance(axis, (list, tuple)) and len(axis) == 1:  # as Keras 2 wrote it
            axis = axis[0]
        super().__init__(
            axis,
            epsilon,
            center,
            scale,
            beta_initializer,
            gamma_initializer,
            beta_regularizer,
            gamma_regularizer,
            beta_constraint,
            gamma_constraint,
            **kwargs,
        )
        if not isinstance(axis, int):
            raise ValueError(f"layer {self.name!r}: axis must be one integer, got {axis!r}")
        clipping = dict(renorm_clipping or {})
        if unknown := set(clipping) - {"rmin", "rmax", "dmax"}:
            raise ValueError(
                f"layer {self.name!r}: renorm_clipping has the keys rmin, rmax and dmax, not "
                f"{min(unknown)!r}"
            )
        if (
            clipping.get("rmin", 0.0) > clipping.get("rmax", math.inf)
            or clipping.get("dmax", 0) < 0
        ):
            raise ValueError(
                f"layer {self.name!r}: renorm_clipping needs rmin <= rmax and dmax >= 0, got "
                f"{clipping}"
            )
        self.settle(
            momentum=float(momentum),
            moving_mean_initializer=moving_mean_initializer,
            moving_variance_initializer=moving_variance_initializer,
            renorm=renorm,
            renorm_clipping=clipping or None,
            renorm_momentum=renorm_momentum,
            synchronized=synchronized,
        )

    def build(self, input_shape: Any) -> None:
        (axis,) = checked_axes(self, self.axis, input_shape)
        shape = (known_channels(self, input_shape, axis),)
        self._add_gamma_beta(shape)

        def statistic(name: str, initializer: Any) -> Any:
            return self.add_weight(
                shape=shape, name=name, initializer=initializer, trainable=False, autocast=False
            )

        self.moving_mean = statistic("moving_mean", self.moving_mean_initializer)
        self.moving_variance = statistic("moving_variance", self.moving_variance_initializer)
        if self.renorm:
            deviation = initializers.Constant(self.moving_variance.numpy() ** 0.5)
            self.moving_stddev = statistic("moving_stddev", deviation)
            self.renorm_mean = statistic(
                "renorm_mean", initializers.Constant(self.moving_mean.numpy())
            )
            self.renorm_stddev = statistic("renorm_stddev", deviation)
        self.built = True

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        x = ops.convert_to_tensor(inputs, "float32")
        (axis,) = checked_axes(self, self.axis, x.shape)

        def spread(weight: Any) -> Any:
            return along(weight, (axis,), x.shape)

        gamma, beta = self.gamma, self.beta
        if training and self.trainable:
            mean, variance = self._moments(x, axis, mask)
            if self.renorm:
                gamma, beta = self._renormalise(mean, variance)
            else:
                self._follow(self.moving_mean, mean, self.momentum)
                self._follow(self.moving_variance, variance, self.momentum)
        else:
            mean, variance = self.moving_mean, self.moving_variance
        factor = ops.rsqrt(ops.add(variance, self.epsilon))
        if gamma is not None:
            factor = ops.multiply(factor, gamma)
        outputs = ops.multiply(ops.subtract(x, spread(mean)), spread(factor))
        return outputs if beta is None else ops.add(outputs, spread(beta))

    @staticmethod
    def _follow(moving: Any, value: Any, momentum: float) -> Any:
        new = ops.add(ops.multiply(moving, momentum), ops.multiply(value, 1.0 - momentum))
        moving.assign(new)
        return new

    def _moments(self, x: Any, axis: int, mask: Any) -> tuple[Any, Any]:
        axes = tuple(i for i in range(x.ndim) if i != axis)
        if mask is None:
            mean = ops.mean(x, axis=axes, keepdims=True)
            variance = ops.mean(ops.square(ops.subtract(x, mean)), axis=axes)
            return ops.reshape(mean, (-1,)), variance
        mask = ops.convert_to_tensor(mask)
        if mask.ndim != x.ndim - 1:
            raise ValueError(
                f"layer {self.name!r}: a mask of shape {mask.shape} does not fit inputs of shape "
                f"{x.shape}; it has one dimension less"
            )
        weights = ops.broadcast_to(ops.expand_dims(ops.cast(mask, "float32"), -1), x.shape)
        count = ops.add(ops.sum(weights, axis=axes, keepdims=True), config.epsilon())
        mean = ops.divide(ops.sum(ops.multiply(x, weights), axis=axes, keepdims=True), count)
        apart = ops.multiply(ops.square(ops.subtract(x, mean)), weights)
        variance = ops.divide(ops.sum(apart, axis=axes, keepdims=True), count)
        return ops.reshape(mean, (-1,)), ops.reshape(variance, (-1,))

    def _renormalise(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        """gamma and beta with the corrections r and d: x * r + d in place of the normalised x."""
        clip = self.renorm_clipping or {}
        deviation = ops.sqrt(ops.add(variance, self.epsilon))
        known = ops.maximum(self.renorm_stddev, self.epsilon**0.5)
        r = ops.divide(deviation, known)
        d = ops.divide(ops.subtract(mean, self.renorm_mean), known)
        if clip.get("rmin") is not None:
            r = ops.maximum(r, float(clip["rmin"]))
        if clip.get("rmax") is not None:
            r = ops.minimum(r, float(clip["rmax"]))
        if clip.get("dmax") is not None:
            d = ops.clip(d, -float(clip["dmax"]), float(clip["dmax"]))
        r, d = ops.stop_gradient(r), ops.stop_gradient(d)
        self._follow(self.renorm_mean, mean, self.renorm_momentum)
        self._follow(self.renorm_stddev, deviation, self.renorm_momentum)
        self._follow(self.moving_mean, mean, self.momentum)
        new = self._follow(self.moving_stddev, deviation, self.momentum)
        self.moving_variance.assign(ops.relu(ops.subtract(ops.square(new), self.epsilon)))
        gamma = r if self.gamma is None else ops.multiply(r, self.gamma)
        beta = d if self.gamma is None else ops.multiply(d, self.gamma)
        return gamma, beta if self.beta is None else ops.add(beta, self.beta)


class LayerNormalization(_Affine):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, over `axis` of each sample.

    gamma and beta have the shape of the normalised axes.
    """

    arguments = (
        "axis", "epsilon", "center", "scale", "rms_scaling", "beta_initializer",
        "gamma_initializer", "beta_regularizer", "gamma_regularizer", "beta_constraint",
        "gamma_constraint",
    )  # fmt: skip

    def __init__(self, axis: Any = -1, epsilon: float = 0.001, *args: Any, **kwargs: Any):
        rms_scaling = bool(kwargs.pop("rms_scaling", False))
        super().__init__(axis, epsilon, *args, **kwargs)
        # A former argument that Keras still writes: divide only, without mean and beta.
        self.rms_scaling = rms_scaling
        if self.rms_scaling:
            self.center, self.scale = False, True

    def build(self, input_shape: Any) -> None:
        axes = checked_axes(self, self.axis, input_shape)
        self._add_gamma_beta(tuple(known_channels(self, input_shape, a) for a in axes))
        self.built = True

    def call(self, inputs: Any) -> Any:
        x = ops.convert_to_tensor(inputs, "float32")
        axes = checked_axes(self, self.axis, x.shape)
        centred = ops.subtract(x, ops.mean(x, axis=axes, keepdims=True))
        variance = ops.mean(ops.square(centred), axis=axes, keepdims=True)
        outputs = x if self.rms_scaling else centred
        outputs = ops.multiply(outputs, ops.rsqrt(ops.add(variance, self.epsilon)))
        if self.gamma is not None:
            outputs = ops.multiply(outputs, along(self.gamma, axes, x.shape))
        if self.beta is not None:
            outputs = ops.add(outputs, along(self.beta, axes, x.shape))
        return outputs


class GroupNormalization(_Affine):
    """Layer normalisation within each of `groups` groups of channels; -1 makes each channel one.

    gamma and beta belong to the channels at `axis`.
    """

    arguments = (
        "groups", "axis", "epsilon", "center", "scale", "beta_initializer", "gamma_initializer",
        "beta_regularizer", "gamma_regularizer", "beta_constraint", "gamma_constraint",
    )  # fmt: skip

    def __init__(
        self, groups: int = 32, axis: int = -1, epsilon: float = 0.001, *args: Any, **kwargs: Any
    ):
        super().__init__(axis, epsilon, *args, **kwargs)
        self.autocast = (
            False  # call casts to float32: half precision cannot hold inputs above 65504
        )
        if not isinstance(axis, int):
            raise ValueError(f"layer {self.name!r}: axis must be one integer, got {axis!r}")
        if isinstance(groups, bool) or not isinstance(groups, int) or (groups < 1 and groups != -1):
            raise ValueError(
                f"layer {self.name!r}: groups must be a positive integer, or -1 for one to each channel, not {groups!r}"
            )
        self.groups = groups

    def build(self, input_shape: Any) -> None:
        (axis,) = checked_axes(self, self.axis, input_shape)
        channels = known_channels(self, input_shape, axis)
        if self.groups == -1:
            self.groups = channels
        if self.groups < 1 or channels % self.groups:
            raise ValueError(
                f"layer {self.name!r}: {channels} channels cannot be split into "
                f"{self.groups} equal groups"
            )
        self._add_gamma_beta((channels,))
        self.built = True

    def call(self, inputs: Any) -> Any:
        x = ops.convert_to_tensor(inputs, "float32")
        (axis,) = checked_axes(self, self.axis, x.shape)
        channels = x.shape[axis]
        split = (*x.shape[:axis], self.groups, channels // self.groups, *x.shape[axis + 1 :])
        groups = ops.reshape(x, split)
        axes = tuple(i for i in range(1, groups.ndim) if i != axis)
        centred = ops.subtract(groups, ops.mean(groups, axis=axes, keepdims=True))
        variance = ops.mean(ops.square(centred), axis=axes, keepdims=True)
        outputs = ops.multiply(centred, ops.rsqrt(ops.add(variance, self.epsilon)))
        outputs = ops.reshape(outputs, x.shape)
        if self.gamma is not None:
            outputs = ops.multiply(outputs, along(self.gamma, (axis,), x.shape))
        if self.beta is not None:
            outputs = ops.add(outputs, along(self.beta, (axis,), x.shape))
        return ops.cast(outputs, self.compute_dtype)


class RMSNormalization(_Normalization):
    """x / sqrt(mean(x^2) + epsilon) * scale, over `axis`."""

    arguments = ("axis", "epsilon")

    def __init__(self, axis: Any = -1, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.axis = listed_axes(type(self).__name__, axis)
        self.epsilon = epsilon

    def build(self, input_shape: Any) -> None:
        axes = checked_axes(self, self.axis, input_shape)
        shape = tuple(known_channels(self, input_shape, a) for a in axes)
        self.scale = self.add_weight(shape=shape, name="scale", initializer="ones", autocast=False)
        self.built = True

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        checked_axes(self, self.axis, input_shape)
        return tuple(input_shape)

    def call(self, inputs: Any) -> Any:
        x = ops.convert_to_tensor(inputs, "float32")
        axes = checked_axes(self, self.axis, x.shape)
        square = ops.mean(ops.square(x), axis=axes, keepdims=True)
        outputs = ops.multiply(x, ops.rsqrt(ops.add(square, self.epsilon)))
        return ops.multiply(outputs, along(self.scale, axes, x.shape))


class UnitNormalization(_Normalization):
    """x / sqrt(max(sum(x^2), 1e-12)), over `axis`."""

    arguments = ("axis",)

    def __init__(self, axis: Any = -1, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.axis = listed_axes(type(self).__name__, axis)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        checked_axes(self, self.axis, input_shape)
        return tuple(input_shape)

    def call(self, inputs: Any) -> Any:
        x = ops.convert_to_tensor(inputs, "float32")
        axes = checked_axes(self, self.axis, x.shape)
        square = ops.sum(ops.square(x), axis=axes, keepdims=True)
        return ops.multiply(x, ops.rsqrt(ops.maximum(square, 1e-12)))
