"""Images a second from every kind of data: resident, streamed from arrays, a generator, threads, processes.

python bench/streaming.py [--images 20000] [--size 32] [--batch 128] [--epochs 3] [--width 32] [--work 0]

The images are uint8 and stay so on the device. `--work` is how many times Python code (not NumPy, which threads
share processors for) goes over each batch of the data sets, as slow decoding would. The first epoch compiles
and is not counted. The last lines are the rate at which the device takes uploads and gives results back.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import meganeura as mg
from meganeura import config, layers
from meganeura.backend import backend_object


class Images(mg.utils.PyDataset):
    """Batches cut out of an array, with `work` rounds of Python for each."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batch: int, work: int, **options: Any):
        super().__init__(**options)
        self.x, self.y, self.batch, self.work = x, y, batch, work

    def __len__(self) -> int:
        return len(self.x) // self.batch

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        total = 0
        for _ in range(self.work):
            total += 1
        rows = slice(index * self.batch, (index + 1) * self.batch)
        return self.x[rows].copy(), self.y[rows]


def model_for(size: int, width: int) -> Any:
    mg.utils.set_random_seed(0)
    model = mg.Sequential(
        [
            mg.Input((size, size, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(width, 3, strides=2, activation="relu"),
            layers.Conv2D(width, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    loss = mg.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


class Seconds(mg.callbacks.Callback):
    """How long each epoch took."""

    bulk = True

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        backend_object().synchronize()
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        backend_object().synchronize()
        self.found.append(time.perf_counter() - self.start)


def rate(model: Any, count: int, epochs: int, *data: Any, **options: Any) -> float:
    """Images a second in the best epoch but the first."""
    seconds = Seconds()
    model.fit(*data, epochs=epochs + 1, verbose=0, callbacks=[seconds], **options)
    return count / min(seconds.found[1:])


def transfers(size: int = 64 << 20, times: int = 8) -> tuple[float, float]:
    """GB/s of uploads into a buffer that is there, and of downloads."""
    backend = backend_object()
    array = np.random.default_rng(0).integers(0, 255, size).astype("uint8")
    handle = backend.upload(array)
    backend.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        backend.write(handle, array)
    backend.synchronize()
    up = times * size / (time.perf_counter() - start) / 1e9
    start = time.perf_counter()
    for _ in range(times):
        backend.download(handle, (size,), "uint8")
    return up, times * size / (time.perf_counter() - start) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {
        "images": 20000, "size": 32, "batch": 128, "epochs": 3, "width": 32, "work": 0, "workers": 2,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    random = np.random.default_rng(0)
    count = a.images // a.batch * a.batch
    x = random.integers(0, 256, (count, a.size, a.size, 3), dtype=np.uint8)
    y = random.integers(0, 10, count).astype("int32")
    print(
        f"{count} images of {x[0].nbytes} bytes, in batches of {a.batch}; {mg.backend.describe()}"
    )
    model = model_for(a.size, a.width)
    first = 0.0

    def show(name: str, found: float) -> None:
        nonlocal first
        first = first or found
        moved = found * x[0].nbytes / 1e9
        print(
            f"{name:28s} {found:10.0f} images/s {found / first:6.2f} {moved:7.3f} GB/s", flush=True
        )

    show("resident", rate(model, count, a.epochs, x, y, batch_size=a.batch))
    resident, none = config.resident_bytes(), 0
    config.set_resident_bytes(none)
    show("arrays, streamed", rate(model, count, a.epochs, x, y, batch_size=a.batch))
    config.set_resident_bytes(resident)

    def batches() -> Iterator[Any]:
        made = Images(x, y, a.batch, a.work)
        while True:
            yield from (made[i] for i in range(len(made)))

    steps = count // a.batch
    show("generator", rate(model, count, a.epochs, batches(), steps_per_epoch=steps))
    for name, options in {
        "PyDataset, no workers": {"workers": 0},
        "PyDataset, 1 thread": {"workers": 1},
        f"PyDataset, {a.workers} threads": {"workers": a.workers},
        f"PyDataset, {a.workers} processes": {"workers": a.workers, "use_multiprocessing": True},
    }.items():
        show(name, rate(model, count, a.epochs, Images(x, y, a.batch, a.work, **options)))
    start = time.perf_counter()
    model.predict(x, batch_size=a.batch, verbose=0)
    start = time.perf_counter()
    model.predict(x, batch_size=a.batch, verbose=0)
    show("predict", count / (time.perf_counter() - start))
    up, down = transfers()
    print(f"uploads {up:.2f} GB/s, downloads {down:.2f} GB/s, 64 MiB at a time")


if __name__ == "__main__":
    main()
