"""Choosing the next token on the device: the likeliest, or one drawn from the likelier ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura import ops, random

#: A threshold is searched by trying so many values at once, so many times: to 24 binary digits.
TRIED, ROUNDS = 15, 6
HIDDEN = -1e30


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. What `kind` holds is compiled in; the numbers may change between runs."""

    temperature: float
    top_k: int | None
    top_p: float | None
    penalty: float

    @classmethod
    def of(cls, temperature: Any, top_k: Any, top_p: Any, penalty: Any) -> Sampling:
        """Checked settings. Raises ValueError with what is allowed."""
        temperature = 0.0 if temperature is None else float(temperature)
        if not (temperature >= 0 and math.isfinite(temperature)):
            raise ValueError(f"generate: temperature must be 0 or more, got {temperature!r}")
        if top_k is not None and not (isinstance(top_k, (int, np.integer)) and top_k >= 1):
            raise ValueError(
                f"generate: top_k must be None or a positive whole number, got {top_k!r}"
            )
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(
                f"generate: top_p must be None or in the interval (0, 1], got {top_p!r}"
            )
        if not (penalty > 0 and math.isfinite(penalty)):
            raise ValueError(f"generate: repetition_penalty must be positive, got {penalty!r}")
        return cls(temperature, None if top_k is None else int(top_k), top_p, float(penalty))

    @property
    def penalised(self) -> bool:
        return self.penalty != 1.0

    @property
    def kind(self) -> tuple[bool, ...]:
        drawn = self.temperature > 0
        return (
            drawn, drawn and self.top_k is not None, drawn and self.top_p is not None, self.penalised
        )  # fmt: skip

    def numbers(self) -> np.ndarray:
        """Temperature, top-k, top-p and penalty as the plan reads them."""
        values = (self.temperature, self.top_k or 1, self.top_p or 1.0, self.penalty)
        return np.array(values, "float32")


def threshold(x: Any, enough: Any, low: Any, high: Any) -> Any:
    """The largest t in [low, high) for which `enough(x >= t)` holds, (batch, 1), to 24 binary digits of
    the interval.

    `enough` takes a condition (batch, tried, vocabulary) to (batch, tried), holds at `low`, and holds for
    every t below one for which it does.
    """
    shares = ops.convert_to_tensor((np.arange(1, TRIED + 1) / (TRIED + 1)).astype("float32"))
    for _ in range(ROUNDS):
        tried = low + (high - low) * shares
        kept = enough(ops.greater_equal(ops.expand_dims(x, 1), ops.expand_dims(tried, 2)))
        above = ops.max(ops.where(kept, tried, low), axis=-1, keepdims=True)
        high = ops.min(ops.where(kept, high, tried), axis=-1, keepdims=True)
        low = above
    return low


def keep_top_k(logits: Any, k: Any) -> Any:
    """Logits with all but the k largest of each row hidden; what is equal to the k-th stays."""
    high = ops.max(logits, axis=-1, keepdims=True)
    low = ops.min(logits, axis=-1, keepdims=True)

    def enough(kept: Any) -> Any:
        return ops.greater_equal(ops.sum(ops.cast(kept, "float32"), axis=-1), k)

    bound = threshold(logits, enough, low, high)
    return ops.where(ops.greater_equal(logits, bound), logits, HIDDEN)


def keep_top_p(logits: Any, p: Any) -> Any:
    """Logits with all hidden but the fewest that hold at least p of the probability."""
    weights = ops.softmax(logits, axis=-1)
    high = ops.max(weights, axis=-1, keepdims=True)

    def enough(kept: Any) -> Any:
        held = ops.where(kept, ops.expand_dims(weights, 1), 0.0)
        return ops.greater_equal(ops.sum(held, axis=-1), p)

    bound = threshold(weights, enough, ops.zeros_like(high), high)
    likeliest = ops.greater_equal(weights, high)
    kept = ops.logical_or(ops.greater_equal(weights, bound), likeliest)
    return ops.where(kept, logits, HIDDEN)


def penalise(logits: Any, seen: Any, penalty: Any) -> Any:
    """Tokens that were seen become less likely (arXiv 1909.05858)."""
    less = ops.where(ops.greater(logits, 0.0), logits / penalty, logits * penalty)
    return ops.where(seen, less, logits)


def next_tokens(logits: Any, sampling: Sampling, settings: Any, seed: Any, seen: Any) -> Any:
    """One token for each row of logits (batch, vocabulary), int32.

    settings (4,) are `Sampling.numbers()`, seed (2,) uint32 the words of this draw, seen (batch,
    vocabulary) the tokens of the text, where they are penalised. A draw is argmax(logits / temperature + g)
    with g from Gumbel's distribution.
    """
    if seen is not None:
        logits = penalise(logits, seen, settings[3])
    drawn, top_k, top_p, _ = sampling.kind
    if not drawn:
        return ops.argmax(logits, axis=-1)
    logits = logits / settings[0]
    if top_k:
        logits = keep_top_k(logits, settings[1])
    if top_p:
        logits = keep_top_p(logits, settings[2])
    uniform = ops.maximum(random.uniform(logits.shape, seed=seed), 2.0**-25)
    return ops.argmax(logits - ops.log(-ops.log(uniform)), axis=-1)
