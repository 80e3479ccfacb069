"""The reference backend: runs the graph node by node with each operation's NumPy reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meganeura.backend.numpy.executable import NumpyExecutable
from meganeura.graph.node import Graph

__all__ = ["NumpyBackend", "NumpyExecutable"]


class NumpyBackend:
    """Handles are arrays that the backend owns."""

    name = "numpy"
    half = True

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

    def download_later(
        self, arrays: Sequence[tuple[np.ndarray, Sequence[int], str]]
    ) -> Callable[[], list[np.ndarray]]:
        found = self.download_many(arrays)
        return lambda: found

    def compile(self, graph: Graph, optimize: bool = True) -> NumpyExecutable:
        return NumpyExecutable(graph)

    def synchronize(self) -> None:
        pass

    def release(self) -> None:
        pass

    def describe(self) -> str:
        return f"NumPy {np.__version__} on the CPU"
