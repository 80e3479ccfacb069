"""In which dtype weights are read: inside a layer's call, in the one that the layer computes in."""

from __future__ import annotations

import threading
from typing import Any

from meganeura.dtypes import FLOATS


class _Reading(threading.local):
    dtype: str | None = None  # of this thread


_reading = _Reading()


class autocast:
    """Inside, variables of real numbers are read as `dtype`; None: as they are."""

    def __init__(self, dtype: str | None):
        self.dtype = dtype

    def __enter__(self) -> None:
        self._before = _reading.dtype
        _reading.dtype = self.dtype

    def __exit__(self, *_: object) -> None:
        _reading.dtype = self._before


def as_read(variable: Any, node: Any) -> Any:
    """The node of a variable's value in the dtype in which it is to be read here."""
    dtype = _reading.dtype
    if dtype is None or dtype == node.dtype or node.dtype not in FLOATS or not variable.autocast:
        return node
    from meganeura.ops.registry import make  # the operations are written with variables

    return make("cast", node, dtype=dtype)
