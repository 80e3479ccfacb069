"""Before kernels are formed: equal nodes become one, aliases go, and long reductions are split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from meganeura.graph.node import Graph, Node
from meganeura.ops.fused import unfused
from meganeura.ops.nodes import cast
from meganeura.ops.registry import make
from meganeura.schedule.plan import Limits
from meganeura.schedule.splits import Splits
from meganeura.schedule.templates import tiles
from meganeura.schedule.templates.sizes import is_product, product_size


def prepared(graph: Graph, limits: Limits) -> Graph:
    """An equal graph without repetition, in which no reduction runs on a handful of threads."""
    known: dict[object, Node] = {}
    new: dict[int, Node] = {}
    leaves = {id(n) for n in (*graph.inputs, *graph.states)}
    readers: Counter[int] = Counter()
    for node in graph.nodes():
        readers.update({id(x) for x in node.inputs})
    readers.update(id(n) for n in graph.roots)
    alone: set[int] = set()  # new nodes that one node reads
    splits = Splits(limits)
    for node in graph.nodes():
        if id(node) in leaves:
            new[id(node)] = node
            continue
        inputs = tuple(new[id(x)] for x in node.inputs)
        if node.op == "stop_gradient" or (node.op == "cast" and inputs[0].dtype == node.dtype):
            new[id(node)] = inputs[0]
            continue
        key = (node.op, node.attribute_key(), tuple(id(x) for x in inputs))
        found = known.get(key)
        if found is None:
            found = Node(node.op, inputs, node.attributes, node.shape, node.dtype, node.scope)
            known[key] = found
            found = known[key] = _without_padding(found, alone)
            split = splits.of(found)
            split = _split_product(found, limits) if split is None else split
            split = _split_concatenate(found, limits) if split is None else split
            if split is not None:
                known[key] = found = split
        new[id(node)] = found
        if readers[id(node)] == 1:
            alone.add(id(found))
        else:
            alone.discard(id(found))
    position = {id(n): i for i, n in enumerate(graph.states)}
    saved: dict[int, Node] = {}

    def root(node: Node) -> Node:
        """A state that changes is read before that by a kernel of its own: as an output, or as what
        another state becomes."""
        made = new[id(node)]
        if position.get(id(made)) not in graph.updates:
            return made
        if id(made) not in saved:
            saved[id(made)] = make("broadcast_to", made, shape=made.shape)
        return saved[id(made)]

    return Graph(
        graph.inputs,
        [root(n) for n in graph.outputs],
        graph.states,
        {i: root(n) for i, n in graph.updates.items() if new[id(n)] is not graph.states[i]},
    )


def _without_padding(node: Node, alone: set[int]) -> Node:
    """A convolution that reads a padded tensor pads by itself: no position is looked at twice, and
    neighbours stay neighbours. Likewise its gradients."""
    rank = node.inputs[0].ndim if node.inputs else 0
    inner, a = node.inputs[0] if node.inputs else node, node.attributes
    if node.op in ("conv", "fused_conv", "conv_kernel_gradient") and inner.op == "pad":
        low, high = inner.attributes["low"], inner.attributes["high"]
        outside = (0, rank - 1)
        if inner.attributes["value"] != 0.0 or any(low[i] or high[i] for i in outside):
            return node
        margins = zip(low[1:-1], high[1:-1], strict=True)
        inputs = (inner.inputs[0], *node.inputs[1:])
        made = make(node.op, *inputs, **{**a, "padding": _wider(a["padding"], margins)})
    elif node.op == "slice" and inner.op == "conv_input_gradient" and id(inner) in alone:
        start, stop, shape = a["start"], a["stop"], inner.shape
        outside = (0, rank - 1)
        if any(s != 1 for s in a["step"]) or any(start[i] or stop[i] != shape[i] for i in outside):
            return node
        b = inner.attributes
        margins = zip(
            start[1:-1], (n - e for n, e in zip(shape[1:-1], stop[1:-1], strict=True)), strict=True
        )
        made = make(
            inner.op, *inner.inputs,
            **{**b, "input_shape": node.shape, "padding": _wider(b["padding"], margins)},
        )  # fmt: skip
    else:
        return node
    if made.shape != node.shape:
        return node
    made.scope = node.scope
    return made


def _wider(padding: Any, margins: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((low + a, high + b) for (low, high), (a, b) in zip(padding, margins, strict=True))


def _split_concatenate(node: Node, limits: Limits) -> Node | None:
    """More parts than a kernel may read, as parts that are put together first."""
    most = limits.storage_buffers - 2
    if node.op != "concatenate" or len(node.inputs) <= most:
        return None
    axis, parts = node.attributes["axis"], list(node.inputs)
    while len(parts) > 1:
        groups = [parts[i : i + most] for i in range(0, len(parts), most)]
        parts = [make("concatenate", *g, axis=axis) if len(g) > 1 else g[0] for g in groups]
    return parts[0]


def _split_product(node: Node, limits: Limits) -> Node | None:
    """A product whose blocks are too few for a large device: its terms in parts, which are added up.

    Each part and the sum have a fixed order, so the result does not depend on timing.
    """
    if limits.software or not is_product(node):
        return None
    parts = tiles.parts(*product_size(node), limits)
    if parts < 2:
        return None
    plain, finish = unfused(node)
    made = make(f"{plain.op}_parts", *plain.inputs, **plain.attributes, parts=parts)
    total = cast(make("sum", made, axes=(0,), keepdims=False), node.dtype)
    last = finish(total)
    for new in (made, total, last):
        new.scope = node.scope
    return last
