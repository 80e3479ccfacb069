"""PackedVariable: a weight that lies in blocks of few bits on the device, and is its values in graphs."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.ops.nodes import reshape, transpose
from meganeura.ops.registry import make
from meganeura.quantization.formats import Format, Packed, named, pack, unpack
from meganeura.tensor import Tensor, to_tensor
from meganeura.variable import Variable, take_allowance


class PackedVariable(Variable):
    """A weight of shape `shape` whose blocks run along its axes `inputs`, those that a product sums over.

    The table that is packed has a row for each of the other axes' elements. To everybody else it is a
    float32 variable: `numpy` gives its values, `assign` packs new ones, files hold the values. In a
    graph it is `dequantize` of what lies on the device, which kernels unpack where they read it; so
    its values exist nowhere, and it is not trained.
    """

    autocast = False  # in half precision its values would be a table of their own

    def __init__(
        self,
        kind: Format,
        shape: Sequence[int],
        inputs: Sequence[int],
        name: str = "variable",
        path: str | None = None,
        trainable: bool = True,
        regularizer: Callable[[Any], Any] | None = None,
        constraint: Callable[[Any], Any] | None = None,
    ):
        self.format = kind
        self.shape = tuple(shape)
        self.dtype = "float32"
        self.name = name
        self.path = path or name
        self.trainable = trainable
        self.regularizer = regularizer
        self.constraint = constraint
        self.overwrite_with_gradient = False
        outputs = (i for i in range(len(self.shape)) if i not in inputs)
        self._order = (*outputs, *inputs)  # the axes, as the table has them
        columns = math.prod(self.shape[i] for i in inputs)
        self.table_shape = (self.size // columns if columns else 0, columns)
        why = refusal(kind, columns)
        if why:
            raise ValueError(f"weight {self.path!r} cannot be packed as {kind.name}: {why}")
        take_allowance(self.shape, name)
        rows = self.table_shape[0]
        self._words = self._part("words", (rows, kind.words(columns)))
        self._scales = self._part("scales", (kind.scales(rows, columns),)) if kind.halves else None

    def _part(self, name: str, shape: tuple[int, ...]) -> Variable:
        zeros = np.zeros(shape, "uint32")
        return Variable(zeros, trainable=False, name=name, path=f"{self.path}/{name}")

    @property
    def parts(self) -> list[Variable]:
        """What lies on the device."""
        return [self._words] if self._scales is None else [self._words, self._scales]

    @property
    def nbytes(self) -> int:
        return sum(v.nbytes for v in self.parts)

    def unpacked(self, now: trace.Trace) -> Node:
        """The values as a node of this trace."""
        parts = [now.read(v) for v in self.parts]
        table = make("dequantize", *parts, format=self.format.name)
        arranged = reshape(table, tuple(self.shape[i] for i in self._order))
        return transpose(arranged, tuple(int(i) for i in np.argsort(self._order)))

    @property
    def value(self) -> Node | Tensor:
        now = trace.current()
        return now.read(self) if now is not None else to_tensor(self.numpy())

    def packed(self) -> Packed:
        """The table as it lies on the device."""
        return Packed(
            self.format, *(v.numpy() for v in self.parts), *([None] * (self._scales is None))
        )

    def numpy(self) -> np.ndarray:
        table = unpack(self.packed())
        arranged = table.reshape([self.shape[i] for i in self._order])
        return np.ascontiguousarray(arranged.transpose(np.argsort(self._order)))

    def assign(self, value: Any) -> Any:
        """Pack new values. Raises ValueError in a recording: packed weights are not trained."""
        if trace.current() is not None:
            raise ValueError(_untrained(self))
        array = dtypes.as_array(value.numpy() if hasattr(value, "numpy") else value)
        if array.shape != self.shape:
            self._refuse(array.shape)
        try:
            table = array.transpose(self._order).reshape(self.table_shape)
            self.assign_packed(pack(self.format, table))
        except ValueError as error:
            raise ValueError(
                f"weight {self.path!r} cannot be packed as {self.format.name}: {error}"
            ) from None
        return self

    def assign_packed(self, table: Packed) -> None:
        """Take over a table of the same format and shape, bit for bit."""
        if table.format is not self.format or table.shape != self.table_shape:
            raise ValueError(
                f"weight {self.path!r} is a table of shape {self.table_shape} in {self.format.name}; one of shape "
                f"{table.shape} in {table.format.name} cannot be assigned"
            )
        for part, new in zip(self.parts, (table.words, table.scales), strict=False):
            part.assign(new)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"<PackedVariable path={self.path} shape={self.shape} format={self.format.name}>"


def refusal(kind: Format, columns: int) -> str:
    """Why rows of so many values cannot be packed; empty where they can."""
    if columns % kind.block:
        return f"its {columns} inputs are no multiple of {kind.block}"
    return "" if columns else "it is empty"


def _untrained(variable: Variable) -> str:
    assert isinstance(variable, PackedVariable)
    return (
        f"weight {variable.path!r} is packed as {variable.format.name} and cannot be trained: freeze it "
        "(models.freeze), or train thin factors beside it (models.add_lora)"
    )


def refuse_packed(variables: Iterable[Variable]) -> None:
    """Raise ValueError where one of these, which are to be trained, is packed."""
    for v in variables:
        if isinstance(v, PackedVariable):
            raise ValueError(_untrained(v))


# --- layers whose weights are packed from the start ------------------------------------------------

#: (layer, how many inputs a row of its table has) -> the format of the table, or None for float32.
Choice = Callable[[Any, int], "Format | None"]


class _Planned(threading.local):
    choice: Choice | None = None  # of this thread


_planned = _Planned()


@contextlib.contextmanager
def built_packed(choice: Choice | str | None) -> Iterator[None]:
    """Inside, layers that are built make their tables packed, filled with zeros, as `choice` says.

    A format's name chooses it for every table that fits it; None leaves all in float32.
    """
    if isinstance(choice, str):
        kind = named(choice)
        choice = lambda layer, columns: None if refusal(kind, columns) else kind  # noqa: E731
    before, _planned.choice = _planned.choice, choice
    try:
        yield
    finally:
        _planned.choice = before


def planned_format(layer: Any, columns: int) -> Format | None:
    """The format that `built_packed` chooses for a table of this layer."""
    return _planned.choice(layer, columns) if _planned.choice is not None else None
