"""California Housing: prices of houses in 20,640 districts, 8 features (R. Pace, R. Barry, 1997)."""

from __future__ import annotations

import numpy as np

from meganeura.datasets import pickles, texts
from meganeura.datasets.download import fetch

ORIGIN = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/california_housing.npz"
CHECKSUM = "1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f"

Arrays = tuple[np.ndarray, np.ndarray]


def load_data(
    version: str = "large",
    path: str = "california_housing.npz",
    test_split: float = 0.2,
    seed: int = 113,
) -> tuple[Arrays, Arrays]:
    """`(x_train, y_train), (x_test, y_test)`: float32 (N, 8) and prices in dollars (N,).

    version: "large", all districts, or "small", 600 (https://keras.io/api/datasets/california_housing)
    """
    if version not in ("large", "small"):
        raise ValueError(f"load_data: version must be 'large' or 'small', got {version!r}")
    if not 0 <= test_split < 1:
        raise ValueError(f"load_data: test_split must be at least 0 and below 1, got {test_split}")
    arrays = pickles.load_npz(fetch(path, ORIGIN, CHECKSUM), ("x", "y"))
    x, y = texts.shuffled([a[:600] if version == "small" else a for a in arrays], seed)
    count = int(len(x) * (1 - test_split))
    return (x[:count], y[:count]), (x[count:], y[count:])
