"""Reverse-mode differentiation of the graph, as a graph."""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node, topological
from meganeura.graph.regions import Again
from meganeura.ops.registry import REGISTRY, make, same_scope


def gradients(
    outputs: Node | Sequence[Node],
    wrt: Sequence[Node],
    upstream: Sequence[Node] | None = None,
) -> list[Node]:
    """The gradients of `sum(outputs * upstream)` with respect to each node of `wrt`.

    Each result has the shape of its `wrt` node; zeros where `outputs` does not depend on it.
    `upstream` defaults to ones. Only nodes on a path from `wrt` to `outputs` are differentiated,
    so that gradients which nobody needs are never built. Raises ValueError where a path goes
    through an operation that has no gradient.
    """
    outputs = [outputs] if isinstance(outputs, Node) else list(outputs)
    if upstream is None:
        upstream = [fill(1.0, x.shape, x.dtype) for x in outputs]
    order = topological(outputs)
    wanted = {id(x) for x in wrt}
    on_path: set[int] = set()
    for node in order:
        if id(node) in wanted or (
            node.dtype in FLOATS
            and REGISTRY[node.op].gradient is not _stop
            and node.op != "stop_gradient"
            and any(id(x) in on_path for x in node.inputs)
        ):
            on_path.add(id(node))
    total: dict[int, Node] = {}
    regions: dict[int, Again] = {}

    def accumulate(node: Node, gradient: Node) -> None:
        if (gradient.shape, gradient.dtype) != (node.shape, node.dtype):
            raise ValueError(
                f"the gradient rule that reaches {node!r} returned {gradient.dtype} of the shape {gradient.shape}"
            )
        known = total.get(id(node))
        total[id(node)] = gradient if known is None else make("add", known, gradient)

    for output, seed in zip(outputs, upstream, strict=True):
        if id(output) in on_path:
            accumulate(output, seed)
    for node in reversed(order):
        if id(node) not in on_path or id(node) not in total or not node.inputs:
            continue
        if not any(id(x) in on_path for x in node.inputs):
            continue
        rule = REGISTRY[node.op].gradient
        if rule is None:
            raise ValueError(
                f"operation {node.op!r} has no gradient, but a gradient was asked for through it"
                + (f" (in layer {node.scope!r})" if node.scope else "")
                + "; use stop_gradient on its input if none is wanted"
            )
        with same_scope(node.scope):
            upstream_of = total[id(node)]
            if node.region is not None:
                again = regions.setdefault(id(node.region), Again(node, upstream_of))
                found = rule(again.of(node), upstream_of)
            else:
                found = rule(node, upstream_of)
        for x, gradient in zip(node.inputs, found, strict=True):
            if gradient is not None and id(x) in on_path:
                accumulate(x, gradient)
    return [total[id(x)] if id(x) in total else fill(0.0, x.shape, x.dtype) for x in wrt]


def _stop(node: Node, upstream: Node) -> list[None]:
    """The rule of operations whose derivative is zero everywhere (comparisons, floor, casts to int)."""
    return [None] * len(node.inputs)


zero_gradient = _stop


def fill(value: float, shape: Sequence[int], dtype: str = "float32") -> Node:
    """A node of one repeated value: a broadcast scalar, so nothing is stored."""
    scalar = make("constant", value=value, dtype=dtype)
    return make("broadcast_to", scalar, shape=tuple(shape)) if tuple(shape) else scalar
