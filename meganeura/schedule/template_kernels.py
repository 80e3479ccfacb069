"""Template kernels: what a template computes, with its operands pulled and its result handed on."""

from __future__ import annotations

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node
from meganeura.ops.fused import unfused
from meganeura.ops.pointwise import WGSL_TYPES
from meganeura.ops.registry import REGISTRY
from meganeura.schedule import index as ix
from meganeura.schedule import packed
from meganeura.schedule.index import Index
from meganeura.schedule.kernels import Draft, Materialised, compute
from meganeura.schedule.plan import Limits
from meganeura.schedule.quads import quad_of
from meganeura.schedule.templates.base import TEMPLATES, KernelBody
from meganeura.schedule.writer import Bindings, Unfusable, Writer, view


class TemplateDraft(Draft):
    """A template's kernel, with what follows its result applied before it is stored."""

    kind = "template"

    def __init__(self, first: Node, limits: Limits, materialised: Materialised):
        super().__init__(first, limits, materialised)
        self.plain, finish = unfused(first)
        tail = finish(self.plain)
        self.tail = None if tail is self.plain else tail
        self.node = self.plain
        self.inputs = list(self.plain.inputs)
        self._known_quads: dict[tuple[int, int], tuple[Node, Index] | None] = {}

    def try_add(self, node: Node, hidden: frozenset[int] = frozenset()) -> bool:
        if (
            node.size != self.plain.size
            or node.dtype == "uint8"
            or REGISTRY[node.op].kind != "pointwise"
        ):
            self.refusal = "a product is followed by pointwise work on as many elements only"
            return False
        return super().try_add(node, hidden)

    # What a template sees of its operands.
    def load(self, operand: int) -> str:
        return f"load_{operand}"

    def load4(self, operand: int) -> str:
        return f"load4_{operand}"

    def vector_axis(self, operand: int) -> int | None:
        """One of the last two axes along which four neighbours lie in memory as an aligned quad; else the
        last one, if its length is a multiple of 4: four values are then computed at once."""
        if operand not in self._axes:
            x = self.inputs[operand]
            found = (a for a in (x.ndim - 1, x.ndim - 2) if a >= 0 and self._quads(x, a))
            last = x.ndim - 1
            default = last if x.dtype in FLOATS and x.shape[last] % 4 == 0 else None
            self._axes[operand] = next(found, default)
        return self._axes[operand]

    def packed(self, operand: int) -> bool:
        """Whether quads of the operand are unpacked from a packed table."""
        axis = self.vector_axis(operand)
        found = self._quads(self.inputs[operand], axis) if axis is not None else None
        return found is not None and not self.materialised(found[0])

    def _computes_quads(self, text: str, operand: int) -> bool:
        axis = self._axes.get(operand)
        return (
            f"load4_{operand}(" in text
            and axis is not None
            and not self._quads(self.inputs[operand], axis)
        )

    def _quads(self, x: Node, axis: int) -> tuple[Node, Index] | None:
        """The node in memory that `x` is a view of, and which of its quads holds the elements from 4 q on
        along `axis`; None where they are not an aligned quad."""
        key = (id(x), axis)
        if key not in self._known_quads:
            self._known_quads[key] = self._find_quads(x, axis)
        return self._known_quads[key]

    def _find_quads(self, x: Node, axis: int) -> tuple[Node, Index] | None:
        if x.dtype not in FLOATS or x.shape[axis] % 4 or x.size == 0:
            return None
        places = []
        for e in range(4):
            at = [ix.var(f"c{i}", n) for i, n in enumerate(x.shape)]
            at[axis] = ix.add(ix.mul(ix.var("q", x.shape[axis] // 4), 4), ix.const(e))
            found = view(x, tuple(at), lambda n: n.op == "dequantize" or self.materialised(n))
            if found is None:
                return None
            places.append(found)
        source, first = places[0]
        if not self.materialised(source) and source.shape[-1] % 4:  # rows of packed values
            return None
        if any(p != ix.add(first, ix.const(e)) for e, (_, p) in enumerate(places)):
            return None
        quad = quad_of(first)
        return None if quad is None or quad[1] else (source, quad[0])

    store = "store"
    store4 = "store4"

    @property
    def vector_store(self) -> bool:
        """Whether four neighbours along the last axis, the first at a multiple of 4, may be stored at once."""
        return self.final and self.plain.shape[-1] % 4 == 0

    def write(self, hidden: frozenset[int] = frozenset()) -> None:
        bindings, own = self._start()
        self._axes: dict[int, int | None] = {}
        body: KernelBody = TEMPLATES[self.plain.op](self)  # type: ignore[arg-type]
        text = body.declarations + body.body
        functions = [
            self._load_function(bindings, i)
            for i in range(len(self.inputs))
            if f"load_{i}(" in text or self._computes_quads(text, i)
        ]
        #: What operands are read from, at elements that other invocations may write.
        self.operands = set(bindings.reads)
        functions += [
            self._store_function(bindings, own, hidden, width)
            for name, width in ((self.store, 1), (self.store4, 4))
            if f"{name}(" in text
        ]
        functions += [
            self._load4_function(bindings, i)
            for i in range(len(self.inputs))
            if f"load4_{i}(" in text
        ]
        self.workgroups = body.workgroups
        if max(self.workgroups) > self.limits.workgroups:
            raise ValueError(
                f"{self.plain.op} of shape {self.plain.shape} needs {self.workgroups} workgroups, and the device "
                f"offers {self.limits.workgroups} in a dimension; use a smaller batch"
            )
        self._finish(
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

    def _load4_function(self, bindings: Bindings, operand: int) -> str:
        x = self.inputs[operand]
        axis = self.vector_axis(operand)
        assert axis is not None
        parameters = ", ".join(f"c{i}: u32" for i in range(len(x.shape)))
        found = self._quads(x, axis)
        if found is None:
            each = (
                ", ".join(f"c{i} + {e}u" if i == axis else f"c{i}" for i in range(x.ndim))
                for e in range(4)
            )
            values = ", ".join(f"load_{operand}({places})" for places in each)
            return (
                f"fn load4_{operand}({parameters}) -> vec4<f32> {{ return vec4<f32>({values}); }}"
            )
        source, position = found
        if not self.materialised(source):
            return self._packed_quad(bindings, operand, axis, source, position)
        self.operands.add(id(source))
        bindings.quads.add(id(source))
        body = f"return vec4<f32>({bindings.name(source)}q[{position.text()}]);"
        return f"fn load4_{operand}({parameters}) -> vec4<f32> {{ let q = c{axis} / 4u; {body} }}"

    def _packed_quad(
        self, bindings: Bindings, operand: int, axis: int, source: Node, position: Index
    ) -> str:
        """Four neighbours of a packed table at once."""
        parameters = ", ".join(f"c{i}: u32" for i in range(self.inputs[operand].ndim))
        writer = Writer(bindings)
        before = set(bindings.reads)
        row, number = ix.unravel(position, (source.shape[0], source.shape[1] // 4))
        value = packed.quad(writer, source, row, number)
        self.operands |= set(bindings.reads) - before
        lines = "\n".join([f"let q = c{axis} / 4u;", *writer.lines])
        return f"fn load4_{operand}({parameters}) -> vec4<f32> {{\n{lines}\nreturn {value};\n}}"

    def _store_function(
        self, bindings: Bindings, own: set[int], hidden: frozenset[int], width: int
    ) -> str:
        shape = self.plain.shape
        writer = Writer(bindings)
        writer.local = {*own, id(self.plain)}
        writer.quads = width == 4
        last = f"c{len(shape) - 1}"
        if writer.quads:
            writer.lines.append(f"let q = {last} / 4u;")
            last = "q"
        values: list[list[tuple[Index, str]]] = [[] for _ in self.outputs]
        for lane in range(width):
            inner = ix.add(ix.mul(ix.var(last, shape[-1] // width), width), ix.const(lane))
            at = (*(ix.var(f"c{i}", n) for i, n in enumerate(shape[:-1])), inner)
            given = f"value.{'xyzw'[lane]}" if writer.quads else "value"
            writer.given = {id(self.plain): (at, given)}
            for n, (node, found) in enumerate(zip(self.outputs, values, strict=True)):
                where = at if n == 0 else self._place(writer, node)
                if n == 0 and self.tail is None:
                    value = given
                else:
                    value = compute(writer, node if n or self.tail is None else self.tail, where)
                writer.given[id(node)] = (where, value)
                found.append((ix.ravel(where, node.shape), value))
        for node, found in zip(self.outputs, values, strict=True):
            if id(node) not in hidden:
                self._store(writer, node, *found)
        kind = WGSL_TYPES[self.plain.dtype]
        kind = f"vec4<{kind}>" if writer.quads else kind
        parameters = ", ".join([*(f"c{i}: u32" for i in range(len(shape))), f"value: {kind}"])
        lines = "\n".join([*writer.lines, *writer.stores])
        return f"fn {self.store4 if writer.quads else self.store}({parameters}) {{\n{lines}\n}}"

    def _place(self, writer: Writer, node: Node) -> tuple[Index, ...]:
        """Where in `node` the element is that this invocation has: the way from what is given up to
        `node`, through every transpose and reshape."""
        way: dict[int, Node] = {}
        waiting, start = [node], None
        while waiting and start is None:
            above = waiting.pop(0)
            for x in above.inputs:
                if id(x) in way or (x.size != node.size and id(x) not in writer.given):
                    continue
                way[id(x)] = above
                if id(x) in writer.given and x.size == node.size:
                    start = x
                    break
                if not writer.bindings.materialised(x):
                    waiting.append(x)
        if start is None:
            raise Unfusable
        at, below = writer.given[id(start)][0], start
        while below is not node:
            above = way[id(below)]
            if above.op == "transpose":
                at = tuple(at[a] for a in above.attributes["axes"])
            elif above.shape != below.shape:
                at = ix.unravel(ix.ravel(at, below.shape), above.shape)
            below = above
        return at


class AttendDraft(TemplateDraft):
    """Attention: its first operand is computed from a score that the kernel has at hand."""

    def _quads(self, x: Node, axis: int) -> tuple[Node, Index] | None:
        return None if x is self.inputs[0] else super()._quads(x, axis)

    def _load_function(self, bindings: Bindings, operand: int) -> str:
        if operand or len(self.inputs) == 2:
            return super()._load_function(bindings, operand)
        x, score = self.inputs[0], self.inputs[4]
        writer = Writer(bindings)
        at = tuple(ix.var(f"c{i}", n) for i, n in enumerate(x.shape))
        wide = iter([c for c, n in zip(at, x.shape, strict=True) if n != 1])
        place = tuple(ix.const(0) if n == 1 else next(wide) for n in score.shape)
        writer.local, writer.given = {id(score)}, {id(score): (place, "s")}
        value = writer.value(x, at)
        parameters = ", ".join([*(f"c{i}: u32" for i in range(len(x.shape))), "s: f32"])
        lines = "\n".join(writer.lines)
        return f"fn load_0({parameters}) -> f32 {{\n{lines}\nreturn {value};\n}}"
