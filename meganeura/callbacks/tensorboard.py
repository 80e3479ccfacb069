"""TensorBoard: writes what its viewer shows; nothing but the viewer has to be installed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from meganeura.callbacks.base import Callback
from meganeura.callbacks.events import EventWriter


class TensorBoard(Callback):
    """Log metrics, learning rate and histograms of weights: `tensorboard --logdir logs` shows them.

    histogram_freq:         epochs between histograms of the weights; 0: none
    write_steps_per_second: log the pace of training as well
    update_freq:            "epoch", "batch", or a number of batches

    The graph is not written, since `model.explain(format="html")` draws it; images, embeddings and
    profiles are not offered. (https://keras.io/api/callbacks/tensorboard)
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: Any = "epoch",
        profile_batch: Any = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: Any = None,
    ):
        super().__init__()
        given = {
            "write_images": write_images, "profile_batch": profile_batch,
            "embeddings_freq": embeddings_freq, "embeddings_metadata": embeddings_metadata,
        }  # fmt: skip
        for name, value in given.items():
            if value:
                raise ValueError(f"TensorBoard: {name} is not offered")
        if update_freq not in ("epoch", "batch") and not (
            isinstance(update_freq, int) and update_freq > 0
        ):
            raise ValueError(
                f"TensorBoard: update_freq is 'epoch', 'batch' or a number of batches, not {update_freq!r}"
            )
        self.log_dir = Path(log_dir)
        self.histogram_freq = histogram_freq
        self.write_steps_per_second = write_steps_per_second
        self.update_freq = 1 if update_freq == "batch" else update_freq
        self.bulk = update_freq == "epoch"
        self._writers: dict[str, EventWriter] = {}
        self._steps = 0
        self._last = -1
        self._reported = 0
        self._since = (0.0, 0)

    def _writer(self, name: str) -> EventWriter:
        if name not in self._writers:
            self._writers[name] = EventWriter(self.log_dir / name)
        return self._writers[name]

    def _scalars(self, prefix: str, logs: Any, step: int) -> None:
        for key, value in logs.items():
            if np.ndim(value):
                continue
            validation = key.startswith("val_")
            name = key.removeprefix("val_")
            writer = self._writer("validation" if validation else "train")
            writer.scalar(f"{prefix}_{name}", float(value), step)

    def on_train_begin(self, logs: Any = None) -> None:
        self._steps = self._reported = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._last = -1
        self._since = (time.perf_counter(), self._steps)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._steps += batch - self._last
        self._last = batch
        if self.update_freq != "epoch" and self._steps - self._reported >= self.update_freq:
            self._reported = self._steps
            self._scalars("batch", logs or {}, self._steps)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = logs or {}
        self._scalars("epoch", logs, epoch)
        if "learning_rate" not in logs and self.model.optimizer is not None:
            rate = float(np.asarray(self.model.optimizer.learning_rate))
            self._writer("train").scalar("epoch_learning_rate", rate, epoch)
        if self.write_steps_per_second:
            begun, before = self._since
            pace = (self._steps - before) / max(time.perf_counter() - begun, 1e-9)
            self._writer("train").scalar("epoch_steps_per_second", pace, epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            for weight in self.model.weights:
                self._writer("train").histogram(f"{weight.path}/histogram", weight.numpy(), epoch)
        for writer in self._writers.values():
            writer.flush()

    def on_train_end(self, logs: Any = None) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
