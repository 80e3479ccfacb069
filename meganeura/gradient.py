"""Gradients of Python functions, inside a step that is being recorded and outside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from meganeura import config, ops
from meganeura.execution import run_call
from meganeura.graph import autodiff, trace
from meganeura.graph.node import Node
from meganeura.ops.dispatch import map_tree
from meganeura.rewrite.stable import stable
from meganeura.variable import Variable


def value_and_grad(
    function: Callable[..., Any], variables: Sequence[Variable] | None = None, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns `(value, gradients)` of `function`, which must return a scalar.

    variables: what to differentiate with respect to; without them, the function's first argument
    has_aux:   `function` returns `(scalar, anything)`, and the new one `((scalar, anything), gradients)`

    Inside a model's step it records; on arrays it compiles the whole of it into one plan and runs.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if trace.current() is not None:
            return _record(function, variables, has_aux, args, kwargs)
        return run_call(lambda a, k: _record(function, variables, has_aux, a, k), args, kwargs)

    return call


def grad(
    function: Callable[..., Any], variables: Sequence[Variable] | None = None
) -> Callable[..., Any]:
    """A function that returns the gradients of `function` alone."""
    both = value_and_grad(function, variables)
    return lambda *args, **kwargs: both(*args, **kwargs)[1]


def _record(
    function: Callable[..., Any],
    variables: Sequence[Variable] | None,
    has_aux: bool,
    args: Any,
    kwargs: Any,
) -> Any:
    now = trace.current()
    assert now is not None
    if variables is None:
        if not args:
            raise ValueError(
                "value_and_grad: give variables, or call the function with an argument"
            )
        first = map_tree(ops.convert_to_node, args[0])
        args = (first, *args[1:])
        flat: list[Node] = []
        map_tree(flat.append, first)
        value = function(*args, **kwargs)
        found = iter(_differentiate(value, flat, has_aux))
        return value, map_tree(lambda _: next(found), first)
    before = [now.read(v) for v in variables]
    value = function(*args, **kwargs)
    return value, _differentiate(value, before, has_aux)


def _differentiate(value: Any, wrt: list[Node], has_aux: bool) -> list[Node]:
    loss = ops.convert_to_node(value[0] if has_aux else value)
    if loss.size != 1:
        raise ValueError(
            f"value_and_grad: the function must return a scalar, and returned the shape {loss.shape}"
        )
    loss = ops.reshape(loss, ())
    if config.optimize():  # a formula that underflows has no usable derivative
        (loss,) = stable([loss], keep=wrt)
    return autodiff.gradients(loss, wrt)
