"""MNIST: 60,000 + 10,000 handwritten digits of 28x28 grey levels (Y. LeCun, C. Cortes, C. Burges)."""

from __future__ import annotations

import zipfile

import numpy as np

from meganeura.datasets.download import fetch

ORIGIN = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
CHECKSUM = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"

Arrays = tuple[np.ndarray, np.ndarray]


def load_data(path: str = "mnist.npz") -> tuple[Arrays, Arrays]:
    """`(x_train, y_train), (x_test, y_test)`: uint8 images (N, 28, 28) and uint8 labels (N,).

    Downloaded once and kept (https://keras.io/api/datasets/mnist). Raises DownloadError where the
    file is neither cached nor to be had.
    """
    file = fetch(path, ORIGIN, CHECKSUM)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return (
                (arrays["x_train"], arrays["y_train"]),
                (arrays["x_test"], arrays["y_test"]),
            )
    except (KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not the MNIST archive: {error}") from error
