"""Decoding: what attention and positions need to know while a text grows token by token."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.graph import trace
from meganeura.variable import Variable


class Decoding:
    """While it is entered, layers in this thread read and write a cache of keys and values.

    lengths: (batch,) int32, how many tokens each row has had before this call
    batch, capacity: how many rows, and for how many tokens there is room
    first:   the call brings whole prompts, padded at their ends to one length; `counts` (batch,)
             says how many of their tokens are meant. Otherwise it brings one token for each row.

    A row's token at position p lies in slot p % slots of each cache, where `slots` is the capacity
    or, for a sliding window, the window: a ring. Caches are made when a layer first asks for one.
    """

    def __init__(self, batch: int, capacity: int):
        self.batch = batch
        self.capacity = capacity
        self.first = False
        self.lengths: Any = None
        self.counts: Any = None
        self._caches: dict[tuple[int, str], Variable] = {}

    @property
    def caches(self) -> list[Variable]:
        return list(self._caches.values())

    @property
    def bytes(self) -> int:
        """What the caches occupy."""
        return sum(4 * v.size for v in self.caches)

    def phase(self, first: bool, lengths: Any, counts: Any = None) -> Decoding:
        """The same caches, for the prompts (`first`) or for one more token."""
        self.first, self.lengths, self.counts = first, lengths, counts
        return self

    def __enter__(self) -> Decoding:
        _state.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _state.stack.pop()

    def positions(self, length: int) -> Any:
        """Where the tokens of this call are in their rows: (1, length) or (batch, 1), int32."""
        if self.first:
            return ops.reshape(ops.arange(length), (1, length))
        return ops.reshape(self.lengths, (-1, 1))

    def variable(self, layer: Any, name: str, shape: tuple[int, ...]) -> Variable:
        found = self._caches.get((id(layer), name))
        if found is None:
            with trace.outside():
                found = Variable(
                    np.zeros(shape, layer.compute_dtype),
                    trainable=False,
                    name=name,
                    path=f"{layer.name}/{name}",
                )
            self._caches[id(layer), name] = found
        return found

    def remember(
        self, layer: Any, k: Any, v: Any, window: int | None = None
    ) -> tuple[Any, Any, Any]:
        """Put the keys and values of this call, (batch, heads, length, width), into a layer's cache.

        Returns all that the call's queries may look at, and the positions of these keys:
        (batch or 1, keys) int32, negative where there is none.
        """
        slots = min(self.capacity, window or self.capacity)
        slot = ops.arange(slots)
        caches = [
            self.variable(layer, name, (self.batch, x.shape[1], slots, x.shape[3]))
            for name, x in (("keys", k), ("values", v))
        ]
        if self.first:
            length = k.shape[2]
            last = ops.reshape(self.counts, (-1, 1)) - 1
            source = last - ops.mod(last - slot, slots)  # the newest position that a slot holds
            for cache, x in zip(caches, (k, v), strict=True):
                if length <= slots:  # what lies behind a prompt is overwritten before it is seen
                    new = ops.pad(x, ((0, 0), (0, 0), (0, slots - length), (0, 0)))
                else:
                    index = ops.reshape(ops.maximum(source, 0), (-1, 1, slots, 1))
                    shape = (self.batch, x.shape[1], slots, x.shape[3])
                    new = ops.take_along_axis(x, ops.broadcast_to(index, shape), axis=2)
                cache.assign(new)
            return k, v, ops.reshape(ops.arange(length), (1, length))
        now = ops.reshape(self.lengths, (-1, 1))
        here = ops.reshape(ops.equal(slot, ops.mod(now, slots)), (-1, 1, slots, 1))
        for cache, x in zip(caches, (k, v), strict=True):
            cache.assign(ops.where(here, x, cache.value))
        return caches[0].value, caches[1].value, now - ops.mod(now - slot, slots)

    def keep(self, layer: Any, k: Any, v: Any) -> tuple[Any, Any]:
        """Keys and values that do not change while the text grows: those of the prompts' call."""
        kept = []
        for name, x in (("keys", k), ("values", v)):
            cache = self.variable(layer, name, tuple(x.shape))
            if self.first:
                cache.assign(x)
            kept.append(cache.value)
        return kept[0], kept[1]


class _State(threading.local):
    def __init__(self) -> None:
        self.stack: list[Decoding] = []


_state = _State()


def decoding() -> Decoding | None:
    """The decoding that is going on in this thread, if any."""
    return _state.stack[-1] if _state.stack else None
