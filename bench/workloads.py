"""Our side of the benchmarks: the models of bench/torch_side.py, written with meganeura."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
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
    length, width, heads, inner = 128, 256, 4, 1024
    x = inputs = mg.Input((length, width))
    for _ in range(2):
        h = layers.LayerNormalization(epsilon=1e-3)(x)
        q, k, v = (
            ops.reshape(layers.Dense(width)(h), (-1, length, heads, width // heads))
            for _ in range(3)
        )
        x = x + layers.Dense(width)(layers.ScaledDotProduct(causal=True)(q, k, v))
        h = layers.Dense(inner)(layers.LayerNormalization(epsilon=1e-3)(x))
        x = x + layers.Dense(width)(ops.gelu(h, approximate=False))
    return mg.Model(inputs, x)


@dataclass(frozen=True)
class Workload:
    """A model and the step that is timed.

    inputs, target: shapes; classes: how many classes, or tokens, there are to draw from
    """

    build: Callable[[], Any]
    inputs: tuple[tuple[int, ...], ...]
    target: tuple[int, ...]
    loss: str
    classes: int = 0
    tokens: bool = False

    def data(self, random: np.random.Generator) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Inputs and targets, the same for both sides."""
        x = tuple(self._draw(random, shape, self.tokens) for shape in self.inputs)
        return x, self._draw(random, self.target, self.loss != "mse")

    def _draw(self, random: np.random.Generator, shape: tuple[int, ...], whole: bool) -> np.ndarray:
        if whole:
            return random.integers(0, self.classes, shape).astype("int32")
        return random.standard_normal(shape).astype("float32")


def _zoo(module: str, name: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        found = importlib.import_module(f"meganeura.zoo.{module}")
        made = [getattr(found, a) if isinstance(a, str) else a for a in arguments]
        return getattr(found, name)(*made, **options)

    return build


#: The name ends with the optimizer.
WORKLOADS: dict[str, Workload] = {
    "mlp_b32_sgd": Workload(mlp, ((32, 784),), (32,), "cross_entropy", 10),
    "convnet_b128_adam": Workload(convnet, ((128, 28, 28, 1),), (128,), "cross_entropy", 10),
    "transformer_b8_adam": Workload(transformer, ((8, 128, 256),), (8, 128, 256), "mse"),
    "resnet50_b16_sgd": Workload(
        _zoo("resnet", "resnet50"), ((16, 224, 224, 3),), (16,), "cross_entropy", 1000
    ),
    "unet_tiny_b4_adam": Workload(
        _zoo("unet", "unet", "UNET_TINY"), ((4, 32, 32, 4),), (4, 32, 32, 4), "mse"
    ),
    "unet_small_b2_adam": Workload(_zoo("unet", "unet"), ((2, 32, 32, 4),), (2, 32, 32, 4), "mse"),
    "smolvla_c50_sgd": Workload(
        _zoo("smolvla", "action_expert"),
        ((1, 50, 32), (1, 1, 1440), (1, 16, 320)),
        (1, 50, 32),
        "mse",
    ),
    "smollm2_s128_adam": Workload(
        _zoo("llama", "llama"), ((1, 128),), (1, 128), "cross_entropy", 49152, tokens=True
    ),
    "whisper_encoder_adam": Workload(
        _zoo("whisper", "whisper_encoder"), ((1, 3000, 80),), (1, 1500, 384), "mse"
    ),
}


def prepared(name: str) -> tuple[Any, Any, np.ndarray]:
    """A compiled model with its inputs and targets."""
    workload = WORKLOADS[name]
    mg.utils.set_random_seed(0)
    model = workload.build()
    inputs, y = workload.data(np.random.default_rng(0))
    x: Any = inputs[0]
    if len(inputs) > 1:
        x = dict(zip(("actions", "timestep", "context"), inputs, strict=True))
    optimizer = {"sgd": mg.optimizers.SGD, "adam": mg.optimizers.Adam}[name.rsplit("_", 1)[1]]
    loss: Any = "mse"
    if workload.loss != "mse":
        loss = mg.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer(1e-4), loss)
    return model, x, y


def block_length(calls: int, seconds: float) -> int:
    """Steps of a block: as many as asked for, and of short steps so many that a block takes 30 ms, as a part of
    training does. PyTorch's blocks have the same rule."""
    return max(calls, min(2000, int(0.03 * calls / max(seconds, 1e-6))))


def measure(name: str, calls: int = 20, blocks: int = 5) -> dict[str, float]:
    """Medians in milliseconds of a training step and an inference, dispatches and device memory.

    Steps run as `fit` runs them: inputs on the device, several steps to a submission, and one wait
    at the end of each block.
    """
    backend = backend_object()
    mg.utils.clear_session()  # what earlier workloads left is not this one's
    pool = getattr(backend, "pool", None)
    before = 0
    if pool is not None:
        pool.forget_peak()
        before = pool.live_bytes
    model, x, y = prepared(name)
    result: dict[str, float] = {}
    inputs = list(x.values()) if isinstance(x, dict) else [x]
    for kind, data in (("train", (*inputs, y)), ("infer", tuple(inputs))):
        if kind == "train":
            model.train_on_batch(x, y)
        else:
            model.predict_on_batch(x)
        executable, handles, states = _bound(model, kind, data)

        def run(
            n: int, e: Any = executable, i: Any = handles, s: Any = states, k: str = kind
        ) -> None:
            if k == "train":
                e.run_many(i, s, n)
            else:
                for _ in range(n):
                    e.run(i, s)
            backend.synchronize()

        run(3)
        start = time.perf_counter()
        run(calls)
        count = block_length(calls, time.perf_counter() - start)
        times = []
        for _ in range(blocks):
            start = time.perf_counter()
            run(count)
            times.append((time.perf_counter() - start) / count * 1e3)
        result[kind] = statistics.median(times)
        report = executable.report()
        result[f"{kind}_dispatches"] = float(report["dispatches"])
        result[f"{kind}_temporary_bytes"] = float(report.get("temporary_bytes", 0))
        result[f"{kind}_moved_bytes"] = float(report.get("moved_bytes", 0))
        if kind == "train" and pool is not None:  # as PyTorch's, which is read before it infers
            result["peak_bytes"] = float(pool.peak_bytes - before)
            result["temporary_bytes"] = float(report["temporary_bytes"])
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
