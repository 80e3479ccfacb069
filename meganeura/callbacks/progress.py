"""The progress bar: tqdm on a terminal or in a notebook, one line per epoch elsewhere."""

from __future__ import annotations

import importlib.util
import sys
import time
from typing import Any

from meganeura.callbacks.base import Callback

#: How often the bar reads the metrics from the device, in seconds.
READ_EVERY = 0.25


def formatted(logs: Any) -> str:
    """`name: 0.1234` for each, in exponents where small."""
    parts = []
    for key, value in logs.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        parts.append(
            f"{key}: {number:.4f}" if abs(number) > 1e-3 or number == 0 else f"{key}: {number:.4e}"
        )
    return " - ".join(parts)


def _tqdm() -> Any:
    """The bar for notebooks where its widgets are installed, else that of terminals."""
    if "ipykernel" in sys.modules and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.auto import tqdm
    else:
        from tqdm.std import tqdm
    return tqdm


class ProgbarLogger(Callback):
    """Shows how far an epoch is, and its metrics; verbose 2 shows a line at the end of each."""

    bulk = True

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None
        self._in_fit = False
        self._total: int | None = None
        self._start = self._last = 0.0
        self._seen = 0

    @staticmethod
    def _live() -> bool:
        """A terminal, or a notebook: somewhere a bar can be redrawn."""
        return sys.stderr.isatty() or "ipykernel" in sys.modules

    def _open(self, description: str) -> None:
        self._start = self._last = time.perf_counter()
        self._seen = 0
        if self.params.get("verbose") == 1 and self._live():
            total = self._total if self._in_fit else self.params.get("steps")
            self._bar = _tqdm()(total=total, desc=description, leave=False, unit="step")

    def _advance(self, batch: int, logs: Any, read: bool = True) -> None:
        count = batch + 1 - self._seen
        self._seen = batch + 1
        if self._bar is None:
            return
        now = time.perf_counter()
        if read and now - self._last > READ_EVERY:
            self._bar.set_postfix_str(formatted(logs), refresh=False)
            self._last = now
        self._bar.update(count)

    def _close(self, logs: Any) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        seconds = time.perf_counter() - self._start
        steps = max(self._seen, 1)
        each = seconds / steps
        pace = (
            f"{each:.0f}s"
            if each >= 1
            else f"{each * 1e3:.0f}ms"
            if each >= 1e-3
            else f"{each * 1e6:.0f}us"
        )
        total = (self._total if self._in_fit else self.params.get("steps")) or steps
        text = f"{self._seen}/{total} - {seconds:.0f}s - {pace}/step"
        told = formatted(logs)
        print(f"{text} - {told}" if told else text, flush=True)

    def on_train_begin(self, logs: Any = None) -> None:
        self._in_fit = True
        self._total = self.params.get("steps")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.params.get("epochs", 1) > 1:
            print(f"Epoch {epoch + 1}/{self.params['epochs']}", flush=True)
        self._open(f"Epoch {epoch + 1}")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._advance(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._close(logs or {})
        self._total = self._total or self._seen  # known from the first epoch on

    def on_train_end(self, logs: Any = None) -> None:
        self._in_fit = False

    def on_test_begin(self, logs: Any = None) -> None:
        if not self._in_fit:
            self._open("evaluate")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._in_fit:
            self._advance(batch, logs)

    def on_test_end(self, logs: Any = None) -> None:
        if not self._in_fit:
            self._close(logs or {})

    def on_predict_begin(self, logs: Any = None) -> None:
        self._open("predict")

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self._advance(batch, logs, read=False)

    def on_predict_end(self, logs: Any = None) -> None:
        self._close({})
