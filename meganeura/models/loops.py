"""The loops of fit, evaluate and predict: batches, steps, callbacks."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from meganeura.backend import backend_object
from meganeura.callbacks.lists import CallbackList, LazyLogs
from meganeura.data.batch import Batch, Source
from meganeura.execution import Slot
from meganeura.models.steps import Logs, Pace
from meganeura.ops.dispatch import map_tree
from meganeura.tensor import Tensor

#: Outputs of `predict` stay on the device until they are this many bytes, or of this many batches.
_READ_AT_ONCE = 64 << 20
_MOST_UNREAD = 256


def train_epoch(
    model: Any, source: Source, limit: int | None, listed: CallbackList, pace: Pace
) -> Logs:
    """One epoch of at most `limit` steps, which goes on where the last one ended the data early.

    Returns where the logs are.
    """
    done = 0
    fingerprint = model._fingerprint()
    logs = Logs([])
    readable, fresh = source.begin(), False
    while not model.stop_training and (limit is None or done < limit):
        found = (
            source.next(_at_once(model, "train", listed, pace, limit, done)) if readable else None
        )
        if found is None:
            readable = done == 0 and limit is not None and source.begin()
            if readable and not fresh:
                fresh = True  # the last epoch took exactly what was left
                continue
            if limit is not None or done == 0:
                warnings.warn(
                    f"the data ended before {limit or 'any'} steps were made; give data that can be "
                    "read again, or fewer steps_per_epoch"
                )
                model.stop_training = model.stop_training or not source.begin()
            break
        batch, count = found
        step, logs = model._step("train", batch, fingerprint)
        listed.on_train_batch_begin(done)
        step.run_many(batch, count)
        done += count
        listed.on_train_batch_end(done - 1, LazyLogs(logs.read))
        pace.made(count)
    return logs


def _at_once(
    model: Any, kind: str, listed: CallbackList, pace: Pace, limit: int | None, done: int
) -> int:
    """How many steps to make before the callbacks hear of it."""
    own = model.steps_per_execution if kind == "train" else 1
    single = listed.looks_at_batches(kind)
    most = 1 if model.run_eagerly else own if single else max(own, pace.left)
    return most if limit is None else min(most, limit - done)


def evaluate(
    model: Any, source: Source, steps: int | None, listed: CallbackList
) -> tuple[dict[str, Any], Logs]:
    """A pass over the data, after which they are at their start where they can be read again.

    Returns the logs, and where they are.
    """
    model.reset_metrics()
    pace = Pace()
    listed.on_test_begin()
    fingerprint = model._fingerprint()
    done = 0
    logs = Logs([])
    readable = source.begin()
    while readable and (steps is None or done < steps):
        found = source.next(_at_once(model, "test", listed, pace, steps, done))
        if found is None:
            break
        batch, count = found
        step, logs = model._step("test", batch, fingerprint)
        listed.on_test_batch_begin(done)
        step.run_many(batch, count)
        done += count
        listed.on_test_batch_end(done - 1, LazyLogs(logs.read))
        pace.made(count)
    if not done:
        raise ValueError("there are no samples to evaluate: the data are empty")
    source.reset()
    _tell_if_short(done, steps)
    values = logs.read()
    listed.on_test_end(dict(sorted(values.items())))
    return values, logs


def predict(model: Any, source: Source, steps: int | None, listed: CallbackList) -> list[Any]:
    """The outputs of each batch, as arrays. They are read back while later batches are computed."""
    waiting: list[Any] = []
    unread = 0
    parts: list[Any] = []
    fingerprint = model._fingerprint()
    listed.on_predict_begin()
    done = 0
    readable = source.begin()
    while readable and (steps is None or done < steps):
        found = source.next(1)
        if found is None:
            break
        batch, _ = found
        listed.on_predict_batch_begin(done)
        step, _ = model._step("predict", batch, fingerprint)
        outputs = step.run(batch)
        waiting.append(outputs)
        unread += _bytes(outputs)
        if unread > _READ_AT_ONCE or len(waiting) >= _MOST_UNREAD:
            # The newest half goes on being computed while the others are on their way.
            keep = len(waiting) // 2
            parts += on_host(waiting[: len(waiting) - keep])
            del waiting[: len(waiting) - keep]
            unread = sum(map(_bytes, waiting))
        listed.on_predict_batch_end(done, {"outputs": outputs})
        done += 1
    if not done:
        raise ValueError("there are no samples to predict: the data are empty")
    _tell_if_short(done, steps)
    parts += on_host(waiting)
    listed.on_predict_end()
    return parts


def _tell_if_short(done: int, steps: int | None) -> None:
    if steps is not None and done < steps:
        warnings.warn(f"the data ended after {done} steps, before the {steps} that were asked for")


def on_host(outputs: Any) -> Any:
    """Outputs, however nested, as NumPy arrays, with one wait for the device."""
    tensors: list[Tensor] = []

    def collect(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            tensors.append(leaf)
            return Slot(len(tensors) - 1)
        return np.asarray(leaf)

    structure = map_tree(collect, outputs)
    arrays = backend_object().download_many([(t.handle, t.shape, t.dtype) for t in tensors])
    return map_tree(lambda s: arrays[s.index] if isinstance(s, Slot) else s, structure)


def _bytes(outputs: Any) -> int:
    sizes: list[int] = []
    map_tree(lambda t: sizes.append(4 * math.prod(t.shape)), outputs)
    return sum(sizes)


def one(model: Any, kind: str, batch: Batch) -> tuple[Any, Logs]:
    """A single step on a batch: its outputs, and where its logs are."""
    if kind != "predict":
        model.reset_metrics()
    step, logs = model._step(kind, batch, model._fingerprint())
    return step.run(batch), logs


def joined(parts: list[Any]) -> Any:
    """Outputs of batches, one after the other, in the structure of each."""
    columns: list[list[np.ndarray]] = []
    for part in parts:
        leaves: list[np.ndarray] = []
        map_tree(leaves.append, part)
        columns.append(leaves)
    whole = iter([np.concatenate(column) for column in zip(*columns, strict=True)])
    return map_tree(lambda _: next(whole), parts[0])
