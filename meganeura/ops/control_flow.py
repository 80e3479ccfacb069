"""Choice and repetition, by their keras.ops names, in graphs of static shape.

A choice by data computes both branches and selects; a repetition is unrolled, so its count must be
known while the graph is recorded. Outside a trace the same functions follow the values as they go.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.graph.trace import Trace
from meganeura.ops import elementwise as math
from meganeura.ops.dispatch import convert_to_node, map_tree
from meganeura.ops.movement_functions import stack, unstack
from meganeura.symbolic import KerasTensor


def _is_traced(value: Any) -> bool:
    """Whether the value of `value` is not known yet."""
    if isinstance(value, KerasTensor):
        raise ValueError(
            f"{value!r} is symbolic: control flow by its value belongs into a layer's call()"
        )
    if isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        return False
    return isinstance(value, Node) or trace.current() is not None


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_tree(found.append, tree)
    return found


def _choose(condition: Node, one: Any, other: Any, what: str) -> Any:
    """`one` where the condition holds, else `other`, leaf by leaf."""
    ones, others = _leaves(one), _leaves(other)
    if len(ones) != len(others):
        raise ValueError(
            f"{what}: the branches return {len(ones)} and {len(others)} values; they must agree"
        )
    chosen: list[Any] = []
    for a, b in zip(ones, others, strict=True):
        if a is None and b is None:
            chosen.append(None)
            continue
        x, y = convert_to_node(a), convert_to_node(b)
        if x.shape != y.shape:
            raise ValueError(f"{what}: the branches return the shapes {x.shape} and {y.shape}")
        chosen.append(x if x is y else math.where(condition, x, y))
    rest = iter(chosen)
    return map_tree(lambda _: next(rest), one)


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """true_fn() where `pred` holds, else false_fn(); both return the same structure and shapes.

    In a trace both are recorded and their results selected, and so are the values of the variables
    that they assign.
    """
    if not _is_traced(pred):
        return true_fn() if bool(pred) else false_fn()
    condition = math.as_bool(pred)
    if condition.shape not in ((), (1,)):
        raise ValueError(f"cond: pred must be one truth value, and has the shape {condition.shape}")
    if condition.shape:
        condition = condition[0]  # type: ignore[index]
    now = trace.current() or Trace()
    before = now.assignments()
    one = true_fn()
    after = now.assignments()
    now.assign_all(before)
    other = false_fn()
    last = now.assignments()
    now.assign_all(
        {
            i: _choose(condition, after.get(i, now.state(now.variables[i])), x, "cond")
            for i, x in last.items()
        }
    )
    return _choose(condition, one, other, "cond")


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """branches[index](*operands), the index held between 0 and the last."""
    if not branches:
        raise ValueError("switch needs at least one branch")
    if not _is_traced(index):
        return branches[min(builtins.max(int(index), 0), len(branches) - 1)](*operands)
    choice = convert_to_node(index)

    def among(first: int) -> Any:
        if first == len(branches) - 1:
            return branches[first](*operands)
        return cond(
            math.less_equal(choice, first),
            lambda: branches[first](*operands),
            lambda: among(first + 1),
        )

    return among(0)


def _count(value: Any, what: str) -> int:
    if _is_traced(value):
        raise ValueError(
            f"{what} is known only at run time, and a graph unrolls its loops; give an integer, "
            "or while_loop with maximum_iterations"
        )
    return int(value)


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """value = body_fun(i, value) for i from lower to upper - 1, unrolled."""
    value = init_val
    for i in range(_count(lower, "fori_loop: lower"), _count(upper, "fori_loop: upper")):
        value = body_fun(i, value)
    return value


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    maximum_iterations: int | None = None,
) -> Any:
    """loop_vars = body(*loop_vars) while cond(*loop_vars) holds.

    In a trace with a condition on data, maximum_iterations rounds are recorded, of which those
    after the end change nothing.
    """
    several = isinstance(loop_vars, (tuple, list))
    values = tuple(loop_vars) if several else (loop_vars,)
    active: Any = True
    done = 0
    while maximum_iterations is None or done < maximum_iterations:
        holds = cond(*values)
        if _is_traced(holds):
            if maximum_iterations is None:
                raise ValueError(
                    "while_loop: the condition depends on data, and a graph unrolls its loops; "
                    "give maximum_iterations"
                )
            active = math.logical_and(active, math.as_bool(holds))
        elif not bool(holds):
            break
        new = body(*values)
        new = tuple(new) if isinstance(new, (tuple, list)) else (new,)
        if len(new) != len(values):
            raise ValueError(
                f"while_loop: body returned {len(new)} values for {len(values)} loop variables"
            )
        values = new if active is True else _choose(active, new, values, "while_loop")
        done += 1
    return type(loop_vars)(values) if several else values[0]


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: Any = 1,
) -> tuple[Any, Any]:
    """carry, y = f(carry, x) for the slices x of xs along the first dimension; the ys are stacked."""
    parts = [unstack(leaf) if leaf is not None else None for leaf in _leaves(xs)]
    counts = {len(p) for p in parts if p is not None} | (
        {int(length)} if length is not None else set()
    )
    if len(counts) != 1:
        raise ValueError(
            f"scan: xs and length must agree on one number of steps, and give {sorted(counts)}"
        )
    (count,) = counts
    carry, found = init, []
    for i in reversed(range(count)) if reverse else range(count):
        row = iter(parts)
        x = map_tree(lambda _: None if (p := next(row)) is None else p[i], xs)
        carry, y = f(carry, x)
        found.append(y)
    if reverse:
        found.reverse()
    if not found:
        return carry, None
    columns = iter(zip(*(_leaves(y) for y in found), strict=True))
    return carry, map_tree(lambda leaf: _stacked(next(columns)), found[0])


def _stacked(column: Sequence[Any]) -> Any:
    return None if column[0] is None else stack(list(column))


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """f of every slice along the first dimension, stacked."""
    return scan(lambda carry, x: (carry, f(x)), None, xs)[1]


vectorized_map = map
