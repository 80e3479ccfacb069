"""The order of kernels, and which share a dispatch.

Kernels are taken one by one from those whose needs are met: first those that free at least as much
memory as they take, else the next one of the graph's order. To each are joined others that are ready
too, as far as the device's limits allow, so that gradients and updates of many small weights are a
handful of dispatches. Updates that hold little memory wait for company.

A state is written in place where its old value is needed by nobody later; that is settled here, by
edges from the readers of the old value to the kernel that writes the new one.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from meganeura.graph.node import Graph, Node
from meganeura.schedule.kernels import Draft, MapDraft
from meganeura.schedule.merge import shared_bytes, shared_memory
from meganeura.schedule.plan import Limits, storage_bytes
from meganeura.schedule.template_kernels import TemplateDraft

#: Kernels of one dispatch, at most: longer texts take drivers long to compile.
MOST_PARTS = 16
#: An update may wait for others while it keeps no more than this many bytes alive.
_LIGHT = 64 << 10
#: All that wait may keep one part in so many of the memory that was needed at once so far.
_WAITING = 50
#: Kernels may come early when they take no more memory than this.
_SMALL = 256 << 10


@dataclass
class Order:
    """units: the drafts of each dispatch; in_place: node -> position of the state it overwrites."""

    units: list[list[Draft]]
    in_place: dict[int, int] = field(default_factory=dict)


class _Dependencies:
    """Which draft must come before which: bits of ancestors, with edges added on the way."""

    def __init__(self, drafts: Sequence[Draft]):
        self.drafts = drafts
        self.writer: dict[int, int] = {}
        self.readers: dict[int, list[int]] = defaultdict(list)
        for d, draft in enumerate(drafts):
            for node in draft.bindings.nodes:
                if id(node) in draft.bindings.written:
                    self.writer[id(node)] = d
                else:
                    self.readers[id(node)].append(d)
        self.before: list[set[int]] = [set() for _ in drafts]
        owner = {id(n): d for d, draft in enumerate(drafts) for n in draft.outputs}
        for d, draft in enumerate(drafts):
            self.before[d] = {owner[n] for n in draft.needs if n in owner} - {d}
        self.ancestors = [0] * len(drafts)
        for d in range(len(drafts)):  # drafts come in an order that respects what they read
            bits = 0
            for other in self.before[d]:
                bits |= self.ancestors[other] | 1 << other
            self.ancestors[d] = bits

    def add(self, readers: Sequence[int], d: int) -> bool:
        """Let `readers` come before `d`, if that closes no cycle."""
        if any(self.ancestors[r] >> d & 1 for r in readers):
            return False
        bits = 0
        for r in readers:
            bits |= self.ancestors[r] | 1 << r
        new = bits & ~self.ancestors[d]
        self.before[d].update(readers)
        if new:
            self.ancestors[d] |= new
            for e, held in enumerate(self.ancestors):
                if held >> d & 1:
                    self.ancestors[e] = held | new
        return True


def ordered(graph: Graph, drafts: Sequence[Draft], limits: Limits) -> Order:
    """Drafts in dispatches, each after what it needs."""
    needs = _Dependencies(drafts)
    order = Order([], _in_place(graph, needs))
    _Scheduler(graph, needs, order, limits).run()
    return order


def _in_place(graph: Graph, needs: _Dependencies) -> dict[int, int]:
    """Updates that are written straight over the old value: made by one kernel that reads the old
    value, if at all, at the very same element, with every other reader of it before."""
    roots = [*graph.outputs, *graph.updates.values()]
    inputs = {id(n) for n in graph.inputs}
    found: dict[int, int] = {}
    for i, node in sorted(graph.updates.items(), key=lambda item: (-item[1].size, item[0])):
        state = graph.states[i]
        writer = needs.writer.get(id(node))
        if writer is None or id(node) in found or id(node) in inputs or not node.size:
            continue
        if node.size != state.size or node.dtype == "uint8" or any(n is state for n in roots):
            continue
        draft = needs.drafts[writer]
        readers = [r for r in needs.readers[id(state)] if r != writer]
        if _same_element(draft, node, state) and needs.add(readers, writer):
            found[id(node)] = i
    return found


def _same_element(draft: Draft, node: Node, state: Node) -> bool:
    if isinstance(draft, TemplateDraft) and id(state) in draft.operands:
        return False
    reads = draft.bindings.reads.get(id(state), set())
    if not reads:
        return True
    if reads != {draft.positions[id(node)]}:
        return isinstance(draft, MapDraft) and node.size == 1 and draft.outputs[0].size == 1
    # A row's values are written after all that the row reads, and its elements after all sums.
    return True


class _Scheduler:
    def __init__(self, graph: Graph, needs: _Dependencies, order: Order, limits: Limits):
        self.needs, self.order, self.limits = needs, order, limits
        self.drafts = needs.drafts
        count = len(self.drafts)
        self.kept = {id(n) for n in (*graph.roots, *graph.inputs, *graph.states)}
        states = {i: id(n) for i, n in enumerate(graph.states)}
        #: What stands for a node's buffer: the state that it overwrites, or the node itself.
        self.buffer = {node: states[i] for node, i in order.in_place.items()}
        self.after: list[list[int]] = [[] for _ in range(count)]
        self.missing = [len(b) for b in needs.before]
        for d, before in enumerate(needs.before):
            for other in before:
                self.after[other].append(d)
        self.left = {n: len(r) for n, r in needs.readers.items()}
        self.done = [False] * count
        self.delta = [0] * count
        self.sizes: dict[int, int] = {}
        for d, draft in enumerate(self.drafts):
            for node in draft.bindings.nodes:
                if id(node) in self.kept or node.op == "literal":
                    continue
                size = self.sizes[id(node)] = storage_bytes(node.size, node.dtype)
                if id(node) in draft.bindings.written:
                    self.delta[d] += size
                elif self.left[id(node)] == 1:
                    self.delta[d] -= size
        self.last = [not after for after in self.after]
        self.memory = [shared_memory(d.functions) for d in self.drafts]
        self.live = self.most = 0  # bytes of temporaries now, and at most so far
        self.ready: list[int] = []
        self.waiting: list[int] = []

    def run(self) -> None:
        for d, missing in enumerate(self.missing):
            if not missing:
                self._enter(d)
        while self.ready or self.waiting:
            self._emit(self._company(self._next()))

    def _enter(self, d: int) -> None:
        kept = sum(max(-self.delta[w], 0) for w in self.waiting) - self.delta[d]
        light = self.delta[d] >= -_LIGHT or kept * _WAITING <= self.most
        insort(self.waiting if self.last[d] and light else self.ready, d)

    def _next(self) -> int:
        if not self.ready:
            return self.waiting[0]
        for most in (-_SMALL, _SMALL):
            for d in self.ready:
                if self.delta[d] <= most:
                    return d
        return self.ready[0]

    def _company(self, first: int) -> list[int]:
        """Others that go into the same dispatch."""
        unit = [first]
        memory = self.memory[first]
        if memory is None:
            return unit
        kinds = {kind: len(names) for kind, names in memory.items()}
        buffers = self._buffers(first)
        size = self.drafts[first].group_size
        near = self.ready[:4]
        for d in [*self.ready, *self.waiting]:
            if len(unit) == MOST_PARTS:
                break
            memory = self.memory[d]
            if d == first or memory is None or self.drafts[d].group_size != size:
                continue
            if self.delta[d] > _SMALL and d not in near:
                continue
            own = self._buffers(d)
            joined = own | buffers
            if len(joined) > self.limits.storage_buffers:
                continue
            more = {k: max(kinds.get(k, 0), len(n)) for k, n in memory.items()}
            if shared_bytes(kinds | more) > self.limits.workgroup_bytes:
                continue
            unit.append(d)
            buffers, kinds = joined, kinds | more
        return unit

    def _buffers(self, d: int) -> set[int]:
        """Buffers of a draft."""
        return {self.buffer.get(id(n), id(n)) for n in self.drafts[d].bindings.nodes}

    def _emit(self, unit: list[int]) -> None:
        self.order.units.append([self.drafts[d] for d in unit])
        sizes = (
            self.sizes.get(id(n), 0) if id(n) in self.drafts[d].bindings.written else 0
            for d in unit
            for n in self.drafts[d].bindings.nodes
        )
        self.live += sum(sizes)
        self.most = max(self.most, self.live)
        for d in unit:
            self.done[d] = True
            (self.ready if d in self.ready else self.waiting).remove(d)
        for d in unit:
            draft = self.drafts[d]
            for node in draft.bindings.nodes:
                if id(node) in draft.bindings.written or id(node) not in self.sizes:
                    continue
                self.left[id(node)] -= 1
                if not self.left[id(node)]:
                    self.live -= self.sizes[id(node)]
                if self.left[id(node)] == 1:
                    for reader in self.needs.readers[id(node)]:
                        if not self.done[reader]:
                            self.delta[reader] -= self.sizes[id(node)]
            for e in self.after[d]:
                self.missing[e] -= 1
                if not self.missing[e]:
                    self._enter(e)
