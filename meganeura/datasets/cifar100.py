"""CIFAR-100: 50,000 + 10,000 colour pictures of 100 kinds of things in 20 groups (A. Krizhevsky, 2009)."""

from __future__ import annotations

import numpy as np

from meganeura.datasets.cifar import FOLDER, read_batches
from meganeura.datasets.download import fetch

CHECKSUM = "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"

Arrays = tuple[np.ndarray, np.ndarray]


def load_data(label_mode: str = "fine") -> tuple[Arrays, Arrays]:
    """`(x_train, y_train), (x_test, y_test)`: uint8 (N, 32, 32, 3) and (N, 1).

    label_mode: "fine" (0 to 99) or "coarse" (0 to 19) (https://keras.io/api/datasets/cifar100)
    """
    if label_mode not in ("fine", "coarse"):
        raise ValueError(f"load_data: label_mode must be 'fine' or 'coarse', got {label_mode!r}")
    file = fetch("cifar-100-python.tar.gz", FOLDER + "cifar-100-python.tar.gz", CHECKSUM)
    train, test = (
        read_batches(file, [f"cifar-100-python/{part}"], f"{label_mode}_labels")
        for part in ("train", "test")
    )
    return train, test
