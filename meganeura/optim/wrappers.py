"""Optimizers around optimizers: dynamic loss scaling, and one optimizer per group of weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.ops.dispatch import convert_to_node
from meganeura.optim.base import Optimizer, conditionally
from meganeura.variable import Variable

#: What is said to the optimizer inside, and its default there.
_OF_THE_INNER: dict[str, Any] = {
    "weight_decay": None, "clipnorm": None, "clipvalue": None, "global_clipnorm": None, "use_ema": False,
    "ema_momentum": 0.99, "ema_overwrite_frequency": None, "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}  # fmt: skip


class LossScaleOptimizer(Optimizer):
    """Scales the loss up so that small gradients survive, and the gradients down again.

    The scale starts at `initial_scale`, doubles after `dynamic_growth_steps` good steps in a row,
    and halves when a gradient is not finite; that step is then skipped.
    """

    def __init__(
        self,
        inner_optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
        **unknown: Any,
    ):
        if not isinstance(inner_optimizer, Optimizer):
            raise TypeError(
                "optimizer LossScaleOptimizer: inner_optimizer must be an optimizer, got "
                f"{inner_optimizer!r}"
            )
        for argument, default in _OF_THE_INNER.items():
            if unknown.pop(argument, default) not in (default, None):
                raise ValueError(
                    f"optimizer LossScaleOptimizer: {argument} belongs to inner_optimizer; give it there"
                )
        super().__init__(0.0, name=name, **unknown)
        self.inner_optimizer = inner_optimizer
        self.initial_scale = initial_scale
        self.dynamic_growth_steps = dynamic_growth_steps
        inner_optimizer.loss_scale_factor = None  # or gradients would be scaled twice

    def build(self, variables: Sequence[Variable]) -> None:
        self._step_counter = self._own(np.int32(0), "step_counter")
        self._scale = self._own(np.float32(self.initial_scale), "dynamic_scale")
        self.inner_optimizer.build(variables)
        super().build(variables)

    @property
    def variables(self) -> list[Variable]:
        return [*self._variables, *self.inner_optimizer.variables]

    @property
    def dynamic_scale(self) -> Any:
        """The factor by which the loss is multiplied now."""
        return self._scale if self.built else self.initial_scale

    @property
    def iterations(self) -> Any:
        return self.inner_optimizer.iterations

    @property
    def learning_rate(self) -> Any:
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    def _apply(self, grads: list[Any], variables: list[Variable]) -> None:
        # A reduction at the end, so that all updates read the one answer and not those of every gradient.
        finite = ops.all(ops.stack([ops.all(ops.isfinite(g)) for g in grads]))
        scale, counter = convert_to_node(self._scale), convert_to_node(self._step_counter)
        unscaled = [
            g if v.overwrite_with_gradient else ops.divide(g, scale)
            for g, v in zip(grads, variables, strict=True)
        ]
        touched = [*variables, *self.inner_optimizer.variables]
        conditionally(finite, lambda: self.inner_optimizer._apply(unscaled, variables), touched)
        grown = ops.equal(counter, self.dynamic_growth_steps - 1)
        good = ops.where(grown, ops.multiply(scale, 2.0), scale)
        self._scale.assign(ops.where(finite, good, ops.multiply(scale, 0.5)))
        restart = ops.logical_or(grown, ops.logical_not(finite))
        self._step_counter.assign(ops.where(restart, 0, ops.add(counter, 1)))

    def scale_loss(self, loss: Any) -> Any:
        return ops.multiply(loss, self.dynamic_scale)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        from meganeura import optim

        return {
            "name": self.name,
            "inner_optimizer": optim.serialize(self.inner_optimizer),
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> LossScaleOptimizer:
        from meganeura import optim

        inner = optim.deserialize(config["inner_optimizer"], custom_objects)
        return cls(inner, **{k: v for k, v in config.items() if k != "inner_optimizer"})


class OptimizerMap:
    """Which optimizer moves which weight: exact paths or patterns of whole paths, else the default."""

    def __init__(
        self, default_optimizer: Optimizer, optimizer_map: dict[str, Optimizer] | None = None
    ):
        if not isinstance(default_optimizer, Optimizer):
            raise TypeError(
                f"OptimizerMap: default_optimizer must be an optimizer, got {default_optimizer!r}"
            )
        self.default_optimizer = default_optimizer
        self._map: dict[str, Optimizer] = {}
        for pattern, optimizer in (optimizer_map or {}).items():
            self[pattern] = optimizer

    def __getitem__(self, path: str) -> Optimizer:
        if path in self._map:
            return self._map[path]
        found = [pattern for pattern in self._map if re.fullmatch(pattern, path)]
        if len(found) > 1:
            raise ValueError(f"OptimizerMap: the weight {path!r} matches {' and '.join(found)}")
        return self._map[found[0]] if found else self.default_optimizer

    def __setitem__(self, pattern: str, optimizer: Optimizer) -> None:
        if not isinstance(pattern, str) or pattern in self._map:
            raise ValueError(f"OptimizerMap: {pattern!r} is not a new path or pattern")
        if not isinstance(optimizer, Optimizer):
            raise ValueError(f"OptimizerMap: {optimizer!r} is not an optimizer")
        self._map[pattern] = optimizer

    def __delitem__(self, pattern: str) -> None:
        del self._map[pattern]

    def __len__(self) -> int:
        return len(self._map)

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def values(self) -> list[Optimizer]:
        return list(self._map.values())

    def __call__(self, variable: Variable) -> Optimizer:
        return self[variable.path]

    def get_config(self) -> dict[str, Any]:
        from meganeura import optim

        return {
            "default_optimizer": optim.serialize(self.default_optimizer),
            "optimizer_map": {k: optim.serialize(v) for k, v in self._map.items()},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> OptimizerMap:
        from meganeura import optim

        inner = {
            k: optim.deserialize(v, custom_objects) for k, v in config["optimizer_map"].items()
        }
        return cls(optim.deserialize(config["default_optimizer"], custom_objects), inner)


class MultiOptimizer(Optimizer):
    """Hands each weight to the optimizer that `optimizer_map(variable)` names.

    `optimizer_map` is an `OptimizerMap` or a callable. The `optimizers` keep their own learning
    rates and counters; `loss_scale_factor` replaces theirs.
    """

    def __init__(
        self,
        optimizer_map: Callable[[Variable], Optimizer],
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ):
        super().__init__(0.0, loss_scale_factor=loss_scale_factor, name=name)
        self._optimizer_map = optimizer_map
        self.optimizers: list[Optimizer] = []
        self._optimizer_of: dict[int, Optimizer] = {}
        if isinstance(optimizer_map, OptimizerMap):
            for optimizer in (*optimizer_map.values(), optimizer_map.default_optimizer):
                self._add(optimizer)

    def _add(self, optimizer: Any) -> None:
        if not isinstance(optimizer, Optimizer) or isinstance(
            optimizer, (LossScaleOptimizer, MultiOptimizer)
        ):
            raise ValueError(
                f"optimizer {self.name!r}: {optimizer!r} cannot move single weights; give one of "
                "the plain optimizers"
            )
        if not any(optimizer is known for known in self.optimizers):
            optimizer.loss_scale_factor = None  # gradients are unscaled here, once
            self.optimizers.append(optimizer)

    @property
    def variables(self) -> list[Variable]:
        return [*self._variables, *(v for o in self.optimizers for v in o.variables)]

    @property
    def learning_rate(self) -> Any:
        raise AttributeError(
            f"optimizer {self.name!r} has several learning rates; ask its .optimizers"
        )

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        raise AttributeError(
            f"optimizer {self.name!r} has several learning rates; set those of its .optimizers"
        )

    def build(self, variables: Sequence[Variable]) -> None:
        for variable in variables:
            optimizer = self._optimizer_map(variable)
            self._add(optimizer)
            self._optimizer_of[id(variable)] = optimizer
        for optimizer in self.optimizers:
            own = [v for v in variables if self._optimizer_of[id(v)] is optimizer]
            if own and not optimizer.built:
                optimizer.build(own)
                optimizer.built = True
        super().build(variables)

    def _apply(self, grads: list[Any], variables: list[Variable]) -> None:
        if self.loss_scale_factor is not None:
            grads = [ops.divide(g, self.loss_scale_factor) for g in grads]
        for optimizer in self.optimizers:
            pairs = [
                (g, v)
                for g, v in zip(grads, variables, strict=True)
                if self._optimizer_of[id(v)] is optimizer
            ]
            if pairs:
                optimizer._apply([g for g, _ in pairs], [v for _, v in pairs])
        self._iterations.assign_add(1)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        for optimizer in self.optimizers:
            optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        if not isinstance(self._optimizer_map, OptimizerMap):
            raise ValueError(
                f"optimizer {self.name!r} chooses by a function and cannot be saved; use an "
                "OptimizerMap"
            )
        return {
            "name": self.name,
            "loss_scale_factor": self.loss_scale_factor,
            "optimizer_map": self._optimizer_map.get_config(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> MultiOptimizer:
        inner = config["optimizer_map"]
        made = OptimizerMap.from_config(inner.get("config", inner), custom_objects)
        return cls(made, **{k: v for k, v in config.items() if k != "optimizer_map"})
