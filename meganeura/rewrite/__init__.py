"""Equality saturation: the e-graph decides what runs."""

from __future__ import annotations

import time
from typing import Any

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import REGISTRY, make
from meganeura.rewrite.cost import cost
from meganeura.rewrite.select import INFINITE, select

Kind = tuple[tuple[int, ...], str]


def optimise(graph: Graph) -> tuple[Graph, dict[str, Any]]:
    """The cheapest equal graph that the rules lead to, and a report of what was found.

    Roots keep their order, shapes and dtypes; inputs and states stay the same nodes.
    """
    from meganeura.rewrite.engine import engine

    start = time.perf_counter()
    order = graph.nodes()
    found, _ = engine().explore(graph)
    explored = time.perf_counter()
    kinds = _kinds(found, order)
    children = [[n.children for n in nodes] for nodes in found.classes]
    costs = [[_cost(n, c, kinds) for n in nodes] for c, nodes in enumerate(found.classes)]
    original = _original(found, order)
    choice, total, before = select(children, costs, found.roots, original)
    selected = time.perf_counter()
    result = _rebuilt(graph, order, found, choice)
    report = {
        "nodes_before": len(order),
        "nodes_after": len(result.nodes()),
        "rewrites": _used(found, order, result),
        "egraph_classes": len(found.classes),
        "egraph_nodes": sum(map(len, found.classes)),
        "egraph_iterations": found.iterations,
        "egraph_stopped": found.stopped,
        "cost_before": before,
        "cost_after": total,
        "explore_seconds": explored - start,
        "select_seconds": selected - explored,
        "optimise_seconds": time.perf_counter() - start,
    }
    return result, report


def _kinds(found: Any, order: list[Node]) -> list[Kind | None]:
    """Shape and dtype of every class: from the graph, and for classes that rules made from the
    operations' own rules."""
    kinds: list[Kind | None] = [None] * len(found.classes)
    for node, c in zip(order, found.of, strict=True):
        kinds[c] = (node.shape, node.dtype)
    waiting = [c for c, k in enumerate(kinds) if k is None]
    while waiting:
        left = []
        for c in waiting:
            for n in found.classes[c]:
                if n.leaf is None and all(kinds[k] is not None for k in n.children):
                    stand_ins = [Node("input", (), {}, *kinds[k]) for k in n.children]  # type: ignore[misc]
                    kinds[c] = REGISTRY[n.op].infer(*stand_ins, **_attributes(n))
                    break
            else:
                left.append(c)
        if len(left) == len(waiting):
            break
        waiting = left
    return kinds


def _attributes(n: Any) -> dict[str, Any]:
    attributes = dict(n.attributes)
    attributes.pop("opaque", None)
    return attributes


def _cost(n: Any, c: int, kinds: list[Kind | None]) -> float:
    kind = kinds[c]
    if kind is None or any(kinds[k] is None for k in n.children):
        return INFINITE
    return cost(n.op, n.attributes, [kinds[k][0] for k in n.children], kind[0])  # type: ignore[index]


def _original(found: Any, order: list[Node]) -> list[int]:
    """For each class of the input graph, the e-node that was written; -1 where it was forgotten
    because a better form replaces it, or where the class is new."""
    from meganeura.rewrite.engine import restored, split
    from meganeura.rewrite.rules.rule import COLUMNS

    position = {id(n): i for i, n in enumerate(order)}
    original = [-1] * len(found.classes)
    tables = [
        {(n.op, n.leaf, n.children, repr(sorted(n.attributes.items()))): j for j, n in enumerate(nodes)}
        for nodes in found.classes
    ]
    for i, node in enumerate(order):
        c = found.of[i]
        if original[c] >= 0:
            continue
        if node.op in ("input", "state"):
            key: Any = (node.op, i, (), "[]")
        else:
            columns, rest = split(node)
            attributes: dict[str, Any] = dict(rest)
            known = () if "opaque" in attributes else COLUMNS.get(node.op, ())
            for (name, sort), text in zip(known, columns, strict=bool(known)):
                value = float(text) if sort == "f64" else int(text) if sort == "i64" else text
                attributes[name] = restored(name, value)
            kids = tuple(found.of[position[id(x)]] for x in node.inputs)
            key = (node.op, None, kids, repr(sorted(attributes.items())))
        original[c] = tables[c].get(key, -1)
    return original


def _rebuilt(graph: Graph, order: list[Node], found: Any, choice: list[int]) -> Graph:
    """The selected e-nodes as a graph; every shape is inferred again, and the roots' are compared."""
    scopes: dict[int, str] = {}
    for node, c in zip(order, found.of, strict=True):
        scopes.setdefault(c, node.scope)
    built: dict[int, Node] = {}
    stack = [(c, False) for c in reversed(found.roots)]
    while stack:
        c, expanded = stack.pop()
        if c in built:
            continue
        n = found.classes[c][choice[c]]
        if n.leaf is not None:
            built[c] = order[n.leaf]
        elif expanded:
            inputs = [built[k] for k in n.children]
            node = make(n.op, *inputs, **_attributes(n))
            inherited = next((x.scope for x in inputs if x.scope), "")
            node.scope = scopes[c] if c in scopes else inherited
            built[c] = node
        else:
            stack.append((c, True))
            stack.extend((k, False) for k in reversed(n.children) if k not in built)
    roots = [built[c] for c in found.roots]
    for old, new in zip(graph.roots, roots, strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise RuntimeError(f"the optimiser turned {old!r} into {new!r}: a rule is unsound")
    outputs = roots[: len(graph.outputs)]
    updates = dict(zip(sorted(graph.updates), roots[len(graph.outputs) :], strict=True))
    return Graph(graph.inputs, outputs, graph.states, updates)


def _used(found: Any, order: list[Node], result: Graph) -> dict[str, int]:
    """Rules that matched, with how often, where their work is in the result."""
    return {name: count for name, count in sorted(found.matches.items()) if count}
