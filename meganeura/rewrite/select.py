"""Choosing one e-node per class so that the whole graph is cheapest.

Costs of trees count shared work again and again, and a choice made class by class does not see what
others need anyway. So: start from a graph, and move while the exact total falls, with reference
counts from all roots. A move changes one class, or makes every user of a class stop using it (a
mask and the activation that it belongs to have to move together). There are two starts, the graph
as it was written, so that the result is never dearer, and one where shared work is divided among
its users; the better end wins.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

#: The cost of an e-node that cannot be computed.
INFINITE = 1 << 60

_MOST_USERS = 8  # of a class that all of its users are asked to do without
_SWEEPS = 8


@dataclass
class Problem:
    """children[c][j] and costs[c][j] of e-node j of class c, and the classes that must be computed."""

    children: list[list[tuple[int, ...]]]
    costs: list[list[int]]
    roots: list[int]

    def __post_init__(self) -> None:
        self.roots = list(dict.fromkeys(self.roots))
        self.children = [[tuple(dict.fromkeys(kids)) for kids in nodes] for nodes in self.children]
        self.component = components(self.children)

    def total(self, choice: Sequence[int]) -> int:
        """The cost of a whole selection: each class that it needs, once."""
        seen, stack, total = set(self.roots), list(self.roots), 0
        while stack:
            c = stack.pop()
            total += self.costs[c][choice[c]]
            for k in self.children[c][choice[c]]:
                if k not in seen:
                    seen.add(k)
                    stack.append(k)
        return total


def components(children: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    """The strongly connected component of each class (Tarjan, without recursion).

    A selection can only close a cycle inside one, and nearly all of them are single classes. A
    component has a larger number than those it leads to.
    """
    n = len(children)
    index, low, found = [-1] * n, [0] * n, [-1] * n
    path: list[int] = []
    counter = count = 0
    for root in range(n):
        if index[root] >= 0:
            continue
        work = [(root, iter([k for kids in children[root] for k in kids]))]
        index[root] = low[root] = counter
        counter += 1
        path.append(root)
        while work:
            c, rest = work[-1]
            for k in rest:
                if index[k] < 0:
                    index[k] = low[k] = counter
                    counter += 1
                    path.append(k)
                    work.append((k, iter([m for kids in children[k] for m in kids])))
                    break
                if found[k] < 0:
                    low[c] = min(low[c], index[k])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[c])
                if low[c] == index[c]:
                    while True:
                        k = path.pop()
                        found[k] = count
                        if k == c:
                            break
                    count += 1
    return found


def cheapest(
    problem: Problem, shares: Sequence[int] | None = None, fixed: Sequence[int] | None = None
) -> list[int]:
    """For each class the e-node of the cheapest tree, -1 where none can be computed.

    With `shares` the cost of a class is divided among so many users; with `fixed` the classes that
    have an e-node there use it. Classes are settled in the order of their cost, so the result has
    no cycles.
    """
    children, costs = problem.children, problem.costs
    if fixed is not None:
        costs = [
            [INFINITE if 0 <= fixed[c] != j else v for j, v in enumerate(values)]
            for c, values in enumerate(costs)
        ]
    choice, best = [-1] * len(children), [0.0] * len(children)
    missing = [[len(kids) for kids in nodes] for nodes in children]
    users: list[list[tuple[int, int]]] = [[] for _ in children]
    heap: list[tuple[float, int, int]] = []
    for c, nodes in enumerate(children):
        for j, kids in enumerate(nodes):
            for k in kids:
                users[k].append((c, j))
            if not kids and costs[c][j] < INFINITE:
                heap.append((float(costs[c][j]), c, j))
    heapq.heapify(heap)
    while heap:
        value, c, j = heapq.heappop(heap)
        if choice[c] >= 0:
            continue
        choice[c] = j
        best[c] = value / shares[c] if shares is not None else value
        for user, i in users[c]:
            missing[user][i] -= 1
            if not missing[user][i] and choice[user] < 0 and costs[user][i] < INFINITE:
                whole = costs[user][i] + sum(best[k] for k in children[user][i])
                heapq.heappush(heap, (whole, user, i))
    return choice


class Selection:
    """One choice per class, how often each class is used, and the exact cost of all of it."""

    def __init__(self, problem: Problem, start: Sequence[int]):
        self.problem = problem
        self.choice = list(start)
        self.uses = [0] * len(problem.children)
        self.total = 0
        self._acquire(problem.roots)

    def _acquire(self, classes: Sequence[int]) -> None:
        children, costs, choice, uses = (
            self.problem.children,
            self.problem.costs,
            self.choice,
            self.uses,
        )
        stack = list(classes)
        while stack:
            c = stack.pop()
            uses[c] += 1
            if uses[c] == 1:
                self.total += costs[c][choice[c]]
                stack += children[c][choice[c]]

    def _release(self, classes: Sequence[int]) -> None:
        children, costs, choice, uses = (
            self.problem.children,
            self.problem.costs,
            self.choice,
            self.uses,
        )
        stack = list(classes)
        while stack:
            c = stack.pop()
            uses[c] -= 1
            if not uses[c]:
                self.total -= costs[c][choice[c]]
                stack += children[c][choice[c]]

    def switch(self, c: int, j: int) -> int:
        """Compute class c by its e-node j from now on; returns the choice before."""
        old = self.choice[c]
        self.choice[c] = j
        if self.uses[c]:
            self.total += self.problem.costs[c][j] - self.problem.costs[c][old]
            self._acquire(self.problem.children[c][j])
            self._release(self.problem.children[c][old])
        return old

    def legal(self, c: int, j: int) -> bool:
        """Whether the e-node can be computed, and choosing it closes no cycle."""
        problem = self.problem
        if problem.costs[c][j] >= INFINITE:
            return False
        component = problem.component
        stack = []
        for k in problem.children[c][j]:
            if self.choice[k] < 0:
                return False
            if component[k] == component[c]:
                stack.append(k)
        seen = set(stack)
        while stack:
            x = stack.pop()
            if x == c:
                return False
            for y in problem.children[x][self.choice[x]]:
                if component[y] == component[c] and y not in seen:
                    seen.add(y)
                    stack.append(y)
        return True

    def improve(self) -> Selection:
        """Moves that lower the total, until there are none or enough has been tried."""
        children = self.problem.children
        users: list[list[int]] = [[] for _ in children]
        for c, nodes in enumerate(children):
            for k in sorted({k for kids in nodes for k in kids}):
                users[k].append(c)
        order = sorted(range(len(children)), key=lambda c: (-self.problem.component[c], c))
        several = [c for c in order if len(children[c]) > 1]
        roots = set(self.problem.roots)
        for _ in range(_SWEEPS):
            before = self.total
            for c in several:
                self._try_others(c)
            for k in order:
                if self.uses[k] and k not in roots and children[k][self.choice[k]]:
                    self._try_without(k, users[k])
            if self.total >= before:
                break
        return self

    def _try_others(self, c: int) -> None:
        for j in range(len(self.problem.children[c])):
            if not self.uses[c]:
                return
            if j != self.choice[c] and self.legal(c, j):
                before = self.total
                old = self.switch(c, j)
                if self.total >= before:
                    self.switch(c, old)

    def _try_without(self, k: int, users: Sequence[int]) -> None:
        """Let every user of class k compute itself in another way, if all can and it pays."""
        children = self.problem.children
        using = [u for u in users if self.uses[u] and k in children[u][self.choice[u]]]
        if len(using) > _MOST_USERS:
            return
        if not all(any(k not in kids for kids in children[u]) for u in using):
            return
        before, undo = self.total, []
        for u in using:
            options = []
            for j, kids in enumerate(children[u]):
                if k not in kids and self.legal(u, j):
                    old = self.switch(u, j)
                    options.append((self.total, j))
                    self.switch(u, old)
            if not options:
                break
            undo.append((u, self.switch(u, min(options)[1])))
        if len(undo) < len(using) or self.total >= before:
            for u, old in reversed(undo):
                self.switch(u, old)


def select(problem: Problem, written: Sequence[int]) -> tuple[list[int], int, int]:
    """(choice per class, its cost, the cost of the graph as it was written).

    `written` holds the e-node of each class that the graph had, -1 for other classes.
    """
    kept = cheapest(problem, fixed=written)
    if any(kept[root] < 0 for root in problem.roots):  # a class that rules replaced needs its user
        kept = cheapest(problem)
    start = Selection(problem, kept)
    before, shares = start.total, [max(u, 1) for u in start.uses]
    start.improve()
    other = Selection(problem, cheapest(problem, shares)).improve()
    best = other if other.total < start.total else start
    return best.choice, best.total, before
