"""Optimizers that see a weight as a matrix: Adafactor and Muon."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.ops.dispatch import convert_to_node
from meganeura.optim.adam import one_minus_power
from meganeura.optim.base import Optimizer
from meganeura.optim.descent import moved
from meganeura.variable import Variable


def _root_mean_square(x: Any) -> Any:
    return ops.sqrt(ops.mean(ops.square(x)))


class Adafactor(Optimizer):
    """Adam without momentum, whose second moment of a matrix is kept as row and column means.

    v = r c^T / mean(r) (for vectors, v itself), averaged with 1 - t^beta_2_decay;
    u = g / sqrt(v), divided by max(1, rms(u) / clip_threshold);
    w -= max(epsilon_2, rms(w)) * min(learning_rate, 1 / sqrt(t)) * u.
    """

    arguments = ("beta_2_decay", "epsilon_1", "epsilon_2", "clip_threshold", "relative_step")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        self.beta_2_decay = beta_2_decay
        self.epsilon_1 = epsilon_1
        self.epsilon_2 = epsilon_2
        self.clip_threshold = clip_threshold
        self.relative_step = relative_step

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        for variable in variables:
            if variable.overwrite_with_gradient:
                continue
            shape = variable.shape
            if len(shape) < 2:
                # Files hold a placeholder for each of the two means that a vector does not need.
                for _ in range(2):
                    self._variables.append(
                        Variable(np.int32(0), trainable=False, name=variable.name)
                    )
            else:
                for name, part in (("r", shape[:-1]), ("c", (*shape[:-2], shape[-1]))):
                    made = self.add_variable(part, name=variable.name)
                    self._slots[name, id(variable)] = made
            self.add_optimizer_variables([variable], "velocity")

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        step = self._step()
        limit = ops.rsqrt(step)
        # The step is limited in any case; `relative_step` is kept for its place in configs.
        rate = ops.minimum(learning_rate, limit)
        rate = ops.multiply(rate, ops.maximum(_root_mean_square(variable), self.epsilon_2))
        share = ops.power(step, float(self.beta_2_decay))
        square = ops.add(ops.square(gradient), self.epsilon_1)
        velocity = self.slot("velocity", variable)
        if len(variable.shape) < 2:
            v = moved(velocity, square, share)
        else:
            rows, columns = self.slot("r", variable), self.slot("c", variable)
            r = moved(rows, ops.mean(square, axis=-1), share)
            c = moved(columns, ops.mean(square, axis=-2), share)
            rows.assign(r)
            columns.assign(c)
            relative = ops.divide(r, ops.mean(r, axis=-1, keepdims=True))
            v = ops.multiply(ops.expand_dims(relative, -1), ops.expand_dims(c, -2))
        velocity.assign(v)
        u = ops.divide(gradient, ops.sqrt(v))
        excess = ops.maximum(ops.divide(_root_mean_square(u), self.clip_threshold), 1.0)
        variable.assign(ops.subtract(variable, ops.multiply(rate, ops.divide(u, excess))))


class Muon(Optimizer):
    """Momentum whose matrix is made orthogonal before each step; AdamW for all other weights.

    m = momentum * m + g; w -= learning_rate * rms_rate * sqrt(max(rows, columns)) * orthogonal(m),
    by `ns_steps` Newton-Schulz iterations x = a x + (b A + c A^2) x with A = x x^T. Weights that
    are not 2-D, embeddings (`exclude_embeddings`), and those whose path matches one of the patterns
    `exclude_layers` are updated by AdamW with learning_rate * adam_lr_ratio.
    """

    arguments = (
        "adam_beta_1", "adam_beta_2", "epsilon", "exclude_layers", "muon_a", "muon_b", "muon_c",
        "adam_lr_ratio", "momentum", "ns_steps", "nesterov", "exclude_embeddings",
        "adam_weight_decay", "rms_rate",
    )  # fmt: skip

    def __init__(
        self,
        learning_rate: Any = 0.001,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.999,
        adam_weight_decay: float | None = 0.004,
        epsilon: float = 1e-7,
        weight_decay: float | None = 0.004,
        *,
        exclude_layers: Sequence[str] | None = None,
        exclude_embeddings: bool = True,
        muon_a: float = 3.4445,
        muon_b: float = -4.7750,
        muon_c: float = 2.0315,
        adam_lr_ratio: float = 1,
        momentum: float = 0.95,
        ns_steps: int = 5,
        nesterov: bool = True,
        rms_rate: float | None = 0.2,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        self.adam_beta_1 = adam_beta_1
        self.adam_beta_2 = adam_beta_2
        self.adam_weight_decay = adam_weight_decay
        self.epsilon = epsilon
        self.exclude_layers = list(exclude_layers or [])
        self.exclude_embeddings = exclude_embeddings
        self.muon_a = muon_a
        self.muon_b = muon_b
        self.muon_c = muon_c
        self.adam_lr_ratio = adam_lr_ratio
        self.momentum = momentum
        self.ns_steps = ns_steps
        self.nesterov = nesterov
        self.rms_rate = rms_rate

    def _uses_adam(self, variable: Variable) -> bool:
        if len(variable.shape) != 2:
            return True
        if self.exclude_embeddings and "embedding" in variable.path.lower():
            return True
        return any(re.search(pattern, variable.path) for pattern in self.exclude_layers)

    def _decay_of(self, variable: Variable) -> float | None:
        return self.adam_weight_decay if self._uses_adam(variable) else self.weight_decay

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        for variable in variables:
            names = ["momentum", "velocity"] if self._uses_adam(variable) else ["momentum"]
            self.add_optimizer_variables([variable], names)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        if self._uses_adam(variable):
            self._adam_step(gradient, variable, ops.multiply(learning_rate, self.adam_lr_ratio))
            return
        momentum = self.slot("momentum", variable)
        m = ops.add(ops.multiply(momentum, self.momentum), gradient)
        momentum.assign(m)
        if self.nesterov:
            m = ops.add(ops.multiply(m, self.momentum), gradient)
        scale = 1.0
        if self.rms_rate is not None:
            scale = self.rms_rate * max(variable.shape) ** 0.5
        step = ops.multiply(self._orthogonal(m), ops.multiply(learning_rate, scale))
        variable.assign(ops.subtract(variable, step))

    def _adam_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        step = self._step()
        momentum, velocity = self.slot("momentum", variable), self.slot("velocity", variable)
        m = moved(momentum, gradient, 1 - self.adam_beta_1)
        v = moved(velocity, ops.square(gradient), 1 - self.adam_beta_2)
        momentum.assign(m)
        velocity.assign(v)
        correction = ops.divide(
            ops.sqrt(one_minus_power(self.adam_beta_2, step)),
            one_minus_power(self.adam_beta_1, step),
        )
        rate = ops.multiply(learning_rate, correction)
        change = ops.divide(ops.multiply(m, rate), ops.add(ops.sqrt(v), self.epsilon))
        variable.assign(ops.subtract(variable, change))

    def _orthogonal(self, x: Any) -> Any:
        """Nearly the orthogonal factor of x: all singular values are driven towards one."""
        x = convert_to_node(x)
        tall = x.shape[0] > x.shape[1]
        if tall:  # the smaller product x x^T is the cheaper one
            x = ops.transpose(x)
        norm = ops.sqrt(ops.sum(ops.square(x)))
        x = ops.divide(x, ops.add(norm, 1e-7))
        for _ in range(self.ns_steps):
            a = ops.matmul(x, ops.transpose(x))
            polynomial = ops.add(
                ops.multiply(a, self.muon_b), ops.multiply(ops.matmul(a, a), self.muon_c)
            )
            x = ops.add(ops.multiply(x, self.muon_a), ops.matmul(polynomial, x))
        return ops.transpose(x) if tall else x
