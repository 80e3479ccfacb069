"""One function, three lives: on arrays it computes, on nodes it records, on KerasTensors it wires a model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from meganeura import dtypes, symbolic
from meganeura.autocast import as_read
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.graph.trace import ConcretizationError
from meganeura.ops.registry import make
from meganeura.symbolic import KerasTensor
from meganeura.tensor import Tensor, to_tensor
from meganeura.variable import Variable

F = TypeVar("F", bound=Callable[..., Any])


def is_tensor(value: Any) -> bool:
    """Whether `value` is one of our tensors: concrete, traced, symbolic, or a variable."""
    return isinstance(value, (Tensor, Node, KerasTensor, Variable))


def any_of(kinds: type | tuple[type, ...], tree: Any) -> bool:
    """Whether a leaf of nested lists, tuples and dicts is an instance of `kinds`."""
    if isinstance(tree, (list, tuple, dict)):
        for x in tree.values() if isinstance(tree, dict) else tree:
            if any_of(kinds, x):
                return True
        return False
    return isinstance(tree, kinds)


def _any_argument(kinds: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """`any_of` for the arguments of a call: every operation asks, so most answers come at once."""
    for x in (*args, *kwargs.values()):
        if isinstance(x, kinds) or (isinstance(x, (list, tuple, dict)) and any_of(kinds, x)):
            return True
    return False


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with `function` applied to each leaf; lists, tuples, named tuples and dicts are kept."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tree(function, x) for x in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tree(function, x) for x in tree)
    if isinstance(tree, dict):
        return {k: map_tree(function, v) for k, v in tree.items()}
    return function(tree)


def convert_to_node(value: Any, dtype: str | None = None) -> Node:
    """`value` as a node of the current trace: a variable's value, a captured tensor, or a constant."""
    if isinstance(value, Node):
        node = value
    elif isinstance(value, Variable):
        node = as_read(value, _trace(value).read(value))
    elif isinstance(value, Tensor):
        node = _trace(value).capture(value)
    elif isinstance(value, KerasTensor):
        raise ValueError(
            f"{value!r} is symbolic and cannot be used here: this code runs on concrete or traced "
            "tensors; pass it as an argument of the layer or operation instead of closing over it"
        )
    elif isinstance(value, (list, tuple)) and any_of((Node, Tensor, Variable), value):
        from meganeura import ops

        node = ops.stack([convert_to_node(x) for x in value])
    elif isinstance(value, (bool, int, float)):
        return trace.constant(value, dtype)
    else:
        array = dtypes.as_array(value)
        now = trace.current()
        if array.size > trace.LARGEST_LITERAL and now is not None:
            with trace.outside():
                tensor = to_tensor(array)
            node = now.capture(tensor)
        else:
            node = trace.constant(array)
    return node if dtype is None or node.dtype == dtype else make("cast", node, dtype=dtype)


def _trace(value: Any) -> trace.Trace:
    now = trace.current()
    if now is None:
        raise ValueError(f"{value!r} is concrete and cannot be mixed with nodes outside a trace")
    return now


def promote(*values: Any, floating: bool = False) -> list[Node]:
    """The values as nodes of one common dtype, Python scalars giving way to tensors.

    `floating` True makes that dtype a float (for divide, exp, mean, ...): float16 where a tensor is of
    it and none is float32, else float32.
    """
    nodes: dict[int, Node] = {}
    scalars = []
    for value in values:
        if isinstance(value, (bool, int, float)):
            scalars.append(value)
        elif id(value) not in nodes:
            nodes[id(value)] = convert_to_node(value)
    found = [n.dtype for n in nodes.values()]
    beside = dtypes.result_type(*found) if found else None
    if floating:
        dtype = dtypes.floating(beside)
    elif scalars:
        own = [dtypes.python_dtype(v, beside) for v in scalars]
        dtype = dtypes.result_type(*found, *own)
    else:
        dtype = dtypes.result_type(*found)
    result = []
    for value in values:
        node = nodes[id(value)] if id(value) in nodes else trace.constant(value, dtype)
        result.append(node if node.dtype == dtype else make("cast", node, dtype=dtype))
    return result


def operation(function: F) -> F:
    """Make `function`, written on nodes, callable on arrays and KerasTensors as well."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _any_argument(KerasTensor, args, kwargs):
            if symbolic.handler is None:
                raise RuntimeError("the functional API is not loaded; import meganeura")
            return symbolic.handler(call, args, kwargs)
        if trace.current() is not None or _any_argument(Node, args, kwargs):
            return function(*args, **kwargs)
        return _compute(function, args, kwargs)

    return call  # type: ignore[return-value]


def _compute(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run an operation on concrete values at once, as a small plan of its own."""
    from meganeura.execution import run_call

    return run_call(lambda a, k: function(*a, **k), args, kwargs, optimize=False)


def concretize(node: Node, what: str) -> np.ndarray:
    """The value of a node where the trace can tell it (a step that runs eagerly); else an error."""
    now = trace.current()
    if now is not None and now.evaluate is not None:
        return now.evaluate(node)
    raise ConcretizationError(
        f"{what} of a tensor of shape {node.shape} was asked for while a graph is being recorded, "
        "where it has no value yet; use meganeura.ops (where, cond) in place of Python control flow, "
        "or compile(run_eagerly=True)" + (f" (in layer {node.scope!r})" if node.scope else "")
    )
