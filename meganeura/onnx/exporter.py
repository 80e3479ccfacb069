"""Writing a model as ONNX: the graph of one call, primitive by primitive, by the table of export_table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.graph.node import Node
from meganeura.graph.trace import Trace
from meganeura.onnx.export_table import OPSET, TABLE, Writer
from meganeura.ops.dispatch import map_tree
from meganeura.ops.registry import REGISTRY
from meganeura.saving.atomic import atomic_path

#: A file of protocol buffers ends here; larger models would need data beside it.
LARGEST = (1 << 31) - 1


def export(
    model: Any,
    path: str | os.PathLike[str],
    input_signature: Any = None,
    batch_size: int = 1,
    overwrite: bool = True,
) -> None:
    """Write what `model(inputs, training=False)` computes to an `.onnx` file of operator set 20.

    input_signature: arrays, InputSpecs or symbolic tensors, one for each input; `model.inputs` where
        it is left out. Lengths that are None become `batch_size`: the file's shapes are fixed.
    Raises ValueError for an operation that has no form in ONNX, with its layer's name.
    """
    import onnx

    signature = _signature(model, input_signature)
    writer = Writer()
    values: dict[int, str] = {}
    inputs = []
    with Trace() as trace:
        nodes = []
        for i, spec in enumerate(signature):
            shape = tuple(batch_size if n is None else int(n) for n in spec.shape)
            name = writer.unique(str(getattr(spec, "name", None) or f"input_{i}"))
            node = trace.input(shape, str(spec.dtype), name)
            values[id(node)] = name
            inputs.append(writer.value_info(name, node))
            nodes.append(node)
        result = model(nodes[0] if len(nodes) == 1 else nodes, training=False)
        found: list[Node] = []
        map_tree(lambda leaf: found.append(leaf) if isinstance(leaf, Node) else None, result)
    graph = trace.graph(found)
    if graph.updates:
        changed = ", ".join(trace.variables[i].path for i in sorted(graph.updates))
        raise ValueError(
            f"export: a call of {model.name!r} changes {changed}, and an ONNX graph keeps no state; "
            "leave out the layers that draw random numbers or remember states in inference"
        )
    held = {id(n): v for n, v in zip(graph.states, trace.variables, strict=True)}
    for node in graph:
        if node.op == "dequantize":  # a file has the values of a packed table
            parts = [held.pop(id(x)) for x in node.inputs]
            table = REGISTRY[node.op].reference(*map(np.asarray, parts), **node.attributes)
            values[id(node)] = writer.weight(table, parts[0].path.rpartition("/")[0])
    for key, variable in held.items():
        values[key] = writer.weight(np.asarray(variable), variable.path)
    for node, tensor in zip(graph.inputs[len(signature) :], trace.captured, strict=True):
        values[id(node)] = writer.weight(np.asarray(tensor), "captured")
    for node in graph:
        if id(node) in values or node.op == "state":  # of which only packed words are left
            continue
        rule = TABLE.get(node.op)
        if rule is None:
            where = f" of {node.scope}" if node.scope else ""
            raise ValueError(f"export: the operation {node.op!r}{where} has no form in ONNX")
        values[id(node)] = rule(writer, node, [values[id(x)] for x in node.inputs])
    outputs = []
    for i, node in enumerate(found):
        name = writer.unique(f"output_{i}")
        writer.node("Identity", [values[id(node)]], name)
        outputs.append(writer.value_info(name, node))
    made = onnx.helper.make_graph(
        writer.nodes, str(model.name), inputs, outputs, list(writer.weights)
    )
    proto = onnx.helper.make_model(
        made,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=9,
        producer_name="meganeura",
    )
    if proto.ByteSize() > LARGEST:
        raise ValueError(f"export: {proto.ByteSize()} bytes; one ONNX file holds {LARGEST}")
    onnx.checker.check_model(proto, full_check=True)
    with atomic_path(path, overwrite) as temporary:
        temporary.write_bytes(proto.SerializeToString())


def _signature(model: Any, given: Any) -> Sequence[Any]:
    if given is None:
        given = getattr(model, "inputs", None)
    if not given:
        raise ValueError(
            f"export: the inputs of {getattr(model, 'name', model)!r} are not known; "
            "pass input_signature=[array or InputSpec, ...]"
        )
    if not getattr(model, "built", True):
        raise ValueError(f"export: {model.name!r} has no weights yet; call it on data first")
    return list(given) if isinstance(given, (list, tuple)) else [given]
