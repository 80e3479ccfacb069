"""What rewriting made of a graph, kept for later processes, which then need no e-graph.

Kept are the nodes that the result has and the graph had not; everything else is named by its
position in the graph. Every node is made anew by its own shape rule, so that a file cannot bring in a
value of another shape.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from meganeura import disk_cache
from meganeura.graph.node import Node, topological
from meganeura.ops.registry import REGISTRY, make


def remembered(
    what: str,
    order: Sequence[Node],
    leaves: Sequence[Node],
    roots: Sequence[Node],
    find: Callable[[], list[Node]],
) -> list[Node]:
    """The roots that `find` returns, from a file where an equal graph has been here before.

    order:  the nodes that `find` looks at, each after its inputs
    leaves: those among them that it does not look into
    """
    if disk_cache.folder() is None:
        return find()
    position = {id(n): i for i, n in enumerate(order)}
    places = [[position.get(id(n), -1) for n in nodes] for nodes in (leaves, roots)]
    name = disk_cache.key(what, _identity(order, position), places)
    known = _restored(disk_cache.load(name), order, roots)
    if known is not None:
        return known
    result = find()
    disk_cache.save(name, _described(order, position, result))
    return result


def _identity(order: Sequence[Node], position: dict[int, int]) -> tuple[Any, ...]:
    """All that the result depends on. Names and scopes are no part of it, regions are: gradients
    look at them."""
    regions: dict[int, int] = {}
    return tuple(
        (
            n.op,
            *(() if n.op in ("input", "state") else n.attribute_key()),
            tuple(position.get(id(x), -1) for x in n.inputs),
            n.shape,
            n.dtype,
            -1 if n.region is None else regions.setdefault(id(n.region), len(regions)),
        )
        for n in order
    )


def _described(
    order: Sequence[Node], position: dict[int, int], roots: Sequence[Node]
) -> dict[str, Any]:
    """New nodes as [operation, inputs, attributes, node with its scope, node with its region]."""
    number = dict(position)
    scopes = {n.scope: i for i, n in reversed(list(enumerate(order)))}
    regions = {id(n.region): i for i, n in enumerate(order) if n.region is not None}
    made: list[list[Any]] = []
    for node in topological(roots, number):
        number[id(node)] = len(order) + len(made)
        inputs = [number[id(x)] for x in node.inputs]
        attributes = {k: _plain(v) for k, v in node.attributes.items()}
        places = scopes.get(node.scope, -1), regions.get(id(node.region), -1)
        made.append([node.op, inputs, attributes, *places])
    return {"nodes": made, "roots": [number[id(n)] for n in roots]}


def _restored(content: Any, order: Sequence[Node], roots: Sequence[Node]) -> list[Node] | None:
    """The described roots on the nodes of this graph; None where the description does not fit it."""
    if content is None:
        return None
    try:
        nodes = list(order)
        for op, inputs, attributes, scope, region in content["nodes"]:
            if op not in REGISTRY or not all(0 <= i < len(nodes) for i in inputs):
                return None
            named = {k: _value(v) for k, v in attributes.items()}
            node = make(op, *(nodes[i] for i in inputs), **named)
            node.scope = order[scope].scope if scope >= 0 else ""
            node.region = order[region].region if region >= 0 else None
            nodes.append(node)
        found = [nodes[i] for i in content["roots"]]
    except (ValueError, TypeError, KeyError, IndexError):
        return None
    kinds = [(n.shape, n.dtype) for n in roots]
    return found if [(n.shape, n.dtype) for n in found] == kinds else None


def _plain(value: Any) -> Any:
    """An attribute as JSON holds it; tuples and bytes say what they are."""
    if isinstance(value, tuple):
        return {"tuple": [_plain(x) for x in value]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return value


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(_value(x) for x in value["tuple"])
    return base64.b64decode(value["bytes"], validate=True)
