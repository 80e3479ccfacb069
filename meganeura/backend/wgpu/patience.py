"""A line for those who wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def _print(line: str) -> None:
    if os.environ.get("MEGANEURA_QUIET", "0") != "1":
        print(f"meganeura: {line}", flush=True)


class Patience:
    """Inside, `line()` is told after two seconds and then every five."""

    def __init__(
        self,
        line: Callable[[], str],
        after: float = 2.0,
        every: float = 5.0,
        tell: Callable[[str], None] = _print,
    ):
        self._line, self._after, self._every, self._tell = line, after, every, tell
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meganeura-patience", daemon=True)

    def _watch(self) -> None:
        wait = self._after
        while not self._ended.wait(wait):
            self._tell(self._line())
            wait = self._every

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
