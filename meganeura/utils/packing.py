"""Texts of different lengths in rows of one length, without padding between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


class Packed(NamedTuple):
    """Rows of texts: all arrays are (rows, length).

    ids:           tokens, `pad_token` behind the last text of a row
    segments:      the number of the text in its row, from 1; 0 for padding
    labels:        the token that follows in the same text
    sample_weight: 1.0 where there is one, else 0.0
    """

    ids: np.ndarray
    segments: np.ndarray
    labels: np.ndarray
    sample_weight: np.ndarray


def pack_sequences(sequences: Iterable[Any], length: int, pad_token: int = 0) -> Packed:
    """Pack texts into rows: the longest first, each into the first row that has room for it.

    A text longer than a row is cut into pieces of that length. For models that are built with
    `packed=True`, which keep the texts of a row apart by their segments. Raises ValueError for a
    length below 2 and for texts that are no whole numbers.
    """
    if length < 2:
        raise ValueError(f"pack_sequences: length must be at least 2, got {length!r}")
    pieces: list[np.ndarray] = []
    for sequence in sequences:
        array = np.asarray(sequence)
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise ValueError(
                f"pack_sequences: texts are lists of whole numbers, got {array.dtype} of shape {array.shape}"
            )
        pieces += [array[i : i + length] for i in range(0, len(array), length)]
    rows: list[list[np.ndarray]] = []
    room: list[int] = []
    for piece in sorted(pieces, key=len, reverse=True):
        row = next((i for i, free in enumerate(room) if free >= len(piece)), None)
        if row is None:
            row = len(rows)
            rows.append([])
            room.append(length)
        rows[row].append(piece)
        room[row] -= len(piece)
    packed = Packed(
        np.full((len(rows), length), pad_token, "int32"),
        np.zeros((len(rows), length), "int32"),
        np.full((len(rows), length), pad_token, "int32"),
        np.zeros((len(rows), length), "float32"),
    )
    for row, texts in enumerate(rows):
        start = 0
        for number, text in enumerate(texts, 1):
            end = start + len(text)
            packed.ids[row, start:end] = text
            packed.segments[row, start:end] = number
            packed.labels[row, start : end - 1] = text[1:]
            packed.sample_weight[row, start : end - 1] = 1.0
            start = end
    return packed
