"""The reference backend: runs the graph node by node with each operation's NumPy reference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.graph.node import Graph
from meganeura.ops.registry import REGISTRY


class NumpyExecutable:
    """Evaluates the unoptimised graph; frees each intermediate after its last reader."""

    def __init__(self, graph: Graph, floating: str = "float32"):
        """`floating` "float64" computes every float32 node in double precision, for tests."""
        self.floating = floating
        start = time.perf_counter()
        self.graph = graph
        self.order = [n for n in graph.nodes() if n.op not in ("input", "state")]
        readers: dict[int, int] = {}
        for position, node in enumerate(self.order):
            for x in node.inputs:
                readers[id(x)] = position
        keep = {id(n) for n in graph.roots} | {id(n) for n in (*graph.inputs, *graph.states)}
        self.dead_after: list[list[int]] = [[] for _ in self.order]
        for identity, position in readers.items():
            if identity not in keep:
                self.dead_after[position].append(identity)
        self.seconds = time.perf_counter() - start

    def evaluate(self, values: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        with np.errstate(all="ignore"):
            for node, dead in zip(self.order, self.dead_after, strict=True):
                arrays = [values[id(x)] for x in node.inputs]
                result = REGISTRY[node.op].reference(*arrays, **node.attributes)
                dtype = self.floating if node.dtype == "float32" else node.dtype
                values[id(node)] = np.asarray(result, dtype=dtype)
                for identity in dead:
                    del values[identity]
        return values

    def run(self, inputs: Sequence[np.ndarray], states: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = {id(n): a for n, a in zip(self.graph.inputs, inputs, strict=True)}
        values |= {id(n): a for n, a in zip(self.graph.states, states, strict=True)}
        values = self.evaluate(values)
        outputs = [np.array(values[id(n)], copy=True) for n in self.graph.outputs]
        new = {i: np.array(values[id(n)], copy=True) for i, n in self.graph.updates.items()}
        for i, array in new.items():
            states[i][...] = array
        return outputs

    def run_many(
        self, inputs: Sequence[np.ndarray], states: Sequence[np.ndarray], count: int
    ) -> None:
        for _ in range(count):
            self.run(inputs, states)

    def report(self) -> dict[str, Any]:
        nodes = len(self.order)
        return {"backend": "numpy", "nodes_before": nodes, "nodes_after": nodes,
                "rewrites": {}, "kernels": [], "dispatches": 0, "seconds": self.seconds}  # fmt: skip


class NumpyBackend:
    """Handles are arrays that the backend owns."""

    name = "numpy"

    def upload(self, array: np.ndarray) -> np.ndarray:
        return np.array(array, copy=True)

    def allocate(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        return np.zeros(tuple(shape), dtype)

    def write(self, handle: np.ndarray, array: np.ndarray) -> None:
        handle[...] = array

    def download(self, handle: np.ndarray, shape: Sequence[int], dtype: str) -> np.ndarray:
        return np.array(handle, copy=True)

    def download_many(
        self, arrays: Sequence[tuple[np.ndarray, Sequence[int], str]]
    ) -> list[np.ndarray]:
        return [np.array(handle, copy=True) for handle, _, _ in arrays]

    def compile(self, graph: Graph, optimize: bool = True) -> NumpyExecutable:
        return NumpyExecutable(graph)

    def synchronize(self) -> None:
        pass

    def describe(self) -> str:
        return f"NumPy {np.__version__} on the CPU"
