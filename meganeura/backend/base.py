"""What a backend is to the rest of the house: memory, and executables made from graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from meganeura.graph.node import Graph

Handle = Any  # what a backend uses for one array in its memory


def no_half(device: str) -> str:
    """Why float16 is refused on a device."""
    return f"{device} does not offer shader-f16, so that nothing can be kept in half precision; use float32"


class Executable(Protocol):
    """A compiled graph."""

    def run(self, inputs: Sequence[Handle], states: Sequence[Handle]) -> list[Handle]:
        """Run once: states are updated in place, outputs are fresh handles. Does not wait."""
        ...

    def run_many(self, inputs: Sequence[Handle], states: Sequence[Handle], count: int) -> None:
        """Run `count` times in a row with the same buffers, for graphs that have no outputs."""
        ...

    def report(self) -> dict[str, Any]:
        """Figures for `explain`: nodes, rewrites, kernels, dispatches, bytes, memory, seconds."""
        ...


class Backend(Protocol):
    name: str
    half: bool  # whether float16 may be kept on the device

    def upload(self, array: np.ndarray) -> Handle: ...
    def allocate(self, shape: Sequence[int], dtype: str) -> Handle: ...
    def write(self, handle: Handle, array: np.ndarray) -> None: ...
    def download(self, handle: Handle, shape: Sequence[int], dtype: str) -> np.ndarray: ...
    def download_many(
        self, arrays: Sequence[tuple[Handle, Sequence[int], str]]
    ) -> list[np.ndarray]:
        """Several arrays, each as handle, shape and dtype, with one wait for the device."""
        ...

    def download_later(
        self, arrays: Sequence[tuple[Handle, Sequence[int], str]]
    ) -> Callable[[], list[np.ndarray]]:
        """Have arrays copied to the host; returns what waits for them. The handles may be let go at once."""
        ...

    def compile(self, graph: Graph, optimize: bool = True) -> Executable: ...
    def synchronize(self) -> None: ...
    def release(self) -> None:
        """Give memory that nobody uses back to the device."""
        ...

    def describe(self) -> str:
        """One line: which device computes, and whether it is a software one."""
        ...
