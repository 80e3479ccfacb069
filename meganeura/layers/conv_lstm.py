"""Long short-term memory whose products are convolutions, over sequences of images."""

from __future__ import annotations

from typing import Any

from meganeura import ops
from meganeura.layers.recurrent import _OF_LAYER, LSTM, RNN
from meganeura.layers.recurrent_cells import LSTMCell
from meganeura.layers.settings import (
    as_tuple,
    check_rank,
    check_strides_and_dilation,
    checked_data_format,
    checked_output,
    known_channels,
    one_of,
    window_length,
)

_WINDOW = ("filters", "kernel_size", "strides", "padding", "data_format", "dilation_rate")


class ConvLSTMCell(LSTMCell):
    """One step of a ConvLSTM, on (batch, *space, channels)."""

    arguments = (*_WINDOW, *LSTMCell.arguments[1:])

    def __init__(
        self,
        rank: int,
        kind: str,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        *args: Any,
        **kwargs: Any,
    ):
        super().__init__(as_tuple(kind, "filters", filters, 1)[0], *args, **kwargs)
        self.rank = rank
        self.filters = self.units
        self.kernel_size = as_tuple(kind, "kernel_size", kernel_size, rank)
        self.strides = as_tuple(kind, "strides", strides, rank)
        self.dilation_rate = as_tuple(kind, "dilation_rate", dilation_rate, rank)
        check_strides_and_dilation(kind, self.strides, self.dilation_rate)
        self.padding = one_of(kind, "padding", padding, ("valid", "same"))
        self.data_format = checked_data_format(kind, data_format)
        self._space: tuple[int, ...] = ()

    def space_after(self, space: Any) -> tuple[int | None, ...]:
        """The lengths that the states have, for those of the inputs."""
        return tuple(
            window_length(n, k, s, self.padding, d)
            for n, k, s, d in zip(
                space, self.kernel_size, self.strides, self.dilation_rate, strict=True
            )
        )

    def build(self, input_shape: Any) -> None:
        channels = known_channels(self, input_shape, -1)
        common = {"regularizer": self.kernel_regularizer, "constraint": self.kernel_constraint}
        self.kernel = self.add_weight(
            shape=(*self.kernel_size, channels, 4 * self.filters),
            name="kernel",
            initializer=self.kernel_initializer,
            **common,
        )
        self.recurrent_kernel = self.add_weight(
            shape=(*self.kernel_size, self.filters, 4 * self.filters),
            name="recurrent_kernel",
            initializer=self.recurrent_initializer,
            regularizer=self.recurrent_regularizer,
            constraint=self.recurrent_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(4 * self.filters,),
                name="bias",
                initializer=self._bias_initializer(),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def get_initial_state(self, batch_size: int) -> list[Any]:
        return [ops.zeros((batch_size, *self._space, self.filters), self._floats())] * 2

    def project(self, inputs: Any, training: Any) -> Any:
        """The input convolution, for (batch, *space, channels) or (batch, time, *space, channels)."""
        x = ops.convert_to_tensor(inputs, self._floats())
        steps = x.shape[: x.ndim - self.rank - 1]
        if training and self.dropout > 0:
            mask = self._mask(
                (steps[0], *[1] * (len(steps) - 1), *x.shape[len(steps) :]), self.dropout
            )
            x = ops.multiply(x, mask)
        count = 1
        for n in steps:
            count *= n
        x = ops.conv(
            ops.reshape(x, (count, *x.shape[len(steps) :])),
            self.kernel,
            strides=self.strides,
            padding=self.padding,
            data_format="channels_last",
            dilation_rate=self.dilation_rate,
        )
        if self.bias is not None:
            x = ops.add(x, self.bias)
        return ops.reshape(x, (*steps, *x.shape[1:]))

    def _recur(self, state: Any) -> Any:
        return ops.conv(
            self._dropped(state), self.recurrent_kernel, padding="same", data_format="channels_last"
        )


class _ConvLSTM(RNN):
    rank: int

    def __init__(self, filters: int, *args: Any, name: str | None = None, **kwargs: Any):
        own = {k: kwargs.pop(k) for k in _OF_LAYER if k in kwargs}
        cell = ConvLSTMCell(
            self.rank, type(self).__name__, filters, *args, dtype=own.get("dtype"), **kwargs
        )
        super().__init__(cell, name=name, **own)

    def _last(self, shape: Any) -> tuple[Any, ...]:
        """A shape (batch, time, ...) with the channels last."""
        check_rank(self, shape, self.rank + 3)
        if self.cell.data_format == "channels_last":
            return tuple(shape)
        return (*shape[:2], *shape[3:], shape[2])

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        shape = self._last(sequences_shape)
        if not self.cell.built:
            self.cell.build((shape[0], *shape[2:]))
            self.cell.built = True
        self.built = True

    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = False
    ) -> Any:
        x = ops.convert_to_tensor(sequences, self._floats())
        shape = self._last(x.shape)
        space = checked_output(self, (None, *self.cell.space_after(shape[2:-1])), x.shape)[1:]
        self.cell._space = space
        if self.cell.data_format == "channels_last":
            return super().call(x, initial_state, mask, training)
        x = ops.moveaxis(x, 2, -1)
        if initial_state is not None:
            initial_state = [ops.moveaxis(s, 1, -1) for s in initial_state]
        result = super().call(x, initial_state, mask, training)
        axis = 2 if self.return_sequences else 1
        if not self.return_state:
            return ops.moveaxis(result, -1, axis)
        return (ops.moveaxis(result[0], -1, axis), *(ops.moveaxis(s, -1, 1) for s in result[1:]))

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        shape = self._last(sequences_shape)
        space = self.cell.space_after(shape[2:-1])
        inner = (*space, self.cell.filters)
        if self.cell.data_format == "channels_first":
            inner = (inner[-1], *inner[:-1])
        state = (shape[0], *inner)
        output = (*shape[:2], *inner) if self.return_sequences else state
        return (output, state, state) if self.return_state else output

    get_config = LSTM.get_config
    from_config = classmethod(LSTM.from_config.__func__)  # type: ignore[attr-defined, var-annotated]


class ConvLSTM1D(_ConvLSTM):
    """`LSTMCell` with convolutions in place of products: (batch, time, steps, channels)."""

    rank = 1


class ConvLSTM2D(_ConvLSTM):
    """`LSTMCell` with convolutions in place of products: (batch, time, height, width, channels)."""

    rank = 2


class ConvLSTM3D(_ConvLSTM):
    """`LSTMCell` with convolutions in place of products: (batch, time, *volume, channels)."""

    rank = 3
