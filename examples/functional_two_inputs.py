"""The functional API: two inputs, a shared layer, two outputs with losses of their own.

    python examples/functional_two_inputs.py

The task is made up: from two noisy readings of a point in the plane, say which quadrant the point
lies in and how far it is from the origin.
"""

import numpy as np

import meganeura as mg
from meganeura import layers


def data(count: int, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    point = random.uniform(-1, 1, (count, 2)).astype("float32")
    first, second = (point + 0.05 * random.standard_normal(point.shape) for _ in range(2))
    quadrant = (point[:, 0] > 0) * 2 + (point[:, 1] > 0)
    distance = np.linalg.norm(point, axis=1, keepdims=True)
    inputs = {"first": first.astype("float32"), "second": second.astype("float32")}
    return inputs, {"quadrant": quadrant.astype("int32"), "distance": distance}


def build() -> mg.Model:
    first = mg.Input((2,), name="first")
    second = mg.Input((2,), name="second")
    encode = layers.Dense(32, activation="relu", name="encode")  # one layer, called twice
    both = layers.Concatenate()([encode(first), encode(second)])
    hidden = layers.Dense(32, activation="relu")(both)
    quadrant = layers.Dense(4, activation="softmax", name="quadrant")(hidden)
    distance = layers.Dense(1, name="distance")(hidden)
    return mg.Model([first, second], {"quadrant": quadrant, "distance": distance}, name="point")


def main() -> None:
    mg.utils.set_random_seed(0)
    x, y = data(2000, seed=0)
    x_test, y_test = data(500, seed=1)
    model = build()
    model.summary()
    model.compile(
        optimizer=mg.optimizers.Adam(3e-3),
        loss={"quadrant": "sparse_categorical_crossentropy", "distance": "mse"},
        loss_weights={"quadrant": 1.0, "distance": 2.0},
        metrics={"quadrant": ["accuracy"], "distance": ["mae"]},
    )
    model.fit(x, y, batch_size=64, epochs=15, validation_split=0.1, verbose=2)
    results = model.evaluate(x_test, y_test, verbose=0, return_dict=True)
    for name, value in results.items():
        print(f"{name}: {value:.4f}")
    prediction = model.predict({k: v[:3] for k, v in x_test.items()}, verbose=0)
    print("three predictions:", {k: np.round(v, 2).tolist() for k, v in prediction.items()})
    if results["quadrant_accuracy"] < 0.9:
        raise SystemExit("the model did not learn")


if __name__ == "__main__":
    main()
