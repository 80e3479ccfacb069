"""Regions: parts of a graph whose values are computed again for the backward pass, not kept."""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.graph.node import Node, topological
from meganeura.ops.registry import make

#: What is in memory whatever happens, or costs nothing.
_KEPT = ("state", "constant", "literal")


def mark(outputs: Sequence[Node], inputs: Sequence[Node]) -> None:
    """Make what leads from `inputs` to `outputs` a region. One inside another becomes part of it."""
    region = object()
    inside = {id(x) for x in inputs}
    depends: set[int] = set(inside)
    for node in topological(outputs):
        if id(node) not in inside and any(id(x) in depends for x in node.inputs):
            depends.add(id(node))
            node.region = region


class Again:
    """A region a second time, from what goes into it, once its gradient has arrived."""

    def __init__(self, node: Node, upstream: Node):
        self.region = node.region
        # A gradient that is known from the start would let the second time be the first.
        self.after = upstream if any(n.op not in _KEPT for n in upstream.inputs) else node
        self._copies: dict[int, Node] = {}

    def of(self, node: Node) -> Node:
        """The copy of a node of the region; its own inputs in the region are copies as well."""
        stack = [node]
        while stack:
            n = stack[-1]
            if id(n) in self._copies:
                stack.pop()
                continue
            missing = [x for x in n.inputs if id(x) not in self._copies]
            within = [x for x in missing if x.region is self.region]
            if within:
                stack += within
                continue
            for x in missing:
                kept = x.op in _KEPT
                self._copies[id(x)] = x if kept else make("recompute", x, self.after)
            inputs = [self._copies[id(x)] for x in n.inputs]
            self._copies[id(n)] = Node(n.op, inputs, n.attributes, n.shape, n.dtype, n.scope)
        return self._copies[id(node)]
