"""A limit on what layers may allocate, for models that are made from a stranger's file."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Iterator, Sequence

#: Above what a file declares: states of random numbers, and what older versions left out.
SLACK = 16 << 20

_left: contextvars.ContextVar[list[int] | None] = contextvars.ContextVar("budget", default=None)


class OverBudgetError(ValueError):
    """A configuration asks for weights that its file does not hold."""


@contextlib.contextmanager
def limit(byte_count: int) -> Iterator[None]:
    """While it lasts, layers may make weights of so many bytes, and a little more."""
    token = _left.set([byte_count + SLACK])
    try:
        yield
    finally:
        _left.reset(token)


def spend(shape: Sequence[int], owner: str) -> None:
    """Count a weight of 4-byte elements before it is made. Raises OverBudgetError."""
    left = _left.get()
    if left is None:
        return
    left[0] -= 4 * math.prod(shape)
    if left[0] < 0:
        raise OverBudgetError(
            f"the configuration asks for a weight of shape {tuple(shape)} in layer {owner!r}, for which the "
            "file stores nothing; refused as damaged or hostile"
        )
