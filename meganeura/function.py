"""From Python functions of tensors to compiled executables, with a cache by graph and shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from meganeura import config
from meganeura.backend import backend_object
from meganeura.graph.node import Graph, Node
from meganeura.graph.trace import Trace
from meganeura.tensor import Tensor

_executables: OrderedDict[Any, Any] = OrderedDict()
_LIMIT = 4096


def compiled(graph: Graph, optimize: bool | None = None) -> Any:
    """The executable of a graph; equal graphs share one."""
    backend = backend_object()
    optimize = config.optimize() if optimize is None else optimize
    key = (id(backend), optimize, graph.key())
    if key in _executables:
        _executables.move_to_end(key)
    else:
        _executables[key] = backend.compile(graph, optimize)
        if len(_executables) > _LIMIT:
            _executables.popitem(last=False)
    return _executables[key]


def clear_cache() -> None:
    _executables.clear()


def run_traced(
    function: Callable[..., Sequence[Node]],
    arguments: Sequence[Tensor],
    optimize: bool | None = None,
) -> list[Tensor]:
    """Trace `function` on nodes shaped like `arguments`, compile, run once, return its outputs.

    Assignments to variables inside become updates of those variables.
    """
    with Trace() as trace:
        nodes = [trace.input(t.shape, t.dtype, f"argument_{i}") for i, t in enumerate(arguments)]
        outputs = list(function(*nodes))
    graph = trace.graph(outputs)
    executable = compiled(graph, optimize)
    inputs = [t.handle for t in (*arguments, *trace.captured)]
    handles = executable.run(inputs, [v.handle for v in trace.variables])
    backend = backend_object()
    return [Tensor(h, n.shape, n.dtype, backend) for h, n in zip(handles, outputs, strict=True)]
