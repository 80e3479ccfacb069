"""The code writer: pulls the value of a node at given coordinates back to what lies in memory."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Node
from meganeura.ops.pointwise import WGSL_TYPES
from meganeura.ops.registry import REGISTRY
from meganeura.ops.wgsl_helpers import HELPERS
from meganeura.schedule import index as ix
from meganeura.schedule import packed
from meganeura.schedule.index import Index
from meganeura.schedule.quads import quad_of

STORAGE = {
    "float32": "f32", "float16": "f16", "int32": "i32", "uint32": "u32", "uint8": "u32", "bool": "u32",
}  # fmt: skip


#: What `literal` writes for finite numbers and truth values.
_LITERAL = re.compile(r"-?[0-9][0-9a-zA-Z.+-]*|true|false|\(-2147483647i - 1i\)")


class Unfusable(Exception):
    """These nodes cannot share a kernel; the grouping tries another way."""


class Bindings:
    """The buffers of a kernel, in order of first use."""

    def __init__(self, materialised: Callable[[Node], bool]):
        self.nodes: list[Node] = []
        self.written: set[int] = set()
        self.quads: set[int] = set()  # those that are bound as arrays of vec4
        self._names: dict[int, str] = {}
        self.materialised = materialised
        #: (node id, linear index) of every element that is read
        self.reads: dict[int, set[Index]] = {}

    def element(self, node: Node) -> str:
        """The type of the array's elements."""
        kind = STORAGE[node.dtype]
        return f"vec4<{kind}>" if id(node) in self.quads else kind

    def name(self, node: Node) -> str:
        known = self._names.get(id(node))
        if known is None:
            known = self._names[id(node)] = f"b{len(self.nodes)}"
            self.nodes.append(node)
        return known


def view(
    x: Node, at: tuple[Index, ...], materialised: Callable[[Node], bool]
) -> tuple[Node, Index] | None:
    """Which element of which node in memory is the one of `x` at `at`, if `x` only shows it in another
    arrangement."""
    while not materialised(x):
        if x.op == "reshape":
            at = ix.unravel(ix.ravel(at, x.shape), x.inputs[0].shape)
        elif x.op == "transpose":
            at = tuple(at[i] for i in np.argsort(x.attributes["axes"]))
        elif x.op == "broadcast_to":
            at = broadcast(at, x.inputs[0].shape)
        elif x.op == "recompute" or widens(x):
            pass
        else:
            return None
        x = x.inputs[0]
    return x, ix.ravel(at, x.shape)


def widens(x: Node) -> bool:
    """Whether `x` is a half-precision value in single precision, which it has when it is read anyway."""
    return x.op == "cast" and x.dtype == "float32" and x.inputs[0].dtype == "float16"


class Writer:
    """Statements of one scope of a kernel, with the values that they define."""

    def __init__(self, bindings: Bindings, prefix: str = "v"):
        self.bindings = bindings
        self.lines: list[str] = []
        self.stores: list[str] = []
        self.prefix = prefix
        #: Whether to load four neighbours where one is wanted: the scope computes the other three as well.
        self.quads = False
        self.memo: dict[tuple[int, tuple[Index, ...]], str] = {}
        self._names: dict[str, str] = {}
        self.count = 0
        #: Values known from elsewhere: node id -> (coordinates, text).
        self.given: dict[int, tuple[tuple[Index, ...], str]] = {}
        #: Nodes that must be found in `given`, whatever the coordinates.
        self.local: set[int] = set()

    def fork(self, prefix: str) -> Writer:
        """A scope inside this one: it sees what is defined here, and defines for itself."""
        inner = Writer(self.bindings, prefix)
        inner.memo = dict(self.memo)
        inner._names = dict(self._names)
        inner.given = dict(self.given)
        inner.local = self.local
        inner.quads = self.quads
        return inner

    def let(self, text: str) -> str:
        """A name for an expression; the same text gets the same name."""
        if re.fullmatch(r"\w+", text):
            return text
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = f"{self.prefix}{self.count}"
            self.count += 1
            self.lines.append(f"let {name} = {text};")
        return name

    def variable(self, text: str) -> str:
        """A literal as a variable: of constants alone, WGSL refuses to compute infinity or NaN."""
        key = f"var {text}"
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{self.prefix}{self.count}"
            self.count += 1
            self.lines.append(f"var {name} = {text};")
        return name

    def value(self, node: Node, at: tuple[Index, ...]) -> str:
        """The WGSL expression (a name or a literal) of `node` at coordinates `at`."""
        if id(node) in self.given:
            where, text = self.given[id(node)]
            if where == at:
                return text
            if id(node) in self.local:
                raise Unfusable
        elif id(node) in self.local:
            raise Unfusable
        key = (id(node), at)
        known = self.memo.get(key)
        if known is None:
            known = self.memo[key] = self._compute(node, at)
        return known

    def _compute(self, node: Node, at: tuple[Index, ...]) -> str:
        if node.op == "constant":
            return literal(node.attributes["value"], node.dtype)
        if self.bindings.materialised(node):
            return self.load(node, ix.ravel(at, node.shape))
        kind = REGISTRY[node.op].kind
        if kind == "pointwise":
            return self._pointwise(node, at)
        if kind in ("movement", "index", "generator"):
            return getattr(self, f"_{node.op}")(node, at)
        raise Unfusable

    def load(self, node: Node, position: Index) -> str:
        name = self.bindings.name(node)
        reads = self.bindings.reads.setdefault(id(node), set())
        quad = quad_of(position) if self.quads and node.dtype != "uint8" else None
        if quad is not None:
            first, lane = quad
            reads.add(ix.mul(first, 4))
            self.bindings.quads.add(id(node))
            element = f"{self.let(f'{name}q[{self._index(first)}]')}.{'xyzw'[lane]}"
            if node.dtype == "float16":
                return self.let(f"f32({element})")
            return self.let(f"({element} != 0u)" if node.dtype == "bool" else element)
        reads.add(position)
        text = self._index(position)
        if node.dtype == "uint8":
            return self.let(f"(({name}[{text} >> 2u] >> (({text} & 3u) * 8u)) & 255u)")
        if node.dtype == "float16":
            return self.let(f"f32({name}[{text}])")
        return self.let(f"({name}[{text}] != 0u)" if node.dtype == "bool" else f"{name}[{text}]")

    def _index(self, position: Index) -> str:
        text = position.text()
        return text if re.fullmatch(r"\w+", text) else self.let(text)

    def _pointwise(self, node: Node, at: tuple[Index, ...]) -> str:
        operands = [self.value(x, broadcast(at, x.shape)) for x in node.inputs]
        if (
            node.dtype not in FLOATS
        ):  # what is decided by a number is decided by the one that is kept
            operands = [self.kept(x, v) for x, v in zip(node.inputs, operands, strict=True)]
        if all(_LITERAL.fullmatch(text) for text in operands):
            operands = [self.variable(text) for text in operands]
        wgsl = REGISTRY[node.op].wgsl
        if callable(wgsl):
            text = wgsl(operands, [computed(x.dtype) for x in node.inputs], node)
        else:
            assert wgsl is not None
            text = wgsl.format(*operands)
        return self.let(text)

    def kept(self, node: Node, value: str) -> str:
        """A value as memory would give it back: registers hold more digits than half precision."""
        loaded = self.bindings.materialised(node) and id(node) not in self.given
        if node.dtype != "float16" or loaded:
            return value
        return self.let(f"mg_rounded({value})")

    # --- movement ------------------------------------------------------------------------------

    def _reshape(self, node: Node, at: tuple[Index, ...]) -> str:
        (x,) = node.inputs
        return self.value(x, ix.unravel(ix.ravel(at, node.shape), x.shape))

    def _recompute(self, node: Node, at: tuple[Index, ...]) -> str:
        return self.value(node.inputs[0], at)

    def _transpose(self, node: Node, at: tuple[Index, ...]) -> str:
        axes = node.attributes["axes"]
        inverse = np.argsort(axes)
        return self.value(node.inputs[0], tuple(at[i] for i in inverse))

    def _broadcast_to(self, node: Node, at: tuple[Index, ...]) -> str:
        (x,) = node.inputs
        return self.value(x, broadcast(at, x.shape))

    def _slice(self, node: Node, at: tuple[Index, ...]) -> str:
        a = node.attributes
        moved = [
            ix.add(ix.mul(c, step), ix.const(start))
            for c, start, step in zip(at, a["start"], a["step"], strict=True)
        ]
        return self.value(node.inputs[0], tuple(moved))

    def _flip(self, node: Node, at: tuple[Index, ...]) -> str:
        axes, (x,) = node.attributes["axes"], node.inputs
        moved = [
            ix.add(ix.const(n - 1), c, -1) if i in axes else c
            for i, (c, n) in enumerate(zip(at, x.shape, strict=True))
        ]
        return self.value(x, tuple(moved))

    def _pad(self, node: Node, at: tuple[Index, ...]) -> str:
        (x,), low, high = node.inputs, node.attributes["low"], node.attributes["high"]
        fill = literal(node.attributes["value"], node.dtype)
        if not x.size:
            return fill
        tests, inside = [], []
        for c, n, a, b in zip(at, x.shape, low, high, strict=True):
            if not a and not b:
                inside.append(c)
                continue
            # Unsigned: what lies before the start wraps around to something huge.
            moved = self.let(f"({c.text()} - {a}u)") if a else self.let(c.text())
            tests.append(f"{moved} < {n}u")
            inside.append(ix.var(self.let(f"min({moved}, {n - 1}u)"), n))
        value = self.value(x, tuple(inside))
        if not tests:  # padding by nothing
            return value
        return self.let(f"select({fill}, {value}, {' && '.join(tests)})")

    def _concatenate(self, node: Node, at: tuple[Index, ...]) -> str:
        axis, start = node.attributes["axis"], 0
        c = self.let(at[axis].text())
        out = ""
        for x in node.inputs:
            n = x.shape[axis]
            if not n:
                continue
            moved = f"min({c} - {start}u, {n - 1}u)" if start else f"min({c}, {n - 1}u)"
            place = list(at)
            place[axis] = ix.var(self.let(moved), n)
            value = self.value(x, tuple(place))
            out = value if not out else self.let(f"select({out}, {value}, {c} >= {start}u)")
            start += n
        return out

    # --- index and generators ------------------------------------------------------------------

    def _wrapped(self, index: Node, at: tuple[Index, ...], length: int) -> Index:
        value = self.value(index, at)
        if index.dtype == "int32":
            value = self.let(
                f"u32(clamp(select({value}, {value} + {length}i, {value} < 0i), 0i, {length - 1}i))"
            )
        else:
            value = self.let(f"min({value}, {length - 1}u)")
        return ix.var(value, length)

    def _take(self, node: Node, at: tuple[Index, ...]) -> str:
        x, index = node.inputs
        axis = node.attributes["axis"]
        inner = at[axis : axis + index.ndim]
        moved = self._wrapped(index, inner, x.shape[axis])
        return self.value(x, (*at[:axis], moved, *at[axis + index.ndim :]))

    def _take_along_axis(self, node: Node, at: tuple[Index, ...]) -> str:
        x, index = node.inputs
        axis = node.attributes["axis"]
        moved = self._wrapped(index, at, x.shape[axis])
        return self.value(x, (*at[:axis], moved, *at[axis + 1 :]))

    def _dequantize(self, node: Node, at: tuple[Index, ...]) -> str:
        return packed.element(self, node, *at)

    def _iota(self, node: Node, at: tuple[Index, ...]) -> str:
        kind = WGSL_TYPES[node.dtype]
        return self.let(f"{kind}({at[node.attributes['axis']].text()})")

    def _random_bits(self, node: Node, at: tuple[Index, ...]) -> str:
        (seed,) = node.inputs
        words = [self.value(seed, (ix.const(i),)) for i in range(2)]
        return self.let(f"mg_philox({words[0]}, {words[1]}, {ix.ravel(at, node.shape).text()})")


def computed(dtype: str) -> str:
    """The dtype in which values of another one are computed with."""
    return "float32" if dtype == "float16" else dtype


def broadcast(at: Sequence[Index], shape: Sequence[int]) -> tuple[Index, ...]:
    """The coordinates of an operand that NumPy broadcasts to where `at` points."""
    inner = at[len(at) - len(shape) :] if shape else ()
    return tuple(ix.const(0) if n == 1 else c for c, n in zip(inner, shape, strict=True))


def literal(value: Any, dtype: str) -> str:
    """A constant as text that gives back every bit of it."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "int32":
        return f"{int(value)}i" if int(value) > -(2**31) else "(-2147483647i - 1i)"
    if dtype in ("uint32", "uint8"):
        return f"{int(value)}u"
    with np.errstate(over="ignore"):
        number = float(np.dtype(dtype).type(value))
    if not math.isfinite(number):
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        return f"mg_from_bits({bits:#x}u)"
    text = repr(number) if number else "0.0"
    if number == 0 and math.copysign(1, number) < 0:
        return "mg_from_bits(0x80000000u)"
    short = f"{number:.9g}"
    text = short if np.float32(float(short)) == np.float32(number) else text
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def helpers_for(text: str) -> str:
    """The helper functions that a text calls, and those that these call."""
    found: dict[str, None] = {}
    waiting = re.findall(r"\bmg_\w+", text)
    while waiting:
        name = waiting.pop()
        if name in HELPERS and name not in found:
            found[name] = None
            waiting += re.findall(r"\bmg_\w+", HELPERS[name].split("{", 1)[1])
    return "\n".join(HELPERS[n] for n in sorted(found))
