"""Attention that nobody looks into, as one operation: matmul(softmax(f(matmul(q, k))), v).

f is any pointwise work on the scores: a scale, a mask, a bias. Where the weights are needed again,
as in training, they are kept in memory and the three kernels stay.
"""

from __future__ import annotations

import math
from collections import Counter

from meganeura.dtypes import FLOATS
from meganeura.graph.node import LEAVES, Graph, Node
from meganeura.ops.registry import REGISTRY, make
from meganeura.schedule.plan import Limits
from meganeura.schedule.templates.attend import queries_of

#: Other tensors that f may read, so that the kernel stays within the smallest devices' bindings.
_MOST_READ = 2


def with_attention(graph: Graph, limits: Limits) -> Graph:
    """An equal graph with `attend` wherever it applies."""
    order = graph.nodes()
    if not any(n.op == "exp" for n in order):
        return graph
    readers: Counter[int] = Counter(id(x) for n in order for x in n.inputs)
    readers.update(id(n) for n in graph.roots)
    new: dict[int, Node] = {}
    changed = False
    for node in order:
        if node.op == "matmul":
            found = _attend(node, readers, limits, new)
            if found is not None:
                new[id(node)] = found
                changed = True
                continue
        if all(new.get(id(x), x) is x for x in node.inputs):
            new[id(node)] = node
        else:
            inputs = [new[id(x)] for x in node.inputs]
            new[id(node)] = Node(
                node.op, inputs, node.attributes, node.shape, node.dtype, node.scope
            )
    if not changed:
        return graph
    return Graph(
        graph.inputs,
        [new[id(n)] for n in graph.outputs],
        graph.states,
        {i: new[id(n)] for i, n in graph.updates.items()},
    )


def _attend(node: Node, readers: Counter[int], limits: Limits, new: dict[int, Node]) -> Node | None:
    weights, v = node.inputs
    x = _softmax_of(weights, readers)
    if x is None or node.attributes["transpose_a"] or readers[id(x)] != 2:
        return None
    way = _scores_of(x, readers)
    if way is None:
        return None
    score, between = way
    q, k = score.inputs
    depth = q.shape[-2] if score.attributes["transpose_a"] else q.shape[-1]
    *batch, queries, keys = weights.shape
    if node.shape[:-1] != (*batch, queries) or math.prod(node.shape) == 0 or not depth:
        return None
    if _wide(score.shape) != _wide(weights.shape) or score.shape[-2:] != (queries, keys):
        return None  # between the two the scores may have any shape
    if not queries_of(limits, queries, keys, depth) or _reads(x, score) > _MOST_READ:
        return None
    stand_in = Node("input", (), {}, score.shape, score.dtype, score.scope)
    copies = {id(score): stand_in}
    for n in between:
        inputs = [copies.get(id(y), new.get(id(y), y)) for y in n.inputs]
        copies[id(n)] = Node(n.op, inputs, n.attributes, n.shape, n.dtype, n.scope)
    found = copies[id(x)]
    if found.shape != weights.shape:
        found = make("reshape", found, shape=weights.shape)
    made = make(
        "attend", found, new[id(v)], new[id(q)], new[id(k)], stand_in,
        transpose_v=node.attributes["transpose_b"],
        transpose_q=score.attributes["transpose_a"], transpose_k=score.attributes["transpose_b"],
    )  # fmt: skip
    made.scope = node.scope
    return made


def _softmax_of(weights: Node, readers: Counter[int]) -> Node | None:
    """x, where these are the weights softmax(x) along the last dimension, and nothing else uses
    them or what they are made of."""
    p = weights
    while readers[id(p)] == 1 and (
        p.op == "cast" or (p.op == "reshape" and p.inputs[0].shape[-1:] == p.shape[-1:])
    ):
        p = p.inputs[0]
    if p.op != "divide" or readers[id(p)] != 1:
        return None
    e, total = p.inputs
    last = (p.ndim - 1,)
    if total.op != "sum" or total.inputs[0] is not e or e.op != "exp" or readers[id(e)] != 2:
        return None
    if total.attributes != {"axes": last, "keepdims": True} or readers[id(total)] != 1:
        return None
    shifted = e.inputs[0]
    if shifted.op != "subtract" or readers[id(shifted)] != 1:
        return None
    x, top = shifted.inputs
    if top.op != "max" or top.inputs[0] is not x or readers[id(top)] != 1:
        return None
    return x if top.attributes == {"axes": last, "keepdims": True} else None


def _scores_of(x: Node, readers: Counter[int]) -> tuple[Node, list[Node]] | None:
    """The product that x is computed from by pointwise work alone, and the nodes from there to x."""
    way = [x]
    while True:
        n = way[-1]
        if n.op == "matmul":
            return n, way[-2::-1]
        if REGISTRY[n.op].kind != "pointwise" and n.op != "reshape":
            return None
        if n is not x and readers[id(n)] != 1:
            return None
        large = [y for y in n.inputs if y.size == x.size and y.dtype in FLOATS]
        products = [y for y in large if _leads_to_product(y, x.size)]
        if len(products) != 1 or (products[0].op == "matmul" and readers[id(products[0])] != 1):
            return None
        way.append(products[0])


def _leads_to_product(node: Node, size: int) -> bool:
    waiting = [node]
    while waiting:
        n = waiting.pop()
        if n.op == "matmul":
            return True
        if REGISTRY[n.op].kind == "pointwise" or n.op == "reshape":
            waiting += [y for y in n.inputs if y.size == size]
    return False


def _reads(x: Node, score: Node) -> int:
    """How many tensors x reads beside the scores."""
    seen, waiting, leaves = {id(score)}, [x], set()
    while waiting:
        n = waiting.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        kind = REGISTRY[n.op].kind
        if (n.op in LEAVES and n.op != "constant") or n.op == "literal":
            leaves.add(id(n))
        elif kind in ("reduction", "template"):
            leaves.add(id(n))
        else:
            waiting += n.inputs
    return len(leaves)


def _wide(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n != 1]
