"""Random training steps on the adapter, for several kinds of devices, against NumPy.

MEGANEURA_FUZZ multiplies how many are tried; 1 is the default. By hand and without an end:
python tests/fuzz/test_device_fuzz.py [first seed]
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

sys.path[:0] = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]
import registry_checks as checks  # noqa: E402
from rewrite_checks import leaf, random_values  # noqa: E402
from test_rewrite_fuzz import _SHAPES, Maker  # noqa: E402

from meganeura.backend.numpy.backend import NumpyExecutable  # noqa: E402
from meganeura.graph.autodiff import gradients  # noqa: E402
from meganeura.graph.node import Graph, Node  # noqa: E402
from meganeura.ops.registry import make  # noqa: E402

pytest.importorskip("wgpu")

TIMES = int(os.environ.get("MEGANEURA_FUZZ", "1"))

#: What to pretend that the adapter is, as far as it is at least that.
DEVICES: tuple[dict[str, Any], ...] = (
    {},
    {"storage_buffers": 8, "workgroup_bytes": 16 << 10, "invocations": 256},
    {"software": False, "invocations": 256, "quads_from": 4},
    {"software": False, "storage_buffers": 8, "workgroup_bytes": 16 << 10, "invocations": 128},
)


class StepMaker(Maker):
    """Graphs with states: read by anything, and updated by anything of their shape, or by gradients."""

    def __init__(self, seed: int):
        self.states: list[Node] = []
        super().__init__(seed)

    def _input(self) -> Node:
        if self.random.random() < 0.5:
            return super()._input()
        node = leaf(self._pick(_SHAPES), op="state", name="s")
        self.states.append(node)
        self.nodes.append(node)
        return node

    def _any(self, floats: bool = True) -> Node:
        node = super()._any(floats)
        if node.dtype != "float32":
            node = make("cast", node, dtype="float32")
        return node

    def graph(self) -> Graph:
        self.inputs.append(leaf((4,)))
        graph = super().graph()
        made = [n for n in self.nodes if n.inputs and n.dtype == "float32"]
        updates: dict[int, Node] = {}
        if self.states and made and self.random.random() < 0.6:
            total = make("sum", made[-1], axes=tuple(range(made[-1].ndim)), keepdims=False)
            rate = make("constant", value=0.125, dtype="float32")
            for i, slope in enumerate(gradients([total], self.states)):
                change = make("multiply", slope, rate)
                updates[i] = make("subtract", self.states[i], change)
        for i, state in enumerate(self.states):
            options = [n for n in (*made, *self.states) if n.shape == state.shape]
            if i not in updates and options and self.random.random() < 0.7:
                updates[i] = self._pick(options)
        outputs = graph.outputs if self.random.random() < 0.8 else graph.outputs[:1]
        return Graph(self.inputs, outputs, self.states, updates)


def reference(
    graph: Graph, given: list[np.ndarray], states: list[np.ndarray], floating: str
) -> Any:
    """Outputs and states after two runs."""
    executable = NumpyExecutable(graph, floating)
    states = [s.astype(floating) for s in states]
    outputs = [executable.run(given, states) for _ in range(2)][-1]
    return [*outputs, *states]


def check(backend: Any, seed: int) -> bool:
    """Whether there was anything to compare. Raises AssertionError where the device differs."""
    graph = StepMaker(seed).graph()
    random = np.random.default_rng(seed)
    given = random_values(graph.inputs, random, 0.2, 1.5)
    states = random_values(graph.states, random, 0.2, 1.5)
    exact, plain = (reference(graph, given, states, f) for f in ("float64", "float32"))
    before = backend.limits
    wanted = DEVICES[seed % len(DEVICES)]
    able = {k: min(v, getattr(before, k)) for k, v in wanted.items()}
    backend.limits = dataclasses.replace(before, **able)
    try:
        executable = backend.compile(graph, seed % 3 > 0)
    finally:
        backend.limits = before
    inputs, held = ([backend.upload(a.astype("float32")) for a in v] for v in (given, states))
    outputs = [executable.run(inputs, held) for _ in range(2)][-1]
    compared = False
    for h, node, right, rough in zip(
        [*outputs, *held], [*graph.outputs, *graph.states], exact, plain, strict=True
    ):
        right, rough = np.asarray(right, "float64"), np.asarray(rough, "float64")
        scale = 1 + np.abs(right[np.isfinite(right)]).max(initial=0)
        if not np.allclose(right, rough, rtol=1e-4, atol=1e-5 * scale, equal_nan=True):
            continue  # decided by rounding
        compared = True
        found = backend.download(h, node.shape, node.dtype)
        np.testing.assert_allclose(found, right, rtol=2e-3, atol=1e-4 * scale, err_msg=repr(node))
    return compared


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGANEURA_CACHE", "0")
        yield from checks.wgpu_backend()


@pytest.mark.parametrize("block", range(3 * TIMES))
def test_random_steps(gpu: Any, block: int) -> None:
    seeds = range(20 * block, 20 * block + 20)
    assert sum(check(gpu, seed) for seed in seeds) > 10


def main() -> None:
    os.environ |= {"MEGANEURA_STRICT": "1", "MEGANEURA_QUIET": "1", "MEGANEURA_CACHE": "0"}
    from meganeura.backend.wgpu.backend import WgpuBackend

    backend = WgpuBackend()
    start = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    stop = range(start, int(sys.argv[2])) if len(sys.argv) > 2 else itertools.count(start)
    for seed in stop:
        try:
            check(backend, seed)
        except (AssertionError, RuntimeError, ValueError) as error:
            print(f"seed {seed}: {type(error).__name__} {str(error)[:300]}", flush=True)
        if seed % 100 == 99:
            print(f"{seed + 1} graphs", flush=True)


if __name__ == "__main__":
    main()
