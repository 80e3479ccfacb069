"""Functional models: the graph of symbolic calls between inputs and outputs, replayed on data."""

from __future__ import annotations

from typing import Any

from meganeura import ops
from meganeura.layers.constructor import construct
from meganeura.layers.input_layer import InputLayer
from meganeura.layers.layer import Layer
from meganeura.masking import get_mask, set_mask
from meganeura.models.model import Model
from meganeura.models.operation import CallNode, flatten, leaves
from meganeura.ops.dispatch import map_tree
from meganeura.symbolic import KerasTensor


class Functional(Model):
    """A model made of symbolic calls. Build one with `Model(inputs, outputs)`.

    inputs, outputs: a KerasTensor, or lists, tuples or dicts of them, in which structure the model
    takes and returns tensors.
    """

    def _casts_inputs(self) -> bool:
        return False  # the Input that they are for says what they become

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any):
        trainable = kwargs.pop("trainable", None)
        super().__init__(name=name, **kwargs)
        for what, tree in (("inputs", inputs), ("outputs", outputs)):
            bad: list[Any] = []
            map_tree(lambda x, b=bad: None if isinstance(x, KerasTensor) else b.append(x), tree)
            if bad:
                raise ValueError(
                    f"Model: {what} must be KerasTensors, such as Input() and layers called on it "
                    f"return, and {bad[0]!r} is none"
                )
        if any(not _is_input(t) for t in leaves(inputs)):
            inputs, outputs = _cut(inputs, outputs)
        self._inputs_struct = inputs
        self._outputs_struct = outputs
        self._input_tensors = leaves(inputs)
        self._output_tensors = leaves(outputs)
        if len({id(t) for t in self._input_tensors}) != len(self._input_tensors):
            raise ValueError("Model: an input is listed twice")
        self._calls, self._operations = _plan(self._input_tensors, self._output_tensors)
        names = [operation.name for operation in self._operations]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise ValueError(
                f"Model: {names.count(twice)} layers are named {twice!r}; the names of a model's layers "
                "must differ, so give them with name="
            )
        self.built = True
        if trainable is not None:
            self.trainable = trainable

    # --- structure -----------------------------------------------------------------------------

    @property
    def operations(self) -> list[Any]:
        """Layers and operations in the order in which Keras lists them."""
        return list(self._operations)

    @property
    def layers(self) -> list[Layer]:
        return [o for o in self._operations if isinstance(o, Layer)]

    @property
    def _layers(self) -> list[Layer]:
        own = self.layers
        known = set(map(id, own))
        return [*own, *(x for x in super()._layers if id(x) not in known)]

    @property
    def inputs(self) -> list[KerasTensor]:
        return list(self._input_tensors)

    @property
    def outputs(self) -> list[KerasTensor]:
        return list(self._output_tensors)

    @property
    def input(self) -> Any:
        return self._inputs_struct

    @property
    def output(self) -> Any:
        return self._outputs_struct

    @property
    def input_shape(self) -> Any:
        return map_tree(lambda t: t.shape, self._inputs_struct)

    @property
    def output_shape(self) -> Any:
        return map_tree(lambda t: t.shape, self._outputs_struct)

    @property
    def input_names(self) -> list[str]:
        return [_operation_name(t) for t in self._input_tensors]

    @property
    def output_names(self) -> list[str]:
        """What losses and metrics of the outputs are called: the names of the layers that make them."""
        if isinstance(self._outputs_struct, dict):
            return list(self._outputs_struct)
        return [_operation_name(t) for t in self._output_tensors]

    # --- running -------------------------------------------------------------------------------

    def build(self, input_shape: Any = None) -> None:
        self.built = True

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        given = self._match(inputs)
        values: dict[int, Any] = {}
        masks = flatten(mask) if mask is not None else [None] * len(given)
        for tensor, x, own_mask in zip(self._input_tensors, given, masks, strict=True):
            x = values[id(tensor)] = self._adapt(tensor, x)
            if own_mask is not None:
                set_mask(x, own_mask)
        for node in self._calls:
            out = node.run(values)
            for tensor, x in zip(flatten(node.outputs), flatten(out), strict=True):
                values[id(tensor)] = x
        outputs = map_tree(lambda t: values[id(t)], self._outputs_struct)
        single = isinstance(outputs, list) and len(outputs) == 1  # as Keras gives it back
        return outputs[0] if single else outputs

    def _match(self, inputs: Any) -> list[Any]:
        """The given tensors in the order of the model's inputs, found by position or by name."""
        names = self.input_names
        if isinstance(inputs, dict):
            keys = sorted(self._inputs_struct) if isinstance(self._inputs_struct, dict) else names
            missing = [k for k in keys if k not in inputs]
            if missing and all(n in inputs for n in names):
                keys, missing = names, []
            if missing:
                raise ValueError(
                    f"model {self.name!r} needs the inputs {', '.join(map(repr, keys))}, and got "
                    f"{', '.join(map(repr, inputs))}"
                )
            return [inputs[k] for k in keys]
        flat = flatten(inputs)
        if len(flat) != len(self._input_tensors):
            raise ValueError(
                f"model {self.name!r} takes {len(self._input_tensors)} input(s) "
                f"({', '.join(names)}), and {len(flat)} were given"
            )
        return flat

    def _adapt(self, tensor: KerasTensor, x: Any) -> Any:
        """Cast to the input's dtype, and add or drop a last dimension of length 1."""
        if x is None:
            if not (tensor.history and tensor.history[0].optional):
                raise ValueError(
                    f"model {self.name!r}: input {_operation_name(tensor)!r} is None, and it is not "
                    "optional; give data, or make it with Input(optional=True)"
                )
            return None
        wanted, shape = tensor.shape, tuple(x.shape)
        if len(shape) == len(wanted) - 1 and wanted[-1] == 1:
            x = ops.expand_dims(x, -1)
        elif len(shape) == len(wanted) + 1 and shape[-1] == 1:
            x = ops.squeeze(x, -1)
        found = tuple(x.shape)
        fits = len(found) == len(wanted) and all(
            a is None or b is None or a == b for a, b in zip(wanted, found, strict=True)
        )
        if not fits:
            raise ValueError(
                f"model {self.name!r}: input {_operation_name(tensor)!r} expects the shape {wanted}, "
                f"and got {shape}"
            )
        return x if x.dtype == tensor.dtype else _cast(x, tensor.dtype)

    def compute_output_spec(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        from meganeura.models.operation import output_spec

        return output_spec(self, (inputs,), {})

    def get_config(self) -> dict[str, Any]:
        from meganeura.models.functional_config import functional_config

        if type(self).__init__ is not Functional.__init__:
            return super().get_config()  # a subclass that makes its layers itself
        return functional_config(self)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        from meganeura.models.functional_config import functional_from_config

        if "layers" not in config and cls.__init__ is not Functional.__init__:
            return construct(cls, config)
        return functional_from_config(cls, config, custom_objects)


def _cast(x: Any, dtype: str) -> Any:
    """Masks survive a cast of the input."""
    out = ops.cast(x, dtype)
    if (mask := get_mask(x)) is not None:
        set_mask(out, mask)
    return out


def _operation_name(tensor: KerasTensor) -> str:
    return str(tensor.history[0].name) if tensor.history else tensor.name


def _is_input(tensor: KerasTensor) -> bool:
    return tensor.history is not None and isinstance(tensor.history[0], InputLayer)


def _cut(inputs: Any, outputs: Any) -> tuple[Any, Any]:
    """Inputs in the middle of a graph: the calls behind them, made again from inputs of their own."""
    values: dict[int, KerasTensor] = {}
    for tensor in leaves(inputs):
        new = tensor
        if not _is_input(tensor):
            new = InputLayer(batch_shape=tensor.shape, dtype=tensor.dtype).output
            set_mask(new, get_mask(tensor))
        values[id(tensor)] = new
    calls, _ = _plan(leaves(inputs), leaves(outputs))

    def fill(leaf: Any) -> Any:
        return values.get(id(leaf), leaf) if isinstance(leaf, KerasTensor) else leaf

    for node in calls:
        made = map_tree(
            lambda t: KerasTensor(t.shape, t.dtype) if isinstance(t, KerasTensor) else t,
            node.outputs,
        )
        CallNode(node.operation, map_tree(fill, node.args), map_tree(fill, node.kwargs), made)
        for old, new in zip(leaves(node.outputs), leaves(made), strict=True):
            values[id(old)] = new
            set_mask(new, get_mask(old))
    return map_tree(fill, inputs), map_tree(fill, outputs)


def _plan(
    inputs: list[KerasTensor], outputs: list[KerasTensor]
) -> tuple[list[CallNode], list[Any]]:
    """The calls in an order in which they can run, and the operations in Keras's order.

    Keras sorts by depth (the longest way to an output, over all calls of an operation), and within
    a depth by the order in which a depth-first walk from the outputs first meets the operation.
    """
    stop = {id(t) for t in inputs}
    order: list[CallNode] = []
    first_met: dict[int, int] = {}
    operations: dict[int, Any] = {}
    state: dict[int, int] = {}  # 1 while open, 2 when done
    stack: list[tuple[CallNode, bool]] = [(_node(t), False) for t in reversed(outputs)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            state[id(node)] = 2
            order.append(node)
            continue
        if state.get(id(node)):
            continue
        state[id(node)] = 1
        first_met.setdefault(id(node.operation), len(first_met))
        operations[id(node.operation)] = node.operation
        stack.append((node, True))
        if not any(id(t) in stop for t in leaves(node.outputs)):
            stack.extend((_node(t), False) for t in reversed(node.inputs))
    depth: dict[int, int] = {}
    deepest: dict[int, int] = {}
    for node in reversed(order):
        d = max(depth.get(id(node), 0), deepest.get(id(node.operation), 0))
        depth[id(node)] = deepest[id(node.operation)] = d
        if any(id(t) in stop for t in leaves(node.outputs)):
            continue
        for t in node.inputs:
            before = id(_node(t))
            depth[before] = max(depth.get(before, 0), d + 1)
    for t in inputs:
        node = _node(t)
        if id(node) not in state:
            order.append(node)
            depth[id(node)] = deepest[id(node.operation)] = 0
            first_met.setdefault(id(node.operation), -1)  # before what is as deep
            operations[id(node.operation)] = node.operation
    ranked = sorted(operations, key=lambda o: (-deepest[o], first_met[o]))
    calls = [n for n in order if not any(id(t) in stop for t in leaves(n.outputs))]
    for node in calls:
        if isinstance(node.operation, InputLayer):
            raise ValueError(
                f"the outputs depend on the input {node.operation.name!r}, which is not among the "
                "model's inputs"
            )
    return calls, [operations[o] for o in ranked]


def _node(tensor: KerasTensor) -> CallNode:
    if tensor.history is None:
        raise ValueError(
            f"{tensor!r} was not made by Input() or by a call on it, so no model can use it"
        )
    operation, index, _ = tensor.history
    return operation._inbound_nodes[index]
