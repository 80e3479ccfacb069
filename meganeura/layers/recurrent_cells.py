"""Cells of recurrent layers: one step each. SimpleRNN, LSTM, GRU, and stacks of cells."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import initializers, layers, ops, random
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings, as_tuple, known_channels


class BuiltInCell(Settings, Layer):
    """Base of the cells here: x kernel + bias can be computed for all steps at once.

    `project` does that, and `step` goes on from its result; `call` is both for a single step.
    """

    arguments: tuple[str, ...] = (
        "units", "activation", "use_bias", "kernel_initializer", "recurrent_initializer",
        "bias_initializer", "kernel_regularizer", "recurrent_regularizer", "bias_regularizer",
        "kernel_constraint", "recurrent_constraint", "bias_constraint", "dropout",
        "recurrent_dropout", "seed",
    )  # fmt: skip
    gates = 1

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Any,
    ):
        kwargs.pop("implementation", None)  # of Keras 2: how to compute, not what
        super().__init__(**kwargs)
        kind = type(self).__name__
        self.units = as_tuple(kind, "units", units, 1)[0]
        for name, rate in {"dropout": dropout, "recurrent_dropout": recurrent_dropout}.items():
            if not 0 <= rate <= 1:
                raise ValueError(f"layer {kind}: {name} must lie in [0, 1], got {rate}")
        self.settle(
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
        )
        self.seed_generator = random.SeedGenerator(seed)
        self._drops = False  # whether recurrent connections are dropped now
        self._recurrent_mask: Any = None

    @property
    def state_size(self) -> Any:
        return self.units

    @property
    def output_size(self) -> int:
        return self.units

    def _bias_shape(self) -> tuple[int, ...]:
        return (self.gates * self.units,)

    def _bias_initializer(self) -> Any:
        return self.bias_initializer

    def build(self, input_shape: Any) -> None:
        features = known_channels(self, input_shape, -1)
        self.kernel = self.add_weight(
            shape=(features, self.gates * self.units),
            name="kernel",
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, self.gates * self.units),
            name="recurrent_kernel",
            initializer=self.recurrent_initializer,
            regularizer=self.recurrent_regularizer,
            constraint=self.recurrent_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=self._bias_shape(),
                name="bias",
                initializer=self._bias_initializer(),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def get_initial_state(self, batch_size: int) -> list[Any]:
        sizes = self.state_size if isinstance(self.state_size, list) else [self.state_size]
        return [ops.zeros((batch_size, size), self._floats()) for size in sizes]

    def _input_bias(self) -> Any:
        return self.bias

    def project(self, inputs: Any, training: Any) -> Any:
        """x kernel + bias, for inputs (batch, features) or (batch, time, features).

        Dropout of the inputs keeps or drops a feature for the whole sequence.
        """
        inputs = ops.convert_to_tensor(inputs, self._floats())
        if training and self.dropout > 0:
            shape = (inputs.shape[0],) + (1,) * (inputs.ndim - 2) + (inputs.shape[-1],)
            inputs = ops.multiply(inputs, self._mask(shape, self.dropout))
        projected = ops.matmul(inputs, self.kernel)
        bias = self._input_bias()
        return projected if bias is None else ops.add(projected, bias)

    def _mask(self, shape: Sequence[int], rate: float) -> Any:
        return random.dropout(ops.ones(shape, self._floats()), rate, seed=self.seed_generator)

    def begin(self, training: Any) -> None:
        """Start a sequence, for which one mask drops recurrent connections."""
        self._drops = bool(training) and self.recurrent_dropout > 0
        self._recurrent_mask = None

    def end(self) -> None:
        self._drops, self._recurrent_mask = False, None

    def _dropped(self, state: Any) -> Any:
        if not self._drops:
            return state
        if self._recurrent_mask is None:
            self._recurrent_mask = self._mask(state.shape, self.recurrent_dropout)
        return ops.multiply(state, self._recurrent_mask)

    def _recur(self, state: Any) -> Any:
        """The state times the recurrent kernel, for all gates."""
        return ops.matmul(self._dropped(state), self.recurrent_kernel)

    def step(self, projected: Any, states: Sequence[Any]) -> tuple[Any, list[Any]]:
        raise NotImplementedError

    def call(self, inputs: Any, states: Any, training: Any = False) -> tuple[Any, Any]:
        nested = isinstance(states, (list, tuple))
        alone = not self._drops
        if alone:
            self.begin(training)
        output, new = self.step(self.project(inputs, training), states if nested else [states])
        if alone:
            self.end()
        return output, new if nested else new[0]


class SimpleRNNCell(BuiltInCell):
    """h' = activation(x kernel + bias + h recurrent_kernel)."""

    def step(self, projected: Any, states: Sequence[Any]) -> tuple[Any, list[Any]]:
        output = self.activation(ops.add(projected, self._recur(states[0])))
        return output, [output]


class _ForgetBias(initializers.Initializer):
    """Ones for the forget gate, and what another initializer gives for the rest."""

    def __init__(self, other: Any, units: int):
        self.other = other
        self.units = units

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        values = np.array(self.other(shape, dtype=dtype))
        values[self.units : 2 * self.units] = 1.0
        return values


class LSTMCell(BuiltInCell):
    """One step of long short-term memory, with the gates i, f, c, o side by side in the weights.

    c' = sigmoid(f) * c + sigmoid(i) * tanh(c_in); h' = sigmoid(o) * tanh(c').
    """

    arguments = (
        "units", "activation", "recurrent_activation", "use_bias", "unit_forget_bias",
        *BuiltInCell.arguments[3:],
    )  # fmt: skip
    gates = 4

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            units,
            activation,
            use_bias,
            kernel_initializer,
            recurrent_initializer,
            bias_initializer,
            **kwargs,
        )
        self.settle(recurrent_activation=recurrent_activation, unit_forget_bias=unit_forget_bias)

    @property
    def state_size(self) -> Any:
        return [self.units, self.units]

    def _bias_initializer(self) -> Any:
        if not self.unit_forget_bias:
            return self.bias_initializer
        return _ForgetBias(self.bias_initializer, self.units)

    def step(self, projected: Any, states: Sequence[Any]) -> tuple[Any, list[Any]]:
        hidden, carry = states
        z = ops.add(projected, self._recur(hidden))
        i, f, c, o = (z[..., n * self.units : (n + 1) * self.units] for n in range(4))
        kept = ops.multiply(self.recurrent_activation(f), carry)
        added = ops.multiply(self.recurrent_activation(i), self.activation(c))
        carry = ops.add(kept, added)
        hidden = ops.multiply(self.recurrent_activation(o), self.activation(carry))
        return hidden, [hidden, carry]


class GRUCell(BuiltInCell):
    """One step of a gated recurrent unit, with the gates z, r, h side by side in the weights.

    h' = z * h + (1 - z) * activation(x_h + r * (h recurrent_h + bias)); with `reset_after` False
    the reset gate acts before the product, (r * h) recurrent_h. With it True there are two
    biases, (2, 3 * units): one for the inputs and one for the state.
    """

    arguments = (
        "units", "activation", "recurrent_activation", "use_bias", *BuiltInCell.arguments[3:-1],
        "reset_after", "seed",
    )  # fmt: skip
    gates = 3

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        reset_after: bool = True,
        seed: Any = None,
        **kwargs: Any,
    ):
        super().__init__(
            units,
            activation,
            use_bias,
            kernel_initializer,
            recurrent_initializer,
            bias_initializer,
            kernel_regularizer,
            recurrent_regularizer,
            bias_regularizer,
            kernel_constraint,
            recurrent_constraint,
            bias_constraint,
            dropout,
            recurrent_dropout,
            seed,
            **kwargs,
        )
        self.settle(recurrent_activation=recurrent_activation, reset_after=reset_after)

    def _bias_shape(self) -> tuple[int, ...]:
        size = 3 * self.units
        return (2, size) if self.reset_after else (size,)

    def _input_bias(self) -> Any:
        if self.bias is None or not self.reset_after:
            return self.bias
        return ops.get_item(self.bias, 0)

    def step(self, projected: Any, states: Sequence[Any]) -> tuple[Any, list[Any]]:
        hidden: Any = ops.convert_to_tensor(states[0])
        dropped, units = self._dropped(hidden), self.units
        kernel: Any = ops.convert_to_tensor(self.recurrent_kernel)
        if self.reset_after:
            inner = ops.matmul(dropped, kernel)
            if self.bias is not None:
                inner = ops.add(inner, ops.get_item(self.bias, 1))
        else:
            inner = ops.matmul(dropped, kernel[:, : 2 * units])
        z = self.recurrent_activation(ops.add(projected[..., :units], inner[..., :units]))
        r = self.recurrent_activation(
            ops.add(projected[..., units : 2 * units], inner[..., units : 2 * units])
        )
        if self.reset_after:
            candidate = ops.multiply(r, inner[..., 2 * units :])
        else:
            candidate = ops.matmul(ops.multiply(r, dropped), kernel[:, 2 * units :])
        candidate = self.activation(ops.add(projected[..., 2 * units :], candidate))
        kept = ops.multiply(z, hidden)
        output = ops.add(kept, ops.multiply(ops.subtract(1.0, z), candidate))
        return output, [output]


class StackedRNNCells(Layer):
    """Cells on top of each other, each fed with the output of the one before, as one cell."""

    def __init__(self, cells: Sequence[Any], **kwargs: Any):
        super().__init__(**kwargs)
        for cell in cells:
            if not hasattr(cell, "call") or not hasattr(cell, "state_size"):
                raise ValueError(
                    f"layer StackedRNNCells: {cell!r} is no cell; it needs a call method and a "
                    "state_size"
                )
        self.cells = list(cells)

    @property
    def state_size(self) -> list[Any]:
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> int:
        return output_size(self.cells[-1])

    def get_initial_state(self, batch_size: int) -> list[Any]:
        return [initial_state(cell, batch_size) for cell in self.cells]

    def build(self, input_shape: Any) -> None:
        for cell in self.cells:
            if isinstance(cell, Layer) and not cell.built:
                cell.build(input_shape)
                cell.built = True
            input_shape = (input_shape[0], output_size(cell))
        self.built = True

    def begin(self, training: Any) -> None:
        for cell in self.cells:
            if hasattr(cell, "begin"):
                cell.begin(training)

    def end(self) -> None:
        for cell in self.cells:
            if hasattr(cell, "end"):
                cell.end()

    def call(self, inputs: Any, states: Any, training: Any = False) -> tuple[Any, list[Any]]:
        new = []
        for cell, state in zip(self.cells, states, strict=True):
            inputs, state = call_cell(cell, inputs, state, training)
            new.append(state)
        return inputs, new

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "cells": [layers.serialize(c) for c in self.cells]}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Layer:
        cells = [layers.deserialize(c, custom_objects) for c in config["cells"]]
        return cls(cells, **{k: v for k, v in config.items() if k != "cells"})


def output_size(cell: Any) -> int:
    size = getattr(cell, "output_size", None)
    if size is None:
        size = cell.state_size
        size = size[0] if isinstance(size, (list, tuple)) else size
    return int(size)


def initial_state(cell: Any, batch: int) -> list[Any]:
    """Zeros for each state of the cell, or what its `get_initial_state` gives."""
    if hasattr(cell, "get_initial_state"):
        state = cell.get_initial_state(batch_size=batch)
        return list(state) if isinstance(state, (list, tuple)) else [state]
    sizes = cell.state_size if isinstance(cell.state_size, (list, tuple)) else [cell.state_size]
    return [ops.zeros((batch, size), "float32") for size in sizes]


def call_cell(cell: Any, inputs: Any, states: Any, training: Any) -> tuple[Any, Any]:
    """One step of any cell, also of one that takes no `training` argument."""
    function = cell if isinstance(cell, Layer) else cell.call
    accepts = "training" in inspect.signature(cell.call).parameters
    output, new = function(inputs, states, **({"training": training} if accepts else {}))
    return output, list(new) if isinstance(new, (list, tuple)) else [new]
