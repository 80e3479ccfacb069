"""Reading and writing four neighbours at once.

A buffer that a kernel reads or writes in quads is bound as an array of vec4. Code names it `b0q[quad]` where it
wants a quad and `b0[element]` where it wants one element; the second is spelt out here once it is known
how the buffer is bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from meganeura.schedule.index import Index


def quad_of(position: Index) -> tuple[Index, int] | None:
    """Which quad an element is in and which of the four it is, where that is known beforehand."""
    if not position.terms or any(c % 4 for _, c in position.terms):
        return None
    first = Index([(atom, c // 4) for atom, c in position.terms], position.constant // 4)
    return first, position.constant % 4


def bound_as_quads(text: str, names: Iterable[str]) -> str:
    """The text with `name[element]` as an element of a quad, for each of the names."""
    wanted = "|".join(sorted(map(re.escape, names)))
    if not wanted:
        return text
    start = re.compile(rf"\b(?:{wanted})\[")
    parts, at = [], 0
    while found := start.search(text, at):
        end = _closing(text, found.end())
        inner = bound_as_quads(text[found.end() : end], names)
        inner = inner if re.fullmatch(r"\w+", inner) else f"({inner})"
        parts += [text[at : found.end()], f"{inner} >> 2u][{inner} & 3u]"]
        at = end + 1
    return "".join([*parts, text[at:]])


def _closing(text: str, at: int) -> int:
    depth = 1
    while depth:
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        at += 1
    return at - 1
