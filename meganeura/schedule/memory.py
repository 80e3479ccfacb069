"""Buffers for a list of kernels: who lives how long, who may take whose place."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from meganeura.graph.node import Graph, Node
from meganeura.schedule.kernels import Draft
from meganeura.schedule.merge import Part, dispatch
from meganeura.schedule.order import MOST_PARTS, Order
from meganeura.schedule.plan import Buffer, Kernel, Limits, Plan, storage_bytes
from meganeura.schedule.templates.base import ceil_div, fold_workgroups


@dataclass
class _Copy:
    """A tensor copied into the place of a state or an output, after everything else."""

    source: Node
    target: int


def assemble(graph: Graph, order: Order, limits: Limits) -> Plan:
    """Give every stored node a buffer, and every dispatch its text.

    States are updated in place where the order allows it; temporaries share buffers."""
    plan = Plan([], [], [], [], [])
    of: dict[int, int] = {}

    def new(
        node: Node, role: str, position: int = -1, data: bytes | None = None, size: int = 0
    ) -> int:
        size = size or storage_bytes(node.size, node.dtype)
        if size > limits.binding_bytes:
            where = f" in layer {node.scope!r}" if node.scope else ""
            raise ValueError(
                f"a tensor of shape {node.shape} and dtype {node.dtype}{where} (operation {node.op}) takes {size} "
                f"bytes, and the device binds at most {limits.binding_bytes}; use a smaller batch or layer"
            )
        plan.buffers.append(
            Buffer(len(plan.buffers), size, role, position, node.dtype, node.shape, data)
        )
        return len(plan.buffers) - 1

    for i, node in enumerate(graph.inputs):
        plan.inputs.append(new(node, "input", i))
        of[id(node)] = plan.inputs[-1]
    for i, node in enumerate(graph.states):
        plan.states.append(new(node, "state", i))
        of[id(node)] = plan.states[-1]
    copies: list[_Copy] = []
    for i, node in sorted(graph.updates.items()):
        if order.in_place.get(id(node)) == i:
            of[id(node)] = plan.states[i]
        elif node.size:
            copies.append(_Copy(node, plan.states[i]))
    for i, node in enumerate(graph.outputs):
        if id(node) in of or node.op == "literal":
            plan.outputs.append(new(node, "output", i))
            if node.size:
                copies.insert(0, _Copy(node, plan.outputs[-1]))  # before states change
        else:
            plan.outputs.append(new(node, "output", i))
            of[id(node)] = plan.outputs[-1]
    least = _temporaries(order.units, of, new, copies)
    for unit in order.units:
        plan.kernels.append(_kernel(unit, of, limits))
    plan.kernels += _copy_kernels(copies, of, limits)
    temporary = [b for b in plan.buffers if b.role == "temporary"]
    plan.statistics = {
        "dispatches": len(plan.kernels),
        "temporary_bytes": sum(b.bytes for b in temporary),
        "least_bytes": least,
        "buffer_bytes": sum(b.bytes for b in plan.buffers),
        "largest": _largest(graph, order),
        "state_bytes": sum(plan.buffers[i].bytes for i in plan.states),
        "moved_bytes": sum(k.bytes for k in plan.kernels),
    }
    return plan


def _largest(graph: Graph, order: Order) -> list[tuple[int, str, list[int], str]]:
    """The largest tensors: bytes, dtype, shape, and what made them."""
    nodes = {id(n): n for n in (*graph.inputs, *graph.states)}
    nodes |= {id(n): n for unit in order.units for draft in unit for n in draft.bindings.nodes}
    sizes = {n: storage_bytes(node.size, node.dtype) for n, node in nodes.items()}
    largest = heapq.nlargest(5, nodes, key=lambda n: sizes[n])  # the first ones, of equal ones
    return [(sizes[n], nodes[n].dtype, list(nodes[n].shape), _place(nodes[n])) for n in largest]


def _temporaries(
    units: list[list[Draft]], of: dict[int, int], new: Callable[..., int], copies: list[_Copy]
) -> int:
    """Buffers for what lives between dispatches; returns the bytes of the largest live set.

    Sharing out is a puzzle; of a few simple ways the one that needs least is taken."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    nodes: dict[int, Node] = {}
    for i, unit in enumerate(units):
        for draft in unit:
            for node in draft.bindings.nodes:
                if id(node) in of:
                    continue
                if node.op == "literal":
                    of[id(node)] = new(node, "constant", data=_literal_bytes(node))
                    continue
                nodes.setdefault(id(node), node)
                first.setdefault(id(node), i)
                last[id(node)] = i
    for copy in copies:
        node = copy.source
        if id(node) in last:
            last[id(node)] = len(units)
        elif id(node) not in of and node.op == "literal":  # a root that no kernel touches
            of[id(node)] = new(node, "constant", data=_literal_bytes(node))
    sizes = {n: storage_bytes(node.size, node.dtype) for n, node in nodes.items()}
    change = [0] * (len(units) + 2)
    for n, size in sizes.items():
        change[first[n]] += size
        change[last[n] + 1] -= size
    least = max(itertools.accumulate(change))
    best: list[_Slot] = []
    total = -1
    for order, by_gap in _orders(sizes, first):
        slots = _shared(order, sizes, first, last, len(units), by_gap)
        needed = sum(slot.bytes for slot in slots)
        if total < 0 or needed < total:
            best, total = slots, needed
        if total <= 1.05 * least:
            break
    for slot in best:
        buffer = new(nodes[slot.held[0]], "temporary", size=slot.bytes)
        of.update(dict.fromkeys(slot.held, buffer))
    return least


def _orders(sizes: dict[int, int], first: dict[int, int]) -> Iterator[tuple[list[int], bool]]:
    """Orders in which tensors choose their buffers, and how: the large ones first, the early ones
    first, and for plans of few tensors also the large ones first with some disorder."""
    for order in (
        sorted(sizes, key=lambda n: (-sizes[n], first[n])),
        sorted(sizes, key=lambda n: (first[n], -sizes[n])),
    ):
        yield from ((order, True), (order, False))
    random = Random(0)
    for _ in range(min(40, 6000 // max(len(sizes), 1))):
        spread = random.choice((0.3, 1.0, 2.0))
        shifted = {n: -size * 2 ** random.gauss(0, spread) for n, size in sizes.items()}
        order = sorted(sizes, key=lambda n: shifted[n])  # noqa: B023
        yield from ((order, True), (order, False))


class _Slot:
    """A buffer to be: what it holds, and when, as sorted starts and ends."""

    def __init__(self) -> None:
        self.bytes = 0
        self.held: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []


def _shared(
    order: Sequence[int],
    sizes: dict[int, int],
    first: dict[int, int],
    last: dict[int, int],
    count: int,
    by_gap: bool,
) -> list[_Slot]:
    """Each tensor in turn takes, of the buffers that are free all its life, the one that grows least,
    and of these the one in whose free time it fits most closely, or else the smallest one."""
    slots: list[_Slot] = []
    for n in order:
        start, end, size = first[n], last[n], sizes[n]
        best: _Slot | None = None
        best_key: tuple[int, int] | None = None
        for slot in slots:
            at = bisect_left(slot.starts, start)
            before = slot.ends[at - 1] if at else -1
            after = slot.starts[at] if at < len(slot.starts) else count + 1
            if before < start and end < after:
                key = (max(size - slot.bytes, 0), after - before if by_gap else slot.bytes)
                if best_key is None or key < best_key:
                    best, best_key = slot, key
        if best is None:
            best = _Slot()
            slots.append(best)
        at = bisect_left(best.starts, start)
        best.starts.insert(at, start)
        best.ends.insert(at, end)
        best.held.append(n)
        best.bytes = max(best.bytes, size)
    return slots


def _literal_bytes(node: Node) -> bytes:
    """A literal's values as they are stored: bool as words."""
    data: bytes = node.attributes["data"]
    return (
        np.frombuffer(data, np.bool_).astype(np.uint32).tobytes() if node.dtype == "bool" else data
    )


def _kernel(unit: list[Draft], of: dict[int, int], limits: Limits) -> Kernel:
    parts = []
    for draft in unit:
        written = draft.bindings.written
        bindings = [
            (of[id(n)], id(n) in written, draft.bindings.element(n)) for n in draft.bindings.nodes
        ]
        parts.append(
            Part(draft.group_size, draft.workgroups, draft.functions, draft.body, bindings)
        )
    text, workgroups, bound = dispatch(parts, limits.workgroups)
    moved = sum(storage_bytes(n.size, n.dtype) for draft in unit for n in draft.bindings.nodes)
    names = dict.fromkeys(map(_name, unit))
    scopes = dict.fromkeys(n.scope for draft in unit for n in draft.outputs if n.scope)
    apart = dict.fromkeys(
        (_place(x), _place(draft.outputs[0]), why) for draft in unit for x, why in draft.apart
    )
    return Kernel(
        " | ".join(names)[:120], text, workgroups, bound, tuple(scopes), moved, apart=tuple(apart)
    )


def _place(node: Node) -> str:
    """The operation, and the user's layer that it is from."""
    return f"{node.op} ({node.scope})" if node.scope else node.op


def _name(draft: Draft) -> str:
    kind = draft.kind if draft.kind in ("map", "row") else draft.outputs[0].op
    return f"{kind}:{'+'.join(dict.fromkeys(n.op for n in draft.outputs))}"[:80]


def _copy_kernels(copies: list[_Copy], of: dict[int, int], limits: Limits) -> list[Kernel]:
    """Copies side by side, as many as the device binds, as long as none reads what another wrote."""
    groups: list[list[_Copy]] = []
    for copy in copies:
        if groups:
            group = groups[-1]
            sources = {of[id(c.source)] for c in group}
            targets = {c.target for c in group}
            buffers = sources | targets | {of[id(copy.source)], copy.target}
            apart = of[id(copy.source)] not in targets and copy.target not in sources
            if apart and len(buffers) <= limits.storage_buffers and len(group) < MOST_PARTS:
                group.append(copy)
                continue
        groups.append([copy])
    kernels = []
    for group in groups:
        parts, moved = [], 0
        for copy in group:
            words = storage_bytes(copy.source.size, copy.source.dtype) // 4
            workgroups, flat = fold_workgroups(ceil_div(words, 64), limits.workgroups)
            body = f"let i = {flat} * 64u + thread;\nif (i < {words}u) {{ b1[i] = b0[i]; }}"
            bindings = [(of[id(copy.source)], False, "u32"), (copy.target, True, "u32")]
            parts.append(Part((64, 1, 1), workgroups, "", body, bindings))
            moved += 8 * words
        text, workgroups, bound = dispatch(parts, limits.workgroups)
        scopes = tuple(dict.fromkeys(c.source.scope for c in group if c.source.scope))
        kernels.append(Kernel("copy", text, workgroups, bound, scopes, moved))
    return kernels
