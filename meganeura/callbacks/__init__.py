"""Callbacks (https://keras.io/api/callbacks)."""

from __future__ import annotations

from typing import Any

from meganeura.callbacks.backup import BackupAndRestore as BackupAndRestore
from meganeura.callbacks.backup import SwapEMAWeights as SwapEMAWeights
from meganeura.callbacks.base import Callback as Callback
from meganeura.callbacks.files import CSVLogger as CSVLogger
from meganeura.callbacks.files import LambdaCallback as LambdaCallback
from meganeura.callbacks.history import History as History
from meganeura.callbacks.lists import CallbackList as CallbackList
from meganeura.callbacks.monitors import EarlyStopping as EarlyStopping
from meganeura.callbacks.monitors import LearningRateScheduler as LearningRateScheduler
from meganeura.callbacks.monitors import ModelCheckpoint as ModelCheckpoint
from meganeura.callbacks.monitors import ReduceLROnPlateau as ReduceLROnPlateau
from meganeura.callbacks.monitors import TerminateOnNaN as TerminateOnNaN
from meganeura.callbacks.progress import ProgbarLogger as ProgbarLogger
from meganeura.callbacks.tensorboard import TensorBoard as TensorBoard


def __getattr__(name: str) -> Any:
    if name == "RemoteMonitor":
        raise AttributeError(
            "callbacks.RemoteMonitor is not offered; post the logs yourself from "
            "LambdaCallback(on_epoch_end=...)"
        )
    raise AttributeError(f"module 'meganeura.callbacks' has no attribute {name!r}")
