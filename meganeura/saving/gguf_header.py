"""What a GGUF file says about itself, checked before anything else reads it.

The package `gguf` believes the lengths in a file: an array of 2^60 numbers that are not there keeps it busy
until memory ends, and tensors may lie on top of one another. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from meganeura.saving.safe_h5 import DamagedFileError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9

#: Type of a value -> its bytes; texts and arrays have lengths of their own.
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_DEEPEST = 4
_ALIGNMENT = "general.alignment"
LONGEST_NAME = 1 << 16
MOST_DIMENSIONS = 4


class _Header:
    """A position in a file that moves forward and never beyond the end."""

    def __init__(self, path: Path, file: BinaryIO, size: int):
        self._path, self._file, self._left = path, file, size

    def damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(f"{self._path} {what}; it is not a sound GGUF file")

    def take(self, count: int, what: str) -> bytes:
        self._need(count, what)
        return self._file.read(count)

    def skip(self, count: int, what: str) -> None:
        self._need(count, what)
        self._file.seek(count, os.SEEK_CUR)

    def _need(self, count: int, what: str) -> None:
        if count > self._left:
            raise self.damaged(f"gives {what} {count} bytes, and {self._left} are left")
        self._left -= count

    def number(self, code: str, what: str) -> int:
        return int(struct.unpack(f"<{code}", self.take(struct.calcsize(code), what))[0])

    def text(self, what: str) -> str:
        length = self.number("Q", what)
        if length > LONGEST_NAME:
            raise self.damaged(f"gives {what} a name of {length} bytes")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"gives {what} a name that is no text ({error})") from error

    def value(self, kind: int, what: str, depth: int = 0) -> None:
        """Pass over a value."""
        if kind in _WIDTHS:
            self.skip(_WIDTHS[kind], what)
        elif kind == STRING:
            self.skip(self.number("Q", what), what)
        elif kind == ARRAY and depth < _DEEPEST:
            inner, count = self.number("I", what), self.number("Q", what)
            if inner in _WIDTHS:
                self.skip(count * _WIDTHS[inner], what)
                return
            if 8 * count > self._left:  # each of them has a length of 8 bytes at least
                raise self.damaged(
                    f"gives {what} {count} elements, and {self._left} bytes are left"
                )
            for _ in range(count):
                self.value(inner, what, depth + 1)
        else:
            raise self.damaged(f"gives {what} a value of the type {kind}, which is not known")


def check_gguf(
    path: str | os.PathLike[str], sizes: Mapping[int, tuple[int, int]], names: Mapping[int, str]
) -> None:
    """Raise DamagedFileError where counts, lengths, names or places in a GGUF file are not sound.

    sizes: type of a tensor -> how many elements a block has, and how many bytes; names: what types are called
    """
    path = Path(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = _Header(path, file, size)
        if header.take(4, "the beginning") != MAGIC:
            raise header.damaged("does not begin with GGUF")
        version = header.number("I", "the version")
        if version not in VERSIONS:
            raise header.damaged(f"is of version {version}; those read are {VERSIONS}")
        tensors, keys = header.number("Q", "the counts"), header.number("Q", "the counts")
        alignment = _check_keys(header, file, keys)
        places = _check_tensors(header, tensors, sizes, names)
        start = -(-file.tell() // alignment) * alignment
    position = 0
    for begin, end, name in sorted(places):
        if begin < position:
            raise header.damaged(f"has a tensor {name!r} that overlaps the one before it")
        if start + end > size:
            raise header.damaged(f"gives {name!r} bytes up to {start + end}, and has {size}")
        position = end


def _check_keys(header: _Header, file: BinaryIO, count: int) -> int:
    """Pass over keys and values; the alignment of tensors."""
    known: set[str] = set()
    alignment = 32
    for i in range(count):
        key = header.text(f"key {i}")
        if key in known:
            raise header.damaged(f"has the key {key!r} twice")
        known.add(key)
        kind = header.number("I", f"key {key!r}")
        if key == _ALIGNMENT:
            alignment = header.number("I", key) if kind == 4 else 0
            if alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
                raise header.damaged(f"has the {_ALIGNMENT} {alignment}, which is no power of two")
        else:
            header.value(kind, f"key {key!r}")
    return alignment


def _check_tensors(
    header: _Header, count: int, sizes: Mapping[int, tuple[int, int]], names: Mapping[int, str]
) -> list[tuple[int, int, str]]:
    """Where the tensors lie: (begin, end, name), counted from the beginning of the data."""
    known: set[str] = set()
    places = []
    for i in range(count):
        name = header.text(f"tensor {i}")
        if name in known:
            raise header.damaged(f"has the tensor {name!r} twice")
        known.add(name)
        dimensions = header.number("I", repr(name))
        if dimensions > MOST_DIMENSIONS:
            raise header.damaged(f"gives the tensor {name!r} {dimensions} dimensions")
        shape = [header.number("Q", repr(name)) for _ in range(dimensions)]
        kind, begin = header.number("I", repr(name)), header.number("Q", repr(name))
        if kind not in sizes:
            raise header.damaged(f"stores {name!r} as type {kind}, which is not known")
        block, width = sizes[kind]
        elements = 1
        for n in shape:
            elements *= n
        if (shape[0] if shape else 1) % block:
            raise header.damaged(
                f"gives {name!r} rows of {shape[0]} values as {names[kind]}, whose blocks have {block}"
            )
        places.append((begin, begin + elements // block * width, name))
    return places
