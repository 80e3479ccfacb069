"""Kernels under construction: map, row, and template kernels that take nodes in and write their text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from meganeura.graph.node import Node
from meganeura.ops.fused import ACTIVATIONS
from meganeura.ops.pointwise import WGSL_TYPES
from meganeura.ops.registry import REGISTRY, make
from meganeura.schedule import index as ix
from meganeura.schedule.index import Index
from meganeura.schedule.plan import Limits
from meganeura.schedule.templates.base import TEMPLATES, KernelBody, ceil_div, fold_workgroups
from meganeura.schedule.writer import (
    STORAGE,
    Bindings,
    Unfusable,
    Writer,
    helpers_for,
    literal,
    view,
)

Materialised = Callable[[Node], bool]


class Draft:
    """A kernel that nodes may still join. `outputs` are the nodes that it computes."""

    kind = "map"

    def __init__(self, first: Node, limits: Limits, materialised: Materialised):
        self.outputs: list[Node] = [first]
        self.limits = limits
        self.materialised = materialised
        self.text = ""
        self.workgroups: tuple[int, int, int] = (1, 1, 1)
        self.bindings: Bindings = Bindings(materialised)
        self.positions: dict[int, Index] = {}

    def try_add(self, node: Node) -> bool:
        """Take another node in, if the kernel can still be written and stays within the limits."""
        before = (self.outputs, self.text, self.workgroups, self.bindings, self.positions)
        self.outputs = [*self.outputs, node]
        try:
            self.write()
            if len(self.bindings.nodes) <= max(self.limits.storage_buffers - 1, 2):
                return True
        except Unfusable:
            pass
        self.outputs, self.text, self.workgroups, self.bindings, self.positions = before
        return False

    def stored(self, hidden: set[int] = frozenset()) -> list[Node]:  # type: ignore[assignment]
        return [n for n in self.outputs if id(n) not in hidden]

    def write(self, hidden: frozenset[int] = frozenset()) -> None:
        """Write the text; nodes in `hidden` are computed but not stored."""
        raise NotImplementedError

    def _start(self) -> tuple[Bindings, set[int]]:
        own = {id(n) for n in self.outputs}
        bindings = Bindings(lambda n: id(n) in own or self.materialised(n))
        self.positions = {}
        return bindings, own

    def _store(self, writer: Writer, node: Node, value: str, position: Index) -> None:
        name = writer.bindings.name(node)
        writer.bindings.written.add(id(node))
        self.positions[id(node)] = position
        if node.dtype == "bool":
            value = f"select(0u, 1u, {value})"
        writer.lines.append(f"{name}[{writer._index(position)}] = {value};")

    def _module(self, bindings: Bindings, size: Sequence[int], functions: str, body: str) -> str:
        lines = []
        for i, node in enumerate(bindings.nodes):
            access = "read_write" if id(node) in bindings.written else "read"
            kind = "vec4<f32>" if id(node) in bindings.quads else STORAGE[node.dtype]
            lines.append(f"@group(0) @binding({i}) var<storage, {access}> b{i}: array<{kind}>;")
        group = ", ".join(map(str, size))
        text = "\n".join([*lines, functions])
        return f"""{helpers_for(text + body)}
{text}
@compute @workgroup_size({group})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {{
{body}
}}
"""


class MapDraft(Draft):
    """One invocation per element; all outputs have one shape."""

    def try_add(self, node: Node) -> bool:
        if node.shape != self.outputs[0].shape or "uint8" in (node.dtype, self.outputs[0].dtype):
            return False
        return super().try_add(node)

    def write(self, hidden: frozenset[int] = frozenset()) -> None:
        bindings, own = self._start()
        first = self.outputs[0]
        size = 64 if self.limits.software else min(256, self.limits.invocations)
        writer = Writer(bindings)
        writer.local = own
        if first.dtype == "uint8":
            self._bytes(writer, first, size)
        else:
            self.workgroups, flat = fold_workgroups(
                ceil_div(first.size, size), self.limits.workgroups
            )
            writer.lines += [
                f"let i = {flat} * {size}u + thread;",
                f"if (i >= {first.size}u) {{ return; }}",
            ]
            i = ix.var("i", first.size)
            at = ix.unravel(i, first.shape)
            for node in self.outputs:
                value = compute(writer, node, at)
                writer.given[id(node)] = (at, value)
                if id(node) not in hidden:
                    self._store(writer, node, value, i)
        self.bindings = bindings
        self.text = self._module(bindings, (size, 1, 1), "", "\n".join(writer.lines))

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

    def try_add(self, node: Node) -> bool:
        if node.op in _FOLDS or node.op in ("argmax", "argmin"):
            same = node.inputs[0].shape == self.full and tuple(node.attributes["axes"]) == self.axes
            if not same or self.length == 0:
                return False
        elif node.dtype == "uint8" or (node.shape != self.full and node.size != self.rows):
            return False
        return super().try_add(node)

    def _is_reduction(self, node: Node) -> bool:
        return REGISTRY[node.op].kind == "reduction"

    def write(self, hidden: frozenset[int] = frozenset()) -> None:
        bindings, own = self._start()
        last_reduced = bool(self.axes) and max(self.axes) == len(self.full) - 1
        wide = self.length >= 128 and last_reduced and not self.limits.software
        lanes = min(256 if self.length >= 1024 else 64, self.limits.invocations) if wide else 1
        threads = (
            lanes if wide else (32 if self.limits.software else min(64, self.limits.invocations))
        )
        writer = Writer(bindings)
        writer.local = own
        if wide:
            self.workgroups, flat = fold_workgroups(self.rows, self.limits.workgroups)
            writer.lines += [f"let r = {flat};", f"if (r >= {self.rows}u) {{ return; }}"]
        else:
            self.workgroups, flat = fold_workgroups(
                ceil_div(self.rows, threads), self.limits.workgroups
            )
            writer.lines += [
                f"let r = {flat} * {threads}u + thread;",
                f"if (r >= {self.rows}u) {{ return; }}",
            ]
        row = ix.unravel(ix.var("r", self.rows), [self.full[i] for i in self.kept])
        inner = ix.unravel(ix.var("k", self.length), [self.full[i] for i in self.axes])
        at: list[Index] = [ix.const(0)] * len(self.full)
        for i, c in zip(self.kept, row, strict=True):
            at[i] = c
        for i, c in zip(self.axes, inner, strict=True):
            at[i] = c
        place = tuple(at)
        shared: set[str] = set()
        self.last_lines: list[str] = []
        self.serial = lanes == 1
        pending = list(self.outputs)
        stage = 0
        while pending:
            done = self._stage(writer, pending, place, lanes, stage, hidden, shared)
            if not done:
                raise Unfusable
            pending = [n for n in pending if id(n) not in done]
            stage += 1
        writer.lines += self.last_lines  # after every read, so that a state may be written in place
        functions = "\n".join(
            f"var<workgroup> shared_{t}: array<{t}, {lanes}>;" for t in sorted(shared)
        )
        self.bindings = bindings
        self.text = self._module(bindings, (threads, 1, 1), functions, "\n".join(writer.lines))

    def _row_place(self, node: Node) -> tuple[Index, ...]:
        """Where row-shaped nodes of any shape have this row's element."""
        return ix.unravel(ix.var("r", self.rows), node.shape)

    def _ready(self, node: Node, pending: list[Node], writer: Writer) -> bool:
        """Whether everything of this kernel that the node needs has a value."""
        waiting = {id(n) for n in pending if id(n) != id(node)}
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
        self, writer: Writer, pending: list[Node], place: tuple[Index, ...], lanes: int, stage: int,
        hidden: frozenset[int], shared: set[str],
    ) -> set[int]:  # fmt: skip
        done: set[int] = set()
        for node in pending:  # what has one value per row comes for free
            if not self._is_reduction(node) and node.size == self.rows and node.shape != self.full:
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
            return self._write_elements(writer, pending, place, lanes, stage, hidden)
        for node in reductions:
            self._declare(writer, node, stage)
        step = f"k += {lanes}u" if lanes > 1 else "k++"
        begin = "thread" if lanes > 1 else "0u"
        writer.lines.append(f"for (var k = {begin}; k < {self.length}u; {step}) {{")
        loop = writer.fork(f"s{stage}_")
        for node in reductions:
            self._accumulate(loop, node, place)
        writer.lines += [*loop.lines, "}"]
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
            self._store(inner, node, value, ix.var("r", self.rows))
            self.last_lines += ["if (thread == 0u) {", *inner.lines, "}"]
        else:
            inner = writer.fork("w_")
            self._store(inner, node, value, ix.var("r", self.rows))
            self.last_lines += inner.lines

    def _name(self, node: Node) -> str:
        return f"acc{next(i for i, n in enumerate(self.outputs) if n is node)}"

    def _kind(self, node: Node) -> str:
        return WGSL_TYPES[node.inputs[0].dtype]

    def _declare(self, writer: Writer, node: Node, stage: int) -> None:
        name, dtype = self._name(node), node.inputs[0].dtype
        if node.op in ("argmax", "argmin"):
            start = _FOLDS["max" if node.op == "argmax" else "min"][0][dtype]
            writer.lines += [f"var {name} = {start};", f"var {name}_at = {self.length}u;"]
        else:
            writer.lines.append(f"var {name} = {_FOLDS[node.op][0][dtype]};")

    def _accumulate(self, loop: Writer, node: Node, place: tuple[Index, ...]) -> None:
        name, (x,) = self._name(node), node.inputs
        value = (
            loop.value(x, place)
            if id(x) not in loop.local or id(x) in loop.given
            else compute(loop, x, place)
        )
        if node.op in ("argmax", "argmin"):
            test = f"{name}_at == {self.length}u || ({better(node.op, x.dtype, name, value)})"
            loop.lines.append(f"if ({test}) {{ {name} = {value}; {name}_at = k; }}")
        else:
            loop.lines.append(f"{name} = {_FOLDS[node.op][1](name, value, x.dtype)};")

    def _across(self, writer: Writer, node: Node, lanes: int, shared: set[str]) -> None:
        """Combine the lanes' results in a fixed tree."""
        name, kind, dtype = self._name(node), self._kind(node), node.inputs[0].dtype
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
        half = lanes // 2
        while half:
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
        lines.append(f"{name} = {get('0')};")
        if arg:
            lines.append(f"{name}_at = shared_u32[0];")
        writer.lines += lines

    def _write_elements(
        self,
        writer: Writer,
        pending: list[Node],
        place: tuple[Index, ...],
        lanes: int,
        stage: int,
        hidden: frozenset[int],
    ) -> set[int]:
        ready = [n for n in pending if n.shape == self.full and not self._is_reduction(n)]
        if not ready:
            return set()
        step = f"k += {lanes}u" if lanes > 1 else "k++"
        begin = "thread" if lanes > 1 else "0u"
        writer.lines.append(f"for (var k = {begin}; k < {self.length}u; {step}) {{")
        loop = writer.fork(f"s{stage}_")
        done: set[int] = set()
        for node in ready:
            if not self._ready(node, [p for p in pending if id(p) not in done], loop):
                continue
            value = compute(loop, node, place)
            loop.given[id(node)] = (place, value)
            if id(node) not in hidden:
                self._store(loop, node, value, ix.ravel(place, node.shape))
            done.add(id(node))
        writer.lines += [*loop.lines, "}"]
        return done


def product_of(node: Node) -> tuple[Node, list[Node]]:
    """A fused product as its plain product and the pointwise nodes that follow it."""
    if node.op not in ("fused_matmul", "fused_conv"):
        return node, []
    *operands, bias = node.inputs
    attributes = {k: v for k, v in node.attributes.items() if k != "activation"}
    plain = make(node.op.removeprefix("fused_"), *operands, **attributes)
    out = make("add", plain, bias)
    _, op, extra = ACTIVATIONS[node.attributes["activation"]]
    return plain, [out if op is None else make(op, out, **extra)]


class TemplateDraft(Draft):
    """A template's kernel, with what follows its result applied before it is stored."""

    kind = "template"

    def __init__(self, first: Node, limits: Limits, materialised: Materialised):
        super().__init__(first, limits, materialised)
        self.plain, tail = product_of(first)
        self.tail = tail[0] if tail else None
        self.node = self.plain
        self.inputs = list(self.plain.inputs)

    def try_add(self, node: Node) -> bool:
        if (
            node.size != self.plain.size
            or node.dtype == "uint8"
            or REGISTRY[node.op].kind != "pointwise"
        ):
            return False
        return super().try_add(node)

    # What a template sees of its operands.
    def load(self, operand: int) -> str:
        return f"load_{operand}"

    def load4(self, operand: int) -> str:
        return f"load4_{operand}"

    def vector_axis(self, operand: int) -> int | None:
        """One of the last two axes along which four neighbours lie in memory as an aligned quad."""
        if operand not in self._axes:
            x = self.inputs[operand]
            found = (a for a in (x.ndim - 1, x.ndim - 2) if a >= 0 and self._quads(x, a))
            self._axes[operand] = next(found, None)
        return self._axes[operand]

    def _quads(self, x: Node, axis: int) -> tuple[Node, Index] | None:
        """The node in memory that `x` is a view of, and which of its quads holds the elements from 4 q on
        along `axis`; None where they are not an aligned quad."""
        if x.dtype != "float32" or x.shape[axis] % 4 or x.size == 0:
            return None
        places = []
        for e in range(4):
            at = [ix.var(f"c{i}", n) for i, n in enumerate(x.shape)]
            at[axis] = ix.add(ix.mul(ix.var("q", x.shape[axis] // 4), 4), ix.const(e))
            found = view(x, tuple(at), self.materialised)
            if found is None:
                return None
            places.append(found)
        source, first = places[0]
        if any(p != ix.add(first, ix.const(e)) for e, (_, p) in enumerate(places)):
            return None
        if first.constant % 4 or any(c % 4 for _, c in first.terms):
            return None
        return source, Index([(atom, c // 4) for atom, c in first.terms], first.constant // 4)

    store = "store"
    store4 = "store4"
    vector_store = False

    def write(self, hidden: frozenset[int] = frozenset()) -> None:
        bindings, own = self._start()
        self._axes: dict[int, int | None] = {}
        body: KernelBody = TEMPLATES[self.plain.op](self)  # type: ignore[arg-type]
        text = body.declarations + body.body
        functions = [
            self._load_function(bindings, i)
            for i in range(len(self.inputs))
            if f"load_{i}(" in text
        ]
        functions.append(self._store_function(bindings, own, hidden))
        # A buffer is read in quads where nothing else of this kernel reads or writes it.
        taken = {id(n) for n in bindings.nodes}
        functions += [
            self._load4_function(bindings, i, taken)
            for i in range(len(self.inputs))
            if f"load4_{i}(" in text
        ]
        self.workgroups = body.workgroups
        if max(self.workgroups) > self.limits.workgroups:
            raise ValueError(
                f"{self.plain.op} of shape {self.plain.shape} needs {self.workgroups} workgroups, and the device "
                f"offers {self.limits.workgroups} in a dimension; use a smaller batch"
            )
        self.bindings = bindings
        self.text = self._module(
            bindings, body.workgroup_size, "\n".join([*functions, body.declarations]), body.body
        )

    def _load_function(self, bindings: Bindings, operand: int) -> str:
        x = self.inputs[operand]
        writer = Writer(bindings)
        at = tuple(ix.var(f"c{i}", n) for i, n in enumerate(x.shape))
        value = writer.value(x, at)
        parameters = ", ".join(f"c{i}: u32" for i in range(len(x.shape)))
        lines = "\n".join(writer.lines)
        return f"fn load_{operand}({parameters}) -> {WGSL_TYPES[x.dtype]} {{\n{lines}\nreturn {value};\n}}"

    def _load4_function(self, bindings: Bindings, operand: int, taken: set[int]) -> str:
        x = self.inputs[operand]
        axis = self.vector_axis(operand)
        assert axis is not None
        found = self._quads(x, axis)
        assert found is not None
        source, position = found
        name = bindings.name(source)
        if id(source) in taken:
            inner = ", ".join(f"{name}[at + {e}u]" for e in range(4))
            body = f"let at = ({position.text()}) * 4u; return vec4<f32>({inner});"
        else:
            bindings.quads.add(id(source))
            body = f"return {name}[{position.text()}];"
        parameters = ", ".join(f"c{i}: u32" for i in range(len(x.shape)))
        return f"fn load4_{operand}({parameters}) -> vec4<f32> {{ let q = c{axis} / 4u; {body} }}"

    def _store_function(self, bindings: Bindings, own: set[int], hidden: frozenset[int]) -> str:
        shape = self.plain.shape
        writer = Writer(bindings)
        at = tuple(ix.var(f"c{i}", n) for i, n in enumerate(shape))
        writer.local = {*own, id(self.plain)}
        writer.given[id(self.plain)] = (at, "value")
        flat = ix.ravel(at, shape)
        for n, node in enumerate(self.outputs):
            if n == 0:
                value = "value" if self.tail is None else compute(writer, self.tail, at)
                writer.given[id(node)] = (at, value)
                where = at
            else:
                where = ix.unravel(flat, node.shape)
                value = compute(writer, node, where)
                writer.given[id(node)] = (where, value)
            if id(node) not in hidden:
                self._store(writer, node, value, flat)
        parameters = ", ".join(
            [*(f"c{i}: u32" for i in range(len(shape))), f"value: {WGSL_TYPES[self.plain.dtype]}"]
        )
        return "fn store({}) {{\n{}\n}}".format(parameters, "\n".join(writer.lines))


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
