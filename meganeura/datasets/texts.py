"""What IMDB and Reuters have in common: texts as ranks of words."""

from __future__ import annotations

from typing import Any

import numpy as np

Texts = list[list[int]]


def shuffled(arrays: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Arrays in the order that Keras shows for this seed."""
    order = np.arange(len(arrays[0]))
    np.random.RandomState(seed).shuffle(order)
    return [array[order] for array in arrays]


def marked(texts: Any, start_char: int | None, index_from: int | None) -> Texts:
    """Ranks moved up by index_from, behind start_char where there is one."""
    shift = index_from or 0
    start = [] if start_char is None else [start_char]
    return [start + [int(word) + shift for word in text] for text in texts]


def shorter(texts: Texts, labels: np.ndarray, maxlen: int | None) -> tuple[Texts, np.ndarray]:
    """The texts below maxlen words; None keeps all. Raises ValueError where none is left."""
    if not maxlen:
        return texts, labels
    kept = [i for i, text in enumerate(texts) if len(text) < maxlen]
    if not kept:
        raise ValueError(f"load_data: no text has fewer than maxlen={maxlen} words")
    return [texts[i] for i in kept], labels[kept]


def limited(texts: Texts, num_words: int, skip_top: int, oov_char: int | None) -> list[list[int]]:
    """Words outside skip_top <= rank < num_words become oov_char, or are left out where it is None."""
    if oov_char is None:
        return [[word for word in text if skip_top <= word < num_words] for text in texts]
    return [[word if skip_top <= word < num_words else oov_char for word in text] for text in texts]


def ragged(texts: Texts) -> np.ndarray:
    """An array of lists."""
    out = np.empty(len(texts), dtype=object)
    out[:] = texts
    return out
