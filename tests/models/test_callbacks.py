"""Callbacks: the order of their calls, what they are told, and what each of ours does."""

from __future__ import annotations

import csv
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import callbacks, layers
from meganeura.callbacks.events import crc32c, masked


def data(count: int = 24) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 4)).astype("float32")
    return x, (x @ random.normal(size=(4, 2))).astype("float32")


def regression(rate: float = 0.05, **arguments: Any) -> Any:
    mg.utils.set_random_seed(1)
    model = mg.Sequential([layers.Input((4,)), layers.Dense(2, name="only")])
    model.compile(mg.optimizers.SGD(rate), "mse", **arguments)
    return model


class Recorder(callbacks.Callback):
    """Writes down every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.logs: dict[str, Any] = {}


def _note(name: str) -> Any:
    def method(self: Any, first: Any = None, logs: Any = None) -> None:
        counted = isinstance(first, int)
        self.calls.append(f"{name} {first}" if counted else name)
        self.logs[name] = dict(logs if counted else first or {})

    return method


for _name in (
    "train_begin train_end epoch_begin epoch_end train_batch_begin train_batch_end test_begin test_end "
    "test_batch_begin test_batch_end predict_begin predict_end predict_batch_begin predict_batch_end"
).split():
    setattr(Recorder, f"on_{_name}", _note(_name))


def test_the_order_of_an_epoch() -> None:
    x, y = data(10)
    model, recorder = regression(), Recorder()
    model.fit(x, y, batch_size=8, validation_data=(x, y), verbose=0, callbacks=[recorder])
    assert recorder.calls == [
        "train_begin", "epoch_begin 0", "train_batch_begin 0", "train_batch_end 0",
        "train_batch_begin 1", "train_batch_end 1", "test_begin", "test_batch_begin 0",
        "test_batch_end 0", "test_batch_begin 1", "test_batch_end 1", "test_end", "epoch_end 0",
        "train_end",
    ]  # fmt: skip
    assert list(recorder.logs["epoch_end"]) == ["loss", "val_loss"]
    assert recorder.logs["train_end"] == recorder.logs["epoch_end"]
    assert recorder.params == {"verbose": 0, "epochs": 1, "steps": 2}
    assert recorder.model is model


def test_the_order_of_a_prediction() -> None:
    x, _ = data(10)
    recorder = Recorder()
    regression().predict(x, batch_size=8, verbose=0, callbacks=[recorder])
    assert recorder.calls == [
        "predict_begin", "predict_batch_begin 0", "predict_batch_end 0", "predict_batch_begin 1",
        "predict_batch_end 1", "predict_end",
    ]  # fmt: skip
    assert recorder.logs["predict_batch_end"]["outputs"].shape == (2, 2)


def test_logs_of_batches_are_running_averages() -> None:
    x, y = data(12)
    seen: list[float] = []
    model = regression(rate=1e-12)
    model.fit(
        x, y, batch_size=4, shuffle=False, verbose=0,
        callbacks=[callbacks.LambdaCallback(on_train_batch_end=lambda b, logs: seen.append(logs["loss"]))],
    )  # fmt: skip
    single = [model.test_on_batch(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)]
    expected = np.cumsum(single) / np.arange(1, 4)
    np.testing.assert_allclose(seen, expected, rtol=1e-5)


def test_the_older_names_of_batch_hooks_are_called() -> None:
    class Old(callbacks.Callback):
        ends = 0

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ends += 1

    x, y = data(12)
    old = Old()
    regression().fit(x, y, batch_size=4, verbose=0, callbacks=[old])
    assert old.ends == 3


def test_logs_that_nobody_looks_at_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from meganeura.models.steps import Logs

    reads: list[int] = []
    original = Logs.read
    monkeypatch.setattr(Logs, "read", lambda self: reads.append(1) or original(self))

    class Blind(callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    x, y = data(24)
    regression().fit(x, y, batch_size=2, verbose=0, callbacks=[Blind()])
    assert len(reads) == 1  # at the end of the epoch


def test_steps_per_execution_tells_callbacks_less_often() -> None:
    x, y = data(20)
    recorder = Recorder()
    regression(steps_per_execution=3).fit(x, y, batch_size=2, verbose=0, callbacks=[recorder])
    ends = [c for c in recorder.calls if c.startswith("train_batch_end")]
    assert ends == [
        "train_batch_end 2",
        "train_batch_end 5",
        "train_batch_end 8",
        "train_batch_end 9",
    ]


def test_keys_that_callbacks_add_reach_the_history() -> None:
    x, y = data()
    adding = callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(extra=epoch * 2))
    history = regression().fit(x, y, epochs=3, verbose=0, callbacks=[adding])
    assert history.history["extra"] == [0, 2, 4]
    assert list(history.history) == ["loss", "extra"]


def test_stop_training_is_looked_at_after_each_batch() -> None:
    x, y = data(20)

    class Stop(callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 2

    recorder = Recorder()
    regression().fit(x, y, batch_size=2, epochs=3, verbose=0, callbacks=[Stop(), recorder])
    assert sum(c.startswith("train_batch_begin") for c in recorder.calls) == 3
    assert recorder.calls[-2:] == ["epoch_end 0", "train_end"]


def test_what_is_no_callback_is_refused() -> None:
    x, y = data()
    with pytest.raises(TypeError, match="must be Callback objects"):
        regression().fit(x, y, verbose=0, callbacks=[print])


class Scripted(callbacks.Callback):
    """Puts given values into the logs, for the monitors behind it."""

    def __init__(self, values: list[float], name: str = "val_score"):
        super().__init__()
        self.values, self.name = values, name

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs[self.name] = self.values[epoch]


def scripted_fit(values: list[float], *others: Any, **arguments: Any) -> Any:
    x, y = data(4)
    model = regression(**arguments)
    return model, model.fit(
        x, y, epochs=len(values), verbose=0, callbacks=[Scripted(values), *others]
    )


@pytest.mark.parametrize(
    ("options", "values", "stopped", "best"),
    [
        ({"patience": 0}, [3, 2, 2, 1], 2, 1),
        ({"patience": 1}, [3, 2, 2.5, 1], 2, 1),
        ({"patience": 2}, [3, 2, 1, 0], 0, 3),
        ({"patience": 1, "min_delta": 0.5}, [3, 2.8, 2.7], 1, 0),
        ({"patience": 2, "baseline": 1.0}, [3, 2, 1.5, 1.2, 0.5, 0.6, 0.7, 0.8], 6, 4),
        ({"patience": 1, "start_from_epoch": 2}, [1, 2, 3, 4, 5], 3, 2),
        ({"patience": 0}, [float("nan"), float("nan"), 1], 1, 0),
    ],
)
def test_early_stopping(options: Any, values: list[float], stopped: int, best: int) -> None:
    stopping = callbacks.EarlyStopping("val_score", mode="min", **options)
    _, history = scripted_fit(values, stopping)
    assert stopping.stopped_epoch == stopped
    assert len(history.epoch) == (stopped + 1 if stopped else len(values))
    assert stopping.best_epoch == best


def test_early_stopping_upwards_and_by_name() -> None:
    stopping = callbacks.EarlyStopping("val_accuracy_like", patience=0)
    x, y = data(4)
    model = regression()
    model.fit(
        x, y, epochs=4, verbose=0,
        callbacks=[Scripted([1, 2, 1, 0], "val_accuracy_like"), stopping],
    )  # fmt: skip
    assert stopping.stopped_epoch == 2
    with pytest.raises(ValueError, match="pass mode='min' or 'max'"):
        model.fit(
            x, y, verbose=0, callbacks=[Scripted([1], "quirk"), callbacks.EarlyStopping("quirk")]
        )


def test_best_weights_come_back_although_training_ran_to_its_end() -> None:
    kept: dict[int, Any] = {}
    keep = callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: kept.update({epoch: keep.model.get_weights()})
    )
    stopping = callbacks.EarlyStopping(
        "val_score", mode="max", patience=9, restore_best_weights=True
    )
    model, _ = scripted_fit([1, 3, 2, 2], keep, stopping)
    assert stopping.stopped_epoch == 0
    np.testing.assert_array_equal(model.get_weights()[0], kept[1][0])
    assert np.any(kept[3][0] != kept[1][0])


def test_a_missing_monitor_is_a_warning() -> None:
    x, y = data()
    with pytest.warns(UserWarning, match="'val_loss' is not among the logs; there are loss"):
        regression().fit(x, y, verbose=0, callbacks=[callbacks.EarlyStopping()])


def test_reduce_on_plateau_with_cooldown_and_floor() -> None:
    plateau = callbacks.ReduceLROnPlateau(
        "val_score", mode="min", factor=0.5, patience=1, cooldown=1, min_lr=0.02
    )
    _, history = scripted_fit([1.0] * 7, plateau, rate=0.1)
    np.testing.assert_allclose(
        history.history["learning_rate"], [0.1, 0.1, 0.05, 0.025, 0.02, 0.02, 0.02], rtol=1e-6
    )
    with pytest.raises(ValueError, match="factor must be below 1"):
        callbacks.ReduceLROnPlateau(factor=1.0)


def test_learning_rate_scheduler() -> None:
    x, y = data()
    by_two = callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    history = regression(0.4).fit(x, y, epochs=3, verbose=0, callbacks=[by_two])
    np.testing.assert_allclose(history.history["learning_rate"], [0.2, 0.1, 0.05], rtol=1e-6)
    by_one = callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    history = regression().fit(x, y, epochs=2, verbose=0, callbacks=[by_one])
    np.testing.assert_allclose(history.history["learning_rate"], [0.1, 0.05], rtol=1e-6)
    with pytest.raises(ValueError, match="must return a number"):
        regression().fit(
            x, y, verbose=0, callbacks=[callbacks.LearningRateScheduler(lambda epoch: "0.1")]
        )


def test_terminate_on_nan(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data()
    x[5, 0] = np.nan
    with pytest.warns(UserWarning, match=r"not finite in sample 5"):
        history = regression().fit(
            x, y, epochs=5, verbose=0, shuffle=False, callbacks=[callbacks.TerminateOnNaN()]
        )
    assert len(history.epoch) == 1
    assert "the loss is nan" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="the loss is nan"):
        regression().fit(x, y, verbose=0, callbacks=[callbacks.TerminateOnNaN(raise_error=True)])


def test_csv_logger(tmp_path: Path) -> None:
    x, y = data()
    path = tmp_path / "log.csv"
    model = regression(metrics=["mae"])
    model.fit(
        x, y, epochs=2, verbose=0, validation_data=(x, y), validation_freq=2,
        callbacks=[callbacks.CSVLogger(path)],
    )  # fmt: skip
    rows = list(csv.reader(path.read_text().splitlines()))
    assert rows[0] == ["epoch", "loss", "mae", "val_loss", "val_mae"]
    assert rows[1][3:] == ["NA", "NA"]
    assert float(rows[2][3]) > 0
    model.fit(x, y, verbose=0, callbacks=[callbacks.CSVLogger(path, append=True)])
    assert len(path.read_text().splitlines()) == 4


def test_model_checkpoint_of_weights(tmp_path: Path) -> None:
    pattern = tmp_path / "deep" / "{epoch:02d}-{val_score:.1f}.weights.h5"
    checkpoint = callbacks.ModelCheckpoint(
        pattern, "val_score", mode="max", save_best_only=True, save_weights_only=True
    )
    scripted_fit([1, 3, 2, 4], checkpoint)
    found = sorted(p.name for p in (tmp_path / "deep").iterdir())
    assert found == ["01-1.0.weights.h5", "02-3.0.weights.h5", "04-4.0.weights.h5"]


def test_model_checkpoint_every_few_batches(tmp_path: Path) -> None:
    x, y = data(20)
    checkpoint = callbacks.ModelCheckpoint(
        tmp_path / "{epoch}-{batch}.weights.h5", save_weights_only=True, save_freq=4
    )
    regression().fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=[checkpoint])
    found = sorted(p.name.split(".")[0] for p in tmp_path.iterdir())
    assert found == ["1-4", "1-8", "2-10", "2-2", "2-6"]


def test_names_of_checkpoints_are_checked() -> None:
    with pytest.raises(ValueError, match="must end in .weights.h5"):
        callbacks.ModelCheckpoint("model.keras", save_weights_only=True)
    with pytest.raises(ValueError, match="must end in .keras or .h5"):
        callbacks.ModelCheckpoint("model")
    with pytest.raises(ValueError, match="save_freq"):
        callbacks.ModelCheckpoint("model.keras", save_freq=0)
    with pytest.raises(KeyError, match="asks for 'nothing'"):
        scripted_fit([1], callbacks.ModelCheckpoint("{nothing}.weights.h5", save_weights_only=True))


class Cut(callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise KeyboardInterrupt


def test_backup_and_restore_goes_on_as_if_nothing_happened(tmp_path: Path) -> None:
    x, y = data()
    folder = tmp_path / "backup"

    def fit(*others: Any) -> Any:
        model = regression()
        model.compile(mg.optimizers.Adam(0.05), "mse")
        history = model.fit(x, y, epochs=4, shuffle=False, verbose=0, callbacks=list(others))
        return model, history

    whole, _ = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(callbacks.BackupAndRestore(folder, double_checkpoint=True), Cut())
    assert json.loads((folder / "training_metadata.json").read_text())["epoch"] == 2
    assert (folder / "previous.weights.h5").exists()
    resumed, history = fit(callbacks.BackupAndRestore(folder))
    assert history.epoch == [2, 3]
    assert not folder.exists()
    np.testing.assert_array_equal(resumed.get_weights()[0], whole.get_weights()[0])


def test_swapped_averages_evaluate_and_the_weights_come_back() -> None:
    x, y = data()
    model = regression()
    model.compile(mg.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse")
    model.fit(x, y, epochs=2, verbose=0)
    model.fit(x, y, epochs=1, verbose=0)
    before = model.get_weights()[0]
    average = model.optimizer.slot("average", model.weights[0]).numpy() + 1.0
    model.optimizer.slot("average", model.weights[0]).assign(average)
    loss = model.evaluate(x, y, verbose=0, callbacks=[callbacks.SwapEMAWeights()])
    np.testing.assert_array_equal(model.get_weights()[0], before)
    model.set_weights([average, model.optimizer.slot("average", model.weights[1]).numpy()])
    assert model.evaluate(x, y, verbose=0) == pytest.approx(loss, rel=1e-5)
    with pytest.raises(ValueError, match="use_ema=True"):
        regression().evaluate(x, y, verbose=0, callbacks=[callbacks.SwapEMAWeights()])


def records(folder: Path) -> list[bytes]:
    """The records of an event file, their checksums verified."""
    (path,) = folder.iterdir()
    raw, found = path.read_bytes(), []
    while raw:
        (length,) = struct.unpack("<Q", raw[:8])
        assert raw[8:12] == masked(raw[:8])
        body = raw[12 : 12 + length]
        assert raw[12 + length : 16 + length] == masked(body)
        found.append(body)
        raw = raw[16 + length :]
    return found


def test_tensorboard_writes_event_files(tmp_path: Path) -> None:
    assert crc32c(b"123456789") == 0xE3069283
    x, y = data()
    board = callbacks.TensorBoard(tmp_path, histogram_freq=1, update_freq=2)
    history = regression().fit(
        x, y, batch_size=4, epochs=2, verbose=0, validation_data=(x, y), callbacks=[board]
    )
    train = records(tmp_path / "train")
    assert b"brain.Event:2" in train[0]
    losses = [r for r in train if b"epoch_loss" in r]
    assert struct.unpack("<f", losses[1][-4:])[0] == pytest.approx(history.history["loss"][1])
    assert sum(b"batch_loss" in r for r in train) == 6
    assert sum(b"only/kernel/histogram" in r for r in train) == 2
    assert sum(b"epoch_learning_rate" in r for r in train) == 2
    assert sum(b"epoch_loss" in r for r in records(tmp_path / "validation")) == 2
    with pytest.raises(ValueError, match="write_images is not offered"):
        callbacks.TensorBoard(write_images=True)


def test_remote_monitor_says_what_to_do() -> None:
    with pytest.raises(AttributeError, match="LambdaCallback"):
        _ = callbacks.RemoteMonitor


@pytest.mark.parametrize("verbose", [1, 2, "auto"])
def test_logs_of_a_file_have_one_line_for_an_epoch(
    verbose: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = data(10)
    regression().fit(x, y, batch_size=4, epochs=2, verbose=verbose, validation_data=(x, y))
    out, err = capsys.readouterr()
    lines = out.strip().splitlines()
    assert err == ""
    assert [line for line in lines if line.startswith("Epoch")] == ["Epoch 1/2", "Epoch 2/2"]
    assert len(lines) == 4
    assert lines[1].startswith("3/3 - 0s - ")
    assert "/step - loss: " in lines[1] and " - val_loss: " in lines[1]


def test_verbose_zero_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data(10)
    model = regression()
    model.fit(x, y, verbose=0)
    model.evaluate(x, y, verbose=0)
    model.predict(x, verbose=0)
    assert capsys.readouterr() == ("", "")
    model.evaluate(x, y, verbose=2)
    assert capsys.readouterr().out.startswith("1/1 - 0s - ")
    with pytest.raises(ValueError, match="verbose must be 0, 1, 2 or 'auto'"):
        model.fit(x, y, verbose=3)


def test_a_terminal_gets_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = data(10)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    regression().fit(x, y, batch_size=2, verbose=1)
    out, err = capsys.readouterr()
    assert "Epoch 1:" in err and "step" in err
    assert len(out.strip().splitlines()) == 1
