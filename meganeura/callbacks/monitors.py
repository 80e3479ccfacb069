"""Callbacks that watch a metric: early stopping, checkpoints, learning rates, NaN."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meganeura.callbacks.base import Callback

_DOWN = (
    "loss",
    "error",
    "crossentropy",
    "mse",
    "mae",
    "mape",
    "msle",
    "rmse",
    "divergence",
    "hinge",
    "poisson",
)
_UP = (
    "accuracy",
    "acc",
    "auc",
    "precision",
    "recall",
    "score",
    "iou",
    "similarity",
    "positives",
    "r2",
)


class _Monitor(Callback):
    """Knows which direction of `monitor` is better."""

    def __init__(self, monitor: str, mode: str, min_delta: float):
        super().__init__()
        if mode not in ("auto", "min", "max"):
            raise ValueError(
                f"{type(self).__name__}: mode must be 'auto', 'min' or 'max', not {mode!r}"
            )
        self.monitor = monitor
        self.mode = mode
        self.min_delta = abs(min_delta)

    def _direction(self) -> str:
        if self.mode != "auto":
            return self.mode
        name = self.monitor.removeprefix("val_")
        for key, metric in self.model._metric_keys() if self.model is not None else ():
            if key == name and getattr(metric, "_direction", None):
                return "max" if metric._direction == "up" else "min"
        if name == "loss" or name.endswith("_loss") or any(w in name for w in _DOWN):
            return "min"
        if any(w in name for w in _UP):
            return "max"
        raise ValueError(
            f"{type(self).__name__}: whether {self.monitor!r} should rise or fall is not known; "
            "pass mode='min' or 'max'"
        )

    def _better(self, value: float, best: float | None) -> bool:
        upwards = self._direction() == "max"
        if best is None:
            return not math.isnan(value)
        if upwards:
            return value > best + self.min_delta
        return value < best - self.min_delta

    def _value(self, logs: Any) -> float | None:
        logs = logs or {}
        if self.monitor not in logs:
            warnings.warn(
                f"{type(self).__name__}: {self.monitor!r} is not among the logs; there are {', '.join(logs)}"
            )
            return None
        return float(logs[self.monitor])


class EarlyStopping(_Monitor):
    """Stop when a metric has not improved for `patience` epochs.

    (https://keras.io/api/callbacks/early_stopping)
    """

    bulk = True

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ):
        super().__init__(monitor, mode, min_delta)
        self.patience = patience
        self.verbose = verbose
        self.baseline = baseline
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = start_from_epoch
        self._reset()

    def _reset(self) -> None:
        self.wait = 0
        self.stopped_epoch = 0
        self.best: float | None = None
        self.best_weights: Any = None
        self.best_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._reset()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch < self.start_from_epoch:
            return
        value = self._value(logs)
        if value is None:
            return
        if self.restore_best_weights and self.best_weights is None:
            self.best_weights = self.model.get_weights()
            self.best_epoch = epoch
        self.wait += 1
        if self._better(value, self.best):
            self.best = value
            self.best_epoch = epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
            if self.baseline is None or self._better(value, self.baseline):
                self.wait = 0
            return
        if self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        if self.stopped_epoch and self.verbose:
            print(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self.restore_best_weights and self.best_weights is not None:
            if self.verbose:
                print(f"the weights of epoch {self.best_epoch + 1} are restored")
            self.model.set_weights(self.best_weights)


class ReduceLROnPlateau(_Monitor):
    """Multiply the learning rate by `factor` when a metric has not improved for `patience` epochs.

    (https://keras.io/api/callbacks/reduce_lr_on_plateau)
    """

    bulk = True

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(monitor, mode, min_delta)
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, and is {factor}")
        if kwargs:
            raise TypeError(f"ReduceLROnPlateau has no argument {next(iter(kwargs))!r}")
        self.factor, self.patience, self.verbose = factor, patience, verbose
        self.cooldown, self.min_lr = cooldown, min_lr
        self._reset()

    def _reset(self) -> None:
        self.cooldown_counter = 0
        self.wait = 0
        self.best: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._reset()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = logs if logs is not None else {}
        logs["learning_rate"] = _rate(self.model)
        value = self._value(logs)
        if value is None:
            return
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self._better(value, self.best):
            self.best = value
            self.wait = 0
        elif self.cooldown_counter <= 0:
            self.wait += 1
            if self.wait >= self.patience:
                old = _rate(self.model)
                if old > self.min_lr:
                    new = max(old * self.factor, self.min_lr)
                    self.model.optimizer.learning_rate = new
                    if self.verbose:
                        print(f"Epoch {epoch + 1}: the learning rate is reduced to {new:g}")
                    self.cooldown_counter = self.cooldown
                    self.wait = 0


def _rate(model: Any) -> float:
    rate = model.optimizer.learning_rate
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


class LearningRateScheduler(Callback):
    """Set the learning rate at the start of each epoch: schedule(epoch, rate) or schedule(epoch)."""

    bulk = True

    def __init__(self, schedule: Callable[..., float], verbose: int = 0):
        super().__init__()
        self.schedule = schedule
        self.verbose = verbose

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        now = _rate(self.model)
        rate = self.schedule(epoch, now) if _takes_two(self.schedule) else self.schedule(epoch)
        if not isinstance(rate, (float, int)) and not hasattr(rate, "item"):
            raise ValueError(
                f"LearningRateScheduler: the schedule must return a number, and returned {rate!r}"
            )
        self.model.optimizer.learning_rate = float(rate)
        if self.verbose:
            print(f"Epoch {epoch + 1}: the learning rate is {float(rate):g}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["learning_rate"] = _rate(self.model)


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(0, 0.0)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True


class TerminateOnNaN(Callback):
    """Stop when the running loss is NaN or infinite, which it stays from the first such batch on.

    Looking at it does not take training apart into single steps: it is noticed within about a fifth of a
    second.
    """

    bulk = True

    def __init__(self, raise_error: bool = False):
        super().__init__()
        self.raise_error = raise_error

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            if self.raise_error:
                raise RuntimeError(f"batch {batch}: the loss is {loss}")
            print(f"Batch {batch}: the loss is {loss}, training ends")
            self.model.stop_training = True


class ModelCheckpoint(_Monitor):
    """Save the model, or its weights, at the end of epochs or every few batches.

    (https://keras.io/api/callbacks/model_checkpoint)
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        initial_value_threshold: float | None = None,
    ):
        super().__init__(monitor, mode, 0.0)
        self.filepath = os.fspath(filepath)
        endings = (".weights.h5",) if save_weights_only else (".keras", ".h5")
        if not self.filepath.endswith(endings):
            raise ValueError(
                f"ModelCheckpoint: with save_weights_only={save_weights_only} the file's name must end in "
                f"{' or '.join(endings)}, and is {self.filepath!r}"
            )
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError(
                f"ModelCheckpoint: save_freq is 'epoch' or a number of batches, not {save_freq!r}"
            )
        self.verbose, self.save_best_only, self.save_weights_only = (
            verbose,
            save_best_only,
            save_weights_only,
        )
        self.save_freq = save_freq
        self.best = initial_value_threshold
        self.bulk = save_freq == "epoch"
        self._epoch = 0
        self._since = 0
        self._last = -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self._last = -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.save_freq == "epoch":
            return
        self._since += batch - self._last  # several where steps_per_execution is above 1
        self._last = batch
        if self._since >= self.save_freq:
            self._since %= self.save_freq
            self._save(self._epoch, batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, None, logs)

    def _save(self, epoch: int, batch: int | None, logs: Any) -> None:
        logs = dict(logs or {})
        path = self._path(epoch, batch, logs)
        if self.save_best_only:
            value = self._value(logs)
            if value is None or not self._better(value, self.best):
                return
            if self.verbose:
                print(f"Epoch {epoch + 1}: {self.monitor} is {value:.5f}, saving {path}")
            self.best = value
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if self.save_weights_only:
            self.model.save_weights(path, overwrite=True)
        else:
            self.model.save(path, overwrite=True)

    def _path(self, epoch: int, batch: int | None, logs: dict[str, Any]) -> str:
        values = {**logs, "epoch": epoch + 1}
        if batch is not None:
            values["batch"] = batch + 1
        try:
            return self.filepath.format(**values)
        except KeyError as error:
            raise KeyError(
                f"ModelCheckpoint: the name {self.filepath!r} asks for {error}, which is not among the logs: "
                f"{', '.join(values)}"
            ) from error
