"""History: the logs of every epoch."""

from __future__ import annotations

from typing import Any

from meganeura.callbacks.base import Callback


class History(Callback):
    """`history.history` maps each name to its values, epoch by epoch; `epoch` lists the epochs."""

    bulk = True

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = {}
        self.epoch: list[int] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.epoch = []
        self.history = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epoch.append(epoch)
        for key, value in (logs or {}).items():
            self.history.setdefault(key, []).append(value)
        if self.model is not None:
            self.model.history = self
