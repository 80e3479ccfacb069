"""Coordinates as sums of terms with known ranges, so that reshape and transpose chains print short.

An `Index` is constant + sum(coefficient * atom); an atom is a variable, or a quotient or remainder
that could not be simplified away. All values are unsigned; every Index is >= 0 where it is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

Atom = tuple  # ("var", text, size) or ("div" | "mod", Index, divisor)


#: Layers repeat, and so do their coordinates: results of so many computations are kept.
_MEMORY = 1 << 15


class Index:
    __slots__ = ("_hash", "_text", "constant", "terms")

    def __init__(self, terms: Sequence[tuple[Atom, int]] = (), constant: int = 0):
        kept = [t for t in terms if t[1]]
        if len(kept) > 1:
            kept.sort(key=_rank)
        self.terms = tuple(kept)
        self.constant = constant
        self._hash = hash((self.terms, constant))
        self._text = ""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Index)
            and self.terms == other.terms
            and self.constant == other.constant
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.text()

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        low = high = self.constant
        for atom, c in self.terms:
            top = atom_bound(atom)
            low, high = low + min(c * top, 0), high + max(c * top, 0)
        return low, high

    def text(self) -> str:
        """As a WGSL expression of type u32."""
        if not self._text:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        parts: list[str] = []
        negative: list[str] = []
        for atom, c in self.terms:
            body = atom_text(atom)
            piece = body if abs(c) == 1 else f"{body} * {abs(c)}u"
            (parts if c > 0 else negative).append(piece)
        if self.constant or not parts:
            parts.append(f"{self.constant}u" if self.constant >= 0 else f"0u - {-self.constant}u")
        joined = " + ".join(parts)
        for piece in negative:
            joined += f" - {piece}"
        return (
            joined if len(self.terms) + bool(self.constant) <= 1 and not negative else f"({joined})"
        )


@functools.lru_cache(_MEMORY)
def _name(atom: Atom) -> str:
    return repr(atom)


def _rank(term: tuple[Atom, int]) -> str:
    return _name(term[0])


def atom_bound(atom: Atom) -> int:
    if atom[0] == "var":
        return max(atom[2] - 1, 0)
    high = atom[1].bounds[1]
    return high // atom[2] if atom[0] == "div" else min(high, atom[2] - 1)


def atom_text(atom: Atom) -> str:
    if atom[0] == "var":
        return atom[1]
    sign = "/" if atom[0] == "div" else "%"
    return f"({atom[1].text()} {sign} {atom[2]}u)"


def const(value: int) -> Index:
    return Index((), value)


def var(text: str, size: int) -> Index:
    """A variable with values below `size`; one of size 1 is 0."""
    return const(0) if size <= 1 else Index(((("var", text, size), 1),))


@functools.lru_cache(_MEMORY)
def add(a: Index, b: Index, times: int = 1) -> Index:
    terms = dict(a.terms)
    for atom, c in b.terms:
        terms[atom] = terms.get(atom, 0) + c * times
    total = Index(tuple(terms.items()), a.constant + b.constant * times)
    return _rejoin(total)


def _rejoin(x: Index) -> Index:
    """k * (e / k) + e % k is e again."""
    table = dict(x.terms)
    for atom, c in x.terms:
        if atom[0] != "mod":
            continue
        twin = div(atom[1], atom[2])
        if len(twin.terms) == 1 and not twin.constant:
            ((other, scale),) = twin.terms
            if other in table and table[other] == c * atom[2] and scale == 1:
                del table[other], table[atom]
                return add(Index(tuple(table.items()), x.constant), atom[1], c)
    return x


@functools.lru_cache(_MEMORY)
def mul(a: Index, k: int) -> Index:
    return Index(tuple((atom, c * k) for atom, c in a.terms), a.constant * k)


def _split(a: Index, k: int) -> tuple[Index, Index]:
    """a = k * first + second, where second holds what is no multiple of k."""
    whole = [(atom, c // k) for atom, c in a.terms if c % k == 0]
    rest = [(atom, c) for atom, c in a.terms if c % k]
    return Index(tuple(whole), a.constant // k), Index(tuple(rest), a.constant % k)


def _factored(a: Index, k: int) -> tuple[int, Index, Index] | None:
    """a = g * first + second with 0 <= second < g, where g > 1 divides k."""
    for g in sorted({c for _, c in a.terms if c > 1 and k % c == 0}, reverse=True):
        first, second = _split(a, g)
        low, high = second.bounds
        if low >= 0 and high < g and first.bounds[0] >= 0:
            return g, first, second
    return None


@functools.lru_cache(_MEMORY)
def div(a: Index, k: int) -> Index:
    if k == 1:
        return a
    first, rest = _split(a, k)
    low, high = rest.bounds
    if low >= 0 and high < k:
        return first
    factored = _factored(a, k)
    if factored is not None and factored[0] < k:
        return div(factored[1], k // factored[0])
    if low >= 0:
        return add(first, _nested("div", rest, k))
    return Index(((("div", a, k), 1),))


@functools.lru_cache(_MEMORY)
def mod(a: Index, k: int) -> Index:
    if k == 1:
        return const(0)
    _, rest = _split(a, k)
    low, high = rest.bounds
    factored = _factored(a, k)
    if factored is not None and factored[0] < k and high >= k:
        g, first, second = factored
        return add(mul(mod(first, k // g), g), second)
    if low >= 0:
        return rest if high < k else _nested("mod", rest, k)
    return Index(((("mod", a, k), 1),))


def _nested(kind: str, a: Index, k: int) -> Index:
    """(e / j) / k is e / (j k); a factor that all terms share with k goes out of the division."""
    shared = math.gcd(k, *(c for _, c in a.terms))
    if shared > 1:
        small = Index(tuple((atom, c // shared) for atom, c in a.terms), a.constant // shared)
        if kind == "div":
            return div(small, k // shared)
        return add(mul(mod(small, k // shared), shared), const(a.constant % shared))
    if kind == "div" and len(a.terms) == 1 and a.constant == 0:
        ((atom, c),) = a.terms
        if c == 1 and atom[0] == "div":
            return div(atom[1], atom[2] * k)
        if c == 1 and atom[0] == "mod" and atom[2] % k == 0:
            return mod(div(atom[1], k), atom[2] // k)
    if kind == "mod" and len(a.terms) == 1 and a.constant == 0:
        ((atom, c),) = a.terms
        if c == 1 and atom[0] == "mod" and atom[2] % k == 0:
            return mod(atom[1], k)
    return Index((((kind, a, k), 1),))


def ravel(coordinates: Sequence[Index], shape: Sequence[int]) -> Index:
    """The row-major position of coordinates."""
    return _ravel(tuple(coordinates), tuple(shape))


@functools.lru_cache(_MEMORY)
def _ravel(coordinates: tuple[Index, ...], shape: tuple[int, ...]) -> Index:
    total, stride = const(0), 1
    for c, n in zip(reversed(coordinates), reversed(shape), strict=True):
        if n > 1:
            total = add(total, mul(c, stride))
        stride *= n
    return total


def unravel(position: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """Coordinates of a row-major position.

    In a shape without elements no position exists; its zeros count as ones, since the code that
    is written for it never runs.
    """
    return _unravel(position, tuple(max(n, 1) for n in shape))


@functools.lru_cache(_MEMORY)
def _unravel(position: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    found: list[Index] = []
    stride = 1
    sizes = [1]
    for n in reversed(shape):
        sizes.append(sizes[-1] * n)
    for i, n in enumerate(reversed(shape)):
        if n == 1:
            found.append(const(0))
            continue
        stride = sizes[i]
        quotient = div(position, stride)
        found.append(quotient if i == len(shape) - 1 else mod(quotient, n))
    return tuple(reversed(found))
