"""Models in threads: they do not see each other's recordings, and share compiled plans safely."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import meganeura as mg
from meganeura import layers


def _model(seed: int) -> Any:
    mg.utils.set_random_seed(seed)
    model = mg.Sequential([mg.Input((6,)), layers.Dense(5, activation="tanh"), layers.Dense(2)])
    model.compile(mg.optimizers.SGD(0.05), "mse", metrics=["mae"])
    return model


def _in_threads(works: list[Callable[[], Any]]) -> list[Any]:
    results: list[Any] = [None] * len(works)

    def work(i: int) -> None:
        results[i] = works[i]()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_models_of_one_shape_train_at_the_same_time() -> None:
    random = np.random.default_rng(0)
    x, y = random.random((64, 6), "float32"), random.random((64, 2), "float32")

    def train(model: Any) -> list[np.ndarray]:
        model.fit(x, y, batch_size=16, epochs=4, shuffle=False, verbose=0)
        return [*model.get_weights(), model.predict(x, verbose=0)]

    alone = [train(_model(seed)) for seed in range(3)]
    models = [_model(seed) for seed in range(3)]
    together = _in_threads([lambda m=m: train(m) for m in models])
    for one, other in zip(alone, together, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_model_predicts_in_several_threads() -> None:
    model = _model(0)
    parts = [np.random.default_rng(i).random((32, 6), "float32") for i in range(4)]
    alone = [model.predict(part, verbose=0) for part in parts]

    def predict(part: np.ndarray) -> np.ndarray:
        for _ in range(4):
            found = model.predict(part, verbose=0)
        return found

    together = _in_threads([lambda p=p: predict(p) for p in parts])
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)
