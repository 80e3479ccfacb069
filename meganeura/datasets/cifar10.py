"""CIFAR-10: 50,000 + 10,000 colour pictures of 10 kinds of things (A. Krizhevsky, 2009)."""

from __future__ import annotations

import numpy as np

from meganeura.datasets.cifar import FOLDER, read_batches
from meganeura.datasets.download import fetch

CHECKSUM = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"

Arrays = tuple[np.ndarray, np.ndarray]


def load_data() -> tuple[Arrays, Arrays]:
    """`(x_train, y_train), (x_test, y_test)`: uint8 (N, 32, 32, 3) and (N, 1), 0 to 9.

    Downloaded once and kept (https://keras.io/api/datasets/cifar10).
    """
    file = fetch("cifar-10-python.tar.gz", FOLDER + "cifar-10-python.tar.gz", CHECKSUM)
    folder = "cifar-10-batches-py"
    train = read_batches(file, [f"{folder}/data_batch_{i}" for i in range(1, 6)], "labels")
    return train, read_batches(file, [f"{folder}/test_batch"], "labels")
