"""Row kernels: reductions with pointwise work before, between and after them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from meganeura.graph.node import Node
from meganeura.ops.pointwise import WGSL_TYPES
from meganeura.ops.registry import REGISTRY
from meganeura.schedule import index as ix
from meganeura.schedule.index import Index
from meganeura.schedule.kernels import Draft, Materialised, compute
from meganeura.schedule.plan import Limits
from meganeura.schedule.templates.base import ceil_div, fold_workgroups
from meganeura.schedule.writer import Bindings, Unfusable, Writer, computed

#: Workgroups that keep a large device busy.
_GROUPS = 64
#: Elements of a column that one thread writes, at most.
_MOST_WRITTEN = 32

#: reduction: (start, fold a and b)
_FOLDS: dict[str, tuple[dict[str, str], Callable[[str, str, str], str]]] = {
    "sum": ({"float32": "0.0", "int32": "0i", "uint32": "0u"}, lambda a, b, t: f"{a} + {b}"),
    "prod": ({"float32": "1.0", "int32": "1i", "uint32": "1u"}, lambda a, b, t: f"{a} * {b}"),
    "max": (
        {
            "float32": "mg_from_bits(0xff800000u)", "int32": "(-2147483647i - 1i)", "uint32": "0u",
            "uint8": "0u", "bool": "false",
        },
        lambda a, b, t: f"mg_max({a}, {b})" if t == "float32" else f"({a} || {b})" if t == "bool" else f"max({a}, {b})",
    ),
    "min": (
        {
            "float32": "mg_from_bits(0x7f800000u)", "int32": "2147483647i", "uint32": "4294967295u",
            "uint8": "255u", "bool": "true",
        },
        lambda a, b, t: f"mg_min({a}, {b})" if t == "float32" else f"({a} && {b})" if t == "bool" else f"min({a}, {b})",
    ),
}  # fmt: skip


def better(op: str, dtype: str, a: str, b: str) -> str:
    """Whether `b` replaces `a` as the extreme; the first NaN wins and stays."""
    sign = ">" if op == "argmax" else "<"
    if dtype == "float32":
        return f"({b} {sign} {a} || mg_isnan({b})) && !mg_isnan({a})"
    return f"{b} {sign} {a}"


class RowDraft(Draft):
    """Reductions over the same dimensions, with pointwise work before, between and after them.

    A row is what is kept, its elements are what is reduced. Each stage is a pass over the elements
    of a row; the last pass writes the outputs that have every element.
    """

    kind = "row"

    def __init__(self, first: Node, limits: Limits, materialised: Materialised):
        super().__init__(first, limits, materialised)
        (x,) = first.inputs
        self.full = x.shape
        self.axes = tuple(first.attributes["axes"])
        self.kept = tuple(i for i in range(x.ndim) if i not in self.axes)
        self.rows = math.prod(self.full[i] for i in self.kept)
        self.length = math.prod(self.full[i] for i in self.axes)

    def try_add(self, node: Node, hidden: frozenset[int] = frozenset()) -> bool:
        if node.op in _FOLDS or node.op in ("argmax", "argmin"):
            same = node.inputs[0].shape == self.full and tuple(node.attributes["axes"]) == self.axes
            if not same or self.length == 0:
                self.refusal = "they reduce along different dimensions"
                return False
        elif node.dtype == "uint8" or not (self._is_full(node) or node.size == self.rows):
            self.refusal = "the result has neither a value for each row nor one for each element"
            return False
        elif self._is_full(node) and self._too_few_threads():
            self.refusal = "its few threads would take long to write every element"
            return False
        return super().try_add(node, hidden)

    def _is_reduction(self, node: Node) -> bool:
        return REGISTRY[node.op].kind == "reduction"

    def _is_full(self, node: Node) -> bool:
        """Whether it has a value for each element: dimensions of length 1 do not matter."""
        return not self._is_reduction(node) and _wide(node.shape) == _wide(self.full)

    def _is_row(self, node: Node) -> bool:
        return not self._is_reduction(node) and not self._is_full(node)

    def _start(self) -> tuple[Bindings, set[int]]:
        """Elements are computed wherever they are needed, and written in the last pass: only what
        the kernel reduces has to be at hand before."""
        full = {id(n) for n in self.outputs if self._is_full(n)}
        own = {id(n) for n in self.outputs} - full
        self.positions = {}
        bindings = Bindings(lambda n: id(n) in own or (id(n) not in full and self.materialised(n)))
        return bindings, own

    def write(self, hidden: frozenset[int] = frozenset()) -> None:
        bindings, own = self._start()
        lanes, self.across = self._arrangement()
        threads = lanes * self.across
        writer = Writer(bindings)
        writer.local = own
        self.workgroups, flat = fold_workgroups(
            ceil_div(self.rows, self.across), self.limits.workgroups
        )
        self.live = ""
        if self.across == 1:
            writer.lines += [f"let r = {flat};", f"if (r >= {self.rows}u) {{ return; }}"]
        elif lanes == 1:
            writer.lines += [
                f"let r = {flat} * {threads}u + thread;",
                f"if (r >= {self.rows}u) {{ return; }}",
            ]
        else:  # all threads meet at barriers, so those past the end repeat the last row
            writer.lines += [
                f"let wanted = {flat} * {self.across}u + thread % {self.across}u;",
                f"let r = min(wanted, {self.rows - 1}u);",
            ]
            if self.rows % self.across:
                self.live = f"wanted < {self.rows}u"
        if lanes > 1:
            writer.lines.append(f"let lane = thread / {self.across}u;")
        shared: set[str] = set()
        self.last_lines: list[str] = []
        pending = list(self.outputs)
        stage = 0
        while pending:
            done = self._stage(writer, pending, lanes, stage, hidden, shared)
            if not done:
                raise Unfusable
            pending = [n for n in pending if id(n) not in done]
            stage += 1
        # After every read of every lane, so that a state may be written in place.
        if lanes > 1 and self.last_lines:
            writer.lines.append("storageBarrier();")
        writer.lines += self.last_lines
        functions = "\n".join(
            f"var<workgroup> shared_{t}: array<{t}, {threads}>;" for t in sorted(shared)
        )
        self._finish(bindings, (threads, 1, 1), functions, "\n".join(writer.lines))

    def _arrangement(self) -> tuple[int, int]:
        """Threads to a row, and rows to a workgroup.

        Neighbouring threads read neighbours: along the row where its elements are neighbours in
        memory, else along the rows.
        """
        if self.limits.software:
            return 1, 16 if self.rows < 64 else 32  # two cores have work
        along = bool(self.axes) and max(self.axes) == len(self.full) - 1
        if along and self.length >= 128:
            return min(256 if self.length >= 1024 else 64, self.limits.invocations), 1
        if not along and self.length >= 32 and self.rows >= 8:
            # Few columns to a workgroup, where there are few: more of the device has work.
            across = next((n for n in (32, 16) if self.rows >= n * _GROUPS), 8)
            most = min(1024 if self.length >= 1024 else 256, self.limits.invocations) // across
            lanes = 2
            # Enough threads to fill the device, each with a few elements at least.
            while lanes < most and self.rows * lanes < 131072 and lanes * 8 < self.length:
                lanes *= 2
            return lanes, across
        return 1, min(64, self.limits.invocations)

    def _too_few_threads(self) -> bool:
        """Whether long columns are few: a thread for each element writes them faster."""
        if self.limits.software or (self.axes and max(self.axes) == len(self.full) - 1):
            return False
        lanes, across = self._arrangement()
        return self.length > _MOST_WRITTEN * lanes and self.rows < 32 * _GROUPS * across

    def _row_place(self, node: Node) -> tuple[Index, ...]:
        """Where row-shaped nodes of any shape have this row's element."""
        return ix.unravel(ix.var("r", self.rows), node.shape)

    def _full_place(self, node: Node, place: tuple[Index, ...]) -> tuple[Index, ...]:
        """Where a node that has every element has this one."""
        wide = iter([c for c, n in zip(place, self.full, strict=True) if n != 1])
        return tuple(ix.const(0) if n == 1 else next(wide) for n in node.shape)

    def _ready(self, node: Node, pending: list[Node], writer: Writer) -> bool:
        """Whether everything of this kernel that the node needs has a value."""
        waiting = {id(n) for n in pending if id(n) != id(node) and not self._is_full(n)}
        stack, seen = list(node.inputs), set()
        while stack:
            x = stack.pop()
            if id(x) in waiting:
                return False
            if id(x) in seen or writer.bindings.materialised(x):
                continue
            seen.add(id(x))
            stack.extend(x.inputs)
        return True

    def _stage(
        self, writer: Writer, pending: list[Node], lanes: int, stage: int,
        hidden: frozenset[int], shared: set[str],
    ) -> set[int]:  # fmt: skip
        done: set[int] = set()
        for node in pending:  # what has one value per row comes for free
            if self._is_row(node):
                if self._ready(node, [p for p in pending if id(p) not in done], writer):
                    where = self._row_place(node)
                    value = compute(writer, node, where)
                    writer.given[id(node)] = (where, value)
                    if id(node) not in hidden:
                        self._row_store(writer, node, value, lanes)
                    done.add(id(node))
        if done:
            return done
        reductions = [
            n for n in pending if self._is_reduction(n) and self._ready(n, pending, writer)
        ]
        if not reductions:
            return self._write_elements(writer, pending, lanes, stage, hidden)
        for node in reductions:
            self._declare(writer, node, stage)

        def accumulate(loop: Writer, k: str) -> None:
            for node in reductions:
                self._accumulate(loop, node, k)

        self._each_element(writer, lanes, stage, accumulate)
        for node in reductions:
            name = self._name(node)
            if lanes > 1:
                self._across(writer, node, lanes, shared)
            final = f"i32({name}_at)" if node.op in ("argmax", "argmin") else name
            value = writer.let(f"({final})")
            where = self._row_place(node)
            writer.given[id(node)] = (where, value)
            if id(node) not in hidden:
                self._row_store(writer, node, value, lanes)
            done.add(id(node))
        return done

    def _row_store(self, writer: Writer, node: Node, value: str, lanes: int) -> None:
        if lanes > 1:
            inner = writer.fork("w_")
            self._store(inner, node, (ix.var("r", self.rows), value))
            test = " && ".join(filter(None, ("lane == 0u", self.live)))
            self.last_lines += [f"if ({test}) {{", *inner.lines, *inner.stores, "}"]
        else:
            inner = writer.fork("w_")
            self._store(inner, node, (ix.var("r", self.rows), value))
            self.last_lines += [*inner.lines, *inner.stores]

    def _name(self, node: Node) -> str:
        return f"acc{next(i for i, n in enumerate(self.outputs) if n is node)}"

    def _dtype(self, node: Node) -> str:
        """In which dtype a reduction adds up or compares."""
        return computed(node.inputs[0].dtype)

    def _kind(self, node: Node) -> str:
        return WGSL_TYPES[node.inputs[0].dtype]

    def _declare(self, writer: Writer, node: Node, stage: int) -> None:
        name, dtype = self._name(node), self._dtype(node)
        if node.op in ("argmax", "argmin"):
            start = _FOLDS["max" if node.op == "argmax" else "min"][0][dtype]
            writer.lines += [f"var {name} = {start};", f"var {name}_at = {self.length}u;"]
        else:
            writer.lines.append(f"var {name} = {_FOLDS[node.op][0][dtype]};")

    def _accumulate(self, loop: Writer, node: Node, k: str) -> None:
        name, (x,), place = self._name(node), node.inputs, self._place_of(k)
        value = (
            loop.value(x, place)
            if id(x) not in loop.local or id(x) in loop.given
            else compute(loop, x, place)
        )
        dtype = self._dtype(node)
        if node.op in ("argmax", "argmin"):
            value = loop.kept(x, value)
            test = f"{name}_at == {self.length}u || ({better(node.op, dtype, name, value)})"
            loop.lines.append(f"if ({test}) {{ {name} = {value}; {name}_at = {k}; }}")
        else:
            loop.lines.append(f"{name} = {_FOLDS[node.op][1](name, value, dtype)};")

    def _across(self, writer: Writer, node: Node, lanes: int, shared: set[str]) -> None:
        """Combine the lanes' results in a fixed tree."""
        name, kind, dtype = self._name(node), self._kind(node), self._dtype(node)
        store = "u32" if kind == "bool" else kind
        shared.add(store)
        memory = f"shared_{store}"
        put = f"select(0u, 1u, {name})" if kind == "bool" else name
        get = (
            (lambda e: f"({memory}[{e}] != 0u)") if kind == "bool" else (lambda e: f"{memory}[{e}]")
        )
        arg = node.op in ("argmax", "argmin")
        lines = ["workgroupBarrier();", f"{memory}[thread] = {put};"]
        if arg:
            shared.add("u32")
            if store == "u32":
                raise Unfusable
            lines.append(f"shared_u32[thread] = {name}_at;")
        lines.append("workgroupBarrier();")
        half = lanes * self.across // 2
        while half >= self.across:
            if arg:
                a, b = get("thread"), get(f"thread + {half}u")
                ia, ib = "shared_u32[thread]", f"shared_u32[thread + {half}u]"
                none = f"{ia} == {self.length}u"
                wins = better(node.op, dtype, a, b)
                both = (
                    f"({b} == {a} || (mg_isnan({a}) && mg_isnan({b})))"
                    if dtype == "float32"
                    else f"{b} == {a}"
                )
                test = f"{ib} != {self.length}u && ({none} || ({wins}) || ({both} && {ib} < {ia}))"
                act = f"{memory}[thread] = {b}; {ia} = {ib};"
                lines.append(
                    f"if (thread < {half}u) {{ if ({test}) {{ {act} }} }} workgroupBarrier();"
                )
            else:
                folded = _FOLDS[node.op][1](get("thread"), get(f"thread + {half}u"), dtype)
                folded = f"select(0u, 1u, {folded})" if kind == "bool" else folded
                lines.append(
                    f"if (thread < {half}u) {{ {memory}[thread] = {folded}; }} workgroupBarrier();"
                )
            half //= 2
        first = "0" if self.across == 1 else f"thread % {self.across}u"
        lines.append(f"{name} = {get(first)};")
        if arg:
            lines.append(f"{name}_at = shared_u32[{first}];")
        writer.lines += lines

    def _write_elements(
        self,
        writer: Writer,
        pending: list[Node],
        lanes: int,
        stage: int,
        hidden: frozenset[int],
    ) -> set[int]:
        ready = [n for n in pending if self._is_full(n)]
        if not ready:
            return set()
        done: set[int] = set()

        def write(loop: Writer, k: str) -> None:
            done.clear()
            for node in ready:
                if not self._ready(node, [p for p in pending if id(p) not in done], loop):
                    continue
                at = self._full_place(node, self._place_of(k))
                value = compute(loop, node, at)
                loop.given[id(node)] = (at, value)
                if id(node) not in hidden:
                    self._store(loop, node, (ix.ravel(at, node.shape), value))
                done.add(id(node))

        self._each_element(writer, lanes, stage, write, self.live)
        return done

    def _place_of(self, k: str) -> tuple[Index, ...]:
        """Coordinates of the element that the variable numbers within row r."""
        row = ix.unravel(ix.var("r", self.rows), [self.full[i] for i in self.kept])
        inner = ix.unravel(ix.var(k, self.length), [self.full[i] for i in self.axes])
        at: list[Index] = [ix.const(0)] * len(self.full)
        for axes, found in ((self.kept, row), (self.axes, inner)):
            for i, c in zip(axes, found, strict=True):
                at[i] = c
        return tuple(at)

    def _each_element(
        self,
        writer: Writer,
        lanes: int,
        stage: int,
        body: Callable[[Writer, str], None],
        live: str = "",
    ) -> None:
        """Statements for the elements of a row. On a GPU a lane takes several in one turn, so that they are on
        their way from memory together; their order is that of one at a time."""
        loop = writer.fork(f"s{stage}_")
        body(loop, "k")
        lines = [*loop.lines, *loop.stores]
        times = 1
        if self.final and len(lines) <= 64:
            times = next((n for n in (4, 2) if n * lanes <= self.length), 1)
        several, stores = list(loop.lines), list(loop.stores)
        for copy in range(1, times):
            again = writer.fork(f"s{stage}_{copy}_")
            # What is read and written where is known from the first.
            bindings = again.bindings
            reads = {node: set(where) for node, where in bindings.reads.items()}
            positions = dict(self.positions)
            body(again, f"k{copy}")
            bindings.reads, self.positions = reads, positions
            several += [f"let k{copy} = k + {copy * lanes}u;", *again.lines]
            stores += again.stores

        def turn(test: str, step: int, inner: list[str]) -> list[str]:
            inner = [f"if ({live}) {{", *inner, "}"] if live else inner
            return [f"for (; {test}; k += {step}u) {{", *inner, "}"]

        writer.lines += ["{", f"var k = {'lane' if lanes > 1 else '0u'};"]
        if times > 1:
            ahead = (times - 1) * lanes
            writer.lines += turn(f"k + {ahead}u < {self.length}u", times * lanes, several + stores)
        if times == 1 or self.length % (times * lanes):
            writer.lines += turn(f"k < {self.length}u", lanes, lines)
        writer.lines.append("}")


def _wide(shape: Sequence[int]) -> list[int]:
    return [n for n in shape if n != 1]
