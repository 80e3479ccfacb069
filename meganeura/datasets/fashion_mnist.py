"""Fashion-MNIST: 60,000 + 10,000 pictures of clothes, 28x28 grey levels (H. Xiao and others, 2017)."""

from __future__ import annotations

import numpy as np

from meganeura.datasets.download import fetch
from meganeura.datasets.idx import read_idx

FOLDER = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"

#: The MD5 sums that the authors published.
CHECKSUMS = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}

Arrays = tuple[np.ndarray, np.ndarray]


def load_data() -> tuple[Arrays, Arrays]:
    """`(x_train, y_train), (x_test, y_test)`: uint8 images (N, 28, 28) and uint8 labels (N,), 0 to 9.

    Downloaded once and kept (https://keras.io/api/datasets/fashion_mnist).
    """
    x_train, y_train, x_test, y_test = (
        read_idx(fetch(f"fashion-{name}", FOLDER + name, checksum))
        for name, checksum in CHECKSUMS.items()
    )
    return (x_train, y_train), (x_test, y_test)
