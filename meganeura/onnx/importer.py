"""From an ONNX file to a Model: its graph is interpreted with `meganeura.ops`, and so traced into a plan."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import meganeura as mg
from meganeura.execution import run_call
from meganeura.onnx import attention, elementwise, neural, recurrent, reductions, tensors
from meganeura.onnx.external import load_external
from meganeura.onnx.registry import HANDLERS, Call, OnnxError, Weight

assert all((attention, elementwise, neural, recurrent, reductions, tensors))  # they fill HANDLERS

OLDEST = 7

_REFUSED = {
    "If": "control flow that depends on the data is not offered; export the model without it",
    "Loop": "control flow that depends on the data is not offered; export the model without it",
    "Scan": "control flow that depends on the data is not offered; export the model without it",
}


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ImportError("reading ONNX files needs the package onnx: pip install onnx") from error
    return onnx


class OnnxModel(mg.Model):
    """A model read from ONNX: call it, fit it, save it.

    Floating-point initializers are its weights (the moving statistics of batch normalizations do
    not train). Inputs and outputs are in the file's order; with several outputs a list is
    returned. Build one with `meganeura.onnx.load`.
    """

    def __init__(self, proto: Any, **kwargs: Any):
        super().__init__(name=_identifier(proto.graph.name), **kwargs)
        onnx = _onnx()
        self._opset = max(
            (o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0
        )
        if self._opset < OLDEST:
            raise OnnxError(
                f"the model uses operator set {self._opset}; {OLDEST} is the oldest read"
            )
        self._proto = proto
        graph = proto.graph
        stored = _stored(onnx, graph)
        self.input_names = [i.name for i in graph.input if i.name not in stored]
        self.output_names = [o.name for o in graph.output]
        self._nodes = list(graph.node)
        self._check_kinds(self._nodes)
        _check_names(self._nodes, [*stored, *self.input_names], self.output_names)
        self._check_widths(proto)
        fixed = {
            name
            for node in self._nodes
            if node.op_type == "BatchNormalization"
            for name in node.input[3:5]
        }
        self._initial: dict[str, Any] = {"": None}
        self.weights_by_name: dict[str, Any] = {}
        for name, array in stored.items():
            self._initial[name] = array
            if (
                array.dtype in (np.float32, np.float64, np.float16)
                and array.ndim
                and array.size > 1
            ):
                variable = self.add_weight(
                    shape=array.shape,
                    initializer="zeros",
                    name=_identifier(name),
                    trainable=name not in fixed,
                )
                variable.assign(array.astype(np.float32))
                self._initial[name] = Weight(array, variable)
                self.weights_by_name[name] = variable

    @staticmethod
    def _check_kinds(nodes: list[Any]) -> None:
        unknown: dict[str, str] = {}
        for node in nodes:
            if node.domain not in ("", "ai.onnx"):
                unknown[f"{node.domain}.{node.op_type}"] = node.name
            elif node.op_type not in HANDLERS and node.op_type not in _STATIC_ONLY:
                unknown[node.op_type] = node.name
        for kind, name in unknown.items():
            if kind in _REFUSED:
                raise OnnxError(f"ONNX node {name!r} ({kind}) cannot be imported: {_REFUSED[kind]}")
        if unknown:
            raise OnnxError(
                f"these ONNX operators are not offered: {', '.join(sorted(map(str, unknown)))}"
            )

    def _check_widths(self, proto: Any) -> None:
        """Narrow integers are kept in 32 bits, where shifts and complements would come out differently."""
        kinds = {
            i.name: i.type.tensor_type.elem_type
            for i in (*proto.graph.input, *proto.graph.value_info)
        }
        kinds |= {t.name: t.data_type for t in proto.graph.initializer}
        narrow = {
            getattr(_onnx().TensorProto, kind) for kind in ("UINT8", "INT8", "UINT16", "INT16")
        }
        for node in self._nodes:
            if node.op_type in ("BitShift", "BitwiseNot") and kinds.get(node.input[0]) in narrow:
                raise OnnxError(
                    f"ONNX node {node.name!r} ({node.op_type}) works on 8- or 16-bit integers; these are kept "
                    "in 32 bits here, and the results would differ"
                )

    def __call__(self, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not self.input_names:  # a graph of constants
            return run_call(lambda _, __: self.call({}), (), {})
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Any, training: bool = False) -> Any:
        values = {**self._initial, **self._by_name(inputs)}
        for node in self._nodes:
            try:
                given = [values[name] for name in node.input]
                results = self._evaluate(node, given, bool(training))
            except (TypeError, KeyError, IndexError, AttributeError, ArithmeticError) as error:
                raise OnnxError(
                    f"ONNX node {node.name!r} ({node.op_type}) has inputs or attributes that do not fit: {error}"
                ) from error
            for name, value in zip(node.output, results, strict=False):
                values[name] = value
        outputs = [_tensor(values[name]) for name in self.output_names]
        return outputs[0] if len(outputs) == 1 else outputs

    def _by_name(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            missing = set(self.input_names) - set(inputs)
            if missing:
                raise ValueError(
                    f"model {self.name!r} needs the inputs {', '.join(sorted(missing))} too"
                )
            return inputs
        listed = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(listed) != len(self.input_names):
            raise ValueError(
                f"model {self.name!r} takes {len(self.input_names)} inputs "
                f"({', '.join(self.input_names)}), and {len(listed)} were given"
            )
        return dict(zip(self.input_names, listed, strict=True))

    def _evaluate(self, node: Any, inputs: list[Any], training: bool) -> tuple[Any, ...]:
        onnx = _onnx()
        attributes = {a.name: _attribute(onnx, a) for a in node.attribute}
        static = all(v is None or isinstance(v, np.ndarray) for v in inputs)
        if static and node.op_type not in ("Shape", "Size"):
            return _fold(onnx, node, inputs, self._opset)
        if node.op_type not in HANDLERS:
            raise OnnxError(
                f"ONNX node {node.name!r} ({node.op_type}) cannot be imported: its result depends "
                "on the data in a way that a graph of static shapes cannot hold"
            )
        call = Call(node.op_type, node.name or node.output[0], inputs, attributes, self._opset,
                    len(node.output), training)  # fmt: skip
        result = HANDLERS[node.op_type](call)
        return result if isinstance(result, tuple) else (result,)


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_.-" else "_" for c in str(name)) or "onnx"


def _tensor(value: Any) -> Any:
    if isinstance(value, Weight):
        value = value.variable
    return mg.ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value


def _attribute(onnx: Any, attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


#: Operators that are evaluated when all their inputs are known, and refused otherwise.
_STATIC_ONLY = frozenset(
    "Constant ConstantOfShape Range NonZero Unique BlackmanWindow HammingWindow HannWindow "
    "MelWeightMatrix Det TopK ScatterND ScatterElements NonMaxSuppression".split()
)


#: Elements of a constant that a file may have computed from a few bytes.
LARGEST_CONSTANT = 1 << 27


def _product(values: Any) -> int:
    return math.prod(int(n) for n in np.ravel(values))


def _ranged(inputs: list[Any]) -> int:
    start, limit, delta = (float(np.ravel(x)[0]) for x in inputs)
    return int((limit - start) / delta) if delta else 0


#: Operators that make much from little -> how many elements, from their known inputs.
_MADE: dict[str, Callable[[list[Any]], int]] = {
    "ConstantOfShape": lambda x: _product(x[0]),
    "Range": _ranged,
    "Expand": lambda x: max(x[0].size, 1) * _product(x[1]),
    "Tile": lambda x: x[0].size * _product(x[1]),
    "Pad": lambda x: _padded(x[0].shape, np.ravel(x[1])) if len(x) > 1 else 0,
    **{f"{kind}Window": lambda x: _product(x[0]) for kind in ("Blackman", "Hamming", "Hann")},
}


def _padded(shape: tuple[int, ...], pads: np.ndarray) -> int:
    """Pads that name some axes alone count for all."""
    most = sum(max(int(n), 0) for n in pads)
    return math.prod(n + most for n in shape) if most > LARGEST_CONSTANT // 64 else 0


def _fold(onnx: Any, node: Any, inputs: list[np.ndarray | None], opset: int) -> tuple[Any, ...]:
    """Evaluate one node of known inputs with ONNX's own reference implementation."""
    from onnx.reference import ReferenceEvaluator

    count = _MADE.get(node.op_type, lambda *_: 0)(inputs)
    if count > LARGEST_CONSTANT:
        raise OnnxError(
            f"ONNX node {node.name!r} ({node.op_type}) makes a constant of {count} elements, which is refused; "
            f"{LARGEST_CONSTANT} are the most"
        )
    names = [n for n, v in zip(node.input, inputs, strict=True) if v is not None]
    helper = onnx.helper
    graph = helper.make_graph(
        [node],
        "constant",
        [helper.make_value_info(n, onnx.TypeProto()) for n in dict.fromkeys(names)],
        [helper.make_value_info(n, onnx.TypeProto()) for n in node.output if n],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {n: v for n, v in zip(node.input, inputs, strict=True) if v is not None}
    found = iter(ReferenceEvaluator(model).run(None, feeds))
    return tuple(np.asarray(next(found)) if n else None for n in node.output)


def _stored(onnx: Any, graph: Any) -> dict[str, np.ndarray]:
    """The initializers by name."""
    stored: dict[str, np.ndarray] = {}
    if graph.sparse_initializer:
        raise OnnxError("sparse initializers are not offered; store them as dense tensors")
    for tensor in graph.initializer:
        if tensor.name in stored:
            raise OnnxError(f"the file has the tensor {tensor.name!r} twice")
        try:
            stored[tensor.name] = onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError) as error:
            raise OnnxError(f"tensor {tensor.name!r} cannot be read: {error}") from error
    return stored


def _check_names(nodes: list[Any], known: list[str], outputs: list[str]) -> None:
    """Every name is given once, before it is used."""
    defined = {"", *known}
    if len(set(known)) != len(known):
        twice = next(n for i, n in enumerate(known) if n in known[:i])
        raise OnnxError(f"the file has the input or tensor {twice!r} twice")
    for node in nodes:
        where = f"ONNX node {node.name!r} ({node.op_type})"
        for name in node.input:
            if name not in defined:
                raise OnnxError(f"{where} uses {name!r}, which nothing before it gives")
        for name in filter(None, node.output):
            if name in defined:
                raise OnnxError(f"{where} gives {name!r}, which is given before")
            defined.add(name)
    for name in outputs:
        if not name or name not in defined:
            raise OnnxError(f"the model's output {name!r} is given by no node")


def load(path: str | os.PathLike[str]) -> OnnxModel:
    """The model in an ONNX file, ready to be called, compiled, trained and saved.

    Operator sets from 7 on. Raises OnnxError that names the node for what cannot be imported, and
    for files that are damaged or reach outside their folder.
    """
    onnx = _onnx()
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        proto = onnx.load_model(path, load_external_data=False)
        if not proto.graph.node and not proto.graph.output:
            raise ValueError("it holds no graph")
    except OnnxError:
        raise
    except Exception as error:  # protobuf raises its own kinds for damaged bytes
        raise OnnxError(f"{path} is not a sound ONNX model: {error}") from error
    load_external(proto, path.parent, onnx)
    return OnnxModel(proto)
