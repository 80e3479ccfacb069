"""Stable formulas before differentiation.

ln(e^z / sum e^z) written out is as good as the library's log-softmax once the optimiser has seen it,
but its derivative, recorded before that, divides by a probability that may have underflowed to 0:
0 * inf is NaN. So what is to be differentiated is first brought into the forms of rules/losses.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.graph.node import Graph, Node
from meganeura.rewrite.decode import class_costs, class_kinds, rebuilt
from meganeura.rewrite.encode import Encoded, order_of
from meganeura.rewrite.engine import current_engine
from meganeura.rewrite.remembered import remembered
from meganeura.rewrite.select import Problem, cheapest

#: Without one of these there is nothing to do.
_TRIGGERS = {"log", "log1p", "exp"}


def stable(outputs: Sequence[Node], keep: Sequence[Node] = ()) -> list[Node]:
    """Nodes equal to `outputs` whose exponentials and logarithms neither overflow nor underflow.

    Nodes of `keep` stay what they are, so that gradients can be taken with respect to them; what
    needs no change stays the same node.
    """
    graph = Graph([], list(outputs))
    order = order_of(graph, {id(n) for n in keep})
    if not any(n.op in _TRIGGERS for n in order):
        return list(outputs)
    return remembered("stable", order, keep, outputs, lambda: _found(graph, keep))


def _found(graph: Graph, keep: Sequence[Node]) -> list[Node]:
    encoded = Encoded(graph, opaque=keep)
    found = current_engine(stable=True).explore(encoded)
    costs = class_costs(found, class_kinds(found, encoded))
    children = [[n.children for n in nodes] for nodes in found.classes]
    roots = [found.of[encoded.position[id(n)]] for n in graph.outputs]
    problem = Problem(children, costs, roots)
    choice = cheapest(problem, fixed=found.written)
    if any(choice[root] < 0 for root in roots):
        choice = cheapest(problem)
    return rebuilt(graph, encoded, found, choice).outputs
