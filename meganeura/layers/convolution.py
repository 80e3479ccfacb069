"""Convolutions: plain, depthwise, separable and transposed, in one to three dimensions."""

from __future__ import annotations

from typing import Any

from meganeura import ops
from meganeura.layers.layer import Layer
from meganeura.layers.settings import (
    Settings,
    as_tuple,
    check_rank,
    check_strides_and_dilation,
    checked_data_format,
    checked_output,
    known_channels,
    one_of,
    window_length,
)


class _Convolution(Settings, Layer):
    """What all convolutions share: the window, the bias, the activation."""

    rank: int
    paddings: tuple[str, ...] = ("valid", "same")

    def _settle_window(
        self, kernel_size: Any, strides: Any, padding: str, data_format: Any, dilation_rate: Any
    ) -> None:
        name, rank = type(self).__name__, self.rank
        self.kernel_size = as_tuple(name, "kernel_size", kernel_size, rank)
        self.strides = as_tuple(name, "strides", strides, rank)
        self.dilation_rate = as_tuple(name, "dilation_rate", dilation_rate, rank)
        self.padding = one_of(name, "padding", padding, self.paddings)
        self.data_format = checked_data_format(name, data_format)

    def _count(self, name: str, value: Any) -> int:
        return as_tuple(type(self).__name__, name, value, 1)[0]

    @property
    def channel_axis(self) -> int:
        return -1 if self.data_format == "channels_last" else 1

    def _channels(self, input_shape: Any) -> int:
        check_rank(self, input_shape, self.rank + 2)
        return known_channels(self, input_shape, self.channel_axis)

    def _add_bias(self, size: int) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(size,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                trainable=True,
                name="bias",
            )

    def _bias_and_activation(self, outputs: Any) -> Any:
        """Bias and activation."""
        if self.bias is not None:
            bias = self.bias
            if self.data_format == "channels_first":
                bias = ops.reshape(bias, (1, -1) + (1,) * self.rank)
            outputs = ops.add(outputs, bias)
        return self.activation(outputs)

    def _options(self) -> dict[str, Any]:
        return {
            "strides": self.strides,
            "padding": self.padding,
            "data_format": self.data_format,
            "dilation_rate": self.dilation_rate,
        }

    def _output_channels(self, input_shape: Any) -> int:
        return self.filters

    def _lengths(self, spatial: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(
            window_length(n, k, s, self.padding, d)
            for n, k, s, d in zip(
                spatial, self.kernel_size, self.strides, self.dilation_rate, strict=True
            )
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        check_rank(self, input_shape, self.rank + 2)
        last = self.data_format == "channels_last"
        spatial = tuple(input_shape[1:-1] if last else input_shape[2:])
        lengths, channels = self._lengths(spatial), self._output_channels(input_shape)
        middle = (*lengths, channels) if last else (channels, *lengths)
        return checked_output(self, (input_shape[0], *middle), input_shape)


class _Conv(_Convolution):
    arguments = (
        "filters", "kernel_size", "strides", "padding", "data_format", "dilation_rate", "groups",
        "activation", "use_bias", "kernel_initializer", "bias_initializer", "kernel_regularizer",
        "bias_regularizer", "activity_regularizer", "kernel_constraint", "bias_constraint",
    )  # fmt: skip

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.filters = self._count("filters", filters)
        self.groups = self._count("groups", groups)
        if self.filters % self.groups:
            raise ValueError(
                f"layer {type(self).__name__}: filters ({filters}) must be a multiple of groups "
                f"({groups})"
            )
        self._settle_window(kernel_size, strides, padding, data_format, dilation_rate)
        check_strides_and_dilation(type(self).__name__, self.strides, self.dilation_rate)
        self.settle(
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        if channels % self.groups:
            raise ValueError(
                f"layer {self.name!r}: the {channels} channels of its input are no multiple of "
                f"groups={self.groups}"
            )
        self.compute_output_shape(input_shape)
        self.kernel = self.add_weight(
            shape=(*self.kernel_size, channels // self.groups, self.filters),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            trainable=True,
            name="kernel",
        )
        self._add_bias(self.filters)
        self.built = True

    def call(self, inputs: Any) -> Any:
        options = self._options()
        if self.padding == "causal":
            front = (self.kernel_size[0] - 1) * self.dilation_rate[0]
            time = 1 if self.data_format == "channels_last" else 2
            widths = [(front, 0) if axis == time else (0, 0) for axis in range(3)]
            inputs, options["padding"] = ops.pad(inputs, widths), "valid"
        return self._bias_and_activation(ops.conv(inputs, self.kernel, **options))


class Conv1D(_Conv):
    """Convolution along time: (batch, time, channels) -> (batch, new time, filters).

    The kernel has the shape (window, channels / groups, filters). `padding` is "valid", "same", or
    "causal", with which no output sees later inputs.
    """

    rank = 1
    paddings = ("valid", "same", "causal")


class Conv2D(_Conv):
    """Convolution of images: (batch, height, width, channels) -> (batch, height', width', filters).

    The kernel has the shape (height, width, channels / groups, filters).
    """

    rank = 2


class Conv3D(_Conv):
    """Convolution of volumes: (batch, d1, d2, d3, channels) -> (batch, d1', d2', d3', filters).

    The kernel has the shape (*window, channels / groups, filters).
    """

    rank = 3


class _DepthwiseConv(_Convolution):
    arguments = (
        "depth_multiplier", "kernel_size", "strides", "padding", "data_format", "dilation_rate",
        "activation", "use_bias", "depthwise_initializer", "bias_initializer",
        "depthwise_regularizer", "bias_regularizer", "activity_regularizer",
        "depthwise_constraint", "bias_constraint",
    )  # fmt: skip

    def __init__(
        self,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.depth_multiplier = self._count("depth_multiplier", depth_multiplier)
        self._settle_window(kernel_size, strides, padding, data_format, dilation_rate)
        self.settle(
            activation=activation,
            use_bias=use_bias,
            depthwise_initializer=depthwise_initializer,
            bias_initializer=bias_initializer,
            depthwise_regularizer=depthwise_regularizer,
            bias_regularizer=bias_regularizer,
            depthwise_constraint=depthwise_constraint,
            bias_constraint=bias_constraint,
        )

    def _output_channels(self, input_shape: Any) -> int:
        return self._channels(input_shape) * self.depth_multiplier

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.compute_output_shape(input_shape)
        self.kernel = self.add_weight(
            shape=(*self.kernel_size, channels, self.depth_multiplier),
            initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
            trainable=True,
            name="kernel",
        )
        self._add_bias(channels * self.depth_multiplier)
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self._bias_and_activation(ops.depthwise_conv(inputs, self.kernel, **self._options()))


class DepthwiseConv1D(_DepthwiseConv):
    """Convolves each channel on its own, `depth_multiplier` times: (batch, time, channels).

    The kernel has the shape (window, channels, multiplier); output channel c * multiplier + m
    comes from channel c.
    """

    rank = 1


class DepthwiseConv2D(_DepthwiseConv):
    """Convolves each channel on its own, `depth_multiplier` times: (batch, height, width, channels).

    The kernel has the shape (height, width, channels, multiplier); output channel
    c * multiplier + m comes from channel c.
    """

    rank = 2


class _SeparableConv(_Convolution):
    arguments = (
        "depth_multiplier", "filters", "kernel_size", "strides", "padding", "data_format",
        "dilation_rate", "activation", "use_bias", "depthwise_initializer",
        "pointwise_initializer", "bias_initializer", "depthwise_regularizer",
        "pointwise_regularizer", "bias_regularizer", "activity_regularizer",
        "depthwise_constraint", "pointwise_constraint", "bias_constraint",
    )  # fmt: skip

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        pointwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        pointwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.filters = self._count("filters", filters)
        self.depth_multiplier = self._count("depth_multiplier", depth_multiplier)
        self._settle_window(kernel_size, strides, padding, data_format, dilation_rate)
        self.settle(
            activation=activation,
            use_bias=use_bias,
            depthwise_initializer=depthwise_initializer,
            pointwise_initializer=pointwise_initializer,
            bias_initializer=bias_initializer,
            depthwise_regularizer=depthwise_regularizer,
            pointwise_regularizer=pointwise_regularizer,
            bias_regularizer=bias_regularizer,
            depthwise_constraint=depthwise_constraint,
            pointwise_constraint=pointwise_constraint,
            bias_constraint=bias_constraint,
        )

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.compute_output_shape(input_shape)
        self.depthwise_kernel = self.add_weight(
            shape=(*self.kernel_size, channels, self.depth_multiplier),
            initializer=self.depthwise_initializer,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
            trainable=True,
            name="depthwise_kernel",
        )
        self.pointwise_kernel = self.add_weight(
            shape=(*(1,) * self.rank, channels * self.depth_multiplier, self.filters),
            initializer=self.pointwise_initializer,
            regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
            trainable=True,
            name="pointwise_kernel",
        )
        self._add_bias(self.filters)
        self.built = True

    def call(self, inputs: Any) -> Any:
        options = self._options()
        outputs = ops.separable_conv(
            inputs, self.depthwise_kernel, self.pointwise_kernel, **options
        )
        return self._bias_and_activation(outputs)


class SeparableConv1D(_SeparableConv):
    """A depthwise convolution and a pointwise one that mixes the channels, along time."""

    rank = 1


class SeparableConv2D(_SeparableConv):
    """A depthwise convolution and a pointwise one that mixes the channels, of images."""

    rank = 2


class _ConvTranspose(_Convolution):
    arguments = (
        "filters", "kernel_size", "strides", "padding", "output_padding", "data_format",
        "dilation_rate", "activation", "use_bias", "kernel_initializer", "bias_initializer",
        "kernel_regularizer", "bias_regularizer", "activity_regularizer", "kernel_constraint",
        "bias_constraint",
    )  # fmt: skip

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        output_padding: Any = None,
        data_format: str | None = None,
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        name = type(self).__name__
        self.filters = self._count("filters", filters)
        self._settle_window(kernel_size, strides, padding, data_format, dilation_rate)
        check_strides_and_dilation(name, self.strides, self.dilation_rate)
        self.output_padding = None
        if output_padding is not None:
            self.output_padding = as_tuple(name, "output_padding", output_padding, self.rank, 0)
            if any(p >= s for p, s in zip(self.output_padding, self.strides, strict=True)):
                raise ValueError(
                    f"layer {name}: output_padding {output_padding} must be smaller than strides "
                    f"{self.strides}"
                )
        self.settle(
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )

    def _lengths(self, spatial: tuple[int | None, ...]) -> tuple[int | None, ...]:
        result: list[int | None] = []
        for i, n in enumerate(spatial):
            stride = self.strides[i]
            window = (self.kernel_size[i] - 1) * self.dilation_rate[i] + 1
            if n is None:
                result.append(None)
            elif self.output_padding is not None:
                cut = window // 2 * 2 if self.padding == "same" else 0
                result.append((n - 1) * stride + window - cut + self.output_padding[i])
            elif self.padding == "same":
                result.append(n * stride)
            else:
                result.append(n * stride + max(window - stride, 0))
        return tuple(result)

    def build(self, input_shape: Any) -> None:
        channels = self._channels(input_shape)
        self.kernel = self.add_weight(
            shape=(*self.kernel_size, self.filters, channels),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            trainable=True,
            name="kernel",
        )
        self._add_bias(self.filters)
        self.built = True

    def call(self, inputs: Any) -> Any:
        outputs = ops.conv_transpose(
            inputs, self.kernel, output_padding=self.output_padding, **self._options()
        )
        return self._bias_and_activation(outputs)


class Conv1DTranspose(_ConvTranspose):
    """The transpose of a convolution along time: each input spreads `strides` apart over a window.

    The length becomes n * stride with "same", n * stride + max(window - stride, 0) with "valid".
    The kernel has the shape (window, filters, channels).
    """

    rank = 1


class Conv2DTranspose(_ConvTranspose):
    """The transpose of a convolution of images: each input spreads `strides` apart over a window.

    Lengths become n * stride with "same", n * stride + max(window - stride, 0) with "valid".
    The kernel has the shape (height, width, filters, channels).
    """

    rank = 2


class Conv3DTranspose(_ConvTranspose):
    """The transpose of a convolution of volumes; the kernel has the shape (*window, filters, channels)."""

    rank = 3
