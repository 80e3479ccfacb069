"""function: Python functions of tensors, recorded once for each kind of arguments and run as plans."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import config
from meganeura.backend import backend_object
from meganeura.execution import Slot, compiled
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.ops.dispatch import map_tree
from meganeura.tensor import Tensor, to_tensor
from meganeura.variable import Variable

#: A function that was compiled so often is told of.
_MANY_KINDS = 16


def function(body: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function written with `meganeura.ops`, layers and variables: a call runs one plan.

    Arrays among the arguments (also in lists, tuples and dicts) are what may change from call to
    call. Everything else, Python numbers included, is part of what is compiled: the function's
    Python code runs anew only for arguments of other shapes, dtypes or values of that kind. Assignments
    to variables are made at every call; what else the code changes, it changes while it is recorded.

    A step of training by hand:

        @meganeura.function
        def step(x, y):
            loss, gradients = meganeura.value_and_grad(lambda: loss_fn(y, model(x)), weights)()
            optimizer.apply(gradients, weights)
            return loss

    Inside another recording the function's code simply runs. Raises TypeError for an argument that is
    neither an array nor hashable.
    """
    recordings: dict[Any, _Recording] = {}

    @functools.wraps(body)
    def call(*args: Any, **kwargs: Any) -> Any:
        if trace.current() is not None:
            return body(*args, **kwargs)
        tensors: list[Tensor] = []
        constants: list[Any] = []

        def take(leaf: Any) -> Any:
            if not isinstance(leaf, (Tensor, np.ndarray, np.generic)):
                constants.append((type(leaf), leaf))
                return leaf
            tensors.append(to_tensor(leaf))
            return Slot(len(tensors) - 1)

        arguments = map_tree(take, (args, kwargs))
        kinds = tuple((t.shape, t.dtype) for t in tensors)
        form = repr(map_tree(lambda leaf: isinstance(leaf, Slot), arguments))
        key = (form, kinds, tuple(constants), config.optimize(), id(backend_object()))
        try:
            found = recordings.get(key)
        except TypeError as error:
            kind = next((k.__name__ for k, v in constants if not _hashable(v)), "unknown")
            raise TypeError(
                f"{getattr(body, '__name__', 'the function')}: an argument of type {kind} is "
                "neither an array nor hashable, so calls with it cannot be told apart"
            ) from error
        if found is None:
            found = recordings[key] = _Recording(body, arguments, tensors)
            if len(recordings) == _MANY_KINDS:
                listed = "; ".join(
                    " and ".join(str(shape) for shape, _ in k[1]) for k in list(recordings)[-4:]
                )
                warnings.warn(
                    f"{getattr(body, '__name__', 'a function')} was compiled for {_MANY_KINDS} kinds of "
                    f"arguments (the last ones have the shapes {listed}); pad arrays to a few lengths, and "
                    "give numbers that change as arrays"
                )
        return found.run(tensors)

    return call


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class _Recording:
    """What a function did for one kind of arguments."""

    def __init__(self, body: Callable[..., Any], arguments: Any, tensors: list[Tensor]):
        with trace.Trace() as recording:
            nodes = [
                recording.input(t.shape, t.dtype, f"argument_{i}") for i, t in enumerate(tensors)
            ]
            args, kwargs = map_tree(
                lambda leaf: nodes[leaf.index] if isinstance(leaf, Slot) else leaf, arguments
            )
            self._outputs: list[Node] = []
            self._structure = map_tree(self._collect, body(*args, **kwargs))
        self._captured = list(recording.captured)
        self._variables = list(recording.variables)
        self._executable = compiled(recording.graph(self._outputs))

    def _collect(self, leaf: Any) -> Any:
        if isinstance(leaf, Variable):
            leaf = leaf.value
        if not isinstance(leaf, Node):
            return leaf
        self._outputs.append(leaf)
        return Slot(len(self._outputs) - 1)

    def run(self, tensors: list[Tensor]) -> Any:
        inputs = [t.handle for t in (*tensors, *self._captured)]
        handles = self._executable.run(inputs, [v.handle for v in self._variables])
        backend = backend_object()
        found = [
            Tensor(h, n.shape, n.dtype, backend)
            for h, n in zip(handles, self._outputs, strict=True)
        ]
        return map_tree(
            lambda leaf: found[leaf.index] if isinstance(leaf, Slot) else leaf, self._structure
        )
