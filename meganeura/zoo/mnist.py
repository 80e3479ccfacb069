"""Two small classifiers of handwritten digits."""

from __future__ import annotations

from typing import Any

import meganeura as mg
from meganeura import layers


def mnist_mlp(hidden: tuple[int, ...] = (256, 256), classes: int = 10) -> Any:
    """A model from images (batch, 28, 28, 1) to logits (batch, classes), through dense layers."""
    image = mg.Input((28, 28, 1), name="image")
    x = layers.Flatten(name="flatten")(image)
    for i, units in enumerate(hidden):
        x = layers.Dense(units, activation="relu", name=f"hidden_{i}")(x)
    return mg.Model(image, layers.Dense(classes, name="classifier")(x), name="mnist_mlp")


def mnist_convnet(filters: tuple[int, ...] = (32, 64), classes: int = 10) -> Any:
    """A model from images (batch, 28, 28, 1) to logits (batch, classes), through convolutions of 3 by 3."""
    x = image = mg.Input((28, 28, 1), name="image")
    for i, count in enumerate(filters):
        x = layers.Conv2D(count, 3, activation="relu", name=f"convolution_{i}")(x)
        x = layers.MaxPooling2D(2, name=f"pooling_{i}")(x)
    x = layers.Dropout(0.5, name="dropout")(layers.Flatten(name="flatten")(x))
    return mg.Model(image, layers.Dense(classes, name="classifier")(x), name="mnist_convnet")
