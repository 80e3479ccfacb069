"""Graphs on NumPy: equal nodes once, and pointwise work in blocks that stay in the processor's cache."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from meganeura.graph.node import Graph, Node, Shape
from meganeura.ops.registry import REGISTRY

#: Elements of a block: a dozen of them fit into a second-level cache of 1 MiB.
_BLOCK = 1 << 14
#: What does not depend on inputs or states is computed once where it is no larger than this.
_KEPT = 1 << 16


class Stage:
    """Nodes that are computed together: one of any kind, or pointwise ones of one shape.

    escaping: those that others read, or that are results; the rest live for a block
    sources:  the values that are read, made by earlier stages
    dead:     the values that nobody reads after this stage
    """

    def __init__(self, first: Node):
        self.nodes = [first]
        self.pointwise = REGISTRY[first.op].kind == "pointwise"
        self.escaping: set[int] = set()
        self.sources: list[Node] = []
        self.dead: list[int] = []

    def takes(self, node: Node) -> bool:
        return self.pointwise and _pointwise(node) and self.nodes[0].shape == node.shape


def _pointwise(node: Node) -> bool:
    return REGISTRY[node.op].kind == "pointwise"


def stages_of(order: Sequence[Node], results: set[int]) -> list[Stage]:
    """Nodes in a topological order as stages. From the end: a pointwise node joins the first of the
    stages that read it, so that it is computed where it is needed, and is written to memory only for others."""
    made: list[Stage] = []  # the last to run comes first
    where: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for node in reversed(order):
        reading = readers.get(id(node), [])
        first = max(reading, default=-1)
        if first >= 0 and made[first].takes(node):
            made[first].nodes.append(node)
        else:
            first = len(made)
            made.append(Stage(node))
        where[id(node)] = first
        if id(node) in results or any(r != first for r in reading):
            made[first].escaping.add(id(node))
        for x in node.inputs:
            readers.setdefault(id(x), []).append(first)
    made.reverse()
    last = len(made) - 1
    for at, stage in enumerate(made):
        stage.nodes.reverse()
        inside = {id(n) for n in stage.nodes}
        read = {id(x): x for n in stage.nodes for x in n.inputs if id(x) not in inside}
        stage.sources = list(read.values())
        for identity in (*read, *stage.escaping):
            known = identity in where and identity not in results
            if known and last - min(readers.get(identity, [last])) == at:
                stage.dead.append(identity)
    return made


def distinct(graph: Graph) -> tuple[list[Node], dict[int, Node]]:
    """The nodes without repetition in topological order, and for every node the one that stands for it."""
    leaves = {id(n) for n in (*graph.inputs, *graph.states)}
    known: dict[Any, Node] = {}
    stands: dict[int, Node] = {}
    order: list[Node] = []
    for node in graph.nodes():
        if id(node) in leaves:
            stands[id(node)] = node
            continue
        inputs = tuple(stands[id(x)] for x in node.inputs)
        # By their text, since 1, 1.0 and True, or 0.0 and -0.0, are equal to Python.
        attributes: Any = node.attribute_key()
        attributes = repr(attributes) if node.op == "constant" else attributes
        key = (node.op, attributes, node.dtype, tuple(map(id, inputs)))
        found = known.get(key)
        if found is None:
            same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            found = known[key] = (
                node if same
                else Node(node.op, inputs, node.attributes, node.shape, node.dtype, node.scope)
            )  # fmt: skip
            order.append(found)
        stands[id(node)] = found
    return order, stands


class NumpyExecutable:
    """Evaluates the graph as it was written, with each operation's NumPy reference.

    Half precision is how values are kept: references get float32, and their result is rounded.
    `floating` "float64" computes every float in double precision, for tests.
    """

    def __init__(self, graph: Graph, floating: str = "float32"):
        start = time.perf_counter()
        self.floating = floating
        self.graph = graph
        order, self._stands = distinct(graph)
        self._results = {id(self._stands[id(n)]) for n in graph.roots}
        changing = {id(n) for n in (*graph.inputs, *graph.states)}
        self._kept: dict[int, np.ndarray] = {}
        left = []
        with np.errstate(all="ignore"):
            for node in order:
                fixed = not any(id(x) in changing for x in node.inputs)
                if fixed and node.size <= _KEPT and all(id(x) in self._kept for x in node.inputs):
                    self._kept[id(node)] = self._compute(node, self._kept)
                else:
                    changing.add(id(node))
                    left.append(node)
        self.stages = stages_of(left, self._results)
        self.nodes = len(order)
        self._order = order  # ids stay those of these nodes
        self.seconds = time.perf_counter() - start

    def _dtype(self, node: Node) -> str:
        if node.dtype == "float32" or (node.dtype == "float16" and self.floating == "float64"):
            return self.floating
        return node.dtype

    def _compute(self, node: Node, values: dict[int, np.ndarray]) -> np.ndarray:
        arrays = [values[id(x)] for x in node.inputs]
        if REGISTRY[node.op].kind != "movement":
            arrays = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]
        result = REGISTRY[node.op].reference(*arrays, **node.attributes)
        return np.asarray(result, dtype=self._dtype(node))

    def _blocks(self, stage: Stage, values: dict[int, np.ndarray]) -> None:
        """A pointwise stage, a block at a time."""
        shape = stage.nodes[0].shape
        whole = {}
        for node in stage.nodes:
            if id(node) in stage.escaping:
                whole[id(node)] = values[id(node)] = np.empty(shape, self._dtype(node))
        sources = [(x, _padded(values[id(x)], len(shape))) for x in stage.sources]
        for where in _cut(shape):
            block = {id(x): _part(a, where) for x, a in sources}
            for node in stage.nodes:
                out = whole.get(id(node))
                if out is None:
                    block[id(node)] = self._compute(node, block)
                    continue
                place = block[id(node)] = out[where]
                reference = REGISTRY[node.op].reference
                if isinstance(reference, np.ufunc):
                    reference(*[block[id(x)] for x in node.inputs], out=place)
                else:
                    place[...] = self._compute(node, block)

    def evaluate(self, values: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Adds to `values`, the arrays of inputs and states by the ids of their nodes, those of all results."""
        values.update(self._kept)
        with np.errstate(all="ignore"):
            for stage in self.stages:
                first = stage.nodes[0]
                single = len(stage.nodes) == 1
                simple = single and isinstance(REGISTRY[first.op].reference, np.ufunc)
                if stage.pointwise and not simple and first.size >= 2 * _BLOCK:
                    self._blocks(stage, values)
                else:
                    for node in stage.nodes:
                        values[id(node)] = self._compute(node, values)
                    if not single:
                        for node in stage.nodes:
                            if id(node) not in stage.escaping:
                                del values[id(node)]
                for identity in stage.dead:
                    del values[identity]
        return values

    def value(self, node: Node, values: dict[int, np.ndarray]) -> np.ndarray:
        """Of a root, among those that `evaluate` found."""
        return values[id(self._stands.get(id(node), node))]

    def run(self, inputs: Sequence[np.ndarray], states: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = {id(n): a for n, a in zip(self.graph.inputs, inputs, strict=True)}
        values |= {id(n): a for n, a in zip(self.graph.states, states, strict=True)}
        values = self.evaluate(values)
        given: set[int] = {*map(id, self.graph.inputs), *map(id, self.graph.states), *self._kept}

        def own(node: Node) -> np.ndarray:
            """The value as an array that nobody else holds."""
            identity = id(self._stands.get(id(node), node))
            array = values[identity]
            if identity in given or array.base is not None:
                return np.array(array, copy=True)
            given.add(identity)
            return array

        outputs = [own(n) for n in self.graph.outputs]
        new = {i: own(n) for i, n in self.graph.updates.items()}
        for i, array in new.items():
            states[i][...] = array
        return outputs

    def run_many(
        self, inputs: Sequence[np.ndarray], states: Sequence[np.ndarray], count: int
    ) -> None:
        for _ in range(count):
            self.run(inputs, states)

    def report(self) -> dict[str, Any]:
        return {"backend": "numpy", "nodes_before": self.nodes, "nodes_after": self.nodes,
                "rewrites": {}, "kernels": [], "dispatches": 0, "seconds": self.seconds}  # fmt: skip


def _cut(shape: Shape) -> Iterator[tuple[slice, ...]]:
    """Blocks of a shape: one index of the first axes, some of the next, all of the others."""
    axis = next(i for i in range(len(shape)) if math.prod(shape[i + 1 :]) <= _BLOCK)
    rows = max(1, _BLOCK // max(1, math.prod(shape[axis + 1 :])))
    steps = (*(1 for _ in range(axis)), rows)
    starts = [range(0, n, step) for n, step in zip(shape, steps, strict=False)]
    for at in itertools.product(*starts):
        yield tuple(slice(i, i + step) for i, step in zip(at, steps, strict=True))


def _padded(array: np.ndarray, rank: int) -> np.ndarray:
    """With axes of length 1 in front, but for a scalar, which stays one."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape) if array.ndim else array


def _part(array: np.ndarray, where: tuple[slice, ...]) -> np.ndarray:
    """The part of an operand that meets a block of the result; an axis of length 1 stays."""
    return array[
        tuple(slice(None) if n == 1 else w for n, w in zip(array.shape, where, strict=False))
    ]
