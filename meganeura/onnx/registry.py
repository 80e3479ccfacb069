"""The table of ONNX operators, and what a handler sees of a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura import ops


class OnnxError(ValueError):
    """The file asks for something that cannot be done; the message names the node and says why."""


class Call:
    """One node being evaluated: its inputs as tensors, its attributes, its operator-set version."""

    def __init__(
        self,
        kind: str,
        name: str,
        inputs: Sequence[Any],
        attributes: dict[str, Any],
        opset: int,
        outputs: int,
        training: bool = False,
    ):
        self.kind = kind
        self.name = name
        self.inputs = list(inputs)
        self.attributes = attributes
        self.opset = opset
        self.outputs = outputs
        self.training = training

    def has(self, index: int) -> bool:
        """Whether the optional input at `index` is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def tensor(self, index: int, default: Any = None) -> Any:
        """Input `index` as something ops compute with."""
        if not self.has(index):
            return default
        value = self.inputs[index]
        return value.variable if isinstance(value, Weight) else value

    def tensors(self) -> list[Any]:
        return [self.tensor(i) for i in range(len(self.inputs))]

    def is_static(self, index: int) -> bool:
        return self.has(index) and isinstance(self.inputs[index], (np.ndarray, Weight))

    def static(self, index: int, default: Any = None) -> np.ndarray:
        """Input `index` as an array that is known before the model runs, such as a target shape."""
        if not self.has(index):
            return default
        value = self.inputs[index]
        if isinstance(value, Weight):
            return value.array
        if not isinstance(value, np.ndarray):
            self.refuse(
                f"its input {index} depends on the data, but it must be known when the model is "
                "built, since graphs here have static shapes"
            )
        return value

    def ints(self, index: int, name: str = "", default: Any = None) -> list[int] | None:
        """A list of integers from an input, or from the attribute older versions have instead."""
        if self.has(index):
            return [int(v) for v in np.asarray(self.static(index)).ravel()]
        value = self.attributes.get(name, default)
        return None if value is None else [int(v) for v in np.asarray(value).ravel()]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def refuse(self, why: str) -> Any:
        raise OnnxError(f"ONNX node {self.name!r} ({self.kind}) cannot be imported: {why}")


class Weight:
    """A floating-point initializer: an array in the file, a variable of the model."""

    def __init__(self, array: np.ndarray, variable: Any):
        self.array = array
        self.variable = variable


Handler = Callable[[Call], Any]
HANDLERS: dict[str, Handler] = {}


def handles(*kinds: str) -> Callable[[Handler], Handler]:
    """Register a function as the handler of these operators."""

    def register(function: Handler) -> Handler:
        for kind in kinds:
            HANDLERS[kind] = function
        return function

    return register


def rank(x: Any) -> int:
    return len(x.shape)


def floating(x: Any) -> Any:
    return ops.cast(x, "float32")


def normal_axis(axis: int, dimensions: int) -> int:
    return axis + dimensions if axis < 0 else axis


def dtype_of(x: Any) -> str:
    """The dtype's plain name, whatever kind of tensor it is."""
    return str(np.dtype(x.dtype) if isinstance(x, np.ndarray) else x.dtype)
