"""A progress bar for loops of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


class Progbar:
    """Progress of a loop with values beside it, drawn by tqdm.

    target:           how many steps there are; None: not known
    verbose:          0 nothing, 1 a bar, 2 one line at the end
    stateful_metrics: names whose last value is shown; of the others, the mean over the steps
    """

    def __init__(
        self,
        target: int | None,
        width: int = 20,
        verbose: int = 1,
        interval: float = 0.05,
        stateful_metrics: Iterable[str] | None = None,
        unit_name: str = "step",
    ):
        self.target, self.width, self.verbose = target, width, verbose
        self.interval, self.unit_name = interval, unit_name
        self.stateful_metrics = set(stateful_metrics or ())
        self._sums: dict[str, tuple[float, float]] = {}
        self._seen = 0
        self._bar: Any = None

    def update(self, current: int, values: Any = None, finalize: bool | None = None) -> None:
        """`current` steps are done; values is a list of (name, value)."""
        steps = max(current - self._seen, 0)
        for name, value in values or ():
            number = float(np.asarray(value))
            if name in self.stateful_metrics:
                self._sums[name] = (number, 1.0)
            else:
                total, count = self._sums.get(name, (0.0, 0.0))
                self._sums[name] = (total + number * steps, count + steps)
        self._seen = current
        done = finalize if finalize is not None else current == self.target
        if self.verbose == 1:
            self._draw(steps, bool(done))
        elif self.verbose == 2 and done:
            print(f"{current}/{self.target or current} - {self.text()}", flush=True)

    def add(self, n: int, values: Any = None) -> None:
        """`n` more steps are done."""
        self.update(self._seen + n, values)

    def text(self) -> str:
        """The values as text: `loss: 0.1234 - accuracy: 0.5`."""
        means = ((k, total / max(count, 1)) for k, (total, count) in self._sums.items())
        return " - ".join(f"{name}: {mean:.4g}" for name, mean in means)

    def _draw(self, steps: int, done: bool) -> None:
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self.target, unit=self.unit_name, mininterval=self.interval)
        self._bar.set_postfix_str(self.text(), refresh=False)
        self._bar.update(steps)
        if done:
            self._bar.close()
            self._bar = None
