"""From the e-graph back to a graph: the kinds of all classes, what is selected, and its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import REGISTRY, make
from meganeura.rewrite.cost import cost
from meganeura.rewrite.encode import Encoded, Kind
from meganeura.rewrite.engine import EGraph, ENode
from meganeura.rewrite.rules import Rule
from meganeura.rewrite.select import INFINITE


class UnsoundRule(RuntimeError):
    """A rule put values of different shapes or dtypes into one class."""


def class_kinds(found: EGraph, encoded: Encoded) -> list[Kind | None]:
    """Shape and dtype of every class; None for classes that cannot be computed.

    Every e-node's own rule is asked, those of the graph itself included. Raises UnsoundRule where
    two e-nodes of a class disagree, or where a rule made an operation that its operands do not fit.
    """
    kinds: list[Kind | None] = [None] * len(found.classes)
    for node, c in zip(encoded.order, found.of, strict=True):
        if kinds[c] not in (None, (node.shape, node.dtype)):
            raise UnsoundRule(f"{node!r} was merged with a value of another kind, {kinds[c]}")
        kinds[c] = (node.shape, node.dtype)
    known: dict[Any, Kind] = {}
    waiting: list[tuple[int, ENode]] = [
        (c, n) for c, nodes in enumerate(found.classes) for n in nodes if n.leaf is None
    ]
    while waiting:
        later = []
        for c, n in waiting:
            inputs = [kinds[k] for k in n.children]
            if None in inputs:
                later.append((c, n))
                continue
            key = (n.op, id(n.attributes), *inputs)  # attributes are shared by equal e-nodes
            kind = known.get(key)
            if kind is None:
                kind = known[key] = _inferred(n, inputs)  # type: ignore[arg-type]
            if kinds[c] is None:
                kinds[c] = kind
            elif kinds[c] != kind:
                raise UnsoundRule(
                    f"{n.op} of {inputs} gives {kind}, and was merged with a value of {kinds[c]}"
                )
        if len(later) == len(waiting):
            break
        waiting = later
    return kinds


def _inferred(n: ENode, inputs: Sequence[Kind]) -> Kind:
    stand_ins = [Node("input", (), {}, shape, dtype) for shape, dtype in inputs]
    try:
        shape, dtype = REGISTRY[n.op].infer(*stand_ins, **n.attributes)
    except (TypeError, ValueError) as error:
        raise UnsoundRule(f"a rule made {n.op} of {inputs} with {n.attributes}: {error}") from error
    return tuple(shape), dtype


def class_costs(found: EGraph, kinds: Sequence[Kind | None]) -> list[list[int]]:
    """The cost of every e-node."""
    known: dict[Any, int] = {}
    costs = []
    for c, nodes in enumerate(found.classes):
        own = []
        for n in nodes:
            inputs = [kinds[k] for k in n.children]
            kind = kinds[c]
            if kind is None or None in inputs or c in n.children:
                own.append(INFINITE)
                continue
            key = (n.op, id(n.attributes), kind[0], *(k[0] for k in inputs if k is not None))
            if key not in known:
                shapes = [k[0] for k in inputs if k is not None]
                known[key] = cost(n.op, n.attributes, shapes, kind[0])
            own.append(known[key])
        costs.append(own)
    return costs


def rebuilt(graph: Graph, encoded: Encoded, found: EGraph, choice: Sequence[int]) -> Graph:
    """The selected e-nodes as a graph.

    What is as it was keeps its node; every other one is made anew, so that its rule for shapes sees
    it again, and carries the scope of what it stands for. Raises UnsoundRule where a root has not
    kept its shape and dtype.
    """
    first: dict[int, Node] = {}
    for node, c in zip(encoded.order, found.of, strict=True):
        first.setdefault(c, node)
    built: dict[int, Node] = {}
    wanted = [found.of[encoded.position[id(n)]] for n in graph.roots]
    stack: list[tuple[int, bool, str, object | None]]
    stack = [(c, False, "", None) for c in reversed(wanted)]
    while stack:
        c, expanded, scope, region = stack.pop()
        if c in built:
            continue
        n = found.classes[c][choice[c]]
        before = first.get(c)
        if n.leaf is not None:
            built[c] = encoded.order[n.leaf]
        elif not expanded:
            scope = before.scope if before is not None and before.scope else scope
            region = before.region if before is not None else region
            stack.append((c, True, scope, region))
            stack.extend((k, False, scope, region) for k in reversed(n.children) if k not in built)
        else:
            inputs = [built[k] for k in n.children]
            if (
                choice[c] == found.written[c]
                and before is not None
                and _same(before.inputs, inputs)
            ):
                built[c] = before
            else:
                built[c] = make(n.op, *inputs, **n.attributes)
                built[c].scope, built[c].region = scope, region
    roots = [built[c] for c in wanted]
    for old, new in zip(graph.roots, roots, strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise UnsoundRule(f"the optimiser turned {old!r} into {new!r}")
    updates = dict(zip(sorted(graph.updates), roots[len(graph.outputs) :], strict=True))
    return Graph(graph.inputs, roots[: len(graph.outputs)], graph.states, updates)


def _same(before: Sequence[Node], after: Sequence[Node]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))


def used_rules(
    found: EGraph, choice: Sequence[int], roots: Sequence[int], rules: Sequence[Rule]
) -> dict[str, int]:
    """How often each rule shaped the result.

    An operation of the result counts for the rule that made it. An operation of the graph as it was
    written that is gone, and in whose place stands nothing that a rule made, counts for the rule
    that did away with it. Where of what a rule made only a part is left, the part counts.
    """
    needed: set[int] = set()
    stack = list(roots)
    while stack:
        c = stack.pop()
        if c not in needed:
            needed.add(c)
            stack.extend(found.classes[c][choice[c]].children)
    counts: Counter[int] = Counter()
    parts: Counter[int] = Counter()
    for c, nodes in enumerate(found.classes):
        written = found.written[c]
        chosen = choice[c] if c in needed else -1
        made_by = nodes[chosen].made_by if chosen >= 0 and chosen != written else None
        gone = nodes[written].undone_by if written >= 0 and chosen != written else None
        if made_by is not None:
            (parts if made_by % 2 else counts)[made_by // 2] += 1
        elif gone is not None:
            counts[gone] += 1
    by_name: Counter[str] = Counter()
    for number in sorted({*counts, *parts}):
        by_name[rules[number].name] += counts[number] or parts[number]
    return dict(sorted(by_name.items()))
