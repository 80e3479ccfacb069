"""Tracing: running Python code on nodes to record a graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.graph.node import Graph, Node


class _Recordings(threading.local):
    """What this thread records, the innermost last: threads do not see each other's traces."""

    def __init__(self) -> None:
        self.open: list[Trace] = []


_recordings = _Recordings()

#: Arrays up to this many elements are written into the graph; larger ones become inputs.
LARGEST_LITERAL = 1024


class ConcretizationError(TypeError):
    """Python code asked for the value of a tensor that has none yet, while a graph was recorded."""


class Trace:
    """Records one graph. Use as a context manager; traces nest, the innermost one is current.

    Variables read inside become states, assignments to them become updates, and device tensors
    or large arrays used inside become captured inputs.
    """

    #: Where values are at hand while recording: evaluate(node) -> its array.
    evaluate: Callable[[Node], Any] | None = None

    def __init__(self) -> None:
        self.inputs: list[Node] = []
        self.captured: list[Any] = []  # tensors, bound after the explicit inputs
        self._captured_nodes: list[Node] = []
        self._captured_index: dict[int, int] = {}
        self.variables: list[Any] = []
        self._state_nodes: list[Node] = []
        self._state_index: dict[int, int] = {}
        self._current: dict[int, Node] = {}
        self._unpacked: dict[int, Node] = {}
        self.losses: list[Node] = []  # from add_loss and activity regularizers, in order

    def __enter__(self) -> Trace:
        _recordings.open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _recordings.open.pop()

    def input(self, shape: Sequence[int], dtype: str, name: str = "") -> Node:
        node = Node("input", (), {"name": name}, tuple(shape), dtype)
        self.inputs.append(node)
        return node

    def capture(self, tensor: Any) -> Node:
        """A concrete tensor used inside the trace: bound as an input at each run."""
        index = self._captured_index.get(id(tensor))
        if index is None:
            index = self._captured_index[id(tensor)] = len(self.captured)
            self.captured.append(tensor)
            name = f"captured_{index}"
            self._captured_nodes.append(
                Node("input", (), {"name": name}, tuple(tensor.shape), tensor.dtype)
            )
        return self._captured_nodes[index]

    def _index(self, variable: Any) -> int:
        index = self._state_index.get(id(variable))
        if index is None:
            index = self._state_index[id(variable)] = len(self.variables)
            self.variables.append(variable)
            node = Node("state", (), {"name": variable.path}, variable.shape, variable.dtype)
            self._state_nodes.append(node)
            self._current[id(variable)] = node
        return index

    def state(self, variable: Any) -> Node:
        """The variable's value at the start of the run: what gradients are taken with respect to."""
        if hasattr(variable, "unpacked"):
            return self.read(variable)
        return self._state_nodes[self._index(variable)]

    def read(self, variable: Any) -> Node:
        """The variable's value at this point of the trace, after earlier assignments."""
        if hasattr(variable, "unpacked"):  # it lies in other variables, and does not change
            if id(variable) not in self._unpacked:
                self._unpacked[id(variable)] = variable.unpacked(self)
            return self._unpacked[id(variable)]
        self._index(variable)
        return self._current[id(variable)]

    def assign(self, variable: Any, value: Node) -> None:
        self._index(variable)
        self._current[id(variable)] = value

    def assignments(self) -> dict[int, Node]:
        """The current value of every variable, by its position in `variables`."""
        return {i: self._current[id(v)] for i, v in enumerate(self.variables)}

    def assign_all(self, values: dict[int, Node]) -> None:
        """Go back, or on, to these values; variables that are not named get their state."""
        for i, variable in enumerate(self.variables):
            self._current[id(variable)] = values.get(i, self._state_nodes[i])

    def graph(self, outputs: Sequence[Node]) -> Graph:
        """The recorded graph with these outputs and every assignment as an update."""
        updates = {
            i: self._current[id(v)]
            for i, v in enumerate(self.variables)
            if self._current[id(v)] is not self._state_nodes[i]
        }
        return Graph(
            [*self.inputs, *self._captured_nodes], list(outputs), list(self._state_nodes), updates
        )


def current() -> Trace | None:
    return _recordings.open[-1] if _recordings.open else None


class outside:
    """Suspends tracing: what is computed inside is computed at once, with concrete values."""

    def __enter__(self) -> None:
        self._saved, _recordings.open = _recordings.open, []

    def __exit__(self, *_: object) -> None:
        _recordings.open = self._saved


def constant(value: Any, dtype: str | None = None) -> Node:
    """A node that holds `value`: a Python scalar, or a small array."""
    from meganeura.ops.registry import make  # the operations are written with this module

    if isinstance(value, (bool, int, float)):
        dtype = dtype or dtypes.python_dtype(value, None)
        cast = {"float32": float, "float16": float, "bool": bool}.get(dtype, int)
        return make("constant", value=cast(value), dtype=dtype)
    array = dtypes.as_array(value)
    if dtype is not None:
        array = array.astype(dtype)
    if array.ndim == 0:
        return make("constant", value=array.item(), dtype=dtypes.standardize(array.dtype))
    return make(
        "literal",
        data=np.ascontiguousarray(array).tobytes(),
        shape=array.shape,
        dtype=dtypes.standardize(array.dtype),
    )
