"""Compiled steps: forward, loss, backward, update and metrics as one graph, run as one plan."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.backend import backend_object
from meganeura.data.arrays import gather
from meganeura.data.batch import Batch, fill
from meganeura.execution import Slot, compiled
from meganeura.graph.node import Graph, Node
from meganeura.graph.trace import ConcretizationError, Trace
from meganeura.ops.dispatch import map_tree
from meganeura.tensor import Tensor
from meganeura.variable import Variable

#: Steps are handed to the device for about this long before it is waited for, in seconds.
_AHEAD = 0.2
_MOST_AHEAD = 4096


class Recording(Trace):
    """The trace of a step on a batch that is at hand.

    looking: code may ask for the values of tensors while it is recorded. Each look runs what leads
             to that value, so this is for finding faults.
    """

    def __init__(self, batch: Batch, looking: bool):
        super().__init__()
        self.batch = batch
        self.evaluate = self._evaluate if looking else None
        nodes = [self.input(t.shape, t.dtype, f"data_{i}") for i, t in enumerate(batch.tensors)]
        with self:
            parts = gather(nodes, batch.size, batch.cursor) if batch.cursor is not None else nodes
        self.data = fill(batch.structure, parts)

    def __enter__(self) -> Recording:
        super().__enter__()
        return self

    def _evaluate(self, node: Node) -> np.ndarray:
        inputs = [*self.inputs, *self._captured_nodes]
        graph = Graph(inputs, [node], list(self._state_nodes), {})
        executable = compiled(graph, optimize=False)
        handles = [t.handle for t in (*self.batch.tensors, *self.captured)]
        (out,) = executable.run(handles, [v.handle for v in self.variables])
        return backend_object().download(out, node.shape, node.dtype)


@contextlib.contextmanager
def _all_is_kept() -> Iterator[None]:
    """Recording makes many objects and no garbage: the collector would go through all of them again
    and again, for an eighth of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Step:
    """One traced and compiled step, for batches of one size and kind."""

    def __init__(self, body: Callable[[Any], Any], batch: Batch, run_eagerly: bool = False):
        self.size = batch.size
        self.shapes = tuple((batch.size, *t.shape[1:]) for t in batch.tensors if t.shape)
        self._cursor = batch.cursor  # of the batch it was recorded on; others bring their own
        with _all_is_kept():
            with Recording(batch, run_eagerly) as trace:
                result = body(trace.data)
                self._outputs: list[Node] = []
                self._structure = map_tree(self._collect, result)
            self._captured = list(trace.captured)
            self.variables = list(trace.variables)
            graph = trace.graph(self._outputs)
            self.executable = compiled(graph, False if run_eagerly else None)

    def _collect(self, leaf: Any) -> Any:
        if not isinstance(leaf, Node):
            return leaf
        self._outputs.append(leaf)
        return Slot(len(self._outputs) - 1)

    def _handles(self, batch: Batch) -> tuple[list[Any], list[Any]]:
        inputs = [t.handle for t in (*batch.tensors, *self._captured)]
        states = [
            batch.cursor.handle if v is self._cursor and batch.cursor is not None else v.handle
            for v in self.variables
        ]
        return inputs, states

    def run(self, batch: Batch) -> Any:
        """Run once; returns what the body returned, with Tensors as its leaves."""
        handles = self.executable.run(*self._handles(batch))
        backend = backend_object()
        found = [
            Tensor(h, n.shape, n.dtype, backend)
            for h, n in zip(handles, self._outputs, strict=True)
        ]
        return map_tree(lambda s: found[s.index] if isinstance(s, Slot) else s, self._structure)

    def run_many(self, batch: Batch, count: int) -> None:
        """Run several times in a row, without outputs; a resident batch moves on by itself."""
        self.executable.run_many(*self._handles(batch), count)


class Later:
    """Stands for the result of a metric that cannot be recorded, only computed after the step."""

    def __init__(self, metric: Any):
        self.metric = metric


class Logs:
    """Where the values are that a step's logs are made of.

    entries: (name, metric or variable that holds the value)
    """

    def __init__(self, entries: Sequence[tuple[str, Any]]):
        self.entries = list(entries)
        self._plan: Any = None
        self._made_for: Any = None

    def read(self) -> dict[str, Any]:
        """All values with one plan and one download: floats, and arrays for those of several values."""
        made_for = tuple(len(getattr(held, "variables", ())) for _, held in self.entries)
        if self._made_for != made_for:
            self._made_for = made_for
            try:
                self._plan = _ReadingPlan(self.entries)
            except ConcretizationError:  # a metric of the user's that computes with NumPy
                self._plan = None
        if self._plan is not None:
            return self._plan.read()
        found: dict[str, Any] = {}
        for name, held in self.entries:
            value = held if isinstance(held, Variable) else held.result()
            values = value if isinstance(value, dict) else {name: value}
            found.update({k: plain(np.asarray(v)) for k, v in values.items()})
        return found


class _ReadingPlan:
    """The results of all metrics, laid end to end in one array."""

    def __init__(self, entries: Sequence[tuple[str, Any]]):
        parts: list[Node] = []
        self._places: list[tuple[str, tuple[int, ...], int]] = []
        with Trace() as trace:
            for name, held in entries:
                value = trace.read(held) if isinstance(held, Variable) else held.result()
                for key, one in (value if isinstance(value, dict) else {name: value}).items():
                    node = ops.cast(ops.convert_to_node(one), "float32")
                    self._places.append((key, node.shape, node.size))
                    parts.append(ops.reshape(node, (-1,)))
            self._output = ops.concatenate(parts) if parts else None
        self._inputs = list(trace.captured)
        self._variables = list(trace.variables)
        if self._output is not None:
            graph = trace.graph([self._output])
            graph.updates.clear()
            self._executable = compiled(graph)

    def read(self) -> dict[str, Any]:
        if self._output is None:
            return {}
        inputs = [t.handle for t in self._inputs]
        (out,) = self._executable.run(inputs, [v.handle for v in self._variables])
        flat = backend_object().download(out, self._output.shape, "float32")
        found: dict[str, Any] = {}
        at = 0
        for name, shape, size in self._places:
            found[name] = plain(flat[at : at + size].reshape(shape))
            at += size
        return found


def plain(array: np.ndarray) -> Any:
    """A Python float for one value, else the array."""
    return float(array) if array.ndim == 0 else array


class Pace:
    """How many steps go to the device before it is waited for.

    Enough to keep it busy, and few enough that training can be stopped, and that what waits for the
    device does not pile up.
    """

    def __init__(self) -> None:
        self._allowed = 1
        self._made = 0
        self._since = time.perf_counter()

    @property
    def left(self) -> int:
        """How many more steps to hand over at most."""
        return self._allowed - self._made

    def made(self, count: int) -> None:
        self._made += count
        if self._made < self._allowed:
            return
        backend_object().synchronize()
        now = time.perf_counter()
        each = (now - self._since) / self._made
        self._since = now
        self._allowed = max(1, min(int(_AHEAD / max(each, 1e-7)), 4 * self._allowed, _MOST_AHEAD))
        self._made = 0
