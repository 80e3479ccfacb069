"""Callbacks made of a file or of functions: CSVLogger, LambdaCallback."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from typing import Any

from meganeura.callbacks.base import Callback


class CSVLogger(Callback):
    """One line per epoch: the epoch, and the logs by name."""

    bulk = True

    def __init__(
        self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False
    ):
        super().__init__()
        self.filename = os.fspath(filename)
        self.separator = separator
        self.append = append
        self._keys: list[str] | None = None
        self._file: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._with_header = True
        if self.append and os.path.exists(self.filename) and os.path.getsize(self.filename):
            self._with_header = False
            with open(self.filename, newline="") as file:
                header = next(csv.reader(file, delimiter=self.separator), [])
            self._keys = [k for k in header if k != "epoch"]
        self._file = open(self.filename, "a" if self.append else "w", newline="")  # noqa: SIM115

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = dict(logs or {})
        if self._keys is None:
            self._keys = sorted(logs)
            if not any(k.startswith("val_") for k in self._keys):
                self._keys += [f"val_{k}" for k in self._keys]
        writer = csv.writer(self._file, delimiter=self.separator)
        if self._with_header:
            writer.writerow(["epoch", *self._keys])
            self._with_header = False
        writer.writerow([epoch, *(_plain(logs.get(k, "NA")) for k in self._keys)])
        self._file.flush()

    def on_train_end(self, logs: Any = None) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._keys = None


def _plain(value: Any) -> Any:
    if hasattr(value, "ndim") and value.ndim:
        return f'"[{", ".join(map(str, value))}]"'
    return value


class LambdaCallback(Callback):
    """A callback from functions, with the arguments of the hooks."""

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__()
        given = {
            "on_epoch_begin": on_epoch_begin, "on_epoch_end": on_epoch_end, "on_train_begin": on_train_begin,
            "on_train_end": on_train_end, "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end, **kwargs,
        }  # fmt: skip
        for name, function in given.items():
            if function is not None:
                setattr(self, name, function)
