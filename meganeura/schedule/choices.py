"""How products were found to run best on a device, in place of the estimate.

A choice is the label of a block and a number of parts: `64x64x16:8x8/1/4` is the block `64x64x16:8x8/1` of
`templates/tiles.py` with the terms in four parts. `Limits.measured` names the set of choices that holds for a
device, so that plans and their files depend on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from meganeura.ops.parts import part_length

#: batch, rows, columns, terms
Size = tuple[int, int, int, int]

_blocks: dict[str, dict[Size, str]] = {}
_parts: dict[str, dict[Size, int]] = {}


def adopt(choices: Mapping[Size, str]) -> str:
    """Make a set of choices known; its name, for `Limits.measured`."""
    if not choices:
        return ""
    text = json.dumps(sorted((list(size), label) for size, label in choices.items()))
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    if name not in _parts:
        blocks: dict[Size, str] = {}
        parts: dict[Size, int] = {}
        for size, label in choices.items():
            block, count = split(label)
            batch, m, n, k = size
            parts[size] = count
            part = (batch * count, m, n, part_length(k, count)) if count > 1 else size
            blocks[part] = block
        _blocks[name], _parts[name] = blocks, parts
    return name


def split(label: str) -> tuple[str, int]:
    """A choice's block and parts. Raises ValueError of what is none."""
    block, slash, count = label.rpartition("/")
    if not slash or not 1 <= int(count) <= 1024:
        raise ValueError(f"{label!r} names no block and number of parts")
    return block, int(count)


def block(name: str, size: Size) -> str | None:
    """The label of the block that was chosen for a product of this size, or a part of one."""
    return _blocks[name].get(size) if name in _blocks else None


def parts(name: str, size: Size) -> int | None:
    """In how many parts a product of this size was chosen to be."""
    return _parts[name].get(size) if name in _parts else None
