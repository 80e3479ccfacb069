"""How each primitive is written in ONNX (https://onnx.ai/onnx/operators): a rule for each name.

A rule gets the writer, the node and the names of its inputs, and returns the name of its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura.graph.node import Node

OPSET = 20
Rule = Callable[["Writer", Node, list[str]], str]
TABLE: dict[str, Rule] = {}


class Writer:
    """Collects the nodes and weights of a file, and gives names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._names: dict[str, int] = {}

    def unique(self, name: str) -> str:
        count = self._names.get(name, -1) + 1
        self._names[name] = count
        return self.unique(f"{name}.{count}") if count else name

    def value_info(self, name: str, node: Node) -> Any:
        import onnx

        return onnx.helper.make_tensor_value_info(name, element(node.dtype), node.shape)

    def weight(self, array: Any, name: str = "constant") -> str:
        import onnx

        name = self.unique(name)
        # Not ascontiguousarray, which makes a scalar a vector.
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def scalar(self, value: float, dtype: str) -> str:
        return self.weight(np.asarray(value, dtype))

    def longs(self, values: Sequence[int]) -> str:
        return self.weight(np.asarray(values, np.int64))

    def node(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        import onnx

        output = output or self.unique(op.lower())
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def cast(self, value: str, dtype: str) -> str:
        return self.node("Cast", [value], to=element(dtype))

    def transpose(self, value: str, axes: Sequence[int]) -> str:
        return self.node("Transpose", [value], perm=list(axes))


def element(dtype: str) -> int:
    import onnx

    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return add


#: Primitives that ONNX has under a name of its own, with the same meaning.
_SAME = {
    "negative": "Neg", "abs": "Abs", "sign": "Sign", "sqrt": "Sqrt", "exp": "Exp", "log": "Log",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "tanh": "Tanh", "sinh": "Sinh", "cosh": "Cosh",
    "arcsin": "Asin", "arccos": "Acos", "arctan": "Atan", "sigmoid": "Sigmoid", "erf": "Erf",
    "relu": "Relu", "softplus": "Softplus", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "isnan": "IsNaN", "logical_not": "Not", "bitwise_not": "BitwiseNot", "add": "Add",
    "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow", "maximum": "Max",
    "minimum": "Min", "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual",
    "logical_and": "And", "logical_or": "Or", "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "where": "Where",
    "stop_gradient": "Identity",
}  # fmt: skip


@rule(*_SAME)
def _same(w: Writer, node: Node, inputs: list[str]) -> str:
    return w.node(_SAME[node.op], inputs)


#: Primitives as a composition of others.
_COMPOSED: dict[str, Rule] = {
    "rsqrt": lambda w, n, x: w.node("Reciprocal", [w.node("Sqrt", x)]),
    "expm1": lambda w, n, x: w.node("Sub", [w.node("Exp", x), w.scalar(1, n.dtype)]),
    "log1p": lambda w, n, x: w.node("Log", [w.node("Add", [*x, w.scalar(1, n.dtype)])]),
    "silu": lambda w, n, x: w.node("Mul", [*x, w.node("Sigmoid", x)]),
    "not_equal": lambda w, n, x: w.node("Not", [w.node("Equal", x)]),
    "gelu": lambda w, n, x: w.node(
        "Gelu", x, approximate="tanh" if n.attributes["approximate"] else "none"
    ),
    "isfinite": lambda w, n, x: w.node("Not", [w.node("Or", [w.node("IsNaN", x), w.node("IsInf", x)])]),
    "cast": lambda w, n, x: w.cast(x[0], n.dtype),
    "constant": lambda w, n, x: w.scalar(n.attributes["value"], n.dtype),
    "reshape": lambda w, n, x: w.node("Reshape", [*x, w.longs(n.shape)], allowzero=1),
    "broadcast_to": lambda w, n, x: w.node("Expand", [*x, w.longs(n.shape)]),
    "transpose": lambda w, n, x: w.transpose(x[0], n.attributes["axes"]),
    "concatenate": lambda w, n, x: w.node("Concat", x, axis=n.attributes["axis"]),
}  # fmt: skip
TABLE.update(_COMPOSED)


@rule("mod", "floor_divide")
def _quotient(w: Writer, node: Node, inputs: list[str]) -> str:
    x, y = inputs
    if node.dtype == "float32":
        whole = w.node("Floor", [w.node("Div", inputs)])
        return whole if node.op != "mod" else w.node("Sub", [x, w.node("Mul", [whole, y])])
    rest = w.node("Mod", inputs)
    return rest if node.op == "mod" else w.node("Div", [w.node("Sub", [x, rest]), y])


@rule("literal")
def _literal(w: Writer, node: Node, inputs: list[str]) -> str:
    return w.weight(np.frombuffer(node.attributes["data"], node.dtype).reshape(node.shape))


@rule("iota")
def _iota(w: Writer, node: Node, inputs: list[str]) -> str:
    axis = node.attributes["axis"]
    column = [1] * len(node.shape)
    column[axis] = node.shape[axis]
    counted = w.weight(np.arange(node.shape[axis]).astype(node.dtype).reshape(column))
    return w.node("Expand", [counted, w.longs(node.shape)])


@rule("slice")
def _slice(w: Writer, node: Node, inputs: list[str]) -> str:
    a = node.attributes
    bounds = [w.longs(v) for v in (a["start"], a["stop"], range(len(node.shape)), a["step"])]
    return w.node("Slice", [*inputs, *bounds])


@rule("flip")
def _flip(w: Writer, node: Node, inputs: list[str]) -> str:
    axes = node.attributes["axes"]
    low = np.iinfo(np.int64).min
    bounds = [w.longs(v) for v in ([-1] * len(axes), [low] * len(axes), axes, [-1] * len(axes))]
    return w.node("Slice", [*inputs, *bounds])


@rule("pad")
def _pad(w: Writer, node: Node, inputs: list[str]) -> str:
    a = node.attributes
    pads = w.longs([*a["low"], *a["high"]])
    return w.node("Pad", [*inputs, pads, w.scalar(a["value"], node.dtype)])


@rule("take", "take_along_axis")
def _take(w: Writer, node: Node, inputs: list[str]) -> str:
    x, axis = node.inputs[0], node.attributes["axis"]
    count = x.shape[axis]
    # Out of range is undefined in ONNX: clamped here, as it is on the device.
    where = w.node("Max", [w.cast(inputs[1], "int64"), w.scalar(-count, "int64")])
    where = w.node("Min", [where, w.scalar(count - 1, "int64")])
    if node.op == "take":
        return w.node("Gather", [inputs[0], where], axis=axis)
    others = [n for i, n in enumerate(x.shape) if i != axis]
    if others != [n for i, n in enumerate(node.inputs[1].shape) if i != axis]:
        raise ValueError(
            f"export: take_along_axis of {x.shape} at indices {node.inputs[1].shape}: ONNX has it "
            "for equal shapes beside the axis only"
        )
    return w.node("GatherElements", [inputs[0], where], axis=axis)


_REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}


@rule(*_REDUCTIONS)
def _reduce(w: Writer, node: Node, inputs: list[str]) -> str:
    flag = node.dtype == "bool"
    x = w.cast(inputs[0], "int32") if flag else inputs[0]
    keep = int(node.attributes["keepdims"])
    axes = w.longs(node.attributes["axes"])
    # No axes means none here, and all in ONNX unless it is told otherwise.
    found = w.node(_REDUCTIONS[node.op], [x, axes], keepdims=keep, noop_with_empty_axes=1)
    return w.cast(found, "bool") if flag else found


@rule("argmax", "argmin")
def _arg(w: Writer, node: Node, inputs: list[str]) -> str:
    op = "ArgMax" if node.op == "argmax" else "ArgMin"
    (axis,) = node.attributes["axes"]
    found = w.node(op, inputs, axis=axis, keepdims=int(node.attributes["keepdims"]))
    return w.cast(found, node.dtype)


@rule("cumsum")
def _cumsum(w: Writer, node: Node, inputs: list[str]) -> str:
    a = node.attributes
    axis = w.scalar(a["axis"], "int64")
    return w.node("CumSum", [*inputs, axis], reverse=int(a["reverse"]))


@rule("matmul")
def _matmul(w: Writer, node: Node, inputs: list[str]) -> str:
    operands = []
    for name, x, flag in zip(inputs, node.inputs, ("transpose_a", "transpose_b"), strict=True):
        axes = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
        operands.append(w.transpose(name, axes) if node.attributes[flag] else name)
    return w.node("MatMul", operands)


def _first(rank: int) -> list[int]:
    """Channels first."""
    return [0, rank - 1, *range(1, rank - 1)]


def _last(rank: int) -> list[int]:
    """Channels last."""
    return [0, *range(2, rank), 1]


def _pads(padding: Any) -> list[int]:
    return [*(low for low, _ in padding), *(high for _, high in padding)]


@rule("conv", "conv_input_gradient")
def _conv(w: Writer, node: Node, inputs: list[str]) -> str:
    a, rank = node.attributes, len(node.shape)
    kernel = w.transpose(inputs[1], [rank - 1, rank - 2, *range(rank - 2)])
    window = node.inputs[1].shape[:-2]
    shared: dict[str, Any] = {
        "strides": list(a["strides"]), "pads": _pads(a["padding"]),
        "dilations": list(a["dilation"]), "group": a["groups"],
    }  # fmt: skip
    op = "Conv"
    if node.op == "conv_input_gradient":
        op = "ConvTranspose"
        # What a strided window did not reach in the input is padding of the output.
        shared["output_padding"] = [
            wanted - ((got - 1) * s + d * (k - 1) + 1 - low - high)
            for wanted, got, s, d, k, (low, high) in zip(
                node.shape[1:-1], node.inputs[0].shape[1:-1], a["strides"], a["dilation"], window,
                a["padding"], strict=True,
            )
        ]  # fmt: skip
    found = w.node(op, [w.transpose(inputs[0], _first(rank)), kernel], **shared)
    return w.transpose(found, _last(rank))


@rule("max_pool", "sum_pool")
def _pool(w: Writer, node: Node, inputs: list[str]) -> str:
    a, rank = node.attributes, len(node.shape)
    x = w.transpose(inputs[0], _first(rank))
    shared: dict[str, Any] = {
        "kernel_shape": list(a["window"]), "strides": list(a["strides"]), "pads": _pads(a["padding"]),
    }  # fmt: skip
    if node.op == "max_pool":
        found = w.node("MaxPool", [x], **shared)
    else:
        mean = w.node("AveragePool", [x], count_include_pad=1, **shared)
        found = w.node("Mul", [mean, w.scalar(float(np.prod(a["window"])), node.dtype)])
    return w.transpose(found, _last(rank))
