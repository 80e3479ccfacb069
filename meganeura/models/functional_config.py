"""Functional models as data: Keras 3's description of layers and their calls, and back.

Descriptions of Keras 2 (`inbound_nodes` as nested lists) are read as well.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meganeura import identifiers, ops
from meganeura.layers.layer import Layer
from meganeura.layers.recurrent import RNN, Bidirectional
from meganeura.models.operation import CallNode, FunctionOperation, leaves
from meganeura.ops.dispatch import map_tree
from meganeura.symbolic import KerasTensor
from meganeura.tensor import Tensor
from meganeura.variable import Variable

#: Keras passes these arguments of an operation to its call; the others belong to its config.
_CALL_ARGUMENTS = frozenset(
    "x x1 x2 xs y a b inputs condition indices values key target output predictions targets kernel "
    "depthwise_kernel pointwise_kernel bias data segment_ids updates start_indices weights operands "
    "constant_values fill_value start stop step init_val".split()
)

#: Keras's modules of operations; those of `numpy` are not listed.
_MODULES = {
    "nn": (
        "relu relu6 sigmoid sparse_sigmoid softplus softsign soft_shrink sparse_plus silu squareplus "
        "log_sigmoid leaky_relu hard_sigmoid hard_silu elu selu gelu celu glu tanh_shrink hard_tanh "
        "hard_shrink threshold softmax log_softmax max_pool average_pool conv depthwise_conv "
        "separable_conv conv_transpose one_hot multi_hot binary_crossentropy categorical_crossentropy "
        "sparse_categorical_crossentropy moments normalize"
    ),
    "core": (
        "scatter scatter_update slice slice_update stop_gradient unstack cast convert_to_tensor "
        "while_loop fori_loop cond switch map scan vectorized_map"
    ),
    "math": "segment_sum in_top_k logsumexp rsqrt erf top_k",
    "linalg": "norm",
    "image": "resize",
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}

#: Classes whose function has another name than the class in snake case.
_RENAMED = {"RMSNorm": "rms_normalization", "LayerNorm": "layer_normalization"}


# --- writing -----------------------------------------------------------------------------------


def functional_config(model: Any) -> dict[str, Any]:
    """`get_config` of a functional model: its layers, their calls, its inputs and outputs."""
    from meganeura.layers import serialize

    places = _places(model)
    entries = []
    for operation in model.operations:
        is_layer = isinstance(operation, Layer)
        entry = serialize(operation) if is_layer else _operation_entry(operation)
        entry["name"] = operation.name
        calls = [n for n in operation._inbound_nodes if id(n) in places and n.inputs]
        entry["inbound_nodes"] = [_call_entry(node, operation, places) for node in calls]
        entries.append(entry)

    def place(tensor: KerasTensor) -> list[Any]:
        return _history(tensor, places)

    return {
        "name": model.name,
        "trainable": model.trainable,
        "layers": entries,
        "input_layers": _listed(map_tree(place, model._inputs_struct)),
        "output_layers": _listed(map_tree(place, model._outputs_struct)),
    }


def _places(model: Any) -> dict[int, int]:
    """Each call of the model -> its position among the calls of the same layer in this model."""
    in_model = {id(node) for node in model._calls}
    in_model |= {id(_node_of(t)) for t in model._input_tensors}
    places: dict[int, int] = {}
    for operation in model.operations:
        calls = [n for n in operation._inbound_nodes if id(n) in in_model]
        places.update({id(node): i for i, node in enumerate(calls)})
    return places


def _node_of(tensor: KerasTensor) -> CallNode:
    operation, index, _ = tensor.history
    return operation._inbound_nodes[index]


def _history(tensor: KerasTensor, places: dict[int, int]) -> list[Any]:
    return [tensor.history[0].name, places[id(_node_of(tensor))], tensor.history[2]]


def _call_entry(node: CallNode, operation: Any, places: dict[int, int]) -> dict[str, Any]:
    args, kwargs = node.args, node.kwargs
    if isinstance(operation, FunctionOperation):
        args, kwargs, _ = split_arguments(operation, node)

    def encode(tree: Any) -> Any:
        return _encoded(tree, places, operation.name)

    return {"args": [encode(a) for a in args], "kwargs": {k: encode(v) for k, v in kwargs.items()}}


def _operation_entry(operation: FunctionOperation) -> dict[str, Any]:
    name = operation.function.__name__
    if _function(name) is None:
        raise NotImplementedError(
            f"operation {operation.name!r} calls {name}, which is no function of meganeura.ops, so it "
            "cannot be saved; put it into a Layer subclass"
        )
    _, _, config = split_arguments(operation, operation._inbound_nodes[0])
    class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    return {
        "module": f"keras.src.ops.{_WHERE.get(name, 'numpy')}",
        "class_name": class_name,
        "config": {"name": operation.name, **{k: _plain(v) for k, v in config.items()}},
        "registered_name": class_name,
    }


def split_arguments(
    operation: FunctionOperation, node: CallNode
) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """The arguments of a call as Keras has them: positional tensors, named tensors, and the config."""
    bound = inspect.signature(operation.function).bind(*node.args, **node.kwargs)
    parameters = inspect.signature(operation.function).parameters
    args: list[Any] = []
    named: dict[str, Any] = {}
    config: dict[str, Any] = {}
    leading = True
    for name, value in bound.arguments.items():
        if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif name not in _CALL_ARGUMENTS and not leaves(value):
            config[name] = value
            leading = False
        elif leading:
            args.append(value)
        else:
            named[name] = value
    return args, named, config


def _encoded(value: Any, places: dict[int, int], owner: str) -> Any:
    """An argument in JSON's terms, symbolic tensors as references to the calls that made them."""
    if isinstance(value, KerasTensor):
        history = _history(value, places)
        config = {"shape": list(value.shape), "dtype": value.dtype, "keras_history": history}
        return {"class_name": "__keras_tensor__", "config": config}
    if isinstance(value, (list, tuple)):
        return [_encoded(v, places, owner) for v in value]
    if isinstance(value, dict):
        return {k: _encoded(v, places, owner) for k, v in value.items()}
    if isinstance(value, (np.ndarray, Tensor, Variable)):
        kind = "__numpy__" if isinstance(value, np.ndarray) else "__tensor__"
        array = np.asarray(value)
        config = {"value": array.tolist(), "dtype": str(array.dtype)}
        return {"class_name": kind, "config": config}
    if isinstance(value, slice):
        ends = {"start": value.start, "stop": value.stop, "step": value.step}
        return {"class_name": "__slice__", "config": ends}
    if value is Ellipsis:
        return {"class_name": "__ellipsis__", "config": {}}
    plain = _plain(value)
    if plain is None or isinstance(plain, (bool, int, float, str)):
        return plain
    raise NotImplementedError(f"layer {owner!r} was called with {value!r}, which cannot be saved")


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's, tuples as lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _listed(tree: Any) -> Any:
    if isinstance(tree, (list, tuple)):
        return [_listed(t) for t in tree]
    return {k: _listed(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


# --- reading -----------------------------------------------------------------------------------


def functional_from_config(cls: Any, config: dict[str, Any], custom_objects: Any = None) -> Any:
    """The model that `functional_config`, or Keras, described."""
    name = config.get("name")
    for key in ("layers", "input_layers", "output_layers"):
        if key not in config:
            raise ValueError(f"the configuration of model {name!r} lacks {key!r}")
    entries = config["layers"]
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise ValueError(f"the configuration of model {name!r} should list its layers as dicts")
    made: dict[str, Any] = {}
    for entry in entries:
        made[_entry_name(entry)] = _operation(entry, custom_objects)
    tensors = _wire(name, entries, made, config["output_layers"])

    def find(reference: Any) -> Any:
        place = (str(reference[0]), int(reference[1]))
        if place not in tensors or not 0 <= int(reference[2]) < len(tensors[place]):
            raise ValueError(f"model {name!r}: {list(reference)!r} names no output of its layers")
        return tensors[place][int(reference[2])]

    inputs = _referenced(config["input_layers"], find)
    outputs = _referenced(config["output_layers"], find)
    if any(isinstance(call, list) for e in entries for call in e.get("inbound_nodes") or ()):
        # Keras 2 always wrote lists, and gave back what a single tensor is
        inputs = inputs[0] if isinstance(inputs, list) and len(inputs) == 1 else inputs
        outputs = outputs[0] if isinstance(outputs, list) and len(outputs) == 1 else outputs
    from meganeura.models.functional import Functional
    from meganeura.models.model import Model

    # a subclass of the functional API that keeps its constructor is made as what it is
    kind = cls if issubclass(cls, Functional) else Functional if cls is Model else cls
    trainable = config.get("trainable")
    extra = {} if trainable is None or trainable else {"trainable": trainable}
    return kind(inputs=inputs, outputs=outputs, name=name, **extra)


def _entry_name(entry: dict[str, Any]) -> str:
    name = entry.get("name") or (entry.get("config") or {}).get("name")
    if not isinstance(name, str):
        raise ValueError(
            f"a layer of class {entry.get('class_name')!r} has no name in the configuration"
        )
    return name


def _operation(entry: dict[str, Any], custom_objects: Any) -> Any:
    """The layer of an entry, or the function of meganeura.ops that it calls."""
    if not _is_operation(entry):
        from meganeura.layers import deserialize

        return deserialize(entry, custom_objects)
    class_name = str(entry.get("class_name"))
    function = _function(_RENAMED.get(class_name, class_name))
    if function is None:
        raise ValueError(
            f"the configuration names the operation {class_name!r}, which meganeura.ops does not have"
        )
    config = dict(entry.get("config") or {})
    operation = FunctionOperation(function, name=config.pop("name", None) or entry.get("name"))
    accepted = inspect.signature(function).parameters
    operation.config = {k: v for k, v in config.items() if k in accepted}
    return operation


def _is_operation(entry: dict[str, Any]) -> bool:
    """Whether an entry is a function of keras.ops. Legacy files leave the module out, and layers of the
    same name (Add, Reshape, Softmax) are then told by what every layer's config has."""
    module = str(entry.get("module") or "")
    if module:
        return ".ops." in module or module.startswith("meganeura.ops")
    class_name = str(entry.get("class_name"))
    if "trainable" in (entry.get("config") or {}) or class_name == "InputLayer":
        return False
    known = identifiers.custom_object(str(entry.get("registered_name") or class_name), None)
    calls = entry.get("inbound_nodes") or ()
    called = any(isinstance(call, dict) for call in calls)  # Keras 3: Keras 2 had no such entries
    return known is None and called and _function(_RENAMED.get(class_name, class_name)) is not None


def _function(name: str) -> Callable[..., Any] | None:
    """The public function whose name, but for case and underscores, is `name`."""
    wanted = name.replace("_", "").lower()
    for candidate in dir(ops):
        if candidate.replace("_", "").lower() == wanted and not candidate.startswith("_"):
            found = getattr(ops, candidate)
            return found if callable(found) else None
    if _WHERE.get(identifiers.snake_case(name)) == "image":
        module = importlib.import_module("meganeura.ops.image")
        return getattr(module, identifiers.snake_case(name), None)
    return None


def _wire(
    name: Any, entries: list[Any], made: dict[str, Any], outputs: Any
) -> dict[tuple[str, int], Any]:
    """Make all calls, each as soon as what it needs is there. (layer, call) -> its outputs."""
    tensors: dict[tuple[str, int], list[KerasTensor]] = {}
    waiting: dict[str, list[Any]] = {}
    for entry in entries:
        own = _entry_name(entry)
        calls = list(entry.get("inbound_nodes") or ())
        if entry.get("class_name") == "InputLayer":
            tensors[own, 0] = leaves(made[own].output)
        elif calls:
            waiting[own] = calls
    position = dict.fromkeys(waiting, 0)
    first = {own: _first_index(own, made[own], entries, outputs) for own in waiting}
    while waiting:
        progress = False
        for own in list(waiting):
            calls = waiting[own]
            while calls and all(place in tensors for place in _needs(calls[0])):
                outputs = _call(made[own], calls.pop(0), tensors)
                tensors[own, position[own] + first[own]] = leaves(outputs)
                position[own] += 1
                progress = True
            if not calls:
                del waiting[own]
        if not progress:
            raise ValueError(
                f"the configuration of model {name!r} is no graph: the calls of "
                f"{', '.join(map(repr, sorted(waiting)))} wait for each other or for what is not there"
            )
    return tensors


def _first_index(own: str, operation: Any, entries: list[Any], outputs: Any) -> int:
    """In Keras 2, the calls of a nested model are counted from 1; the references tell."""
    from meganeura.models.model import Model

    calls = [call for entry in entries for call in entry.get("inbound_nodes") or ()]
    if not isinstance(operation, Model) or not any(isinstance(call, list) for call in calls):
        return 0
    used = {place[1] for call in calls for place in _needs(call) if place[0] == own}
    ends = [outputs] if _is_reference(outputs) else outputs
    used |= {int(end[1]) for end in _nested_references(ends) if end[0] == own}
    return min(used, default=0)


def _nested_references(tree: Any) -> Iterator[Any]:
    if _is_reference(tree):
        yield tree
    elif isinstance(tree, (list, dict)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _nested_references(item)


def _needs(call: Any) -> Iterator[tuple[str, int]]:
    """The (layer, call) pairs whose outputs a call takes."""
    if isinstance(call, list):
        for item in _legacy_references(call):
            yield str(item[0]), int(item[1])
            for value in (item[3] if len(item) > 3 else {}).values():
                if _is_reference(value):
                    yield str(value[0]), int(value[1])
    elif isinstance(call, dict) and call.get("class_name") == "__keras_tensor__":
        history = call["config"]["keras_history"]
        yield str(history[0]), int(history[1])
    elif isinstance(call, dict):
        for value in call.values():
            yield from _nested_needs(value)


def _nested_needs(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, list):
        for item in value:
            yield from _nested_needs(item)
    elif isinstance(value, dict):
        yield from _needs(value)


def _is_reference(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and all(isinstance(n, int) and not isinstance(n, bool) for n in value[1:3])
    )


def _legacy_references(call: list[Any]) -> list[Any]:
    return [call] if _is_reference(call) else [item for item in call if _is_reference(item)]


def _call(operation: Any, call: Any, tensors: dict[tuple[str, int], list[KerasTensor]]) -> Any:
    """Make one call of a layer or operation."""

    def find(reference: Any) -> KerasTensor:
        return tensors[str(reference[0]), int(reference[1])][int(reference[2])]

    if isinstance(call, list):  # Keras 2
        found = _legacy_references(call)
        inputs = [find(item) for item in found]
        kwargs = dict(found[0][3]) if found and len(found[0]) > 3 else {}
        kwargs = {k: find(v) if _is_reference(v) else v for k, v in kwargs.items()}
        single = _is_reference(call) or len(inputs) == 1
        if len(inputs) > 1 and isinstance(operation, (RNN, Bidirectional)):
            return operation(inputs[0], initial_state=inputs[1:], **kwargs)
        return operation(inputs[0] if single else inputs, **kwargs)
    args = [_decoded(a, find) for a in call.get("args", ())]
    kwargs = {k: _decoded(v, find) for k, v in (call.get("kwargs") or {}).items()}
    if not isinstance(operation, FunctionOperation):
        return operation(*args, **{k: v for k, v in kwargs.items() if k != "mask" or v is not None})
    if operation.function.__name__ == "get_item" and len(args) > 1 and isinstance(args[1], list):
        args[1] = tuple(args[1])
    return operation.connect(args, kwargs)


def _decoded(value: Any, find: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_decoded(v, find) for v in value]
    if not isinstance(value, dict):
        return value
    kind, config = value.get("class_name"), value.get("config") or {}
    if kind == "__keras_tensor__":
        return find(config["keras_history"])
    if kind in ("__numpy__", "__tensor__"):
        return np.asarray(config["value"], dtype=config.get("dtype") or None)
    if kind == "__slice__":
        return slice(config.get("start"), config.get("stop"), config.get("step"))
    if kind == "__ellipsis__":
        return Ellipsis
    if kind is not None and "config" in value:
        raise ValueError(f"an argument of class {kind!r} in a model's configuration is not known")
    return {k: _decoded(v, find) for k, v in value.items()}


def _referenced(tree: Any, find: Callable[[Any], Any]) -> Any:
    if _is_reference(tree):
        return find(tree)
    if isinstance(tree, dict):
        return {k: _referenced(v, find) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_referenced(v, find) for v in tree]
    raise ValueError(f"{tree!r} names no tensor of a model's configuration")
