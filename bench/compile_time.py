"""What the optimiser costs, and what it gains, on training graphs of several sizes.

    python bench/compile_time.py [--repeat 5] [--limit 4000]
    python bench/compile_time.py --steps [WORKLOAD ...]

Prints one line per graph: nodes before and after, e-graph, milliseconds of each stage (medians),
microseconds per node, and the estimated cost before and after.

--steps: the first training step of workloads (bench/workloads.py) from layers to plan, CPU seconds in
new processes: without files of earlier ones, and with them (median), and whether egglog was loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("MEGANEURA_BACKEND", "numpy")  # the optimiser needs no device

import numpy as np

from meganeura import ops
from meganeura.graph.autodiff import gradients
from meganeura.graph.node import Graph
from meganeura.graph.trace import Trace
from meganeura.rewrite import optimise
from meganeura.rewrite.engine import current_engine
from meganeura.rewrite.stable import stable
from meganeura.variable import Variable


def zeros(*shape: int) -> Variable:
    return Variable(np.zeros(shape, "float32"))


def training(loss_of: Callable[[Trace], Any], variables: Sequence[Variable]) -> Graph:
    """Forward, backward, and a step of Adam without its bias correction."""
    with Trace() as trace:
        loss = loss_of(trace)
        rate = trace.input((), "float32", "rate")
        states = [trace.state(v) for v in variables]
        (total,) = stable([loss], keep=states)
        for v, slope in zip(variables, gradients([total], states), strict=True):
            first, second = zeros(*v.shape), zeros(*v.shape)
            first.assign(0.9 * first.value + 0.1 * slope)
            second.assign(0.999 * second.value + 0.001 * slope * slope)
            v.assign(v.value - rate * first.value / (ops.sqrt(second.value) + 1e-7))
        return trace.graph([loss])


def mlp(depth: int, width: int = 64, batch: int = 32) -> Graph:
    weights = [zeros(width, width) for _ in range(depth)]
    biases = [zeros(width) for _ in range(depth)]

    def loss(trace: Trace) -> Any:
        x = trace.input((batch, width), "float32")
        labels = trace.input((batch,), "int32")
        for w, b in zip(weights, biases, strict=True):
            x = ops.relu(ops.matmul(x, w.value) + b.value)
        return ops.mean(ops.sparse_categorical_crossentropy(labels, x, from_logits=True))

    return training(loss, [*weights, *biases])


def convnet(depth: int, channels: int = 16, size: int = 16, batch: int = 8) -> Graph:
    """Convolution, batch normalisation, relu, and a shortcut, again and again."""
    kernels = [zeros(3, 3, channels, channels) for _ in range(depth)]
    vectors = [(zeros(channels), zeros(channels)) for _ in range(depth)]

    def loss(trace: Trace) -> Any:
        x = trace.input((batch, size, size, channels), "float32")
        for kernel, (scale, shift) in zip(kernels, vectors, strict=True):
            y = ops.conv(x, kernel.value, padding="same")
            mean = ops.mean(y, axis=(0, 1, 2))
            variance = ops.mean(ops.square(y - mean), axis=(0, 1, 2))
            x = x + ops.relu((y - mean) * (ops.rsqrt(variance + 1e-3) * scale.value) + shift.value)
        return ops.mean(ops.square(x))

    return training(loss, [*kernels, *(v for pair in vectors for v in pair)])


def transformer(
    depth: int, width: int = 64, heads: int = 4, length: int = 32, batch: int = 4
) -> Graph:
    """Pre-normalised attention and a gated feed-forward part, with formulas written out."""
    attention = [[zeros(width, width) for _ in range(4)] for _ in range(depth)]
    gated = [[zeros(width, width) for _ in range(3)] for _ in range(depth)]

    def normalized(x: Any) -> Any:
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6)

    def split(x: Any) -> Any:
        return ops.transpose(ops.reshape(x, (batch, length, heads, -1)), (0, 2, 1, 3))

    def loss(trace: Trace) -> Any:
        x = trace.input((batch, length, width), "float32")
        for parts, (gate, up, down) in zip(attention, gated, strict=True):
            h = normalized(x)
            q, k, v = (split(ops.matmul(h, w.value)) for w in parts[:3])
            scores = ops.exp(
                ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * (width // heads) ** -0.5
            )
            mixed = ops.matmul(scores / ops.sum(scores, axis=-1, keepdims=True), v)
            mixed = ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (batch, length, width))
            x = x + ops.matmul(mixed, parts[3].value)
            h = normalized(x)
            g = ops.matmul(h, gate.value)
            x = x + ops.matmul(g * ops.sigmoid(g) * ops.matmul(h, up.value), down.value)
        return ops.mean(ops.square(x))

    return training(loss, [w for parts in (*attention, *gated) for w in parts])


GRAPHS: list[tuple[str, Callable[[], Graph]]] = [
    ("mlp, 3 layers", lambda: mlp(3)),
    ("mlp, 30 layers", lambda: mlp(30)),
    ("mlp, 80 layers", lambda: mlp(80)),
    ("convnet, 4 blocks", lambda: convnet(4)),
    ("convnet, 40 blocks", lambda: convnet(40)),
    ("transformer, 2 blocks", lambda: transformer(2)),
    ("transformer, 16 blocks", lambda: transformer(16)),
]
STAGES = ("encode", "explore", "select")


def first_step(workload: str) -> dict[str, Any]:
    """One process's first training step, planned for a large GPU and not run."""
    import dispatches
    import workloads

    with dispatches.planning(dispatches.DEVICES["gpu"], keep=True), dispatches.without_values():
        model, x, y = workloads.prepared(workload)
        start = time.process_time()
        model.train_on_batch(x, y)
        seconds = time.process_time() - start
        report = model._last_step["train"].executable.report()
    cached = report.get("plan_from_cache", False)
    return {"seconds": seconds, "cached": cached, "egglog": "egglog.bindings" in sys.modules}


def first_steps(names: Sequence[str], repeat: int) -> None:
    print(f"{'first training step':24s} {'cold, s':>8s} {'from files, s':>13s}  egglog loaded")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for _ in range(repeat + 1):
                command = [sys.executable, __file__, "--first-step", name]
                environment = {**os.environ, "MEGANEURA_CACHE": folder}
                output = subprocess.run(command, env=environment, check=True, capture_output=True)
                found.append(json.loads(output.stdout.splitlines()[-1]))
        cold, *warm = found
        assert not cold["cached"] and all(w["cached"] for w in warm)
        again = statistics.median(w["seconds"] for w in warm)
        loaded = "yes" if any(w["egglog"] for w in warm) else "no"
        print(f"{name:24s} {cold['seconds']:8.2f} {again:13.3f}  {loaded}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", help="with --steps: workloads; SmolLM2-135M where none is named"
    )
    parser.add_argument(
        "--steps", action="store_true", help="time first training steps of whole models"
    )
    parser.add_argument("--first-step", help=argparse.SUPPRESS)
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median is printed")
    parser.add_argument("--limit", type=int, default=10_000, help="leave out graphs of more nodes")
    arguments = parser.parse_args()
    if arguments.first_step:
        print(json.dumps(first_step(arguments.first_step)))
        return
    if arguments.steps:
        first_steps(arguments.names or ["smollm2_s128_adam"], arguments.repeat)
        return
    start = time.perf_counter()
    current_engine()
    print(
        f"declaring {len(current_engine().rules)} rules: {1e3 * (time.perf_counter() - start):.0f} ms, once\n"
    )
    print(f"{'graph':24s} {'nodes':>12s} {'e-nodes':>8s} {'steps':>5s} {'load':>6s} {'search':>7s} "
          f"{'select':>7s} {'total':>7s} {'us/node':>8s}  estimated cost")  # fmt: skip
    for name, build in GRAPHS:
        graph = build()
        before = len(graph.nodes())
        if before > arguments.limit:
            continue
        reports = [optimise(graph)[1] for _ in range(arguments.repeat + 1)][1:]
        stages = [1e3 * statistics.median(r[f"{s}_seconds"] for r in reports) for s in STAGES]
        total = 1e3 * statistics.median(r["optimise_seconds"] for r in reports)
        last = reports[-1]
        print(
            f"{name:24s} {before:5d} > {last['nodes_after']:4d} {last['egraph_nodes']:8d} "
            f"{last['egraph_steps']:5d} {stages[0]:6.1f} {stages[1]:7.1f} {stages[2]:7.1f} "
            f"{total:7.1f} {1e3 * total / before:8.1f}  {last['cost_before']:,} > {last['cost_after']:,}"
        )


if __name__ == "__main__":
    main()
