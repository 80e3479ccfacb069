"""Train a small convnet on the UCI handwritten digits, save it, load it, and show what the compiler did.

    python examples/digits_convnet.py [--epochs 25] [--seed 0]

The data are the 1,797 real 8x8 images that scikit-learn ships, so no network is needed. A fifth of
them is held out for the test.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import meganeura as mg
from meganeura import layers


def build() -> mg.Sequential:
    return mg.Sequential(
        [
            mg.Input((8, 8, 1)),
            layers.Rescaling(1 / 16),
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Conv2D(64, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ],
        name="digits",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default="digits.weights.h5", help="where to save the weights")
    arguments = parser.parse_args()

    start = time.perf_counter()
    mg.utils.set_random_seed(arguments.seed)
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("uint8")
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    print(f"{len(x_train)} images to train on, {len(x_test)} to test; {mg.backend.describe()}")

    model = build()
    batch_size, validation_split = 64, 0.1
    steps = -(-int(len(x_train) * (1 - validation_split)) // batch_size) * arguments.epochs
    model.compile(
        optimizer=mg.optimizers.Adam(mg.optimizers.schedules.CosineDecay(2e-3, steps)),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.summary()
    model.fit(
        x_train,
        y_train,
        batch_size=batch_size,
        epochs=arguments.epochs,
        validation_split=validation_split,
    )
    loss, accuracy = model.evaluate(x_test, y_test, verbose=0)

    # The weights go through a file in Keras 3's layout; the new model must predict the same.
    path = Path(arguments.weights)
    if not path.parent.is_dir():
        path = Path(tempfile.mkdtemp()) / path.name
    model.save_weights(path)
    again = build()
    again.load_weights(path)
    before, after = model.predict(x_test, verbose=0), again.predict(x_test, verbose=0)
    if not np.array_equal(before, after):
        raise SystemExit("the loaded model predicts differently from the saved one")

    print(model.explain())
    print(f"saved {path} ({path.stat().st_size} bytes); the loaded model predicts identically")
    print(f"computed on: {mg.backend.describe()}")
    print(
        f"test loss {loss:.4f}, test accuracy {accuracy:.2%}, {time.perf_counter() - start:.1f} s"
    )


if __name__ == "__main__":
    main()
