"""Adam and its kin: averages of the gradient and of its square, corrected for their start at zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meganeura import ops
from meganeura.ops.dispatch import convert_to_node
from meganeura.optim.base import Optimizer
from meganeura.optim.descent import moved
from meganeura.variable import Variable


def one_minus_power(beta: float, step: Any) -> Any:
    """1 - beta^step, without the cancellation that costs float32 four digits at beta = 0.999."""
    if beta == 0:
        return ops.ones_like(step)
    return ops.negative(ops.expm1(ops.multiply(step, math.log(beta))))


class _Moments(Optimizer):
    """What the family shares: beta_1, beta_2, epsilon, and a momentum and a velocity per weight."""

    arguments: tuple[str, ...] = ("beta_1", "beta_2", "epsilon")
    second = "velocity"

    def __init__(
        self,
        learning_rate: Any,
        beta_1: float,
        beta_2: float,
        epsilon: float,
        weight_decay: float | None,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        self._check_range("beta_1", beta_1, 0, 1)
        self._check_range("beta_2", beta_2, 0, 1)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        self.add_optimizer_variables(variables, ["momentum", self.second])

    def _move(self, gradient: Any, variable: Variable) -> tuple[Any, Any]:
        """Update both averages; returns their new values."""
        momentum, velocity = self.slot("momentum", variable), self.slot("velocity", variable)
        m = moved(momentum, gradient, 1 - self.beta_1)
        v = moved(velocity, ops.square(gradient), 1 - self.beta_2)
        momentum.assign(m)
        velocity.assign(v)
        return m, v


class Adam(_Moments):
    """m += (1 - beta_1) * (g - m); v += (1 - beta_2) * (g^2 - v);
    w -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon).

    `amsgrad` divides by the largest v so far.
    """

    arguments = (*_Moments.arguments, "amsgrad")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, weight_decay, **options)
        self.amsgrad = amsgrad

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        if self.amsgrad:
            self.add_optimizer_variables(variables, "velocity_hat")

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        step = self._step()
        correction = ops.divide(
            ops.sqrt(one_minus_power(self.beta_2, step)), one_minus_power(self.beta_1, step)
        )
        m, v = self._move(gradient, variable)
        if self.amsgrad:
            largest = self.slot("velocity_hat", variable)
            v = ops.maximum(largest, v)
            largest.assign(v)
        change = ops.divide(
            ops.multiply(m, ops.multiply(learning_rate, correction)),
            ops.add(ops.sqrt(v), self.epsilon),
        )
        variable.assign(ops.subtract(variable, change))


class AdamW(Adam):
    """Adam with decoupled weight decay, by default 0.004: first w -= learning_rate * weight_decay * w."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float | None = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, amsgrad, weight_decay, **options)
        if weight_decay is None:
            raise ValueError("optimizer AdamW: weight_decay must be a number; use Adam without one")


class Adamax(_Moments):
    """m as in Adam; u = max(beta_2 * u, |g|); w -= learning_rate * m / ((1 - beta_1^t) * (u + epsilon))."""

    second = "norm"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, weight_decay, **options)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        momentum, norm = self.slot("momentum", variable), self.slot("norm", variable)
        m = moved(momentum, gradient, 1 - self.beta_1)
        u = ops.maximum(ops.multiply(norm, self.beta_2), ops.abs(gradient))
        momentum.assign(m)
        norm.assign(u)
        rate = ops.divide(learning_rate, one_minus_power(self.beta_1, self._step()))
        change = ops.divide(ops.multiply(m, rate), ops.add(u, self.epsilon))
        variable.assign(ops.subtract(variable, change))


class Nadam(_Moments):
    """Adam with Nesterov momentum, whose share u_t = beta_1 * (1 - 0.96^t / 2) grows with time.

    w -= learning_rate * m' / (sqrt(v / (1 - beta_2^t)) + epsilon), with
    m' = u_{t+1} * m / (1 - u_1 ... u_{t+1}) + (1 - u_t) * g / (1 - u_1 ... u_t).
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, weight_decay, **options)

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        self._product = self.add_variable((), "ones", name="momentum_product")

    def _share(self, step: Any) -> Any:
        decay = ops.exp(ops.multiply(step, math.log(0.96)))
        return ops.multiply(ops.subtract(1.0, ops.multiply(decay, 0.5)), self.beta_1)

    def _update_steps(self, grads: list[Any], variables: list[Variable]) -> None:
        self._product.assign(ops.multiply(self._product, self._share(self._step())))
        super()._update_steps(grads, variables)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        step = self._step()
        share, following = self._share(step), self._share(ops.add(step, 1.0))
        product = convert_to_node(self._product)
        m, v = self._move(gradient, variable)
        ahead = ops.divide(following, ops.subtract(1.0, ops.multiply(product, following)))
        here = ops.divide(ops.subtract(1.0, share), ops.subtract(1.0, product))
        mixed = ops.add(ops.multiply(m, ahead), ops.multiply(gradient, here))
        scale = ops.sqrt(ops.divide(v, one_minus_power(self.beta_2, step)))
        change = ops.divide(ops.multiply(mixed, learning_rate), ops.add(scale, self.epsilon))
        variable.assign(ops.subtract(variable, change))


class Lamb(_Moments):
    """Adam's step d (both averages corrected), scaled per weight: w -= learning_rate * |w| / |d| * d."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, weight_decay, **options)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        step = self._step()
        m, v = self._move(gradient, variable)
        scale = ops.sqrt(ops.divide(v, one_minus_power(self.beta_2, step)))
        direction = ops.divide(
            ops.divide(m, one_minus_power(self.beta_1, step)), ops.add(scale, self.epsilon)
        )
        weight = ops.sqrt(ops.sum(ops.square(variable)))
        length = ops.sqrt(ops.sum(ops.square(direction)))
        usable = ops.logical_and(ops.greater(weight, 0.0), ops.greater(length, 0.0))
        ratio = ops.where(usable, ops.divide(weight, ops.where(usable, length, 1.0)), 1.0)
        change = ops.multiply(direction, ops.multiply(ratio, learning_rate))
        variable.assign(ops.subtract(variable, change))


class ScheduleFreeAdamW(_Moments):
    """AdamW that averages its iterates in place of a learning-rate schedule.

    z -= lr * g / (sqrt(v / (1 - beta_2^t)) + epsilon); x = (1 - 1/t) * x + z / t;
    w = (1 - beta_1) * z + beta_1 * x. z is kept in the slot "momentum"; x is recovered from w.
    """

    arguments = (*_Moments.arguments, "warmup_steps")

    def __init__(
        self,
        learning_rate: Any = 0.0025,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        warmup_steps: int = 0,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, weight_decay, **options)
        if beta_1 == 0:
            raise ValueError("optimizer ScheduleFreeAdamW: beta_1 must be greater than 0")
        self.warmup_steps = warmup_steps

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        for variable in variables:
            if not variable.overwrite_with_gradient:
                slot = self.slot("momentum", variable)
                slot.backend.write(slot.handle, variable.numpy())  # also while a graph is recorded

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        step = self._step()
        if self.warmup_steps > 0:
            share = ops.minimum(ops.divide(step, float(self.warmup_steps)), 1.0)
            learning_rate = ops.multiply(learning_rate, share)
        momentum, velocity = self.slot("momentum", variable), self.slot("velocity", variable)
        v = moved(velocity, ops.square(gradient), 1 - self.beta_2)
        scale = ops.sqrt(ops.divide(v, one_minus_power(self.beta_2, step)))
        change = ops.divide(ops.multiply(gradient, learning_rate), ops.add(scale, self.epsilon))
        z_old = convert_to_node(momentum)
        z = ops.subtract(z_old, change)
        x_old = ops.divide(
            ops.subtract(variable, ops.multiply(z_old, 1 - self.beta_1)), self.beta_1
        )
        share = ops.divide(1.0, step)
        x = ops.add(ops.multiply(x_old, ops.subtract(1.0, share)), ops.multiply(z, share))
        velocity.assign(v)
        momentum.assign(z)
        variable.assign(ops.add(ops.multiply(z, 1 - self.beta_1), ops.multiply(x, self.beta_1)))
