"""The graph: nodes are pure data, with no device and no arrays in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meganeura.graph.operand import Operand

Shape = tuple[int, ...]

LEAVES = ("input", "state", "constant")


class Node(Operand):
    """One value of the graph: the operation `op` applied to `inputs`.

    `attributes` maps names to hashable values and must not be changed after construction.
    `scope` names the user's layer that made the node; it is provenance only and no part of the
    node's meaning. `region` is what `checkpoint` marks: values to compute again for the backward
    pass instead of keeping them. A node has exactly one value; operations with several results are several nodes.
    """

    __slots__ = ("__weakref__", "attributes", "dtype", "inputs", "op", "region", "scope", "shape")

    def __init__(
        self,
        op: str,
        inputs: Sequence[Node],
        attributes: Mapping[str, Any],
        shape: Shape,
        dtype: str,
        scope: str = "",
    ):
        self.op = op
        self.inputs = tuple(inputs)
        self.attributes = dict(attributes)
        self.shape = tuple(shape)
        self.dtype = dtype
        self.scope = scope
        self.region: object | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    def attribute_key(self) -> tuple[tuple[str, Any], ...]:
        """The attributes as one hashable value."""
        items = self.attributes.items()
        return tuple(sorted(items)) if len(items) > 1 else tuple(items)

    def __repr__(self) -> str:
        attributes = ", ".join(f"{k}={v!r}"[:60] for k, v in sorted(self.attributes.items()))
        inputs = ", ".join(x.op for x in self.inputs)
        return f"<Node {self.op}({inputs}) {attributes} {self.dtype}{list(self.shape)}>"


def topological(roots: Iterable[Node], known: Collection[int] = ()) -> list[Node]:
    """Every node that the roots need, each after its inputs. Iterative: any depth works.

    known: the ids of nodes that are left out, with what only they need
    """
    order: list[Node] = []
    done: set[int] = set(known)
    stack = list(roots)[::-1]
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        waiting = [x for x in node.inputs if id(x) not in done]
        if waiting:
            stack += waiting[::-1]
        else:
            done.add(id(node))
            order.append(node)
            stack.pop()
    return order


@dataclass
class Graph:
    """A whole computation: what goes in, what comes out, and which state it leaves behind.

    `inputs` are nodes of op "input", bound to buffers by position at each run. `states` are nodes
    of op "state", bound to persistent buffers by position. `updates` maps the position of a state
    to the node that holds its value after the run; a state without an update is only read.
    """

    inputs: list[Node]
    outputs: list[Node]
    states: list[Node] = field(default_factory=list)
    updates: dict[int, Node] = field(default_factory=dict)
    _key: tuple[Any, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def roots(self) -> list[Node]:
        return [*self.outputs, *(self.updates[i] for i in sorted(self.updates))]

    def nodes(self) -> list[Node]:
        """All nodes that the roots need, in topological order."""
        return topological(self.roots)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes())

    def key(self) -> tuple[Any, ...]:
        """A hashable value that is equal for two graphs exactly when they compute the same thing
        in the same way: structure, attributes, constants, shapes, dtypes, roots. It is worked out
        once, so a graph whose key was asked for does not change any more."""
        if self._key is None:
            self._key = self._found_key()
        return self._key

    def _found_key(self) -> tuple[Any, ...]:
        leaves = {id(n): ("input", i) for i, n in enumerate(self.inputs)}
        leaves |= {id(n): ("state", i) for i, n in enumerate(self.states)}
        number: dict[int, int] = {}
        table: dict[tuple[Any, ...], int] = {}
        for node in self.nodes():
            identity = leaves.get(id(node)) or (
                node.op,
                node.attribute_key(),
                tuple(number[id(x)] for x in node.inputs),
            )
            entry = (*identity, node.shape, node.dtype)
            number[id(node)] = table.setdefault(entry, len(table))
        return (
            tuple(table),
            tuple((n.shape, n.dtype) for n in self.inputs),
            tuple((n.shape, n.dtype) for n in self.states),
            tuple(number[id(n)] for n in self.outputs),
            tuple((i, number[id(n)]) for i, n in sorted(self.updates.items())),
        )
