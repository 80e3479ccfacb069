"""The formats of packed tables, in NumPy: halves, and GGUF's blocks of 32 values, Q8_0 and Q4_1.

A table (rows, columns) is cut along its rows into blocks. What a device reads are 32-bit words:

    f16    two halves to a word
    q8_0   value = d q: q of 8 bits with sign, four to a word; d, a half for each block, two to a word
    q4_1   value = d q + m: q of 4 bits; word w of a block's four has value 4 w + j in its j-th byte's low
           half and value 4 w + 16 + j in the high one; d and m, halves, are one word for each block

(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md names them; ggml-common.h has their blocks.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

#: Numbers of a block (blocks, n) -> its packed numbers (blocks, bytes) as uint8, and halves (blocks, k).
Pack = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
#: The way back, in float32.
Unpack = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Format:
    """How a table is packed.

    bits:    of one value
    block:   how many values share their scales; the length of a row is a multiple of it
    halves:  how many halves a block has beside its values
    """

    name: str
    bits: int
    block: int
    halves: int
    pack: Pack
    unpack: Unpack

    def __reduce__(self) -> object:
        return named, (self.name,)  # there is one object for each format, in copies as well

    def words(self, columns: int) -> int:
        """32-bit words of the values of a row."""
        return columns * self.bits // 32

    def scales(self, rows: int, columns: int) -> int:
        """32-bit words of the scales of a table."""
        return (rows * columns // self.block * self.halves + 1) // 2

    def nbytes(self, rows: int, columns: int) -> int:
        return 4 * (rows * self.words(columns) + self.scales(rows, columns))


@dataclass(frozen=True)
class Packed:
    """A table in a format: words (rows, words of a row) and scales (n,), both uint32.

    scales is None where the format has none.
    """

    format: Format
    words: np.ndarray
    scales: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int]:
        rows, words = self.words.shape
        return rows, words * 32 // self.format.bits


def _words(parts: np.ndarray) -> np.ndarray:
    """The bytes of each row, first byte lowest, as words."""
    return np.ascontiguousarray(parts).view("<u4").astype(np.uint32, copy=False)


def _bytes(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words, dtype="<u4").view(np.uint8)


def _as_halves(values: np.ndarray, what: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    if not np.isfinite(halves).all():
        raise ValueError(f"{what} of {np.abs(values).max():g} does not fit into a half")
    return halves


# --- the formats ---------------------------------------------------------------------------------


def _pack_f16(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _as_halves(x, "a value").view(np.uint8), np.empty((len(x), 0), "<f2")


def _unpack_f16(parts: np.ndarray, _: np.ndarray) -> np.ndarray:
    return parts.view("<f2").astype(np.float32)


def _inverse(d: np.ndarray) -> np.ndarray:
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def _pack_q8_0(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """d = max|x| / 127, q = x / d rounded, halves away from zero."""
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    size = np.abs(x * _inverse(d))
    whole = np.floor(size)
    q = np.sign(x) * (whole + np.floor(2 * (size - whole)))
    return q.astype(np.int8).view(np.uint8), _as_halves(d, "a scale")


def _unpack_q8_0(parts: np.ndarray, halves: np.ndarray) -> np.ndarray:
    return parts.view(np.int8).astype(np.float32) * halves.astype(np.float32)


def _pack_q4_1(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m = min x, d = (max x - m) / 15, q = (x - m) / d rounded."""
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        d = (high - low) / np.float32(15)
    halves = np.concatenate(
        [_as_halves(d, "a scale"), _as_halves(low, "a block's least value")], axis=1
    )
    q = np.floor((x - low) * _inverse(d) + np.float32(0.5)).clip(0, 15).astype(np.uint8)
    return q[:, :16] | q[:, 16:] << 4, halves


def _unpack_q4_1(parts: np.ndarray, halves: np.ndarray) -> np.ndarray:
    q = np.concatenate([parts & 15, parts >> 4], axis=1).astype(np.float32)
    d, low = (halves[:, i : i + 1].astype(np.float32) for i in range(2))
    return q * d + low


FORMATS = {
    f.name: f
    for f in (
        Format("f16", 16, 2, 0, _pack_f16, _unpack_f16),
        Format("q8_0", 8, 32, 1, _pack_q8_0, _unpack_q8_0),
        Format("q4_1", 4, 32, 2, _pack_q4_1, _unpack_q4_1),
    )
}


def named(name: object) -> Format:
    """The format of this name. Raises ValueError with those that there are."""
    found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"{name!r} is no format of weights; offered are {', '.join(FORMATS)}")
    return found


# --- whole tables --------------------------------------------------------------------------------

#: Values that are worked on at a time: they and what is made of them stay in a cache.
_SLAB = 1 << 17


def _slabs(rows: int, columns: int) -> Iterator[slice]:
    """The rows of a table, some at a time."""
    step = max(1, _SLAB // max(columns, 1))
    return (slice(i, min(i + step, rows)) for i in range(0, rows, step))


def from_parts(kind: Format, parts: np.ndarray, halves: np.ndarray) -> Packed:
    """From the bytes of each row (rows, n), and the halves of all blocks in order."""
    scales = None
    if kind.halves:
        flat = np.ascontiguousarray(halves, "<f2").ravel()
        scales = _words(np.append(flat, np.zeros(len(flat) % 2, "<f2")))
    return Packed(kind, _words(parts), scales)


def pack(kind: Format, table: np.ndarray) -> Packed:
    """A table (rows, columns) in a format.

    Raises ValueError where a row is no whole number of blocks, where a value is not finite, and where
    the scale of a block does not fit into a half.
    """
    rows, columns = table.shape
    if columns % kind.block:
        raise ValueError(f"rows of {columns} values are no multiple of {kind.block}")
    each = columns // kind.block
    parts = np.empty((rows, each, kind.block * kind.bits // 8), np.uint8)
    halves = np.empty((rows, each, kind.halves), "<f2")
    for some in _slabs(rows, columns):
        values = np.ascontiguousarray(table[some], np.float32).reshape(-1, kind.block)
        if not np.isfinite(values).all():
            raise ValueError("not all values are finite")
        own, scales = kind.pack(values)
        parts[some] = own.reshape(parts[some].shape)
        halves[some] = scales.reshape(halves[some].shape)
    return from_parts(kind, parts.reshape(rows, columns * kind.bits // 8), halves)


def unpack(packed: Packed) -> np.ndarray:
    """The values of a table, as float32."""
    kind, (rows, columns) = packed.format, packed.shape
    each = columns // kind.block
    parts = _bytes(packed.words).reshape(rows, each, kind.block * kind.bits // 8)
    halves = np.empty((rows, each, 0), "<f2")
    if packed.scales is not None:
        flat = np.ascontiguousarray(packed.scales, "<u4").view("<f2")
        halves = flat[: rows * each * kind.halves].reshape(rows, each, kind.halves)
    values = np.empty((rows, columns), np.float32)
    for some in _slabs(rows, columns):
        count = (some.stop - some.start) * each
        own = (x[some].reshape(count, x.shape[2]) for x in (parts, halves))
        values[some] = kind.unpack(*own).reshape(-1, columns)
    return values
