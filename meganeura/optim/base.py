"""The base of all optimizers: variables, clipping, weight decay, accumulation and moving averages."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from meganeura import initializers, ops
from meganeura.execution import run_traced
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.identifiers import auto_name, suggestion
from meganeura.ops.dispatch import convert_to_node
from meganeura.optim import schedules
from meganeura.quantization.variable import refuse_packed
from meganeura.tensor import to_tensor
from meganeura.variable import Variable

#: What Keras 2 wrote into optimizer configs and means nothing any more.
_LEGACY_OPTIONS = ("decay", "jit_compile", "is_legacy_optimizer")


class Optimizer:
    """Base of the optimizers: from gradients to new weights.

    learning_rate:       float, `LearningRateSchedule`, or callable. A schedule is called with the
                         iteration (0 at the first step); a callable with it too, or with nothing
    weight_decay:        decoupled: w -= w * weight_decay * learning_rate before each update
    clipnorm:            each gradient g becomes g * c / max(|g|, c)
    global_clipnorm:     the same with the norm over all gradients
    clipvalue:           each element is clipped to [-c, c]. At most one of the three
    use_ema:             keep an average of each weight: a = ema_momentum * a + (1 - ema_momentum) * w,
                         copied into the weights every `ema_overwrite_frequency` steps and at the end
    loss_scale_factor:   the loss is multiplied by it and the gradients are divided by it
    gradient_accumulation_steps: the weights move every n steps, by the mean of n gradients
    learning_rate_multipliers: pattern -> factor, such as {"embed": 0.1}: weights whose path the
                         pattern is found in learn at the rate times the factor; the first one counts

    A subclass defines `build(variables)`, which makes its variables, and
    `update_step(gradient, variable, learning_rate)`, which is written with `meganeura.ops` and
    changes variables through `assign`. Both are recorded into the graph of a training step;
    called on arrays, `apply` runs as one plan.
    """

    def __init__(
        self,
        learning_rate: Any,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        learning_rate_multipliers: Mapping[str, float] | None = None,
        name: str | None = None,
        **unknown: Any,
    ):
        kind = type(self).__name__
        self._refuse_unknown(unknown)
        clips = {"clipnorm": clipnorm, "clipvalue": clipvalue, "global_clipnorm": global_clipnorm}
        if len(given := [k for k, v in clips.items() if v is not None]) > 1:
            raise ValueError(f"optimizer {kind}: give only one of {' and '.join(given)}")
        if gradient_accumulation_steps is not None and (
            not isinstance(gradient_accumulation_steps, int) or gradient_accumulation_steps < 2
        ):
            raise ValueError(
                f"optimizer {kind}: gradient_accumulation_steps must be an integer of at least 2, "
                f"got {gradient_accumulation_steps!r}"
            )
        if use_ema:
            self._check_range("ema_momentum", ema_momentum, 0, 1)
            if ema_overwrite_frequency is not None and (
                not isinstance(ema_overwrite_frequency, int) or ema_overwrite_frequency < 1
            ):
                raise ValueError(
                    f"optimizer {kind}: ema_overwrite_frequency must be an integer of at least 1, "
                    f"got {ema_overwrite_frequency!r}"
                )
        self.name = name or auto_name(kind)
        self.weight_decay = weight_decay
        self.clipnorm = clipnorm
        self.clipvalue = clipvalue
        self.global_clipnorm = global_clipnorm
        self.use_ema = use_ema
        self.ema_momentum = ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency
        self.loss_scale_factor = loss_scale_factor
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.learning_rate_multipliers = dict(learning_rate_multipliers or {})
        for pattern, factor in self.learning_rate_multipliers.items():
            self._check_range(f"learning_rate_multipliers[{pattern!r}]", factor, 0, math.inf)
            re.compile(pattern)
        self.built = False
        self._variables: list[Variable] = []
        self._trainable_variables: list[Variable] = []
        self._index: dict[int, int] = {}
        self._slots: dict[tuple[str, int], Variable] = {}
        self._decay_excluded: set[int] = set()
        self._decay_pattern: re.Pattern[str] | None = None
        self._iterations = self._own(np.int32(0), "iteration")
        self._learning_rate: Any = self._checked_rate(learning_rate)
        if isinstance(self._learning_rate, float):
            self._learning_rate = self._own(np.float32(learning_rate), "learning_rate")

    def _refuse_unknown(self, unknown: dict[str, Any]) -> None:
        kind = type(self).__name__
        if unknown.pop("decay", None):
            warnings.warn(
                f"optimizer {kind}: the argument decay is ignored; use a learning-rate schedule"
            )
        if "lr" in unknown:
            raise ValueError(f"optimizer {kind} has no argument 'lr'; use learning_rate")
        for name in unknown:
            known = [*inspect.signature(Optimizer.__init__).parameters]
            known += [*inspect.signature(type(self).__init__).parameters]
            raise ValueError(f"optimizer {kind} has no argument {name!r}{suggestion(name, known)}")

    def _check_range(self, name: str, value: Any, low: float, high: float) -> None:
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            raise ValueError(
                f"optimizer {type(self).__name__}: {name} must be a number from {low} to {high}, "
                f"got {value!r}"
            )

    def _checked_rate(self, rate: Any) -> Any:
        if callable(rate):
            return rate
        if isinstance(rate, (int, float, np.number)) and not isinstance(rate, bool):
            if not np.isfinite(rate):
                raise ValueError(
                    f"optimizer {type(self).__name__}: learning_rate is {rate}, not a finite number"
                )
            return float(rate)
        raise ValueError(
            f"optimizer {type(self).__name__}: learning_rate must be a number, a "
            f"LearningRateSchedule or a callable, got {rate!r}"
        )

    # Variables

    def _own(self, value: Any, name: str) -> Variable:
        variable = Variable(value, trainable=False, name=name, path=f"{self.name}/{name}")
        self._variables.append(variable)
        return variable

    @property
    def variables(self) -> list[Variable]:
        """The optimizer's own variables, in the order in which files hold them."""
        return list(self._variables)

    def add_variable(
        self,
        shape: Sequence[int],
        initializer: Any = "zeros",
        dtype: Any = None,
        name: str | None = None,
        **_: Any,
    ) -> Variable:
        """A new variable of the optimizer."""
        draw = initializers.get(initializer)
        name = name or "variable"
        variable = Variable(
            draw,
            shape=tuple(shape),
            dtype=dtype or "float32",
            trainable=False,
            name=name,
            path=f"{self.name}/{name}",
        )
        self._variables.append(variable)
        return variable

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str | None = None, initializer: Any = "zeros"
    ) -> Variable:
        """A new variable shaped like a weight, named after it: `dense_kernel_momentum`."""
        own = f"{reference_variable.path.replace('/', '_')}_{name or 'var'}"
        return self.add_variable(
            reference_variable.shape, initializer, reference_variable.dtype, own
        )

    def add_optimizer_variables(
        self, trainable_variables: Sequence[Variable], name: Any, initializer: Any = "zeros"
    ) -> Any:
        """One variable (or, for a list of names, several side by side) for each weight.

        Returns a list for one name, a tuple of lists for several.
        """
        names = [name] if isinstance(name, str) else list(name)
        draws = (
            initializer if isinstance(initializer, (list, tuple)) else [initializer] * len(names)
        )
        lists: tuple[list[Any], ...] = tuple([] for _ in names)
        for variable in trainable_variables:
            for one, draw, result in zip(names, draws, lists, strict=True):
                if variable.overwrite_with_gradient:
                    result.append(None)
                    continue
                made = self.add_variable_from_reference(variable, one, draw)
                self._slots[one, id(variable)] = made
                result.append(made)
        return lists[0] if isinstance(name, str) else lists

    def slot(self, name: str, variable: Variable) -> Variable:
        """The optimizer's variable `name` that belongs to a weight."""
        return self._slots[name, id(variable)]

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the variables that the optimizer keeps for these weights."""
        refuse_packed(variables)
        self._trainable_variables = list(variables)
        self._index = {id(v): i for i, v in enumerate(variables)}
        if self.use_ema:
            self.add_optimizer_variables(variables, "average")
        if self.gradient_accumulation_steps:
            for variable in variables:
                self._slots["gradient_accumulator", id(variable)] = (
                    self.add_variable_from_reference(variable, "gradient_accumulator")
                )
        self.built = True

    def _get_variable_index(self, variable: Variable) -> int:
        return self._index[id(variable)]

    def assign(self, variable: Variable, value: Any) -> None:
        variable.assign(value)

    def assign_add(self, variable: Variable, value: Any) -> None:
        variable.assign_add(value)

    def assign_sub(self, variable: Variable, value: Any) -> None:
        variable.assign_sub(value)

    # Learning rate and iterations

    @property
    def iterations(self) -> Any:
        """How many updates were made: the step counter, or its n-th part when accumulating."""
        if self.gradient_accumulation_steps:
            return ops.floor_divide(self._iterations, self.gradient_accumulation_steps)
        return self._iterations

    def _step(self) -> Node:
        """The number of this update, from 1, as a float32 node."""
        return ops.cast(ops.add(convert_to_node(self.iterations), 1), "float32")

    @property
    def learning_rate(self) -> Any:
        """The current learning rate: a variable, or what the schedule gives for this iteration."""
        rate = self._learning_rate
        if isinstance(rate, schedules.LearningRateSchedule):
            return rate(self._iterations)
        if isinstance(rate, Variable) or not callable(rate):
            return rate
        return rate(self._iterations) if _takes_an_argument(rate) else rate()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        value = self._checked_rate(
            float(value) if isinstance(value, Variable) or hasattr(value, "numpy") else value
        )
        now = self._learning_rate
        if isinstance(value, float):
            if not isinstance(now, Variable):
                raise TypeError(
                    f"optimizer {self.name!r} follows a learning-rate schedule, so its learning "
                    "rate cannot be set; make the optimizer with a number instead"
                )
            now.assign(np.float32(value))
            return
        if isinstance(now, Variable):
            self._variables = [v for v in self._variables if v is not now]
        self._learning_rate = value

    # The update

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Any:
        """Update the weights, given pairs of gradient and weight; returns the step counter."""
        pairs = list(grads_and_vars)
        self.apply([g for g, _ in pairs], [v for _, v in pairs])
        return self._iterations

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None
    ) -> None:
        """Update the weights with their gradients; `None` among the gradients skips that weight.

        The optimizer is built at the first call. Raises ValueError where counts or shapes disagree
        or a weight is not one that the optimizer was built with.
        """
        grads = list(grads)
        if not grads:
            return
        variables = self._checked_variables(grads, trainable_variables)
        pairs = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        if not pairs:
            raise ValueError(f"optimizer {self.name!r}: there is no gradient for any weight")
        if len(pairs) < len(grads):
            missing = [v.path for g, v in zip(grads, variables, strict=True) if g is None]
            warnings.warn(
                f"the loss does not depend on {', '.join(missing)}: these weights stay as they are"
            )
        for gradient, variable in pairs:
            if tuple(np.shape(gradient)) != variable.shape:
                raise ValueError(
                    f"optimizer {self.name!r}: the gradient of {variable.path!r} has the shape "
                    f"{tuple(np.shape(gradient))}, expected {variable.shape}"
                )
        weights = [v for _, v in pairs]
        if trace.current() is not None:
            self._apply([convert_to_node(g) for g, _ in pairs], weights)
            return

        def body(*nodes: Node) -> list[Node]:
            self._apply(list(nodes), weights)
            return []

        run_traced(body, [to_tensor(g) for g, _ in pairs])

    def _checked_variables(
        self, grads: Sequence[Any], variables: Sequence[Variable] | None
    ) -> list[Variable]:
        if variables is None:
            if not self.built:
                raise ValueError(
                    f"optimizer {self.name!r} is not built: give the weights with the gradients, "
                    "or call build(trainable_variables) first"
                )
            variables = self._trainable_variables
        variables = list(variables)
        if len(variables) != len(grads):
            raise ValueError(
                f"optimizer {self.name!r}: {len(grads)} gradients for {len(variables)} weights"
            )
        if not self.built:
            self.build(variables)
            self.built = True
        for variable in variables:
            if id(variable) not in self._index:
                raise ValueError(
                    f"optimizer {self.name!r} was not built with the weight {variable.path!r}; "
                    "make a new optimizer for a new set of weights"
                )
        return variables

    def _apply(self, grads: list[Node], variables: list[Variable]) -> None:
        """Record one step into the current trace."""
        direct = [v.overwrite_with_gradient for v in variables]
        for gradient, variable, overwrite in zip(grads, variables, direct, strict=True):
            if overwrite:
                variable.assign(gradient)
        grads = [g for g, overwrite in zip(grads, direct, strict=True) if not overwrite]
        variables = [v for v, overwrite in zip(variables, direct, strict=True) if not overwrite]
        if self.loss_scale_factor is not None:
            grads = [ops.divide(g, self.loss_scale_factor) for g in grads]
        if self.gradient_accumulation_steps:
            self._accumulate(grads, variables)
        else:
            self._update(grads, variables)
        if self.use_ema:
            self._update_averages()
        for variable in variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        self._iterations.assign_add(1)

    def _update(self, grads: list[Node], variables: list[Variable]) -> None:
        grads = self._clip_gradients(grads)
        self._apply_weight_decay(variables)
        self._update_steps(grads, variables)

    def _update_steps(self, grads: list[Node], variables: list[Variable]) -> None:
        rate = ops.cast(convert_to_node(self.learning_rate), "float32")
        for gradient, variable in zip(grads, variables, strict=True):
            self.update_step(gradient, variable, self._rate_of(variable, rate))

    def _rate_of(self, variable: Variable, rate: Any) -> Any:
        """The learning rate, times the first multiplier whose pattern the weight's path matches."""
        for pattern, factor in self.learning_rate_multipliers.items():
            if re.search(pattern, variable.path):
                return rate if factor == 1 else ops.multiply(rate, float(factor))
        return rate

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        """Update one weight, with ops and `assign`; to be defined by a subclass."""
        raise NotImplementedError(
            f"optimizer {type(self).__name__} must define "
            "update_step(self, gradient, variable, learning_rate)"
        )

    def _accumulate(self, grads: list[Node], variables: list[Variable]) -> None:
        """Add up gradients; update with their mean on every n-th step."""
        steps = self.gradient_accumulation_steps
        sums = [self.slot("gradient_accumulator", v) for v in variables]
        totals = [ops.add(g, s) for g, s in zip(grads, sums, strict=True)]
        due = ops.equal(ops.mod(ops.add(self._iterations, 1), steps), 0)
        means = [ops.divide(t, float(steps or 1)) for t in totals]
        conditionally(due, lambda: self._update(means, variables), [*variables, *self._variables])
        for accumulator, total in zip(sums, totals, strict=True):
            accumulator.assign(ops.where(due, 0.0, total))

    def _clip_gradients(self, grads: list[Node]) -> list[Node]:
        if self.clipnorm:
            return [ops.multiply(g, _clip_factor(_square_sum(g), self.clipnorm)) for g in grads]
        if self.global_clipnorm:
            total = _square_sum(grads[0])
            for gradient in grads[1:]:
                total = ops.add(total, _square_sum(gradient))
            factor = _clip_factor(total, self.global_clipnorm)
            return [ops.multiply(g, factor) for g in grads]
        if self.clipvalue:
            return [ops.clip(g, -self.clipvalue, self.clipvalue) for g in grads]
        return grads

    # Weight decay

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        """Spare these weights, and those whose name matches one of the patterns, from weight decay."""
        if self.built:
            raise ValueError(
                f"optimizer {self.name!r}: call exclude_from_weight_decay before it is built"
            )
        self._decay_excluded = {id(v) for v in var_list or ()}
        names = sorted(set(var_names or ()))
        self._decay_pattern = re.compile("|".join(names)) if names else None

    def _use_weight_decay(self, variable: Variable) -> bool:
        if id(variable) in self._decay_excluded:
            return False
        return self._decay_pattern is None or not self._decay_pattern.search(variable.name)

    def _decay_of(self, variable: Variable) -> float | None:
        return self.weight_decay

    def _apply_weight_decay(self, variables: list[Variable]) -> None:
        for variable in variables:
            decay = self._decay_of(variable)
            if decay is not None and self._use_weight_decay(variable):
                rate = ops.cast(convert_to_node(self.learning_rate), "float32")
                rate = self._rate_of(variable, rate)
                weight = convert_to_node(variable)
                variable.assign(
                    ops.subtract(weight, ops.multiply(ops.multiply(weight, decay), rate))
                )

    # Moving averages of the weights

    def _averaged(self) -> list[tuple[Variable, Variable]]:
        pairs = ((v, self._slots.get(("average", id(v)))) for v in self._trainable_variables)
        return [(v, average) for v, average in pairs if average is not None]

    def _update_averages(self) -> None:
        count = convert_to_node(self.iterations)
        # the first average is a copy
        momentum = ops.where(ops.equal(count, 0), 0.0, float(self.ema_momentum))
        for variable, average in self._averaged():
            kept = ops.multiply(momentum, average)
            average.assign(ops.add(kept, ops.multiply(ops.subtract(1.0, momentum), variable)))
        if self.ema_overwrite_frequency:
            due = ops.equal(ops.mod(ops.add(count, 1), self.ema_overwrite_frequency), 0)
            for variable, average in self._averaged():
                variable.assign(ops.where(due, average, variable))

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """What is done when training ends: with `use_ema`, the averages become the weights."""
        wanted = {id(v) for v in var_list}
        for variable, average in self._averaged():
            if id(variable) in wanted:
                variable.assign(average)

    def scale_loss(self, loss: Any) -> Any:
        """The loss as gradients are to be taken of it: multiplied by `loss_scale_factor`."""
        if self.loss_scale_factor is None:
            return loss
        return ops.multiply(loss, self.loss_scale_factor)

    # Saving

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set the optimizer's variables, in their order."""
        if not self.built:
            raise ValueError(
                f"optimizer {self.name!r} is not built: call build(trainable_variables) before "
                "set_weights"
            )
        if len(weights) != len(self.variables):
            raise ValueError(
                f"optimizer {self.name!r} has {len(self.variables)} variables, got {len(weights)}"
            )
        for variable, weight in zip(self.variables, weights, strict=True):
            variable.assign(weight)

    def save_own_variables(self, store: Any) -> None:
        for i, variable in enumerate(self.variables):
            store[str(i)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        own = self.variables
        if len(store.keys()) != len(own):
            warnings.warn(
                f"optimizer {self.name!r} has {len(own)} variables and the file holds "
                f"{len(store.keys())}: the optimizer's state is not loaded"
                + ("" if self.built else "; build the optimizer first")
            )
            return
        for i, variable in enumerate(own):
            variable.assign(np.asarray(store[str(i)]))

    def get_config(self) -> dict[str, Any]:
        rate = self._learning_rate
        if isinstance(rate, schedules.LearningRateSchedule):
            rate = schedules.serialize(rate)
        elif isinstance(rate, Variable):
            rate = float(rate.numpy())
        else:
            rate = schedules.serialize_callable(rate)
        names = (
            "weight_decay clipnorm global_clipnorm clipvalue use_ema ema_momentum "
            "ema_overwrite_frequency loss_scale_factor gradient_accumulation_steps"
        )
        options = {name: getattr(self, name) for name in names.split()}
        if self.learning_rate_multipliers:  # Keras does not know it
            options["learning_rate_multipliers"] = dict(self.learning_rate_multipliers)
        return {"name": self.name, "learning_rate": rate, **options, **self._own_config()}

    def _own_config(self) -> dict[str, Any]:
        """The arguments that a built-in optimizer has beyond those of the base."""
        return {name: getattr(self, name) for name in getattr(self, "arguments", ())}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Optimizer:
        config = {k: v for k, v in config.items() if k not in _LEGACY_OPTIONS}
        if isinstance(config.get("learning_rate"), dict):
            rate = schedules.deserialize(config["learning_rate"], custom_objects)
            config["learning_rate"] = rate
        return cls(**config)


def conditionally(condition: Any, update: Callable[[], Any], variables: Sequence[Variable]) -> None:
    """Record what `update` assigns to `variables` so that it takes effect only where `condition`."""
    before = [v.value for v in variables]
    update()
    for variable, old in zip(variables, before, strict=True):
        if (new := variable.value) is not old:
            variable.assign(ops.where(condition, new, old))


def _square_sum(x: Any) -> Any:
    return ops.sum(ops.square(x))


def _clip_factor(square_sum: Any, limit: float) -> Any:
    """limit / max(norm, limit); a norm that is not finite stays, so that it shows in the weights."""
    norm = ops.sqrt(square_sum)
    factor = ops.divide(float(limit), ops.maximum(norm, float(limit)))
    return ops.where(ops.isfinite(norm), factor, norm)


def _takes_an_argument(rate: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(rate).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        for p in parameters
    )
