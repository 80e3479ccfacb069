"""A graph as SVG: nodes in layers, each below what it needs. Self-contained, no scripts."""

from __future__ import annotations

import html
from collections import defaultdict

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import REGISTRY

_COLOURS = {
    "leaf": "#dde7f3",
    "generator": "#dde7f3",
    "pointwise": "#ffffff",
    "movement": "#eeeeee",
    "index": "#eeeeee",
    "reduction": "#d9ead3",
    "template": "#f6d9c4",
}
_BOX, _COLUMN, _ROW, _MARGIN = (132, 36), 148, 66, 12


def svg(graph: Graph) -> str:
    """The drawing. Roots have a thick border; a title on each node holds its attributes and layer."""
    order = graph.nodes()
    place = _places(order)
    roots = {id(n) for n in graph.roots}
    lines = [_edge(place[id(x)], place[id(n)]) for n in order for x in n.inputs]
    boxes = [_node(n, place[id(n)], id(n) in roots) for n in order]
    width = max((x for x, _ in place.values()), default=0) + _BOX[0] + _MARGIN
    height = max((y for _, y in place.values()), default=0) + _BOX[1] + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        + "\n".join([*lines, *boxes])
        + "\n</svg>"
    )


def _layers(order: list[Node]) -> dict[int, int]:
    """How far down each node stands: below its inputs, and leaves right above their first reader."""
    depth: dict[int, int] = {}
    first_reader: dict[int, int] = {}
    for node in order:
        below = max((depth[id(x)] for x in node.inputs if x.inputs), default=0)
        depth[id(node)] = below + 1 if node.inputs else 0
        for x in node.inputs:
            first_reader[id(x)] = min(first_reader.get(id(x), depth[id(node)]), depth[id(node)])
    for node in order:
        if not node.inputs:
            depth[id(node)] = first_reader.get(id(node), 1) - 1
    return depth


def _places(order: list[Node]) -> dict[int, tuple[int, int]]:
    """The corner of each node's box. Within a layer, nodes stand in the order of what they read."""
    depth = _layers(order)
    layers: dict[int, list[Node]] = defaultdict(list)
    for node in order:
        layers[depth[id(node)]].append(node)
    column: dict[int, int] = {}
    for d in sorted(layers):

        def middle(node: Node) -> float:
            above = [column[id(x)] for x in node.inputs if id(x) in column]
            return sum(above) / len(above) if above else float("inf")

        for i, node in enumerate(sorted(layers[d], key=middle)):  # stable: ties as in the graph
            column[id(node)] = i
    return {
        id(n): (_MARGIN + column[id(n)] * _COLUMN, _MARGIN + depth[id(n)] * _ROW) for n in order
    }


def _edge(above: tuple[int, int], below: tuple[int, int]) -> str:
    x0, y0 = above[0] + _BOX[0] // 2, above[1] + _BOX[1]
    x1, y1 = below[0] + _BOX[0] // 2, below[1]
    middle = (y0 + y1) // 2
    return (
        f'<path d="M{x0} {y0} C{x0} {middle} {x1} {middle} {x1} {y1}" fill="none" stroke="#999"/>'
    )


def _node(node: Node, corner: tuple[int, int], root: bool) -> str:
    x, y = corner
    attributes = [f"{k}={v!r}"[:80] for k, v in sorted(node.attributes.items())]
    title = html.escape("\n".join([node.op, *attributes, *([node.scope] if node.scope else [])]))
    activation = node.attributes.get("activation", "linear")
    label = node.op if activation == "linear" else f"{node.op} {activation}"
    if node.op in ("input", "state"):
        label = str(node.attributes.get("name") or node.op).split("/")[-1]
    elif node.op == "constant":
        label = repr(node.attributes["value"])
    shape = f"{node.dtype} {list(node.shape)}"
    middle = x + _BOX[0] // 2
    colour, border = _COLOURS[REGISTRY[node.op].kind], 3 if root else 1
    return (
        f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{_BOX[0]}" height="{_BOX[1]}" rx="4" '
        f'fill="{colour}" stroke="#555" stroke-width="{border}"/>'
        f'<text x="{middle}" y="{y + 15}" font-size="11" text-anchor="middle">{_short(label, 20)}</text>'
        f'<text x="{middle}" y="{y + 29}" font-size="9" text-anchor="middle" fill="#555">'
        f"{_short(shape, 26)}</text></g>"
    )


def _short(text: str, length: int) -> str:
    return html.escape(text if len(text) <= length else text[: length - 1] + "…")
