"""Whole training runs on the adapter: equal to NumPy's, to themselves, and without growth."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

import meganeura as mg
from meganeura import backend as backends
from meganeura import config, execution, layers
from meganeura.backend.wgpu import memory

pytest.importorskip("wgpu")


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    yield from checks.wgpu_backend()


@pytest.fixture
def on_gpu(gpu: Any) -> Iterator[Any]:
    before = backends._current
    backends._current = gpu
    yield gpu
    backends._current = before


def data(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.integers(0, 255, (count, 8, 8, 1)).astype("uint8")
    y = (x[:, :4].mean((1, 2, 3)) > x[:, 4:].mean((1, 2, 3))).astype("int32")
    return x, y


def convnet(dropout: float = 0.2) -> Any:
    mg.utils.set_random_seed(3)
    model = mg.Sequential(
        [
            mg.Input((8, 8, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.Conv2D(12, 3, activation="relu"),
            layers.Flatten(),
            layers.Dropout(dropout),
            layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(mg.optimizers.Adam(5e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(epochs: int = 2) -> tuple[list[np.ndarray], dict[str, list[float]]]:
    model = convnet()
    x, y = data()
    history = model.fit(x, y, batch_size=32, epochs=epochs, validation_split=0.2, verbose=0)
    return model.get_weights(), history.history


def test_two_runs_are_bitwise_equal(on_gpu: Any) -> None:
    first, second = train(), train()
    assert all(np.array_equal(a, b) for a, b in zip(first[0], second[0], strict=True))
    assert first[1] == second[1]


def test_training_equals_numpy(on_gpu: Any) -> None:
    ours, history = train()
    backends._current = None
    backends.set_backend("numpy")
    theirs, expected = train()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)
    for key, values in expected.items():
        np.testing.assert_allclose(history[key], values, rtol=2e-3, atol=2e-3, err_msg=key)


def test_optimised_equals_unoptimised(on_gpu: Any) -> None:
    ours, _ = train()
    before = config.optimize()
    config.set_optimize(False)
    try:
        plain, _ = train()
    finally:
        config.set_optimize(before)
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_checked_shaders_compute_the_same(on_gpu: Any) -> None:
    ours, _ = train(1)
    config.set_checked(True)
    execution.clear_cache()
    try:
        checked, _ = train(1)
    finally:
        config.set_checked(False)
        execution.clear_cache()
    for a, b in zip(ours, checked, strict=True):  # the driver may contract products differently
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_thousand_steps_make_nothing_new(on_gpu: Any) -> None:
    model = convnet(0.0)
    x, y = data(64)
    model.fit(x, y, batch_size=32, epochs=2, verbose=0)
    buffers, live = on_gpu.pool.created, on_gpu.pool.live_bytes
    pipelines = sum(len(p._known) for p in on_gpu._pipelines.values())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.fit(x, y, batch_size=32, epochs=500, verbose=0)
    assert on_gpu.pool.created <= buffers + 4  # the data of the second fit at most
    assert on_gpu.pool.live_bytes <= live + 65536
    assert sum(len(p._known) for p in on_gpu._pipelines.values()) == pipelines
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < memory + 40 * 1024


def test_plans_come_back_from_disk(on_gpu: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("MEGANEURA_CACHE", str(tmp_path / "plans"))
    execution.clear_cache()
    first, _ = train(1)
    kept = list((tmp_path / "plans").glob("*.json"))
    assert kept
    execution.clear_cache()
    second, _ = train(1)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    for path in kept:  # damage is no error
        path.write_bytes(path.read_bytes()[:100])
    execution.clear_cache()
    third, _ = train(1)
    assert all(np.array_equal(a, b) for a, b in zip(first, third, strict=True))
    execution.clear_cache()


def test_explain_tells_what_ran(on_gpu: Any) -> None:
    model = convnet()
    x, y = data(64)
    model.fit(x, y, batch_size=32, verbose=0)
    text = model.explain()
    for word in ("e-graph", "convolution and relu", "dispatches", "bytes moved", "compiled in"):
        assert word in text
    page = model.explain(format="html")
    assert page.startswith("<!doctype html>") and "<svg" in page
    with pytest.raises(ValueError, match="format"):
        model.explain(format="pdf")


def test_dispatches_of_a_small_step(on_gpu: Any) -> None:
    model = mg.Sequential([mg.Input((16,)), layers.Dense(8, activation="relu"), layers.Dense(4)])
    model.compile(mg.optimizers.SGD(0.1), "mse")
    model.fit(np.ones((32, 16), "float32"), np.ones((32, 4), "float32"), verbose=0)
    report = model._last_executable().report()
    assert report["dispatches"] <= 20
    assert any("fused_matmul" in k["name"] for k in report["kernels"])


@pytest.mark.parametrize("resident", [True, False])
def test_bytes_stay_bytes_until_the_first_kernel(
    on_gpu: Any, resident: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images of uint8 are uploaded and kept as such, and only a batch of them is ever in float32."""
    written: list[int] = []
    write = on_gpu.pool.write
    monkeypatch.setattr(
        on_gpu.pool,
        "write",
        lambda held, data: (written.append(memoryview(data).nbytes), write(held, data)),
    )
    monkeypatch.setitem(mg.config._settings, "resident_bytes", (1 << 30) * resident)
    x, y = data(2048)
    model = convnet()
    model.fit(x, y, batch_size=64, epochs=1, verbose=0)
    image = x[0].size
    expected = [x.nbytes] if resident else [64 * image] * 32
    assert [n for n in written if n >= min(expected[0], x.nbytes // 2)] == expected
    plan = model._last_step["train"].executable.plan
    pixels = [b for b in plan.buffers if b.role == "input" and b.dtype == "uint8"]
    assert [b.bytes for b in pixels] == [expected[0]]
    readers = [k for k in plan.kernels if any(b == pixels[0].id for b, _ in k.bindings)]
    assert len(readers) == 1
    largest = max(b.bytes for b in plan.buffers if b.role == "temporary")
    assert largest < 4 * x.nbytes


def test_steps_share_temporary_memory(on_gpu: Any) -> None:
    """Evaluation and prediction run in what training left free, and all of it ends with the model."""
    mg.utils.clear_session()
    before = on_gpu.pool.live_bytes
    x, y = data(64)
    model = convnet()
    model.train_on_batch(x, y)
    on_gpu.pool.forget_peak()
    trained = on_gpu.pool.live_bytes
    wanted = model._last_step["train"].executable.report()["temporary_bytes"]
    assert wanted > 0
    model.test_on_batch(x, y)
    tested = model._last_step["test"].executable.report()["temporary_bytes"]
    assert tested > 65536 > on_gpu.pool.live_bytes - trained
    first, second = (model._last_step[k].executable.owned for k in ("train", "test"))
    assert {b.serial for b in first.values()} & {b.serial for b in second.values()}
    del model, first, second
    mg.utils.clear_session()
    assert on_gpu.pool.live_bytes <= before and on_gpu.pool.idle_bytes == 0


def test_the_pool_gives_back_what_waits_longest(
    on_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = on_gpu.pool
    pool.release()
    monkeypatch.setattr(memory, "LARGEST_IDLE", 3 << 20)
    held = [pool.take(1 << 20) for _ in range(5)]
    serials = [b.serial for b in held]
    while held:
        held.pop(0)  # given back in this order
    assert pool.idle_bytes == 3 << 20
    again = [pool.take(1 << 20) for _ in range(4)]
    assert {b.serial for b in again} & set(serials) == set(serials[2:])
    assert pool.idle_bytes == 0
    with pytest.raises(MemoryError, match="could not allocate"):
        pool.take(1 << 50)


def test_no_two_temporaries_of_a_plan_are_one(on_gpu: Any) -> None:
    scratch = memory.Scratch(on_gpu.pool)
    first = scratch.lend([5000, 100, 5000, 70000])
    assert len({b.serial for b in first}) == 4
    second = scratch.lend([60000, 90, 300, 4000])
    assert {b.serial for b in second} <= {b.serial for b in first}
    assert all(b.size >= n for b, n in zip(second, (60000, 90, 300, 4000), strict=True))
    huge = scratch.lend([8 << 20])
    assert huge[0].serial != scratch.lend([1000])[0].serial
