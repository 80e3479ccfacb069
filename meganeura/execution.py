"""From Python functions of tensors to compiled executables, with a cache by graph and shape."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura import config
from meganeura.backend import backend_object
from meganeura.graph.node import Graph, Node
from meganeura.graph.trace import Trace
from meganeura.masking import get_mask, set_mask
from meganeura.ops.dispatch import map_tree
from meganeura.tensor import Tensor, to_tensor
from meganeura.variable import Variable

_executables: OrderedDict[Any, Any] = OrderedDict()
_LIMIT = 4096
_lock = threading.RLock()


def compiled(graph: Graph, optimize: bool | None = None) -> Any:
    """The executable of a graph; equal graphs share one."""
    backend = backend_object()
    optimize = config.optimize() if optimize is None else optimize
    key = (id(backend), optimize, graph.key())
    with _lock:
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


class eagerly:
    """Inside, layers and models run op by op on concrete tensors: slow, and values can be looked at."""

    def __enter__(self) -> None:
        _eager.depth += 1

    def __exit__(self, *_: object) -> None:
        _eager.depth -= 1


class _Eager(threading.local):
    depth = 0  # of this thread


_eager = _Eager()


def running_eagerly() -> bool:
    return _eager.depth > 0


def run_call(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    owner: Any = None,
    optimize: bool | None = None,
) -> Any:
    """Call `function` on nodes in place of the arrays in its arguments, and compute its result at once.

    Masks ride along on arguments and results; losses that are added on the way are left with
    `owner`. Returns the result's structure with Tensors as its leaves.
    """
    tensors: list[Tensor] = []
    masks: list[tuple[int, int]] = []

    def take(leaf: Any) -> Any:
        if not isinstance(leaf, (Tensor, np.ndarray)):
            return leaf
        tensor = to_tensor(leaf)
        tensors.append(tensor)
        slot = Slot(len(tensors) - 1)
        mask = get_mask(leaf)
        if mask is not None:
            tensors.append(to_tensor(mask))
            masks.append((slot.index, len(tensors) - 1))
        return slot

    args, kwargs = map_tree(take, args), map_tree(take, kwargs)
    with Trace() as trace:
        nodes = [trace.input(t.shape, t.dtype, f"argument_{i}") for i, t in enumerate(tensors)]
        for of, mask in masks:
            set_mask(nodes[of], nodes[mask])

        def give(leaf: Any) -> Any:
            return nodes[leaf.index] if isinstance(leaf, Slot) else leaf

        result = function(map_tree(give, args), map_tree(give, kwargs))
        flat: list[Node] = []
        riding: list[tuple[int, int]] = []

        def collect(leaf: Any) -> Any:
            if isinstance(leaf, Variable):
                leaf = trace.read(leaf)
            if not isinstance(leaf, Node):
                return leaf
            flat.append(leaf)
            slot = Slot(len(flat) - 1)
            mask = get_mask(leaf)
            if isinstance(mask, Node):
                flat.append(mask)
                riding.append((slot.index, len(flat) - 1))
            return slot

        structure = map_tree(collect, result)
        losses = list(trace.losses)
    graph = trace.graph([*flat, *losses])
    executable = compiled(graph, optimize)
    inputs = [t.handle for t in (*tensors, *trace.captured)]
    handles = executable.run(inputs, [v.handle for v in trace.variables])
    backend = backend_object()
    found = [
        Tensor(h, n.shape, n.dtype, backend) for h, n in zip(handles, graph.outputs, strict=True)
    ]
    for of, mask in riding:
        set_mask(found[of], found[mask])
    if owner is not None:
        owner._losses = found[len(flat) :]
    return map_tree(lambda x: found[x.index] if isinstance(x, Slot) else x, structure)


class Slot:
    """Stands for the tensor of this position in a tree of arguments or results."""

    def __init__(self, index: int):
        self.index = index
