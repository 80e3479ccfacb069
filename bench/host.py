"""What the host spends: starting, recording dispatches, and steps with and without a progress bar.

python bench/host.py [--start] [--steps 2000]

Times of recording and steps are those of the thread that trains, so that other work on the machine does not
count. `--start` runs a convnet's first step in new processes, without and with the cache of plans.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

_FIRST_STEP = """
import json, sys, time
begun = time.perf_counter()
import meganeura as mg
marks = {"import": time.perf_counter() - begun}
from meganeura import layers
from meganeura.backend import backend_object
import numpy as np
marks["layers"] = time.perf_counter() - begun
device = backend_object()
marks["device"] = time.perf_counter() - begun
model = mg.Sequential([
    mg.Input((28, 28, 1)), layers.Rescaling(1 / 255), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2),
    layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(2), layers.Flatten(), layers.Dropout(0.5),
    layers.Dense(10, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
x, y = np.zeros((1024, 28, 28, 1), "uint8"), np.zeros(1024, "int32")
marks["model"] = time.perf_counter() - begun
model.fit(x, y, batch_size=128, steps_per_epoch=1, verbose=0)
device.synchronize()
marks["first step"] = time.perf_counter() - begun
report = model._last_step["train"].executable.report()
marks.update({k: v for k, v in report.items() if k in ("optimise_seconds", "pipeline_seconds", "plan_from_cache")})
marks["processor"] = time.process_time()
print(json.dumps(marks))
"""


def start() -> None:
    """Seconds since the process began to import, at each mark."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "MEGANEURA_QUIET": "1"}
        for name in ("no plans kept", "plans kept", "plans kept"):
            out = subprocess.run(
                [sys.executable, "-c", _FIRST_STEP],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            marks = json.loads(out.stdout.splitlines()[-1])
            print(
                f"start, {name:13s}",
                ", ".join(f"{k} {v:.2f}" for k, v in marks.items()),
                flush=True,
            )


def recording() -> None:
    """Microseconds of Python and wgpu for each dispatch, by how many are recorded at once."""
    from meganeura import ops
    from meganeura.backend import backend_object
    from meganeura.execution import compiled
    from meganeura.graph.trace import Trace

    backend = backend_object()
    if not hasattr(backend, "stream"):
        return
    with Trace() as trace:
        graph = trace.graph([ops.sin(trace.input((8,), "float32"))])
    executable = compiled(graph)
    out = backend.pool.take(32)
    (step,) = executable._bound([backend.upload(np.zeros(8, "float32")), out])
    gc.disable()
    for count in (1, 16, 128, 1024):
        kept, handed = [], []
        for _ in range(30):
            backend.synchronize()
            steps = [step] * count
            begun = time.thread_time()
            backend.stream.record(steps)
            kept.append(time.thread_time() - begun)
            backend.stream.flush()
            handed.append(time.thread_time() - begun)
        each = [1e6 * min(times) / count for times in (kept, handed)]
        print(
            f"{count:5d} dispatches: {each[0]:6.2f} us each to record, {each[1]:6.2f} with submitting"
        )
    gc.enable()


def steps(count: int) -> None:
    """Microseconds of the training thread for a step of a small network, and what each asks of the device."""
    import meganeura as mg
    from meganeura import layers
    from meganeura.backend import backend_object
    from meganeura.callbacks.progress import ProgbarLogger

    ProgbarLogger._live = staticmethod(lambda: True)  # type: ignore[method-assign]
    backend = backend_object()
    x = np.random.default_rng(0).standard_normal((32 * count, 16)).astype("float32")
    y = np.zeros((32 * count, 1), "float32")
    model = mg.Sequential([mg.Input((16,)), layers.Dense(16, activation="relu"), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    stream: Any = getattr(backend, "stream", None)
    best: dict[str, tuple[float, float, str]] = {}
    for name, verbose in (
        ("silent", 0),
        ("progress bar", 1),
    ) * 3:  # in turn: others use the machine
        read = stream.read if stream else None
        reads: list[float] = []
        made = stream.submissions if stream else 0

        def counted(parts: Any, read: Any = read, reads: list[float] = reads) -> Any:
            begun = time.perf_counter()
            found = read(parts)
            reads.append(time.perf_counter() - begun)
            return found

        if stream:
            stream.read = counted
        begun, wall = time.thread_time(), time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            model.fit(x, y, verbose=verbose)
        spent, wall = time.thread_time() - begun, time.perf_counter() - wall
        asked = ""
        if stream:
            stream.read = read
            each = count / (stream.submissions - made)
            asked = (
                f"; {each:.1f} steps a submission, {len(reads)} reads of {1e3 * sum(reads):.1f} ms"
            )
        best[name] = min(best.get(name, (wall, spent, asked)), (wall, spent, asked))
    for name, (wall, spent, asked) in best.items():
        print(
            f"{name:13s} {1e6 * spent / count:7.1f} us of the host a step, {1e6 * wall / count:7.1f} in all{asked}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", action="store_true", help="also start new processes")
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.start:
        start()
    recording()
    steps(arguments.steps)


if __name__ == "__main__":
    main()
