"""Kernels under construction that take nodes in and write their text; here the map kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from meganeura.graph.node import Node
from meganeura.ops.registry import REGISTRY
from meganeura.schedule import index as ix
from meganeura.schedule.index import Index
from meganeura.schedule.plan import Limits
from meganeura.schedule.quads import bound_as_quads, quad_of
from meganeura.schedule.templates.base import ceil_div, fold_workgroups
from meganeura.schedule.turned import THREADS, turned
from meganeura.schedule.writer import STORAGE, Bindings, Unfusable, Writer, literal

Materialised = Callable[[Node], bool]


#: Values that one kernel computes, stored or not: each that joins writes the kernel anew.
_MOST_OUTPUTS = 32


_QUAD = re.compile(r"\b(b\d+)q\[")


class Draft:
    """A kernel that nodes may still join. `outputs` are the nodes that it computes."""

    kind = "map"

    def __init__(self, first: Node, limits: Limits, materialised: Materialised):
        self.outputs: list[Node] = [first]
        self.limits = limits
        self.materialised = materialised
        #: Whether nothing joins any more: only then is the longer text for quads worth its writing.
        self.final = False
        self._hidden: frozenset[int] = frozenset()
        self.needs: set[int] = set()  # stored nodes that come before, read or not
        self.refusal = ""  # why the last node was not taken in
        self.apart: list[tuple[Node, str]] = []  # what is read, and why its kernel is another one
        self.functions = ""
        self.body = ""
        self.group_size: tuple[int, int, int] = (1, 1, 1)
        self.workgroups: tuple[int, int, int] = (1, 1, 1)
        self.bindings: Bindings = Bindings(materialised)
        self.positions: dict[int, Index] = {}

    def try_add(self, node: Node, hidden: frozenset[int] = frozenset()) -> bool:
        """Take another node in, if the kernel can still be written and stays within the limits.

        Outputs in `hidden` have no readers but this kernel's own: they are not stored any more."""
        if len(self.outputs) == _MOST_OUTPUTS:
            self.refusal = f"a kernel computes {_MOST_OUTPUTS} values at most"
            return False
        before = self._written()
        self.outputs = [*self.outputs, node]
        try:
            self.write(hidden)
            count = len(self.bindings.nodes)
            if count <= self.limits.storage_buffers:
                self._hidden = hidden
                return True
            self.refusal = f"together they bind {count} tensors, of {self.limits.storage_buffers}"
        except Unfusable:
            self.refusal = "it needs elements that other invocations compute"
        for name, value in before.items():
            setattr(self, name, value)
        return False

    def _written(self) -> dict[str, Any]:
        """What `write` leaves behind."""
        names = (
            "outputs",
            "functions",
            "body",
            "group_size",
            "workgroups",
            "bindings",
            "positions",
        )
        return {name: getattr(self, name) for name in names}

    def complete(self) -> None:
        """Write the text that is kept, once the kernel has all its nodes."""
        if not self.limits.software:
            self.final = True
            self.write(self._hidden)
        bound = self.bindings
        names = [bound.name(n) for n in bound.nodes if id(n) in bound.quads]
        if names:
            self.functions = _QUAD.sub(r"\1[", bound_as_quads(self.functions, names))
            if self.kind != "template":  # whose bodies reach memory through functions
                self.body = _QUAD.sub(r"\1[", bound_as_quads(self.body, names))

    def write(self, hidden: frozenset[int] = frozenset()) -> None:
        """Write the text; nodes in `hidden` are computed but not stored."""
        raise NotImplementedError

    def _start(self) -> tuple[Bindings, set[int]]:
        own = {id(n) for n in self.outputs}
        bindings = Bindings(lambda n: id(n) in own or self.materialised(n))
        self.positions = {}
        return bindings, own

    def _store(self, writer: Writer, node: Node, *lanes: tuple[Index, str]) -> None:
        """Write the value at each position; four that make up a quad at once."""
        name = writer.bindings.name(node)
        writer.bindings.written.add(id(node))
        self.positions[id(node)] = lanes[0][0]
        if node.dtype == "bool":
            lanes = tuple((at, f"select(0u, 1u, {value})") for at, value in lanes)
        elif node.dtype == "float16":
            lanes = tuple((at, f"mg_half({value})") for at, value in lanes)
        # after all reads of the scope: a state may be read by one output and written by another
        quads = [quad_of(at) for at, _ in lanes]
        if quads[0] is not None and quads == [(quads[0][0], e) for e in range(4)]:
            writer.bindings.quads.add(id(node))
            whole = f"vec4<{STORAGE[node.dtype]}>({', '.join(value for _, value in lanes)})"
            writer.stores.append(f"{name}q[{writer._index(quads[0][0])}] = {whole};")
        else:
            for at, value in lanes:
                writer.stores.append(f"{name}[{writer._index(at)}] = {value};")

    def _finish(
        self, bindings: Bindings, size: tuple[int, int, int], functions: str, body: str
    ) -> None:
        self.bindings = bindings
        self.group_size, self.functions, self.body = size, functions, body


class MapDraft(Draft):
    """One invocation per element, or per four of many; all outputs have as many."""

    def try_add(self, node: Node, hidden: frozenset[int] = frozenset()) -> bool:
        if node.size != self.outputs[0].size or "uint8" in (node.dtype, self.outputs[0].dtype):
            self.refusal = "the results have different sizes"
            return False
        return super().try_add(node, hidden)

    def write(self, hidden: frozenset[int] = frozenset()) -> None:
        bindings, own = self._start()
        first = self.outputs[0]
        size = 32 if self.limits.software else min(256, self.limits.invocations)
        writer = Writer(bindings)
        writer.local = own
        if first.dtype == "uint8":
            self._bytes(writer, first, size)
        else:
            writer.quads = (
                self.final and first.size >= self.limits.quads_from and first.size % 4 == 0
            )
            values: list[list[tuple[Index, str]]] = [[] for _ in self.outputs]
            for position in self._positions(writer, first.size, size):
                writer.given = {}
                for node, found in zip(self.outputs, values, strict=True):
                    at = ix.unravel(position, node.shape)
                    value = compute(writer, node, at)
                    writer.given[id(node)] = (at, value)
                    found.append((position, value))
            for node, found in zip(self.outputs, values, strict=True):
                if id(node) not in hidden:
                    self._store(writer, node, *found)
        self._finish(bindings, (size, 1, 1), "", "\n".join([*writer.lines, *writer.stores]))

    def _positions(self, writer: Writer, count: int, size: int) -> list[Index]:
        """The elements that an invocation computes, after the statements that find them."""
        squares = None
        if writer.quads and size == THREADS:
            # What was written one by one, before, tells how elements are read.
            known = self.bindings.reads.values()
            squares = turned((where for reads in known for where in reads), count)
        if squares is not None:
            self.workgroups, flat = fold_workgroups(squares.workgroups, self.limits.workgroups)
            writer.lines += squares.lines(flat)
            return [squares.position(lane) for lane in range(4)]
        width = 4 if writer.quads else 1
        i = ix.var("i", count // width)
        groups = ceil_div(count // width, size)
        self.workgroups, flat = fold_workgroups(groups, self.limits.workgroups)
        writer.lines += [
            f"let i = {flat} * {size}u + thread;",
            f"if (i >= {count // width}u) {{ return; }}",
        ]
        return [ix.add(ix.mul(i, width), ix.const(lane)) for lane in range(width)]

    def _bytes(self, writer: Writer, node: Node, size: int) -> None:
        """Four bytes to a word: one invocation writes a word."""
        words = ceil_div(node.size, 4)
        self.workgroups, flat = fold_workgroups(ceil_div(words, size), self.limits.workgroups)
        writer.lines += [
            f"let w = {flat} * {size}u + thread;",
            f"if (w >= {words}u) {{ return; }}",
            "var word = 0u;",
        ]
        for lane in range(4):
            inner = writer.fork(f"l{lane}_")
            last = node.size - 1
            inner.lines.append(f"let e{lane} = min(w * 4u + {lane}u, {last}u);")
            at = ix.unravel(ix.var(f"e{lane}", node.size), node.shape)
            value = compute(inner, node, at)
            writer.lines += [*inner.lines, f"word |= ({value} & 255u) << {8 * lane}u;"]
        name = writer.bindings.name(node)
        writer.bindings.written.add(id(node))
        self.positions[id(node)] = ix.const(0)
        writer.lines.append(f"{name}[w] = word;")


def compute(writer: Writer, node: Node, at: tuple[Index, ...]) -> str:
    """The value of a node that this kernel computes (so that it is not loaded)."""
    if id(node) in writer.given:
        return writer.value(node, at)
    kind = REGISTRY[node.op].kind
    if kind == "pointwise":
        return writer._pointwise(node, at)
    if kind in ("movement", "index", "generator"):
        return getattr(writer, f"_{node.op}")(node, at)
    if node.op == "constant":
        return literal(node.attributes["value"], node.dtype)
    if kind == "leaf":
        return writer.load(node, ix.ravel(at, node.shape))
    raise Unfusable


def depends(node: Node, stop: Callable[[Node], bool]) -> list[Node]:
    """The materialised nodes that `node` is pulled from."""
    found: dict[int, Node] = {}
    stack, seen = list(node.inputs), set()
    while stack:
        x = stack.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if stop(x):
            found[id(x)] = x
        else:
            stack.extend(x.inputs)
    return list(found.values())
