"""The loops of fit, evaluate and predict: batches, steps, callbacks."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura.backend import backend_object
from meganeura.callbacks.lists import CallbackList, LazyLogs
from meganeura.data.batch import Batch, Source
from meganeura.execution import Slot
from meganeura.models.steps import Logs, Pace
from meganeura.ops.dispatch import map_tree
from meganeura.tensor import Tensor

#: Outputs of `predict` are copied to the host in groups of at most this many bytes and batches; fewer batches
#: where a group takes longer than so many seconds.
_READ_AT_ONCE = 32 << 20
_MOST_UNREAD = 256
_GROUP_SECONDS = 0.2


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


class _Outputs:
    """The outputs of batches on their way to the host.

    One group is waited for while the device computes the next, so that it never waits for the host.
    """

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._group: list[Any] = []
        self._bytes = 0
        self._most = 1
        self._on_the_way: Callable[[], list[Any]] | None = None
        self._since = time.perf_counter()

    def add(self, outputs: Any) -> None:
        self._group.append(outputs)
        self._bytes += _bytes(outputs)
        if self._bytes > _READ_AT_ONCE or len(self._group) >= self._most:
            self._collect(later_on_host(self._group))
            self._group, self._bytes = [], 0

    def _collect(self, following: Callable[[], list[Any]] | None) -> None:
        before, self._on_the_way = self._on_the_way, following
        if before is None:
            return
        self.parts += before()
        now = time.perf_counter()
        longer, shorter = 4 * self._most, max(1, self._most // 2)
        self._most = shorter if now - self._since > _GROUP_SECONDS else min(longer, _MOST_UNREAD)
        self._since = now

    def all(self) -> list[Any]:
        if self._group:
            self._collect(later_on_host(self._group))
        self._collect(None)
        return self.parts


def predict(model: Any, source: Source, steps: int | None, listed: CallbackList) -> list[Any]:
    """The outputs of each batch, as arrays. They are read back while later batches are computed."""
    collected = _Outputs()
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
        collected.add(outputs)
        listed.on_predict_batch_end(done, {"outputs": outputs})
        done += 1
    if not done:
        raise ValueError("there are no samples to predict: the data are empty")
    _tell_if_short(done, steps)
    parts = collected.all()
    listed.on_predict_end()
    return parts


def _tell_if_short(done: int, steps: int | None) -> None:
    if steps is not None and done < steps:
        warnings.warn(f"the data ended after {done} steps, before the {steps} that were asked for")


def on_host(outputs: Any) -> Any:
    """Outputs, however nested, as NumPy arrays, with one wait for the device."""
    return later_on_host(outputs)()


def later_on_host(outputs: Any) -> Callable[[], Any]:
    """Have outputs copied to the host; returns what waits for them and gives the arrays."""
    tensors: list[Tensor] = []

    def collect(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            tensors.append(leaf)
            return Slot(len(tensors) - 1)
        return np.asarray(leaf)

    structure = map_tree(collect, outputs)
    wait = backend_object().download_later([(t.handle, t.shape, t.dtype) for t in tensors])

    def arrays() -> Any:
        found = wait()
        return map_tree(lambda s: found[s.index] if isinstance(s, Slot) else s, structure)

    return arrays


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
