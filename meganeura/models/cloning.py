"""clone_model: the same structure with weights of its own; and what copies and pickles are made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import tree
from meganeura.layers.input_layer import Input, InputLayer
from meganeura.layers.layer import Layer
from meganeura.models.functional import Functional
from meganeura.models.model import Model
from meganeura.models.operation import FunctionOperation, leaves
from meganeura.models.sequential import Sequential
from meganeura.ops.dispatch import map_tree
from meganeura.quantization.formats import Packed
from meganeura.quantization.layers import Packable
from meganeura.quantization.variable import PackedVariable
from meganeura.symbolic import KerasTensor


def clone(
    model: Any,
    input_tensors: Any = None,
    clone_function: Callable[[Layer], Layer] | None = None,
    call_function: Callable[..., Any] | None = None,
    recursive: bool = False,
) -> Any:
    """A model like `model`, whose layers are made anew from their configs.

    input_tensors:   KerasTensors to wire the new model with, in place of new inputs
    clone_function:  layer -> the layer to use instead, which may be the same one
    call_function:   (layer, *arguments) -> the outputs, in place of calling the new layer; functional models
    recursive:       use clone_function on the layers of nested models too, in place of on those models

    A shared layer stays shared, and a nested model is cloned as a whole. Weights are initialised
    anew. Raises ValueError for a subclassed model, unless its class defines `get_config`.
    """
    if not isinstance(model, Model):
        raise ValueError(f"clone_model takes a model, and got {model!r}")
    copies: dict[int, Any] = {}

    def copy(layer: Any) -> Any:
        if id(layer) not in copies:
            if isinstance(layer, FunctionOperation):
                copies[id(layer)] = FunctionOperation(layer.function, name=layer.name)
            elif recursive and isinstance(layer, (Functional, Sequential)):
                copies[id(layer)] = clone(layer, None, clone_function, call_function, True)
            elif clone_function is not None and not isinstance(layer, InputLayer):
                copies[id(layer)] = clone_function(layer)
            elif isinstance(layer, (Functional, Sequential)):
                copies[id(layer)] = clone(layer)
            else:
                copies[id(layer)] = type(layer).from_config(layer.get_config())
        return copies[id(layer)]

    if isinstance(model, Sequential):
        return _sequential(model, input_tensors, copy)
    if isinstance(model, Functional):
        return _functional(model, input_tensors, copy, call_function)
    if input_tensors is not None or clone_function is not None:
        raise ValueError(
            f"clone_model: {type(model).__name__} is a subclassed model, whose calls are its own code, "
            "so input_tensors and clone_function cannot be used"
        )
    return type(model).from_config(model.get_config())


def _sequential(model: Sequential, input_tensors: Any, copy: Callable[[Any], Any]) -> Sequential:
    given = leaves(input_tensors)
    if input_tensors is not None and len(given) != 1:
        raise ValueError(f"clone_model: a Sequential takes one input tensor, got {input_tensors!r}")
    layers = [copy(layer) for layer in model._stack]
    if given:
        layers = [layer for layer in layers if not isinstance(layer, InputLayer)]
        first = given[0].history[0] if given[0].history else None
        if not isinstance(first, InputLayer):
            first = InputLayer(batch_shape=given[0].shape, dtype=given[0].dtype)
        layers.insert(0, first)
    made = Sequential(layers, name=model.name, trainable=model.trainable)
    if model._build_shapes is not None and not made.built:
        made.build(model._build_shapes["input_shape"])
    return made


def _functional(
    model: Functional,
    input_tensors: Any,
    copy: Callable[[Any], Any],
    call: Callable[..., Any] | None = None,
) -> Functional:
    old = model._input_tensors
    if input_tensors is None:
        new = [
            Input(batch_shape=t.shape, dtype=t.dtype, name=t.history[0].name if t.history else None)
            for t in old
        ]
    else:
        new = leaves(input_tensors)
        if len(new) != len(old):
            raise ValueError(
                f"clone_model: model {model.name!r} has {len(old)} input(s), and {len(new)} were given"
            )
    values: dict[int, KerasTensor] = {id(o): n for o, n in zip(old, new, strict=True)}

    def fill(leaf: Any) -> Any:
        return values[id(leaf)] if isinstance(leaf, KerasTensor) else leaf

    for node in model._calls:
        operation = copy(node.operation)
        args, kwargs = map_tree(fill, node.args), map_tree(fill, node.kwargs)
        connect = operation.connect if isinstance(operation, FunctionOperation) else None
        if connect:
            outputs = connect(args, kwargs)
        else:
            outputs = call(operation, *args, **kwargs) if call else operation(*args, **kwargs)
        for before, after in zip(leaves(node.outputs), leaves(outputs), strict=True):
            values[id(before)] = after
    inputs, outputs = map_tree(fill, model._inputs_struct), map_tree(fill, model._outputs_struct)
    return Functional(inputs, outputs, name=model.name, trainable=model.trainable)


# --- copies and pickles --------------------------------------------------------------------------


def parts(model: Any) -> tuple[Any, ...]:
    """What `restored` needs. Raises as `get_config` does where a layer cannot be described."""
    from meganeura.layers import serialize

    kinds = [type(layer) for layer in model._flatten_layers()]
    custom: dict[str, Any] = {k.__name__: k for k in kinds if not _is_ours(k)}
    compiled = model.get_compile_config() if model.compiled else None
    if compiled is not None:
        given = tree.flatten([model._compile_arguments.get(k) for k in ("loss", "metrics")])
        for thing in given:
            kind: Any = thing if inspect.isfunction(thing) else type(thing)
            if thing is not None and not _is_ours(kind):
                custom[kind.__name__] = kind
    values = [v.packed() if isinstance(v, PackedVariable) else v.numpy() for v in model.variables]
    optimizer = model.optimizer if compiled is not None else None
    slots = (
        [v.numpy() for v in optimizer.variables]
        if optimizer is not None and optimizer.built
        else None
    )
    return serialize(model), custom, values, compiled, slots


def _is_ours(kind: Any) -> bool:
    return kind.__module__ == "builtins" or kind.__module__.startswith("meganeura.")


def restored(
    config: dict[str, Any],
    custom: dict[str, Any],
    values: list[Any],
    compiled: dict[str, Any] | None,
    slots: list[np.ndarray] | None,
) -> Any:
    """The model that `parts` took apart."""
    from meganeura.layers import deserialize
    from meganeura.utils import custom_object_scope

    with custom_object_scope(custom):
        model = deserialize(config)
        if not model.built:
            model.build_from_config(config.get("build_config"))
        _pack_as(model, values)
        for variable, value in zip(model.variables, values, strict=True):
            if isinstance(variable, PackedVariable) and isinstance(value, Packed):
                variable.assign_packed(value)
            else:
                variable.assign(value)
        if compiled is not None:
            model.compile_from_config(compiled)
        if slots is not None:
            if not model.optimizer.built:
                model.optimizer.build(model.trainable_variables)
            for variable, value in zip(model.optimizer.variables, slots, strict=True):
                variable.assign(value)
    return model


def _pack_as(model: Any, values: list[Any]) -> None:
    """Pack the tables for which there are packed values, in their formats."""
    formats = {
        id(variable): value.format.name
        for variable, value in zip(model.variables, values, strict=True)
        if isinstance(value, Packed)
    }
    for layer in model._flatten_layers() if formats else ():
        kind = (
            formats.get(id(getattr(layer, layer._table))) if isinstance(layer, Packable) else None
        )
        if kind is not None:
            layer.quantize(kind)
