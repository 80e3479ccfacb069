"""Compiled steps: forward, loss, backward, update and metrics as one graph, run as one plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meganeura import config, function
from meganeura.backend import backend_object
from meganeura.data import sources
from meganeura.graph.node import Node
from meganeura.graph.trace import Trace
from meganeura.ops.dispatch import map_tree
from meganeura.tensor import Tensor


class Step:
    """One traced and compiled step for batches of one size and kind."""

    def __init__(
        self,
        body: Callable[[Any], Any],
        batch: sources.Batch,
        source: Any,
        optimize: bool | None = None,
    ):
        with Trace() as trace:
            nodes = [trace.input(t.shape, t.dtype, f"data_{i}") for i, t in enumerate(batch.tensors)]
            parts = source.gather(nodes, batch.size) if batch.resident else nodes
            result = body(sources.fill(batch.structure, parts))
            self._outputs: list[Node] = []
            self._structure = map_tree(self._collect, result)
        self._captured = list(trace.captured)
        self.variables = list(trace.variables)
        self._graph = trace.graph(self._outputs)
        self.executable = function.compiled(self._graph, optimize)

    def _collect(self, leaf: Any) -> Any:
        if not isinstance(leaf, Node):
            return leaf
        self._outputs.append(leaf)
        return function.Slot(len(self._outputs) - 1)

    def _handles(self, batch: sources.Batch) -> tuple[list[Any], list[Any]]:
        inputs = [t.handle for t in (*batch.tensors, *self._captured)]
        return inputs, [v.handle for v in self.variables]

    def run(self, batch: sources.Batch) -> Any:
        """Run once; returns what the body returned, with Tensors as its leaves."""
        handles = self.executable.run(*self._handles(batch))
        backend = backend_object()
        found = [
            Tensor(h, n.shape, n.dtype, backend) for h, n in zip(handles, self._outputs, strict=True)
        ]
        return map_tree(lambda s: found[s.index] if isinstance(s, function.Slot) else s, self._structure)

    def run_many(self, batch: sources.Batch, count: int) -> None:
        """Run several times in a row; the batch moves on by itself, and there are no outputs."""
        self.executable.run_many(*self._handles(batch), count)


def batch_key(batch: sources.Batch) -> Any:
    """What a step is specialised on: shapes, dtypes, the structure, and settings that change the graph."""
    shapes = tuple((t.shape, t.dtype) for t in batch.tensors)
    return (shapes, repr(map_tree(lambda p: getattr(p, "index", None), batch.structure)),
            batch.size, batch.resident, config.optimize())  # fmt: skip
