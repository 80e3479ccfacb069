"""Reuters: 11,228 newswires about 46 topics, as ranks of words."""

from __future__ import annotations

import json

import numpy as np

from meganeura.datasets import pickles, texts
from meganeura.datasets.download import fetch

FOLDER = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
CHECKSUM = "d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916"
WORDS_CHECKSUM = "4d44cc38712099c9e383dc6e5f11a921"

Arrays = tuple[np.ndarray, np.ndarray]


def load_data(
    path: str = "reuters.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    test_split: float = 0.2,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int | None = 3,
) -> tuple[Arrays, Arrays]:
    """`(x_train, y_train), (x_test, y_test)`: arrays of lists of word ranks, topics 0 to 45.

    The arguments are those of IMDB, and test_split, the fraction of texts held out
    (https://keras.io/api/datasets/reuters).
    """
    file = fetch(path, FOLDER + "reuters.npz", CHECKSUM)
    x, y = texts.shuffled(pickles.load_npz(file, ("x", "y")), seed)
    kept, y = texts.shorter(texts.marked(x, start_char, index_from), y, maxlen)
    most = num_words or max(max(text) for text in kept)  # as Keras: the last rank is left out
    all_texts = texts.ragged(texts.limited(kept, most, skip_top, oov_char))
    count = int(len(all_texts) * (1 - test_split))
    return (all_texts[:count], y[:count]), (all_texts[count:], y[count:])


def get_word_index(path: str = "reuters_word_index.json") -> dict[str, int]:
    """Each word's rank, without the shift by index_from."""
    file = fetch(path, FOLDER + "reuters_word_index.json", WORDS_CHECKSUM)
    return json.loads(file.read_text("utf-8"))
