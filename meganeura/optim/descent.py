"""SGD and the optimizers that scale each step by past gradients, without a bias correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meganeura import initializers, ops
from meganeura.ops.dispatch import convert_to_node
from meganeura.optim.base import Optimizer
from meganeura.variable import Variable


def moved(old: Any, new: Any, share: float) -> Any:
    """`old` moved towards `new` by `share` of the way: old + (new - old) * share."""
    return ops.add(old, ops.multiply(ops.subtract(new, old), share))


class SGD(Optimizer):
    """Gradient descent: w -= learning_rate * g.

    With momentum v = momentum * v - learning_rate * g and w += v, or with `nesterov`
    w += momentum * v - learning_rate * g.
    """

    arguments = ("momentum", "nesterov")

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        self._check_range("momentum", momentum, 0, 1)
        self.momentum = momentum
        self.nesterov = nesterov

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        if self.momentum:
            self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        step = ops.multiply(gradient, learning_rate)
        if not self.momentum:
            variable.assign(ops.subtract(variable, step))
            return
        velocity = self.slot("momentum", variable)
        new = ops.subtract(ops.multiply(velocity, self.momentum), step)
        velocity.assign(new)
        if self.nesterov:
            new = ops.subtract(ops.multiply(new, self.momentum), step)
        variable.assign(ops.add(variable, new))


class RMSprop(Optimizer):
    """v = rho * v + (1 - rho) * g^2; w -= learning_rate * g / sqrt(v + epsilon).

    `centered` subtracts the square of the averaged gradient from v; `momentum` accumulates the
    scaled steps.
    """

    arguments = ("rho", "momentum", "epsilon", "centered")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        self._check_range("rho", rho, 0, 1)
        self._check_range("momentum", momentum, 0, 1)
        self.rho = rho
        self.momentum = momentum
        self.epsilon = epsilon
        self.centered = centered

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        self.add_optimizer_variables(variables, "velocity")
        if self.momentum:
            self.add_optimizer_variables(variables, "momentum")
        if self.centered:
            self.add_optimizer_variables(variables, "average_gradient")

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        velocity = self.slot("velocity", variable)
        new = ops.add(
            ops.multiply(velocity, self.rho), ops.multiply(ops.square(gradient), 1 - self.rho)
        )
        velocity.assign(new)
        if self.centered:
            average = self.slot("average_gradient", variable)
            mean = ops.add(ops.multiply(average, self.rho), ops.multiply(gradient, 1 - self.rho))
            average.assign(mean)
            new = ops.subtract(new, ops.square(mean))
        scale = ops.sqrt(ops.add(new, self.epsilon))
        step = ops.divide(ops.multiply(gradient, learning_rate), scale)
        if self.momentum:
            momentum = self.slot("momentum", variable)
            step = ops.add(ops.multiply(momentum, self.momentum), step)
            momentum.assign(step)
        variable.assign(ops.subtract(variable, step))


class Adagrad(Optimizer):
    """a += g^2; w -= learning_rate * g / sqrt(a + epsilon)."""

    arguments = ("initial_accumulator_value", "epsilon")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        initial = initializers.Constant(self.initial_accumulator_value)
        self.add_optimizer_variables(variables, "accumulator", initial)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        accumulator = self.slot("accumulator", variable)
        new = ops.add(accumulator, ops.square(gradient))
        accumulator.assign(new)
        scale = ops.sqrt(ops.add(new, self.epsilon))
        step = ops.divide(ops.multiply(gradient, learning_rate), scale)
        variable.assign(ops.subtract(variable, step))


class Adadelta(Optimizer):
    """w -= learning_rate * d with d = g * sqrt(u + epsilon) / sqrt(a + epsilon).

    a and u are averages (by rho) of g^2 and of d^2.
    """

    arguments = ("rho", "epsilon")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        self._check_range("rho", rho, 0, 1)
        self.rho = rho
        self.epsilon = epsilon

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        self.add_optimizer_variables(variables, ["accumulated_grad", "accumulated_delta_var"])

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        squares = self.slot("accumulated_grad", variable)
        steps = self.slot("accumulated_delta_var", variable)
        average = self._averaged_square(squares, gradient)
        squares.assign(average)
        ratio = ops.divide(
            ops.sqrt(ops.add(steps, self.epsilon)), ops.sqrt(ops.add(average, self.epsilon))
        )
        step = ops.multiply(gradient, ratio)
        steps.assign(self._averaged_square(steps, step))
        variable.assign(ops.subtract(variable, ops.multiply(step, learning_rate)))

    def _averaged_square(self, old: Any, value: Any) -> Any:
        return ops.add(ops.multiply(old, self.rho), ops.multiply(ops.square(value), 1 - self.rho))


class Lion(Optimizer):
    """w -= learning_rate * sign(beta_1 * m + (1 - beta_1) * g); m = beta_2 * m + (1 - beta_2) * g."""

    arguments = ("beta_1", "beta_2")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        self._check_range("beta_1", beta_1, 0, 1)
        self._check_range("beta_2", beta_2, 0, 1)
        if beta_1 == 0:
            raise ValueError("optimizer Lion: beta_1 must be greater than 0; without it use SGD")
        self.beta_1 = beta_1
        self.beta_2 = beta_2

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        momentum = self.slot("momentum", variable)
        mixed = ops.add(
            ops.multiply(momentum, self.beta_1), ops.multiply(gradient, 1 - self.beta_1)
        )
        step = ops.multiply(ops.sign(mixed), learning_rate)
        variable.assign(ops.subtract(variable, step))
        momentum.assign(
            ops.add(ops.multiply(momentum, self.beta_2), ops.multiply(gradient, 1 - self.beta_2))
        )


class Ftrl(Optimizer):
    """Follow the regularised leader, with l1, l2 and shrinkage penalties.

    n' = n + g^2; z += g' - (n'^p - n^p) / lr * w with p = -learning_rate_power;
    w = (clip(z, -l1, l1) - z) / (n'^p / lr + 2 * l2'), where g' = g + 2 * shrinkage * w and
    l2' = l2 + beta / (2 * lr).
    """

    arguments = (
        "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength",
        "l2_regularization_strength", "l2_shrinkage_regularization_strength", "beta",
    )  # fmt: skip

    def __init__(
        self,
        learning_rate: Any = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay, **options)
        for name, value in {
            "initial_accumulator_value": initial_accumulator_value,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
        }.items():
            self._check_range(name, value, 0, float("inf"))
        self._check_range("learning_rate_power", learning_rate_power, float("-inf"), 0)
        self.learning_rate_power = learning_rate_power
        self.initial_accumulator_value = initial_accumulator_value
        self.l1_regularization_strength = l1_regularization_strength
        self.l2_regularization_strength = l2_regularization_strength
        self.l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self.beta = beta

    def build(self, variables: Sequence[Variable]) -> None:
        super().build(variables)
        self.add_optimizer_variables(
            variables,
            ["accumulator", "linear"],
            [initializers.Constant(self.initial_accumulator_value), "zeros"],
        )

    def _root(self, x: Any) -> Any:
        if self.learning_rate_power == -0.5:
            return ops.sqrt(x)
        return ops.power(x, -self.learning_rate_power)

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        accumulator, linear = self.slot("accumulator", variable), self.slot("linear", variable)
        weight = convert_to_node(variable)
        shrunk = gradient
        if self.l2_shrinkage_regularization_strength:
            pull = ops.multiply(weight, 2 * self.l2_shrinkage_regularization_strength)
            shrunk = ops.add(gradient, pull)
        old = convert_to_node(accumulator)
        new = ops.add(old, ops.square(gradient))
        root = self._root(new)
        change = ops.divide(ops.subtract(root, self._root(old)), learning_rate)
        z = ops.subtract(ops.add(linear, shrunk), ops.multiply(change, weight))
        divisor = ops.add(
            ops.divide(ops.add(root, self.beta), learning_rate),
            2 * self.l2_regularization_strength,
        )
        limit = self.l1_regularization_strength
        accumulator.assign(new)
        linear.assign(z)
        variable.assign(ops.divide(ops.subtract(ops.clip(z, -limit, limit), z), divisor))
