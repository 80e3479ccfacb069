"""IMDB: 50,000 film reviews, good or bad, as ranks of words (A. Maas and others, 2011)."""

from __future__ import annotations

import json

import numpy as np

from meganeura.datasets import pickles, texts
from meganeura.datasets.download import fetch

FOLDER = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
CHECKSUM = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"
WORDS_CHECKSUM = "bfafd718b763782e994055a2d397834f"

Arrays = tuple[np.ndarray, np.ndarray]


def load_data(
    path: str = "imdb.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int | None = 3,
) -> tuple[Arrays, Arrays]:
    """`(x_train, y_train), (x_test, y_test)`: arrays of lists of word ranks, labels 0 and 1.

    Only the most frequent num_words are kept, the skip_top first left out; others are oov_char. Every
    text starts with start_char; maxlen leaves longer ones out (https://keras.io/api/datasets/imdb).
    """
    file = fetch(path, FOLDER + "imdb.npz", CHECKSUM)
    arrays = pickles.load_npz(file, ("x_train", "y_train", "x_test", "y_test"))
    x_train, y_train = texts.shuffled(arrays[:2], seed)
    x_test, y_test = texts.shuffled(arrays[2:], seed)
    train, y_train = texts.shorter(texts.marked(x_train, start_char, index_from), y_train, maxlen)
    test, y_test = texts.shorter(texts.marked(x_test, start_char, index_from), y_test, maxlen)
    most = num_words or max(
        max(text) for text in train + test
    )  # as Keras: the last rank is left out
    train = texts.limited(train, most, skip_top, oov_char)
    test = texts.limited(test, most, skip_top, oov_char)
    return (texts.ragged(train), y_train), (texts.ragged(test), y_test)


def get_word_index(path: str = "imdb_word_index.json") -> dict[str, int]:
    """Each word's rank, without the shift by index_from."""
    file = fetch(path, FOLDER + "imdb_word_index.json", WORDS_CHECKSUM)
    return json.loads(file.read_text("utf-8"))
