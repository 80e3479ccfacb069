"""Map kernels that read a transposed tensor: squares of elements instead of runs.

Neighbours in the result lie far apart in what is read, and the other way round. A workgroup that computes a
square uses every line of memory whole, for what it reads as for what it writes: a run of 1,024 elements
would touch a line for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meganeura.schedule import index as ix
from meganeura.schedule.index import Atom, Index
from meganeura.schedule.templates.base import ceil_div

#: Elements along a side of a square, and threads of its workgroup: each has four neighbours.
SIDE, THREADS = 32, 256
#: From such a distance in memory on, neighbours are no longer in one line.
_FAR = 16


@dataclass(frozen=True)
class Turned:
    """The result's elements as (outer, across, between, along): `along` are neighbours in the result,
    `across` are neighbours in what is read."""

    outer: int
    across: int
    between: int
    along: int

    @property
    def workgroups(self) -> int:
        squares = ceil_div(self.across, SIDE) * ceil_div(self.along, SIDE)
        return self.outer * self.between * squares

    def lines(self, flat: str) -> list[str]:
        """Statements that find an invocation's elements: the first of the four along is 4 * quad."""
        squares = ceil_div(self.along, SIDE)
        each = ceil_div(self.across, SIDE) * squares
        return [
            f"let square = {flat} % {each}u;",
            f"let other = {flat} / {each}u;",
            f"let across = square / {squares}u * {SIDE}u + thread / 8u;",
            f"let quad = square % {squares}u * {SIDE // 4}u + thread % 8u;",
            f"if (across >= {self.across}u || quad >= {self.along // 4}u || other >= {self.outer * self.between}u) "
            "{ return; }",
            f"let outer = other / {self.between}u;",
            f"let between = other % {self.between}u;",
        ]

    def position(self, lane: int) -> Index:
        """Where the invocation's elements are in the result."""
        along = ix.add(ix.mul(ix.var("quad", self.along // 4), 4), ix.const(lane))
        coordinates = (
            ix.var("outer", self.outer), ix.var("across", self.across), ix.var("between", self.between), along,
        )  # fmt: skip
        return ix.ravel(coordinates, (self.outer, self.across, self.between, self.along))


def turned(reads: Iterable[Index], size: int) -> Turned | None:
    """How to take the elements, if something is read across; positions are of the variable `i` below `size`."""
    for position in reads:
        strides = [(coefficient, *_digit(atom, size)) for atom, coefficient in position.terms]
        along = next((n for c, stride, n in strides if stride == 1 and c >= _FAR), 0)
        found = next(((stride, n) for c, stride, n in strides if c == 1 and stride > 1), None)
        if found is None or along < _FAR or along % 4 or found[1] < _FAR or found[0] % along:
            continue
        stride, across = found
        if size % (stride * across) == 0:
            return Turned(size // (stride * across), across, stride // along, along)
    return None


def _digit(atom: Atom, size: int) -> tuple[int, int]:
    """An atom as one digit of `i`: (what it counts, how many values it has); zeros where it is none."""
    i = ix.var("i", size)
    if atom[0] == "var":
        return (1, size) if atom == i.terms[0][0] else (0, 0)
    kind, inner, divisor = atom
    if inner == i:
        return (1, divisor) if kind == "mod" else (divisor, size // divisor)
    if kind == "mod" and len(inner.terms) == 1 and not inner.constant:
        ((deeper, coefficient),) = inner.terms
        if coefficient == 1 and deeper[0] == "div" and deeper[1] == i:
            return deeper[2], divisor
    return 0, 0
