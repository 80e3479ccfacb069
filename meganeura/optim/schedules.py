"""Learning-rate schedules: the rate as a function of the step, written with ops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from meganeura import ops
from meganeura.identifiers import Family
from meganeura.ops.dispatch import convert_to_node, operation


class LearningRateSchedule:
    """Base of the schedules: `schedule(step)` is the learning rate at that step (0 is the first).

    A subclass of your own defines `__call__(step)` with `meganeura.ops`, and `get_config`.
    """

    def __call__(self, step: Any) -> Any:
        if type(self).rate is LearningRateSchedule.rate:
            raise NotImplementedError(
                f"schedule {type(self).__name__} must define __call__(self, step)"
            )
        return _evaluate(self, step)

    def rate(self, step: Any) -> Any:
        """The rate as a node; `step` is a float32 node."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in getattr(self, "arguments", ())}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LearningRateSchedule:
        return cls(**config)


@operation
def _evaluate(schedule: LearningRateSchedule, step: Any) -> Any:
    return convert_to_node(schedule.rate(ops.cast(convert_to_node(step), "float32")))


def _positive(schedule: LearningRateSchedule, **values: Any) -> None:
    for name, value in values.items():
        if value <= 0:
            raise ValueError(
                f"schedule {type(schedule).__name__}: {name} must be positive, got {value}"
            )


class ExponentialDecay(LearningRateSchedule):
    """initial_learning_rate * decay_rate ^ (step / decay_steps); `staircase` rounds the exponent down."""

    arguments = ("initial_learning_rate", "decay_steps", "decay_rate", "staircase", "name")

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        decay_rate: float,
        staircase: bool = False,
        name: str = "ExponentialDecay",
    ):
        _positive(self, decay_steps=decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def rate(self, step: Any) -> Any:
        exponent = ops.divide(step, float(self.decay_steps))
        if self.staircase:
            exponent = ops.floor(exponent)
        factor = ops.power(float(self.decay_rate), exponent)
        return ops.multiply(float(self.initial_learning_rate), factor)


class InverseTimeDecay(LearningRateSchedule):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps); `staircase` rounds the quotient down."""

    arguments = ExponentialDecay.arguments

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        decay_rate: float,
        staircase: bool = False,
        name: str = "InverseTimeDecay",
    ):
        _positive(self, decay_steps=decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate
        self.staircase = staircase
        self.name = name

    def rate(self, step: Any) -> Any:
        quotient = ops.divide(step, float(self.decay_steps))
        if self.staircase:
            quotient = ops.floor(quotient)
        divisor = ops.add(ops.multiply(quotient, float(self.decay_rate)), 1.0)
        return ops.divide(float(self.initial_learning_rate), divisor)


class PolynomialDecay(LearningRateSchedule):
    """(initial - end) * (1 - s / n) ^ power + end, for s = min(step, n) and n = decay_steps.

    With `cycle`, s is the step and n the smallest multiple of decay_steps that is not below it.
    """

    arguments = (
        "initial_learning_rate", "decay_steps", "end_learning_rate", "power", "cycle", "name",
    )  # fmt: skip

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        name: str = "PolynomialDecay",
    ):
        _positive(self, decay_steps=decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.end_learning_rate = end_learning_rate
        self.power = power
        self.cycle = cycle
        self.name = name

    def rate(self, step: Any) -> Any:
        length: Any = float(self.decay_steps)
        if self.cycle:
            rounds = ops.ceil(ops.divide(step, length))
            length = ops.multiply(ops.maximum(rounds, 1.0), length)
        else:
            step = ops.minimum(step, length)
        left = ops.power(ops.subtract(1.0, ops.divide(step, length)), float(self.power))
        span = float(self.initial_learning_rate - self.end_learning_rate)
        return ops.add(ops.multiply(span, left), float(self.end_learning_rate))


class PiecewiseConstantDecay(LearningRateSchedule):
    """values[i] while step <= boundaries[i] and after the boundaries before it, then the last value."""

    arguments = ("boundaries", "values", "name")

    def __init__(
        self, boundaries: Sequence[float], values: Sequence[float], name: str = "PiecewiseConstant"
    ):
        if len(boundaries) != len(values) - 1:
            raise ValueError(
                f"schedule PiecewiseConstantDecay: {len(boundaries)} boundaries need "
                f"{len(boundaries) + 1} values, got {len(values)}"
            )
        self.boundaries = list(boundaries)
        self.values = list(values)
        self.name = name

    def rate(self, step: Any) -> Any:
        result: Any = float(self.values[-1])
        for boundary, value in zip(self.boundaries[::-1], self.values[-2::-1], strict=True):
            result = ops.where(ops.less_equal(step, float(boundary)), float(value), result)
        return result


class CosineDecay(LearningRateSchedule):
    """Half a cosine from the initial rate down to alpha times it, over decay_steps.

    rate = initial * ((1 - alpha) * (1 + cos(pi * s / decay_steps)) / 2 + alpha). With
    `warmup_target` the rate first rises linearly to it over `warmup_steps`; the cosine then
    starts there, and its decay_steps are counted after the warm-up.
    """

    arguments = (
        "initial_learning_rate", "decay_steps", "alpha", "name", "warmup_target", "warmup_steps",
    )  # fmt: skip

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        alpha: float = 0.0,
        name: str = "CosineDecay",
        warmup_target: float | None = None,
        warmup_steps: float = 0,
    ):
        _positive(self, decay_steps=decay_steps)
        self.initial_learning_rate = initial_learning_rate
        self.decay_steps = decay_steps
        self.alpha = alpha
        self.name = name
        self.warmup_target = warmup_target
        self.warmup_steps = warmup_steps

    def rate(self, step: Any) -> Any:
        initial, length = float(self.initial_learning_rate), float(self.decay_steps)
        if self.warmup_target is None:
            return ops.multiply(initial, self._cosine(ops.minimum(step, length)))
        target, warm = float(self.warmup_target), float(self.warmup_steps)
        after = ops.clip(ops.subtract(step, warm), 0.0, length)
        decayed = ops.multiply(target, self._cosine(after))
        if not warm:
            return decayed
        rise = ops.add(ops.multiply(step, (target - initial) / warm), initial)
        return ops.where(ops.less(step, warm), rise, decayed)

    def _cosine(self, step: Any) -> Any:
        wave = ops.cos(ops.multiply(step, math.pi / float(self.decay_steps)))
        half = ops.multiply(ops.add(wave, 1.0), 0.5)
        return ops.add(ops.multiply(half, 1.0 - self.alpha), float(self.alpha))


class CosineDecayRestarts(LearningRateSchedule):
    """Cosine decay that starts again: each period is t_mul times as long, each peak m_mul times as high."""

    arguments = ("initial_learning_rate", "first_decay_steps", "t_mul", "m_mul", "alpha", "name")

    def __init__(
        self,
        initial_learning_rate: float,
        first_decay_steps: float,
        t_mul: float = 2.0,
        m_mul: float = 1.0,
        alpha: float = 0.0,
        name: str = "SGDRDecay",
    ):
        _positive(self, first_decay_steps=first_decay_steps, t_mul=t_mul)
        self.initial_learning_rate = initial_learning_rate
        self.first_decay_steps = first_decay_steps
        self.t_mul = t_mul
        self.m_mul = m_mul
        self.alpha = alpha
        self.name = name

    def rate(self, step: Any) -> Any:
        done = ops.divide(step, float(self.first_decay_steps))
        if self.t_mul == 1.0:
            period = ops.floor(done)
            fraction = ops.subtract(done, period)
        else:
            # After i periods (t^i - 1) / (t - 1) first periods have passed. Rounding the logarithm
            # and stepping back is exact at the restarts, where its floor may fall on either side.
            inside = ops.add(ops.multiply(done, self.t_mul - 1.0), 1.0)
            period = ops.round(ops.multiply(ops.log(inside), 1.0 / math.log(self.t_mul)))
            late = ops.greater(self._passed(period), ops.multiply(done, 1.0 + 1e-6))
            period = ops.where(late, ops.subtract(period, 1.0), period)
            left = ops.subtract(done, self._passed(period))
            fraction = ops.maximum(ops.divide(left, ops.power(float(self.t_mul), period)), 0.0)
        peak = ops.power(float(self.m_mul), period)
        wave = ops.add(ops.cos(ops.multiply(fraction, math.pi)), 1.0)
        height = ops.multiply(ops.multiply(peak, wave), 0.5)
        factor = ops.add(ops.multiply(height, 1.0 - self.alpha), float(self.alpha))
        return ops.multiply(float(self.initial_learning_rate), factor)

    def _passed(self, period: Any) -> Any:
        """How many first periods the first `period` periods last."""
        power = ops.power(float(self.t_mul), period)
        return ops.divide(ops.subtract(power, 1.0), self.t_mul - 1.0)


_TABLE: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        ExponentialDecay, InverseTimeDecay, PolynomialDecay, PiecewiseConstantDecay, CosineDecay,
        CosineDecayRestarts,
    )
}  # fmt: skip
_family = Family("learning-rate schedule", "keras.optimizers.schedules", _TABLE)


def serialize(learning_rate_schedule: Any) -> Any:
    """The schedule as a dict in Keras 3's config format."""
    return _family.serialize(learning_rate_schedule)


def serialize_callable(rate: Any) -> Any:
    """A learning rate that is a plain function, by name."""
    return _family.serialize_function(rate)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The schedule that `serialize` described."""
    return _family.deserialize(config, custom_objects)
