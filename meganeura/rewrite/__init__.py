"""Equality saturation: egglog decides what runs.

A graph is loaded into an e-graph, the rules of `rewrite/rules` add every equal form they know of,
and of all of these the cheapest whole graph is taken (`rewrite/cost.py`, `rewrite/select.py`).
"""

from __future__ import annotations

import time
from typing import Any

from meganeura.graph.node import Graph
from meganeura.rewrite.decode import class_costs, class_kinds, rebuilt, used_rules
from meganeura.rewrite.encode import Encoded
from meganeura.rewrite.engine import Engine, Limits, current_engine
from meganeura.rewrite.select import Problem, select

__all__ = ["Limits", "optimise"]


def optimise(
    graph: Graph, limits: Limits | None = None, using: Engine | None = None
) -> tuple[Graph, dict[str, Any]]:
    """The cheapest equal graph that the rules lead to, and a report of what was found.

    Roots keep their order, shapes and dtypes; inputs and states stay the same nodes. `limits`
    bounds the search, and `using` is an engine with rules of its own. Raises RuntimeError where a
    rule turns out to be unsound.
    """
    start = time.perf_counter()
    encoded = Encoded(graph)
    if using is None and sum(1 for n in encoded.order if n.inputs) < 2:
        # one operation, as in eager calls: there is nothing to rewrite it with
        return graph, {
            "nodes_before": len(encoded.order),
            "nodes_after": len(encoded.order),
            "rewrites": {},
        }
    encoded_at = time.perf_counter()
    explorer = using or current_engine()
    found = explorer.explore(encoded, limits)
    explored_at = time.perf_counter()
    kinds = class_kinds(found, encoded)
    costs = class_costs(found, kinds)
    children = [[n.children for n in nodes] for nodes in found.classes]
    roots = [found.of[encoded.position[id(n)]] for n in graph.roots]
    choice, after, before = select(Problem(children, costs, roots), found.written)
    selected_at = time.perf_counter()
    result = rebuilt(graph, encoded, found, choice)
    used = used_rules(found, choice, roots, explorer.rules)
    if encoded.folded:
        used["constants computed"] = encoded.folded
    report = {
        "nodes_before": len(encoded.order),
        "nodes_after": len(result.nodes()),
        "rewrites": used,
        "matches": found.matches,
        "egraph_classes": len(found.classes),
        "egraph_nodes": sum(map(len, found.classes)),
        "egraph_steps": found.steps,
        "egraph_stopped": found.stopped,
        "cost_before": before,
        "cost_after": after,
        "encode_seconds": encoded_at - start,
        "explore_seconds": explored_at - encoded_at,
        "select_seconds": selected_at - explored_at,
        "optimise_seconds": time.perf_counter() - start,
    }
    return result, report
