"""Callback: what happens around epochs and batches (https://keras.io/api/callbacks/base_callback)."""

from __future__ import annotations

from typing import Any


class Callback:
    """Subclass it and override the hooks; `self.model` and `self.params` are set before the first."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self._model: Any = None

    @property
    def model(self) -> Any:
        return self._model

    def set_model(self, model: Any) -> None:
        self._model = model

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params

    def on_train_begin(self, logs: Any = None) -> None:
        """Before the first epoch."""

    def on_train_end(self, logs: Any = None) -> None:
        """After the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Before an epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """After an epoch and its validation."""

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Older name of on_train_batch_begin."""

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Older name of on_train_batch_end."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.on_batch_end(batch, logs)

    def on_test_begin(self, logs: Any = None) -> None:
        """Before an evaluation."""

    def on_test_end(self, logs: Any = None) -> None:
        """After an evaluation."""

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Before a batch of an evaluation."""

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """After a batch of an evaluation."""

    def on_predict_begin(self, logs: Any = None) -> None:
        """Before predictions."""

    def on_predict_end(self, logs: Any = None) -> None:
        """After predictions."""

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Before a batch of predictions."""

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """After a batch of predictions."""


_HOOKS = {
    "train": ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end"),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
    "predict": ("on_predict_batch_begin", "on_predict_batch_end"),
}


def looks_at_batches(callback: Any, kind: str) -> bool:
    """Whether a callback has hooks of its own for batches, so that steps cannot be run in bulk.

    A callback with `bulk` set has them, and is content to be called once for several batches.
    """
    if getattr(callback, "bulk", False):
        return False
    return any(
        getattr(getattr(callback, h, None), "__func__", None) is not getattr(Callback, h)
        for h in _HOOKS[kind]
        if hasattr(callback, h)
    )
