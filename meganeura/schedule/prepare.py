"""Before kernels are formed: equal nodes become one, aliases go, and long reductions are split."""

from __future__ import annotations

import math

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.schedule.plan import Limits

_NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


def prepared(graph: Graph, limits: Limits) -> Graph:
    """An equal graph without repetition, in which no reduction runs on a handful of threads."""
    known: dict[object, Node] = {}
    new: dict[int, Node] = {}
    leaves = {id(n) for n in (*graph.inputs, *graph.states)}
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
            split = _split(found, limits)
            split = _split_kernel_gradient(found, limits) if split is None else split
            split = _split_concatenate(found, limits) if split is None else split
            if split is not None:
                known[key] = found = split
        new[id(node)] = found
    return Graph(
        graph.inputs,
        [new[id(n)] for n in graph.outputs],
        graph.states,
        {i: new[id(n)] for i, n in graph.updates.items()},
    )


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


def _split(node: Node, limits: Limits) -> Node | None:
    """A long reduction with few rows, as two: over chunks, then over the chunks' results.

    Each has a fixed order, so the result does not depend on timing.
    """
    if node.op not in _NEUTRAL or node.dtype not in ("float32",):
        return None
    (x,) = node.inputs
    axes = node.attributes["axes"]
    length = math.prod(x.shape[a] for a in axes)
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = math.prod(x.shape[i] for i in kept)
    along = bool(axes) and max(axes) == x.ndim - 1
    lanes = 1 if limits.software else 256 if along else 8
    wanted = 64 if limits.software else 32768
    if length < 1024 or rows * lanes >= wanted:
        return None
    chunks = min(length // (64 * lanes) or 1, max(wanted // (rows * lanes), 1), 512)
    if chunks < 2:
        return None
    each = -(-length // chunks)
    lengths = [x.shape[i] for i in kept]
    # What varies fastest in memory stays last, so that neighbouring threads read neighbours.
    order = (*kept, *axes) if along else (*axes, *kept)
    flat = make("transpose", x, axes=order) if order != tuple(range(x.ndim)) else x
    flat = make("reshape", flat, shape=(*lengths, length) if along else (length, *lengths))
    if each * chunks != length:
        none = (0,) * len(kept)
        more = each * chunks - length
        flat = make(
            "pad",
            flat,
            low=(*none, 0),
            high=(*none, more) if along else (more, *none),
            value=_NEUTRAL[node.op],
        )
    at = len(kept) if along else 0
    flat = make(
        "reshape", flat, shape=(*lengths, chunks, each) if along else (chunks, each, *lengths)
    )
    partial = make(node.op, flat, axes=(at + 1,), keepdims=False)
    total = make(node.op, partial, axes=(at,), keepdims=False)
    for made in (flat, partial, total):
        made.scope = node.scope
    return total if total.shape == node.shape else make("reshape", total, shape=node.shape)


def _split_kernel_gradient(node: Node, limits: Limits) -> Node | None:
    """A convolution's kernel gradient sums over every output position: in parts, so that the few
    weights it has do not leave the device idle."""
    if node.op != "conv_kernel_gradient" or limits.software:
        return None
    positions = math.prod(node.inputs[1].shape[:-1])
    tiles = -(-math.prod(node.shape[:-1]) // 64) * -(-node.shape[-1] // 64)
    parts = min(positions // 256, max(264 // tiles, 1), 64)
    if parts < 2:
        return None
    made = make("conv_kernel_gradient_parts", *node.inputs, **node.attributes, parts=parts)
    made.scope = node.scope
    return make("sum", made, axes=(0,), keepdims=False)
