"""BackupAndRestore and SwapEMAWeights: callbacks that put other weights into the model."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from meganeura.callbacks.base import Callback


class BackupAndRestore(Callback):
    """Keep a backup while training, and go on from it when training was cut off.

    backup_dir:        a folder of its own; it holds the weights, the optimizer's state and the epoch
    save_freq:         "epoch", or a number of batches; training goes on at the start of the epoch
    double_checkpoint: keep the backup before as well
    delete_checkpoint: remove the folder once training has ended

    (https://keras.io/api/callbacks/backup_and_restore)
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: Any = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ):
        super().__init__()
        if not os.fspath(backup_dir):
            raise ValueError("BackupAndRestore: backup_dir is empty")
        if save_freq != "epoch" and not (isinstance(save_freq, int) and save_freq > 0):
            raise ValueError(
                f"BackupAndRestore: save_freq is 'epoch' or a number of batches, not {save_freq!r}"
            )
        self.folder = Path(backup_dir)
        self.save_freq = save_freq
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint
        self.bulk = save_freq == "epoch"
        self._epoch = 0
        self._since = 0
        self._last = -1

    @property
    def _weights(self) -> Path:
        return self.folder / "latest.weights.h5"

    @property
    def _state(self) -> Path:
        return self.folder / "training_metadata.json"

    def on_train_begin(self, logs: Any = None) -> None:
        if not self._weights.exists():
            return
        try:
            epoch = int(json.loads(self._state.read_text())["epoch"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"BackupAndRestore: {self._state} cannot be read ({error}); remove the folder to start anew"
            ) from error
        self.model.load_weights(self._weights)
        self.model._initial_epoch = epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self._last = -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.save_freq == "epoch":
            return
        self._since += batch - self._last
        self._last = batch
        if self._since >= self.save_freq:
            self._since %= self.save_freq
            self._save(self._epoch, batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch + 1, 0)

    def _save(self, epoch: int, batch: int) -> None:
        """Weights first: a cut between the two repeats an epoch and loses none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.double_checkpoint and self._weights.exists():
            shutil.copy2(self._weights, self.folder / "previous.weights.h5")
            shutil.copy2(self._state, self.folder / "previous_metadata.json")
        self.model.save_weights(self._weights, overwrite=True)
        written = self._state.with_suffix(".tmp")
        written.write_text(json.dumps({"epoch": epoch, "batch": batch}))
        os.replace(written, self._state)

    def on_train_end(self, logs: Any = None) -> None:
        if self.delete_checkpoint and self.folder.exists():
            for name in ("latest.weights.h5", "training_metadata.json",
                         "previous.weights.h5", "previous_metadata.json"):  # fmt: skip
                (self.folder / name).unlink(missing_ok=True)
            try:
                self.folder.rmdir()
            except OSError:
                warnings.warn(f"BackupAndRestore: {self.folder} holds other files and is kept")


class SwapEMAWeights(Callback):
    """Evaluate and predict with the averages that an optimizer with `use_ema=True` keeps.

    swap_on_epoch: also have them in the model at the end of each epoch, for ModelCheckpoint
    """

    bulk = True

    def __init__(self, swap_on_epoch: bool = False):
        super().__init__()
        self.swap_on_epoch = swap_on_epoch
        #: the weights that are trained, while the averages stand in for them
        self._held: list[tuple[Any, Any]] | None = None

    def _swap(self, averages: bool) -> None:
        if averages == (self._held is not None):
            return
        if self._held is not None:
            for variable, array in self._held:
                variable.assign(array)
            self._held = None
            return
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        if optimizer is None or not getattr(optimizer, "use_ema", False):
            raise ValueError("SwapEMAWeights needs an optimizer made with use_ema=True")
        self._held = [(variable, variable.numpy()) for variable, _ in optimizer._averaged()]
        for variable, average in optimizer._averaged():
            variable.assign(average)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._swap(False)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.swap_on_epoch:
            self._swap(True)

    def on_train_end(self, logs: Any = None) -> None:
        self._held = None  # the optimizer has made the averages the weights

    def on_test_begin(self, logs: Any = None) -> None:
        self._swap(True)

    def on_test_end(self, logs: Any = None) -> None:
        self._swap(False)

    def on_predict_begin(self, logs: Any = None) -> None:
        self._swap(True)

    def on_predict_end(self, logs: Any = None) -> None:
        self._swap(False)
