"""The base class of the metrics: state in variables, recorded into the step's graph or run as one plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura import initializers, ops
from meganeura.graph import trace
from meganeura.graph.trace import ConcretizationError
from meganeura.identifiers import auto_name
from meganeura.losses.loss import dtype_name
from meganeura.ops.dispatch import operation
from meganeura.variable import Variable


def as_one_plan(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method that is written with ops run as one plan when it is called on arrays.

    A method that looks at values on the way runs op by op instead.
    """
    planned = operation(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if trace.current() is not None:
            return method(*args, **kwargs)
        try:
            return planned(*args, **kwargs)
        except ConcretizationError:
            return method(*args, **kwargs)

    return call


class Metric:
    """Base of the metrics: `update_state` takes a batch in, `result` gives the value so far.

    A subclass makes its variables with `add_variable` and defines `update_state(y_true, y_pred,
    sample_weight=None)` and `result()` with ops. Inside a training step they are recorded into its
    graph; called on arrays they run as one plan each.
    """

    #: Whether larger is better ("up") or smaller ("down"), for callbacks; None: unknown.
    _direction: str | None = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name in ("update_state", "result"):
            if name in cls.__dict__:
                setattr(cls, name, as_one_plan(cls.__dict__[name]))

    def __init__(self, dtype: Any = None, name: str | None = None):
        self.name = name or auto_name(type(self).__name__)
        self._dtype = dtype_name(dtype)
        self._variables: list[Variable] = []

    @property
    def dtype(self) -> str:
        """The dtype of the state."""
        return self._dtype

    def add_variable(
        self,
        shape: Sequence[int] = (),
        initializer: Any = "zeros",
        dtype: Any = None,
        name: str | None = None,
        **_: Any,
    ) -> Variable:
        """A new variable of the metric's state."""
        name = name or "variable"
        variable = Variable(
            initializers.get(initializer or "zeros"),
            shape=tuple(shape),
            dtype=dtype or self.dtype,
            trainable=False,
            name=name,
            path=f"{self.name}/{name}",
            autocast=False,
        )
        self._variables.append(variable)
        return variable

    add_weight = add_variable

    @property
    def variables(self) -> list[Variable]:
        """The state of this metric and of metrics inside it."""
        found = list(self._variables)
        for value in vars(self).values():
            for member in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(member, Metric):
                    found += member.variables
                elif isinstance(member, Variable) and not any(member is v for v in found):
                    found.append(member)
        return found

    def reset_state(self) -> None:
        """Forget all batches: every variable becomes zero."""
        tracing = trace.current() is not None
        for v in self.variables:
            v.assign(ops.zeros(v.shape, v.dtype) if tracing else np.zeros(v.shape, v.dtype))

    def update_state(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"metric {type(self).__name__} must define update_state")

    def result(self) -> Any:
        raise NotImplementedError(f"metric {type(self).__name__} must define result")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.update_state(*args, **kwargs)
        return self.result()

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "dtype": self.dtype}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Metric:
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def safe_divide(x: Any, y: Any) -> Any:
    """x / y, and 0 where y is 0."""
    zero = ops.equal(y, 0.0)
    return ops.where(zero, 0.0, ops.divide(x, ops.where(zero, 1.0, y)))
