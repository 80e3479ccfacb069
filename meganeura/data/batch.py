"""Batches: the device tensors that one run of a step reads, and how they form (x, y, sample_weight)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from meganeura.ops.dispatch import map_tree
from meganeura.tensor import Tensor
from meganeura.variable import Variable


class Batch:
    """What one run of a step reads.

    tensors:   device tensors, in the order of the leaves of (x, y, sample_weight); where `resident`,
               the order of the samples and then all samples of each array
    structure: (x, y, sample_weight) with a `Place` for each tensor
    size:      the number of samples
    cursor:    where given, the step takes its samples out of the tensors itself (`resident`), at this
               int32 variable, which it moves on; each pass has its own, so passes do not disturb each other
    """

    def __init__(
        self,
        tensors: list[Tensor],
        structure: Any,
        size: int,
        cursor: Variable | None = None,
    ):
        self.tensors = tensors
        self.structure = structure
        self.size = size
        self.cursor = cursor
        self.resident = resident = cursor is not None
        #: what a step is specialised on
        self.key = (tuple((t.shape, t.dtype) for t in tensors), repr(structure), size, resident)


class Place:
    """Stands for the tensor of this position."""

    def __init__(self, index: int):
        self.index = index

    def __repr__(self) -> str:
        return f"${self.index}"


def structured(tree: Any) -> tuple[Any, list[Any]]:
    """The structure with places in it, and the leaves in their order; None stays where it is."""
    found: list[Any] = []

    def take(leaf: Any) -> Any:
        if leaf is None:
            return None
        found.append(leaf)
        return Place(len(found) - 1)

    return map_tree(take, tree), found


def fill(structure: Any, values: list[Any]) -> Any:
    """The structure with `values` at its places."""
    return map_tree(lambda p: values[p.index] if isinstance(p, Place) else p, structure)


class Source(Protocol):
    """Where the batches of `fit`, `evaluate` and `predict` come from, pass after pass."""

    #: batches in a pass, None where it is not known
    batches: int | None

    #: the targets at hand, as host arrays: all of them, or those of the last batch
    targets: Any

    #: called with the targets of each further batch
    check: Callable[[Any], None] | None

    def peek(self) -> Batch | None:
        """The first batch, which the next pass brings again; None where there is none."""

    def begin(self) -> bool:
        """Start a pass, or go on with one that was left; False where the data cannot be read again."""

    def next(self, most: int) -> tuple[Batch, int] | None:
        """A batch and for how many steps in a row to use it, at most `most`; None at the end of the pass."""

    def reset(self) -> None:
        """Leave the pass, so that the next one starts anew where the data can be read again."""

    def close(self) -> None:
        """Let go of threads that read ahead."""

    def find_nan(self) -> str | None:
        """Which of the arrays at hand holds NaN or infinity, as the end of a sentence."""


def unpack(data: Any) -> tuple[Any, Any, Any]:
    """(x,), (x, y), (x, y, sample_weight) or x alone, as (x, y, sample_weight)."""
    if isinstance(data, list):
        data = tuple(data)
    if not isinstance(data, tuple):
        return data, None, None
    if len(data) > 3 or not data:
        raise ValueError(
            f"a batch is x, (x, y) or (x, y, sample_weight), and has {len(data)} parts; put several "
            "inputs in a list or dict: ([x1, x2], y)"
        )
    return (*data, None, None)[:3]  # type: ignore[return-value]


def pack(data: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    """(x, y, None) as (x, y), and (x, None, None) as (x,)."""
    x, y, w = data
    return (x, y, w) if w is not None else (x, y) if y is not None else (x,)
