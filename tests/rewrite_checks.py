"""What must hold of every e-graph, whatever rules made it: all forms of a class are equal.

The tests of the rewriter evaluate each e-node of a saturated e-graph in float64, not only those
that are selected, so that an unsound rule shows even where its result is not the cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.backend.numpy.backend import NumpyExecutable
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import REGISTRY
from meganeura.rewrite import optimise
from meganeura.rewrite.decode import class_costs, class_kinds
from meganeura.rewrite.encode import Encoded
from meganeura.rewrite.engine import EGraph, Engine, current_engine
from meganeura.rewrite.select import Problem

#: Constants are float32: two of them merged differ from two of them applied in the last digits.
TOLERANCE = 1e-6


def leaf(shape: Sequence[int], dtype: str = "float32", op: str = "input", name: str = "x") -> Node:
    return Node(op, (), {"name": name}, tuple(shape), dtype)


def random_values(
    nodes: Sequence[Node], random: np.random.Generator, low: float = -2.0, high: float = 2.0
) -> list[np.ndarray]:
    """An array per node, floats in double precision."""
    found = []
    for node in nodes:
        values = np.asarray(random.uniform(low, high, node.shape))
        if node.dtype == "bool":
            found.append(np.asarray(values > (low + high) / 2))
        elif node.dtype == "float32":
            found.append(values)
        elif node.dtype == "int32":
            found.append(np.round(3 * values).astype("int32"))
        else:
            found.append(np.round(3 * np.abs(values)).astype(node.dtype))
    return found


def evaluate(
    graph: Graph, inputs: Sequence[np.ndarray], states: Sequence[np.ndarray] = ()
) -> list[np.ndarray]:
    """Outputs, then updated states, in float64."""
    executable = NumpyExecutable(graph, floating="float64")
    values = {id(n): a for n, a in zip(graph.inputs, inputs, strict=True)}
    values |= {id(n): a for n, a in zip(graph.states, states, strict=True)}
    values = executable.evaluate(values)
    return [executable.value(n, values) for n in graph.roots]


def all_values(order: Sequence[Node], given: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The value of every node, in float64."""
    values = dict(given)
    with np.errstate(all="ignore"):
        for node in order:
            if id(node) in values:
                continue
            arrays = [values[id(x)] for x in node.inputs]
            values[id(node)] = _compute(node.op, arrays, node.attributes, node.dtype)
    return values


def _compute(op: str, arrays: Sequence[Any], attributes: dict[str, Any], dtype: str) -> np.ndarray:
    result = REGISTRY[op].reference(*arrays, **attributes)
    if op == "constant" and np.isfinite(result):  # rules compute with all its digits
        result = attributes["value"]
    return np.asarray(result, "float64" if dtype == "float32" else dtype)


def assert_same(
    found: np.ndarray, expected: np.ndarray, what: str, tolerance: float = TOLERANCE
) -> None:
    """One shape; integers equal; finite numbers within the tolerance of the largest one."""
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind != "f":
        assert np.array_equal(found, expected), f"{what}: {found} is not {expected}"
        return
    finite = np.isfinite(expected)
    assert np.isfinite(found[finite]).all(), f"{what}: {found}, expected {expected}"
    if finite.any():
        scale = max(float(np.abs(expected[finite]).max()), 0.1)
        error = np.abs(found[finite] - expected[finite]).max() / scale
        assert error <= tolerance, f"{what}: off by {error:.1e} of {scale:.3g}"


def saturated(graph: Graph, using: Engine | None = None) -> tuple[Encoded, EGraph]:
    encoded = Encoded(graph)
    return encoded, (using or current_engine()).explore(encoded)


def check_egraph(
    graph: Graph,
    given: dict[int, np.ndarray],
    using: Engine | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[Encoded, EGraph]:
    """Saturate, and compare every e-node with its class; returns what was found."""
    encoded, found = saturated(graph, using)
    kinds = class_kinds(found, encoded)
    values = all_values(encoded.order, given)
    known: list[np.ndarray | None] = [None] * len(found.classes)
    for node, c in zip(encoded.order, found.of, strict=True):
        value = values[id(node)]
        if known[c] is not None:
            assert_same(value, known[c], f"class {c}, {node!r}", tolerance)
        known[c] = value
    waiting = [(c, n) for c, nodes in enumerate(found.classes) for n in nodes if n.leaf is None]
    while waiting:
        later = []
        for c, n in waiting:
            inputs = [known[k] for k in n.children]
            kind = kinds[c]
            if any(v is None for v in inputs) or kind is None:
                later.append((c, n))
                continue
            with np.errstate(all="ignore"):
                value = _compute(n.op, inputs, n.attributes, kind[1])
            expected = known[c]
            if expected is None:
                known[c] = value
            else:
                maker = (
                    ""
                    if n.made_by is None
                    else (using or current_engine()).rules[n.made_by // 2].name
                )
                assert_same(value, expected, f"class {c}, {n!r} of rule {maker!r}", tolerance)
        if len(later) == len(waiting):
            break
        waiting = later
    return encoded, found


def check_graph(
    graph: Graph,
    random: np.random.Generator,
    low: float = -2.0,
    high: float = 2.0,
    tolerance: float = TOLERANCE,
) -> dict[str, Any]:
    """Every e-node of the graph's e-graph, and the optimised graph as a whole; returns the report."""
    inputs = random_values(graph.inputs, random, low, high)
    states = random_values(graph.states, random, low, high)
    given = {
        id(n): a for n, a in zip((*graph.inputs, *graph.states), (*inputs, *states), strict=True)
    }
    check_egraph(graph, given, tolerance=tolerance)
    optimised, report = optimise(graph)
    for i, (found, expected) in enumerate(
        zip(evaluate(optimised, inputs, states), evaluate(graph, inputs, states), strict=True)
    ):
        assert_same(found, expected, f"root {i}", tolerance)
    assert report.get("cost_after", 0) <= report.get("cost_before", 0)
    return report


def problem_of(graph: Graph) -> tuple[Problem, EGraph]:
    """The choice that the selection has to make for this graph."""
    encoded, found = saturated(graph)
    costs = class_costs(found, class_kinds(found, encoded))
    roots = [found.of[encoded.position[id(n)]] for n in graph.roots]
    return Problem([[n.children for n in nodes] for nodes in found.classes], costs, roots), found
