"""Choosing one e-node per class so that the whole DAG is cheapest.

Tree costs count shared work again and again, and a greedy DAG cost does not see what others need
anyway. So: start from the graph as it was written (the result is never dearer), and move while the
exact total falls, with reference counts from all roots. A move changes one class, or makes every
user of a class stop using it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

INFINITE = float("inf")


class Selection:
    """One choice per class, how often each class is used, and the total cost."""

    def __init__(
        self,
        children: Sequence[Sequence[tuple[int, ...]]],
        costs: Sequence[Sequence[float]],
        roots: Sequence[int],
        start: Sequence[int],
    ):
        self.children, self.costs = children, costs
        self.roots = set(roots)
        self.choice = list(start)
        self.uses = [0] * len(children)
        self.total = 0.0
        self._acquire(list(roots))

    def _acquire(self, classes: list[int]) -> None:
        while classes:
            c = classes.pop()
            self.uses[c] += 1
            if self.uses[c] == 1:
                self.total += self.costs[c][self.choice[c]]
                classes.extend(self.children[c][self.choice[c]])

    def _release(self, classes: list[int]) -> None:
        while classes:
            c = classes.pop()
            self.uses[c] -= 1
            if not self.uses[c]:
                self.total -= self.costs[c][self.choice[c]]
                classes.extend(self.children[c][self.choice[c]])

    def switch(self, c: int, j: int) -> int:
        """Compute class c by its e-node j; returns the choice before."""
        old = self.choice[c]
        self.choice[c] = j
        if self.uses[c]:
            self.total += self.costs[c][j] - self.costs[c][old]
            self._acquire(list(self.children[c][j]))
            self._release(list(self.children[c][old]))
        return old

    def legal(self, c: int, j: int) -> bool:
        """Whether the choice can be computed and closes no cycle."""
        if self.costs[c][j] == INFINITE:
            return False
        stack, seen = list(self.children[c][j]), set(self.children[c][j])
        while stack:
            x = stack.pop()
            if x == c:
                return False
            if self.choice[x] < 0:
                return False
            for y in self.children[x][self.choice[x]]:
                if y not in seen:
                    seen.add(y)
                    stack.append(y)
        return True


def select(
    children: Sequence[Sequence[tuple[int, ...]]],
    costs: Sequence[Sequence[float]],
    roots: Sequence[int],
    original: Sequence[int],
    sweeps: int = 8,
) -> tuple[list[int], float, float]:
    """(choice per class, its cost, the cost of the graph as it was written).

    `original` holds the e-node of the input graph for each class that it has, -1 for others. Two
    searches are made, from the input graph and from the cheapest flow, and the better one wins.
    """
    tree = _cheapest(children, costs, None)
    written = Selection(children, costs, roots, [o if o >= 0 else t for o, t in zip(original, tree, strict=True)])
    before = written.total
    share = [max(u, 1) for u in written.uses]
    users: list[list[int]] = [[] for _ in children]
    for c, nodes in enumerate(children):
        for k in sorted({k for kids in nodes for k in kids}):
            users[k].append(c)
    flow = Selection(children, costs, roots, _cheapest(children, costs, share))
    best = min((_improved(s, users, sweeps) for s in (written, flow)), key=lambda s: s.total)
    return best.choice, best.total, before


def _improved(s: Selection, users: Sequence[Sequence[int]], sweeps: int) -> Selection:
    several = [c for c, nodes in enumerate(s.children) if len(nodes) > 1]
    for _ in range(sweeps):
        before = s.total
        for c in several:
            _try_switch(s, c)
        for k in range(len(s.children)):
            _try_abandon(s, k, users[k])
        if s.total >= before - 1e-9:
            break
    return s


def _try_switch(s: Selection, c: int) -> None:
    for j in range(len(s.children[c])):
        if not s.uses[c] or j == s.choice[c]:
            continue
        before = s.total
        if not s.legal(c, j):
            continue
        old = s.switch(c, j)
        if s.total >= before - 1e-9:
            s.switch(c, old)


def _try_abandon(s: Selection, k: int, users: Sequence[int]) -> None:
    """Make every user of class k stop using it, if all can and that is cheaper."""
    if not s.uses[k] or k in s.roots or not s.children[k][s.choice[k]]:
        return
    using = sorted(u for u in users if s.uses[u] and k in s.children[u][s.choice[u]])
    if len(using) > 6 or not all(any(k not in kids for kids in s.children[u]) for u in using):
        return
    before, undo = s.total, []
    for u in using:
        best: tuple[float, int] | None = None
        for j, kids in enumerate(s.children[u]):
            if k in kids or j == s.choice[u] or not s.legal(u, j):
                continue
            old = s.switch(u, j)
            if best is None or s.total < best[0] - 1e-9:
                best = (s.total, j)
            s.switch(u, old)
        if best is None:
            break
        undo.append((u, s.switch(u, best[1])))
    if len(undo) < len(using) or s.total >= before - 1e-9:
        for u, old in reversed(undo):
            s.switch(u, old)


def _cheapest(
    children: Sequence[Sequence[tuple[int, ...]]],
    costs: Sequence[Sequence[float]],
    share: Sequence[int] | None,
) -> list[int]:
    """The cheapest e-node of each class by its own cost and that of its operands, each divided
    among the class's users if `share` is given. -1 where a class cannot be computed."""
    value = [INFINITE] * len(children)
    choice = [-1] * len(children)
    missing = [[len(set(kids)) for kids in nodes] for nodes in children]
    users: list[list[tuple[int, int]]] = [[] for _ in children]
    heap: list[tuple[float, int, int]] = []
    for c, nodes in enumerate(children):
        for j, kids in enumerate(nodes):
            for k in set(kids):
                users[k].append((c, j))
            if not kids and costs[c][j] < INFINITE:
                heapq.heappush(heap, (costs[c][j], c, j))
    while heap:
        v, c, j = heapq.heappop(heap)
        if choice[c] >= 0:
            continue
        value[c], choice[c] = v, j
        for u, i in users[c]:
            missing[u][i] -= 1
            if not missing[u][i] and choice[u] < 0 and costs[u][i] < INFINITE:
                flow = costs[u][i] + sum(value[k] / (share[k] if share else 1) for k in set(children[u][i]))
                heapq.heappush(heap, (flow, u, i))
    return choice
