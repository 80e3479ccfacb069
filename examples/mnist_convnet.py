"""Train the convnet of Keras's MNIST example (https://keras.io/examples/vision/mnist_convnet).

    python examples/mnist_convnet.py [--epochs 5] [--data FOLDER] [--seed 0]

The data are downloaded once with a checksum. Without a network, `--data` names a folder with the
IDX files. Where it holds only the test split (t10k-*), its first 9,000 digits train the network
and the last 1,000 test it.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import meganeura as mg
from meganeura import layers
from meganeura.datasets.download import DownloadError
from meganeura.datasets.idx import find_idx, read_idx


def load(folder: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if folder is None:
        (x_train, y_train), (x_test, y_test) = mg.datasets.mnist.load_data()
        return x_train, y_train, x_test, y_test
    x, y = (
        read_idx(find_idx(folder, f"t10k-{n}")) for n in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    try:
        names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
        x_train, y_train = (read_idx(find_idx(folder, name)) for name in names)
    except FileNotFoundError:
        print("only the test split is there: its first 9,000 digits train, the last 1,000 test")
        return x[:9000], y[:9000], x[9000:], y[9000:]
    return x_train, y_train, x, y


def build() -> mg.Sequential:
    return mg.Sequential(
        [
            mg.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ],
        name="mnist_convnet",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--data", help="a folder with MNIST's IDX files, compressed or not")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", type=int, default=1)
    arguments = parser.parse_args()

    try:
        x_train, y_train, x_test, y_test = load(arguments.data)
    except (DownloadError, FileNotFoundError, ValueError) as error:
        sys.exit(
            f"{error}\nWithout a network, give a folder with the IDX files: "
            "python examples/mnist_convnet.py --data FOLDER"
        )
    start = time.perf_counter()
    mg.utils.set_random_seed(arguments.seed)
    x_train, x_test = x_train[..., None], x_test[..., None]
    print(f"{len(x_train)} digits to train on, {len(x_test)} to test; {mg.backend.describe()}")

    model = build()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        x_train,
        y_train,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_data=(x_test, y_test),
        verbose=arguments.verbose,
    )
    loss, accuracy = model.evaluate(x_test, y_test, verbose=0)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mnist.weights.h5"
        model.save_weights(path)
        again = build()
        again.load_weights(path)
    same = np.array_equal(model.predict(x_test, verbose=0), again.predict(x_test, verbose=0))
    if not same:
        sys.exit("the loaded model predicts differently from the saved one")

    print(model.explain())
    print("weights saved and loaded again: identical predictions")
    print(f"computed on: {mg.backend.describe()}")
    print(
        f"test loss {loss:.4f}, test accuracy {accuracy:.2%}, {time.perf_counter() - start:.1f} s"
    )


if __name__ == "__main__":
    main()
