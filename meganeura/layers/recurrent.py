"""Recurrent layers: a cell applied step by step, unrolled into the graph."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from meganeura import identifiers, layers, ops
from meganeura.graph import trace
from meganeura.layers.layer import Layer
from meganeura.layers.recurrent_cells import (
    BuiltInCell,
    GRUCell,
    LSTMCell,
    SimpleRNNCell,
    StackedRNNCells,
    call_cell,
    initial_state,
    output_size,
)
from meganeura.ops.dispatch import map_tree
from meganeura.variable import Variable


class _Holder:
    """Keeps variables that are neither weights nor saved: the states of a stateful layer."""

    def __init__(self) -> None:
        self.value: Any = None


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, (list, tuple)):
        return [leaf for member in tree for leaf in _leaves(member)]
    return [tree]


class RNN(Layer):
    """Applies a cell to each step of (batch, time, features).

    return_sequences:     the outputs of all steps, not only the last
    return_state:         the final states after the output
    go_backwards:         from the last step to the first; the outputs stay in that order
    stateful:             each batch goes on from the states of the one before, until reset_state()
    zero_output_for_mask: masked steps put out 0; otherwise they repeat the output before

    A masked step leaves the states as they are. The steps are unrolled, so the length must be
    known when the graph is recorded; `unroll` is accepted and changes nothing.
    """

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Any,
    ):
        if kwargs.pop("time_major", False):
            raise ValueError("layer RNN: time_major=True is not offered; give (batch, time, ...)")
        if isinstance(cell, (list, tuple)):
            cell = StackedRNNCells(cell)
        if not hasattr(cell, "call") or not hasattr(cell, "state_size"):
            raise ValueError(
                f"layer {type(self).__name__}: {cell!r} is no cell; it needs a call method and a "
                "state_size"
            )
        super().__init__(**kwargs)
        self.cell = cell
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards
        self.stateful = stateful
        self.unroll = unroll
        self.zero_output_for_mask = zero_output_for_mask
        self.supports_masking = True
        self._held = _Holder()

    @property
    def state_size(self) -> list[Any]:
        size = self.cell.state_size
        return list(size) if isinstance(size, (list, tuple)) else [size]

    @property
    def states(self) -> Any:
        """The variables that hold the states of a stateful layer, or None."""
        return self._held.value

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        if len(sequences_shape) < 3:
            raise ValueError(
                f"layer {self.name!r} expects inputs (batch, time, features), got the shape "
                f"{tuple(sequences_shape)}"
            )
        if isinstance(self.cell, Layer) and not self.cell.built:
            self.cell.build((sequences_shape[0], *sequences_shape[2:]))
            self.cell.built = True
        self.built = True

    def _state_variables(self, batch: int) -> Any:
        if self._held.value is None:
            with trace.outside():
                zeros = _initial(self.cell, batch)
                self._held.value = map_tree(
                    lambda x: Variable(
                        np.asarray(x), trainable=False, name="rnn_state", path=f"{self.name}/state"
                    ),
                    zeros,
                )
        first = _leaves(self._held.value)[0]
        if first.shape[0] != batch:
            raise ValueError(
                f"layer {self.name!r} is stateful with batches of {first.shape[0]}, got a batch of "
                f"{batch}"
            )
        return self._held.value

    def reset_state(self) -> None:
        """Let a stateful layer start from its initial states again."""
        for variable in _leaves(self._held.value) if self._held.value is not None else []:
            variable.assign(np.zeros(variable.shape, np.float32))

    reset_states = reset_state

    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = False
    ) -> Any:
        x = ops.convert_to_tensor(sequences, self._floats())
        batch, length = x.shape[0], x.shape[1]
        if not length:
            raise ValueError(f"layer {self.name!r}: a sequence of {length} steps has no output")
        variables = None
        if initial_state is not None:
            states = initial_state
            states = list(states) if isinstance(states, (list, tuple)) else [states]
        elif self.stateful:
            variables = self._state_variables(batch)
            states = variables
        else:
            states = _initial(self.cell, batch)
        states = map_tree(ops.convert_to_tensor, list(states))
        if len(states) != len(self.state_size):
            raise ValueError(
                f"layer {self.name!r} has {len(self.state_size)} states, got {len(states)} as "
                "initial_state"
            )
        outputs, last, states = self._run(x, states, mask, training)
        if self.stateful:
            kept = self._state_variables(batch) if variables is None else variables
            for variable, state in zip(_leaves(kept), _leaves(states), strict=True):
                variable.assign(state)
        result = ops.stack(outputs, axis=1) if self.return_sequences else last
        return (result, *states) if self.return_state else result

    def _run(self, x: Any, states: Any, mask: Any, training: Any) -> tuple[list[Any], Any, Any]:
        cell, length = self.cell, x.shape[1]
        if hasattr(cell, "begin"):
            cell.begin(training)
        fast = isinstance(cell, BuiltInCell) and type(cell).call is BuiltInCell.call
        if fast:  # one large product in place of one a step
            x = cell.project(x, training)
        if mask is not None:
            mask = ops.cast(ops.convert_to_tensor(mask), "bool")
        outputs: list[Any] = []
        output: Any = None
        for t in reversed(range(length)) if self.go_backwards else range(length):
            step = x[:, t]
            new_output, new = (
                cell.step(step, states) if fast else call_cell(cell, step, states, training)
            )
            emitted = new_output
            if mask is not None:
                seen = mask[:, t]
                before = ops.zeros_like(new_output) if output is None else output
                new_output = _choose(seen, new_output, before)
                new = _choose_tree(seen, new, states)
                emitted = new_output
                if self.zero_output_for_mask:
                    emitted = _choose(seen, new_output, ops.zeros_like(new_output))
            output, states = new_output, new
            outputs.append(emitted)
        if hasattr(cell, "end"):
            cell.end()
        return outputs, outputs[-1], states

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        batch, size = sequences_shape[0], output_size(self.cell)
        shape = (batch, sequences_shape[1], size) if self.return_sequences else (batch, size)
        if not self.return_state:
            return shape
        return (shape, *(map_tree(lambda n: (batch, n), s) for s in self.state_size))

    def compute_mask(self, sequences: Any, mask: Any = None) -> Any:
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        output_mask = mask if self.return_sequences else None
        return [output_mask, *[None] * len(self.state_size)] if self.return_state else output_mask

    def _own_config(self) -> dict[str, Any]:
        names = (
            "return_sequences", "return_state", "go_backwards", "stateful", "unroll",
            "zero_output_for_mask",
        )  # fmt: skip
        return {**Layer.get_config(self), **{name: getattr(self, name) for name in names}}

    def get_config(self) -> dict[str, Any]:
        return {**self._own_config(), "cell": layers.serialize(self.cell)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Layer:
        cell = layers.deserialize(config["cell"], custom_objects)
        return cls(cell, **{k: v for k, v in config.items() if k != "cell"})


_initial = initial_state


def _choose(seen: Any, new: Any, old: Any) -> Any:
    while seen.ndim < new.ndim:
        seen = ops.expand_dims(seen, -1)
    return ops.where(seen, new, old)


def _choose_tree(seen: Any, new: Any, old: Any) -> Any:
    if isinstance(new, (list, tuple)):
        return [_choose_tree(seen, n, o) for n, o in zip(new, old, strict=True)]
    return _choose(seen, new, old)


#: Arguments of a recurrent layer that belong to the layer, not to its cell.
_OF_LAYER = (
    "return_sequences", "return_state", "go_backwards", "stateful", "unroll",
    "zero_output_for_mask", "activity_regularizer", "trainable", "dtype", "time_major",
    "input_shape", "batch_input_shape", "autocast",
)  # fmt: skip


class _Recurrent(RNN):
    """A layer made of one built-in cell, whose arguments it takes."""

    cell_class: type[BuiltInCell]

    def __init__(self, units: int, *args: Any, name: str | None = None, **kwargs: Any):
        use_cudnn = kwargs.pop("use_cudnn", "auto")
        if isinstance(self, (LSTM, GRU)):
            self.use_cudnn = use_cudnn  # for scripts that read it; it chooses nothing here
        own = {k: kwargs.pop(k) for k in _OF_LAYER if k in kwargs}
        cell_name = identifiers.snake_case(type(self).cell_class.__name__)  # as in Keras's paths
        cell = type(self).cell_class(units, *args, name=cell_name, dtype=own.get("dtype"), **kwargs)
        super().__init__(cell, name=name, **own)

    def get_config(self) -> dict[str, Any]:
        cell = self.cell.get_config()
        config = self._own_config()
        config |= {k: cell[k] for k in self.cell.arguments}
        if "activity_regularizer" not in config:
            from meganeura import regularizers

            config["activity_regularizer"] = regularizers.serialize(self.activity_regularizer)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Layer:
        return cls(**config)


def _of_cell(name: str) -> property:
    return property(lambda self: getattr(self.cell, name), doc=f"`{name}` of the cell.")


class SimpleRNN(_Recurrent):
    """h' = activation(x kernel + bias + h recurrent_kernel) for each step; see `RNN`."""

    cell_class = SimpleRNNCell


class LSTM(_Recurrent):
    """Long short-term memory over a sequence; see `LSTMCell` for the equations, `RNN` for the rest.

    `return_state` gives the output, h and c.
    """

    cell_class = LSTMCell


class GRU(_Recurrent):
    """Gated recurrent units over a sequence; see `GRUCell` for the equations, `RNN` for the rest."""

    cell_class = GRUCell


for _kind in (SimpleRNN, LSTM, GRU):
    for _name in _kind.cell_class.arguments:
        setattr(_kind, _name, _of_cell(_name))


class Bidirectional(Layer):
    """Runs a recurrent layer forwards and a copy of it backwards, and merges the outputs.

    merge_mode: "concat", "sum", "mul", "ave", or None (a list of both). The outputs of the
    backward layer are put into the order of the inputs. States come after, the forward ones first.
    """

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        weights: Any = None,
        backward_layer: Any = None,
        **kwargs: Any,
    ):
        if not isinstance(layer, Layer) or not hasattr(layer, "go_backwards"):
            raise ValueError(f"layer Bidirectional wraps a recurrent layer, got {layer!r}")
        if merge_mode not in ("sum", "mul", "ave", "concat", None):
            raise ValueError(
                f"layer Bidirectional: merge_mode is {merge_mode!r}; use 'sum', 'mul', 'ave', "
                "'concat' or None"
            )
        super().__init__(**kwargs)
        self.forward_layer = _renamed(layer, "forward")
        self.backward_layer = (
            _renamed(layer, "backward", go_backwards=not layer.go_backwards)
            if backward_layer is None
            else backward_layer
        )
        for name in ("stateful", "return_sequences", "return_state"):
            if getattr(self.forward_layer, name) != getattr(self.backward_layer, name):
                raise ValueError(
                    f"layer Bidirectional: the layers for both directions differ in {name}"
                )
        if self.forward_layer.go_backwards == self.backward_layer.go_backwards:
            raise ValueError("layer Bidirectional: both layers go in the same direction")
        for inner in (self.forward_layer, self.backward_layer):
            if hasattr(inner, "zero_output_for_mask"):
                inner.zero_output_for_mask = inner.return_sequences
        self.merge_mode = merge_mode
        self.stateful = layer.stateful
        self.return_sequences = layer.return_sequences
        self.return_state = layer.return_state
        self.supports_masking = True
        self._first_weights = weights

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        for inner in (self.forward_layer, self.backward_layer):
            if not inner.built:
                inner.build(sequences_shape)
                inner.built = True
        if self._first_weights is not None:
            half = len(self._first_weights) // 2
            self.forward_layer.set_weights(self._first_weights[:half])
            self.backward_layer.set_weights(self._first_weights[half:])
            self._first_weights = None
        self.built = True

    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = False
    ) -> Any:
        first = second = None
        if initial_state is not None:
            half = len(initial_state) // 2
            first, second = initial_state[:half], initial_state[half:]
        options = {"mask": mask, "training": training}
        ahead = self.forward_layer(sequences, initial_state=first, **options)
        back = self.backward_layer(sequences, initial_state=second, **options)
        states: tuple[Any, ...] = ()
        if self.return_state:
            states = (*ahead[1:], *back[1:])
            ahead, back = ahead[0], back[0]
        if self.return_sequences:
            back = ops.flip(back, axis=1)
        merged = self._merge(ahead, back)
        if not self.return_state:
            return merged
        return (*merged, *states) if self.merge_mode is None else (merged, *states)

    def _merge(self, ahead: Any, back: Any) -> Any:
        if self.merge_mode is None:
            return (ahead, back)
        if self.merge_mode == "concat":
            return ops.concatenate([ahead, back], axis=-1)
        if self.merge_mode == "mul":
            return ops.multiply(ahead, back)
        total = ops.add(ahead, back)
        return ops.multiply(total, 0.5) if self.merge_mode == "ave" else total

    @property
    def states(self) -> Any:
        if self.forward_layer.states and self.backward_layer.states:
            return (*self.forward_layer.states, *self.backward_layer.states)
        return None

    def reset_state(self) -> None:
        self.forward_layer.reset_state()
        self.backward_layer.reset_state()

    reset_states = reset_state

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        shape = self.forward_layer.compute_output_shape(sequences_shape)
        states: tuple[Any, ...] = ()
        if self.return_state:
            shape, states = shape[0], tuple(shape[1:]) * 2
        if self.merge_mode == "concat":
            shape = (*shape[:-1], None if shape[-1] is None else 2 * shape[-1])
        merged = (shape, shape) if self.merge_mode is None else (shape,)
        if self.merge_mode is None or self.return_state:
            return (*merged, *states)
        return shape

    def compute_mask(self, sequences: Any, mask: Any = None) -> Any:
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        mask = mask if self.return_sequences else None
        outputs = [mask, mask] if self.merge_mode is None else [mask]
        if self.return_state:
            outputs += [None] * (2 * len(self.forward_layer.state_size))
        return outputs[0] if len(outputs) == 1 else outputs

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "merge_mode": self.merge_mode,
            "layer": layers.serialize(self.forward_layer),
            "backward_layer": layers.serialize(self.backward_layer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Layer:
        config = dict(config)
        for name in ("layer", "backward_layer"):
            if config.get(name) is not None:
                config[name] = layers.deserialize(config[name], custom_objects)
        return cls(**config)


def _renamed(layer: Layer, direction: str, **changes: Any) -> Layer:
    """A fresh copy of a layer under the name that it has in one direction."""
    config = layers.serialize(layer)
    name = layer.name.removeprefix(f"{direction}_")
    config = {**config, "config": {**config["config"], "name": f"{direction}_{name}", **changes}}
    copy = layers.deserialize(config)
    if hasattr(layer, "use_cudnn"):  # configs do not hold it
        copy.use_cudnn = layer.use_cudnn
    return copy


class TimeDistributed(Layer):
    """Applies a layer to every step of (batch, time, ...): the steps are seen as more samples."""

    def __init__(self, layer: Any, **kwargs: Any):
        if not isinstance(layer, Layer):
            raise ValueError(f"layer TimeDistributed wraps a layer, got {layer!r}")
        super().__init__(**kwargs)
        self.layer = layer
        self.supports_masking = True

    def _inner_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        if len(input_shape) < 3:
            raise ValueError(
                f"layer {self.name!r} expects inputs (batch, time, features...), got the shape "
                f"{tuple(input_shape)}"
            )
        return (input_shape[0], *input_shape[2:])

    def build(self, input_shape: Any) -> None:
        if not self.layer.built:
            self.layer.build(self._inner_shape(input_shape))
            self.layer.built = True
        self.built = True

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        x = ops.convert_to_tensor(inputs)
        self._inner_shape(x.shape)
        batch, time = x.shape[:2]
        options = {}
        if mask is not None:
            mask = ops.convert_to_tensor(mask)
            if mask.shape[:2] != (batch, time):
                raise ValueError(
                    f"layer {self.name!r}: a mask of shape {mask.shape} does not fit inputs of "
                    f"shape {x.shape}"
                )
            if _takes(self.layer, "mask"):
                rest = mask.shape[2:]
                options["mask"] = ops.reshape(mask, (batch * time, *rest))
        if _takes(self.layer, "training"):
            options["training"] = training
        outputs = self.layer(ops.reshape(x, (batch * time, *x.shape[2:])), **options)
        return ops.reshape(outputs, (batch, time, *outputs.shape[1:]))

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        inner = self.layer.compute_output_shape(self._inner_shape(input_shape))
        return (inner[0], input_shape[1], *inner[1:])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "layer": layers.serialize(self.layer)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Layer:
        inner = layers.deserialize(config["layer"], custom_objects)
        return cls(inner, **{k: v for k, v in config.items() if k != "layer"})


def _takes(layer: Layer, argument: str) -> bool:
    return argument in inspect.signature(layer.call).parameters
