"""Our side of the benchmarks: the models of bench/torch_side.py, written with meganeura."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import meganeura as mg
from meganeura import layers, ops
from meganeura.backend import backend_object


def mlp() -> Any:
    return mg.Sequential([mg.Input((784,)), layers.Dense(128, activation="relu"), layers.Dense(10)])


def convnet() -> Any:
    return mg.Sequential(
        [
            mg.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )


def transformer() -> Any:
    from meganeura.zoo.attention import ScaledDotProduct

    length, width, heads, inner = 128, 256, 4, 1024
    x = inputs = mg.Input((length, width))
    for _ in range(2):
        h = layers.LayerNormalization(epsilon=1e-3)(x)
        q, k, v = (
            ops.reshape(layers.Dense(width)(h), (-1, length, heads, width // heads))
            for _ in range(3)
        )
        x = x + layers.Dense(width)(ScaledDotProduct(causal=True)(q, k, v))
        h = layers.Dense(inner)(layers.LayerNormalization(epsilon=1e-3)(x))
        x = x + layers.Dense(width)(ops.gelu(h, approximate=False))
    return mg.Model(inputs, x)


#: name: (model, batch, loss, optimizer)
WORKLOADS: dict[str, tuple[Callable[[], Any], int, str, Any]] = {
    "mlp_b32_sgd": (mlp, 32, "cross_entropy", lambda: mg.optimizers.SGD(1e-4)),
    "convnet_b128_adam": (convnet, 128, "cross_entropy", lambda: mg.optimizers.Adam(1e-4)),
    "transformer_b8_adam": (transformer, 8, "mse", lambda: mg.optimizers.Adam(1e-4)),
}


def measure(name: str, calls: int = 20, blocks: int = 5) -> dict[str, float]:
    """Medians in milliseconds of a training step and an inference, dispatches and device memory.

    Steps run as `fit` runs them: inputs on the device, several steps to a submission, and one wait
    at the end of each block.
    """
    build, batch, loss, optimizer = WORKLOADS[name]
    mg.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    model = build()
    shape = (batch, *model.input_shape[1:])
    x = random.standard_normal(shape).astype("float32")
    if loss == "mse":
        y, chosen = random.standard_normal(shape).astype("float32"), "mse"
    else:
        y = random.integers(0, 10, batch).astype("int32")
        chosen = mg.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer(), chosen)
    model.train_on_batch(x, y)
    model.predict_on_batch(x)
    backend = backend_object()
    result: dict[str, float] = {}
    for kind, data in (("train", (x, y)), ("infer", (x,))):
        executable, inputs, states = _bound(model, kind, data)

        def run(
            n: int, e: Any = executable, i: Any = inputs, s: Any = states, k: str = kind
        ) -> None:
            if k == "train":
                e.run_many(i, s, n)
            else:
                for _ in range(n):
                    e.run(i, s)
            backend.synchronize()

        run(3)
        times = []
        for _ in range(blocks):
            start = time.perf_counter()
            run(calls)
            times.append((time.perf_counter() - start) / calls * 1e3)
        result[kind] = statistics.median(times)
        report = executable.report()
        result[f"{kind}_dispatches"] = float(report["dispatches"])
        result[f"{kind}_moved_bytes"] = float(report.get("moved_bytes", 0))
    if hasattr(backend, "pool"):
        result["peak_bytes"] = float(backend.pool.peak_bytes)
    return result


def _bound(model: Any, kind: str, data: tuple[Any, ...]) -> tuple[Any, list[Any], list[Any]]:
    """The compiled step of a model and the buffers that it runs on."""
    from meganeura.tensor import to_tensor

    step = model._last_step[{"infer": "predict"}.get(kind, kind)]
    tensors = [to_tensor(a) for a in data]
    return (
        step.executable,
        [t.handle for t in (*tensors, *step._captured)],
        [v.handle for v in step.variables],
    )
