"""A graph as tables of numbers, for the e-graph to load.

One row per node: its number, those of its inputs, the columns that rules look into, and one number
for the remaining attributes. Everything that egglog cannot compute (shapes, permutations) is a
table too, made here from the shapes and attributes that occur in the graph.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import numpy as np

from meganeura.dtypes import FLOATS
from meganeura.graph.node import Graph, Node, Shape
from meganeura.ops.registry import REGISTRY
from meganeura.rewrite.rules.rule import COLUMNS, constructor

Kind = tuple[Shape, str]
Row = tuple[Any, ...]

#: dtype -> dtypes that hold each of its values exactly.
LOSSLESS = {
    "bool": ("uint8", "int32", "uint32", "float16", "float32"),
    "uint8": ("int32", "uint32", "float16", "float32"),
    "float16": ("float32",),
}

#: Tables about kinds and attributes: name -> egglog declaration.
FACTS = {
    "shape_of": "(function shape_of (i64) i64 :no-merge)",
    "dtype_of": "(function dtype_of (i64) String :no-merge)",
    "rank": "(function rank (i64) i64 :no-merge)",
    "size": "(function size (i64) i64 :no-merge)",
    "last": "(function last (i64) i64 :no-merge)",
    "number": "(relation number (i64))",
    "leads": "(relation leads (i64 i64))",
    "to_shape": "(function to_shape (i64) i64 :no-merge)",
    "vector_of": "(function vector_of (i64) i64 :no-merge)",
    "vector_kind": "(function vector_kind (i64) i64 :no-merge)",
    "compose": "(function compose (i64 i64) i64 :no-merge)",
    "stays": "(relation stays (i64))",
    "swaps": "(relation swaps (i64))",
    "moves_ones": "(relation moves_ones (i64 i64))",
    "channel": "(function channel (i64 i64) i64 :no-merge)",
    "keeping": "(function keeping (i64) i64 :no-merge)",
    "kept_shape": "(function kept_shape (i64 i64) i64 :no-merge)",
    "reduced": "(function reduced (i64 i64) i64 :no-merge)",
    "steady": "(relation steady (i64 i64 i64 i64))",
}

_REDUCTIONS = ("sum", "max", "min", "prod")
_LARGEST_FOLDED = 1024  # elements of a literal that is computed at compile time
_MOST_PERMUTATIONS = 64


class Interner:
    """Python values as small numbers; 0 is the empty tuple.

    Values that are equal and yet different, such as 1, 1.0 and True, have different numbers.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.values: list[Any] = []
        self[()]

    def __getitem__(self, value: Any) -> int:
        text = repr(value)
        found = self.numbers.get(text)
        if found is None:
            found = self.numbers[text] = len(self.values)
            self.values.append(value)
        return found


def frozen(**attributes: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(attributes.items()))


class Encoded:
    """The tables of one graph.

    order:   its nodes; a node's number is its position
    rows:    for each node the name of its table and its row without the node's own number; None
             for leaves, which are only themselves
    kinds:   the number of each node's shape and dtype
    tables:  what egglog loads: "in_<constructor>" -> rows
    folded:  how many nodes were computed already
    """

    def __init__(self, graph: Graph, opaque: Collection[Node] = ()):
        """`opaque` nodes are leaves, whatever they are made of."""
        self.interner = Interner()
        cut = {id(n) for n in opaque}
        self.order = order_of(graph, cut)
        self.position = {id(n): i for i, n in enumerate(self.order)}
        self.tables: dict[str, list[Row]] = defaultdict(list)
        self.rows: list[tuple[str, Row] | None] = []
        self.kinds: list[int] = []
        self.kind_of: dict[int, Kind] = {}
        self.folded = 0
        self._numbers: dict[Kind, int] = {}
        self._rests: dict[str, set[int]] = defaultdict(set)
        self._sums: dict[
            tuple[int, tuple[int, ...]], Shape
        ] = {}  # kind, axes -> shape that keeps them
        self._values: dict[int, np.ndarray] = {}
        for i, node in enumerate(self.order):
            kind = self._kind(node.shape, node.dtype)
            self.kinds.append(kind)
            self.tables["in_kind"].append((i, kind))
            if node.op in ("input", "state") or id(node) in cut:
                self.rows.append(None)
                self.tables["in_leaf"].append((i,))
                continue
            name = constructor(node.op, len(node.inputs))
            children = tuple(self.position[id(x)] for x in node.inputs)
            row = (*children, *self._attributes(node.op, node.attributes))
            self.rows.append((name, row))
            self.tables[f"in_{name}"].append((i, *row))
            self._rests[node.op].add(row[-1])
            if node.op in _REDUCTIONS:
                self._reduction(node, row[-1], self.kinds[children[0]])
            elif node.op == "exp" and not _shifted(node.inputs[0]):
                self.tables["in_unshifted"].append((children[0],))
            self._fold(i, node)
        self._about_permutations()
        self._about_sums()
        self._about_kinds()
        for name, rows in self.tables.items():
            if name in FACTS or name == "in_unshifted":
                self.tables[name] = list(dict.fromkeys(rows))

    # --- attributes ----------------------------------------------------------------------------

    def _attributes(self, op: str, attributes: dict[str, Any]) -> Row:
        """The columns that rules see, then one number for the rest."""
        columns = COLUMNS.get(op, ())
        rest = {k: v for k, v in attributes.items() if all(k != name for name, _ in columns)}
        values = [_CONVERT[sort](attributes[name]) for name, sort in columns]
        if op == "constant" and not _plain(attributes["value"]):
            # egglog's numbers know no NaN that equals itself and no -0.0: told apart by the rest
            values[0] = 0.0
            rest["value"] = attributes["value"]
        return (*values, self.interner[frozen(**rest)])

    def _kind(self, shape: Shape, dtype: str) -> int:
        number = self._numbers.get((shape, dtype))
        if number is None:
            number = self._numbers[shape, dtype] = self.interner["kind", shape, dtype]
            self.kind_of[number] = (shape, dtype)
        return number

    # --- constants -----------------------------------------------------------------------------

    def _fold(self, i: int, node: Node) -> None:
        """Operations on constants are computed now: numbers by any pointwise operation, literals
        by movement, which is exact. The result is one more form of the node's class."""
        if node.op == "constant":
            wide = np.float64 if node.dtype in FLOATS else node.dtype
            value = node.attributes["value"]
            value = _half(value) if node.dtype == "float16" else value
            self._values[i] = np.asarray(value, wide)
            return
        if node.op == "literal":
            self._values[i] = REGISTRY[node.op].reference(**node.attributes)
            return
        kind = REGISTRY[node.op].kind
        inputs = [self._values.get(self.position[id(x)]) for x in node.inputs]
        if not inputs or any(v is None for v in inputs) or node.size > _LARGEST_FOLDED:
            return
        held = sum(x.size for x in node.inputs if x.op != "constant")
        exact = kind == "movement" and node.size <= held
        if not exact and (kind != "pointwise" or node.shape):
            return
        with np.errstate(all="ignore"):
            value = np.asarray(REGISTRY[node.op].reference(*inputs, **node.attributes))
        if node.dtype in FLOATS and not exact:
            if not _representable(float(value), node.dtype):
                return
            attributes: dict[str, Any] = {"value": float(value), "dtype": node.dtype}
        elif not node.shape:
            attributes = {"value": value.astype(node.dtype).item(), "dtype": node.dtype}
        else:
            data = np.ascontiguousarray(value.astype(node.dtype)).tobytes()
            attributes = {"data": data, "shape": node.shape, "dtype": node.dtype}
        op = "literal" if node.shape else "constant"
        self._values[i] = value
        self.folded += 1
        self.tables[f"in_{constructor(op, 0)}"].append((i, *self._attributes(op, attributes)))

    # --- facts ---------------------------------------------------------------------------------

    def _reduction(self, node: Node, rest: int, kind: int) -> None:
        axes = node.attributes["axes"]
        kept = self.interner[frozen(axes=axes, keepdims=True)]
        self.tables["keeping"] += [(rest, kept), (kept, kept)]
        shape = tuple(1 if i in axes else n for i, n in enumerate(node.inputs[0].shape))
        self.tables["kept_shape"].append((kind, rest, self.interner[frozen(shape=shape)]))
        if node.op == "sum":
            self._sums[kind, axes] = shape

    def _about_sums(self) -> None:
        """The kinds of sums, and what is the same for all elements of one."""
        without_ones: dict[Shape, list[int]] = defaultdict(list)
        for number, (shape, _) in self.kind_of.items():
            without_ones[_without_leading_ones(shape)].append(number)
        for (kind, axes), kept in self._sums.items():
            dtype = self.kind_of[kind][1]
            short = tuple(n for i, n in enumerate(kept) if i not in axes)
            forms = [
                (self.interner[frozen(axes=axes, keepdims=keeps)], shape)
                for keeps, shape in ((True, kept), (False, short))
            ]
            for form, shape in forms:
                self.tables["reduced"].append((kind, form, self._kind(shape, dtype)))
            # Where the first dimensions are summed, the rest stay where they are.
            fitting = forms if axes == tuple(range(len(axes))) else forms[:1]
            same = _without_leading_ones(kept)
            for other in without_ones[same] if same else ():
                if len(self.kind_of[other][0]) <= len(kept):
                    self.tables["steady"] += [
                        (other, kind, form, fit) for form, _ in forms for fit, _ in fitting
                    ]

    def _about_kinds(self) -> None:
        tables, interner = self.tables, self.interner
        for number, (shape, dtype) in list(self.kind_of.items()):
            tables["shape_of"].append((number, interner["shape", shape]))
            tables["dtype_of"].append((number, dtype))
            tables["rank"].append((number, len(shape)))
            tables["size"].append((number, math.prod(shape)))
            tables["last"].append((number, shape[-1] if shape else 1))
            tables["to_shape"].append((number, interner[frozen(shape=shape)]))
            if not shape:
                tables["number"].append((number,))
            rest = shape
            while rest and rest[0] == 1:
                rest = rest[1:]
                if (rest, dtype) in self._numbers:
                    tables["leads"].append((self._numbers[rest, dtype], number))
            wide = [n for n in shape if n != 1]
            if len(wide) <= 1 and len(shape) > 1:
                length = wide[0] if wide else 1
                vector = self._numbers.get(((length,), dtype))
                if vector is None:
                    vector = self._kind((length,), dtype)
                    tables["last"].append((vector, length))
                    tables["rank"].append((vector, 1))
                    tables["dtype_of"].append((vector, dtype))
                tables["vector_kind"].append((number, vector))
                if shape[-1] == length:
                    tables["vector_of"].append((number, interner[frozen(shape=(length,))]))

    def _about_permutations(self) -> None:
        """The permutations that occur, and what two of them make."""
        tables, interner = self.tables, self.interner
        known = {n: dict(interner.values[n])["axes"] for n in sorted(self._rests["transpose"])}
        for a, first in list(known.items())[:_MOST_PERMUTATIONS]:
            for b, second in list(known.items())[:_MOST_PERMUTATIONS]:
                if len(first) == len(second):
                    joined = tuple(first[j] for j in second)
                    number = interner[frozen(axes=joined)]
                    known.setdefault(number, joined)
                    tables["compose"].append((a, b, number))
        for number, axes in known.items():
            plain = tuple(range(len(axes)))
            if axes == plain:
                tables["stays"].append((number,))
            if len(axes) >= 2 and axes == (*plain[:-2], plain[-1], plain[-2]):
                tables["swaps"].append((number,))
            for kind, (shape, _) in self.kind_of.items():
                if len(shape) != len(axes):
                    continue
                if [a for a in axes if shape[a] != 1] == [a for a in plain if shape[a] != 1]:
                    tables["moves_ones"].append((kind, number))
                place = axes.index(len(axes) - 1) if axes else 0
                if all(n == 1 for i, n in enumerate(shape) if i != place) and len(shape) > 1:
                    tables["channel"].append(
                        (number, kind, interner[frozen(shape=(shape[place],))])
                    )


def order_of(graph: Graph, cut: Collection[int]) -> list[Node]:
    """The nodes that the roots need when those of `cut` are leaves, each after its inputs."""
    order: list[Node] = []
    done: set[int] = set()
    stack = graph.roots[::-1]
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        waiting = [] if id(node) in cut else [x for x in node.inputs if id(x) not in done]
        if waiting:
            stack += waiting[::-1]
        else:
            done.add(id(node))
            order.append(node)
            stack.pop()
    return order


def _without_leading_ones(shape: Shape) -> Shape:
    wide = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[wide:]


def _shifted(x: Node) -> bool:
    """Whether this is written as `y - maximum`: its exponential does not overflow."""
    if x.op != "subtract":
        return False
    top = x.inputs[1]
    while top.op in ("stop_gradient", "reshape", "broadcast_to", "where"):
        top = top.inputs[top.op == "where"]
    return top.op == "max"


def _plain(value: Any) -> bool:
    """Whether egglog's f64 holds this constant and nothing else that is equal to it."""
    if isinstance(value, float):
        return math.isfinite(value) and not (value == 0 and math.copysign(1, value) < 0)
    return abs(int(value)) < 2**53


def _representable(value: float, dtype: str) -> bool:
    """Whether the dtype holds it without overflow or loss of digits."""
    low, high = (1e-4, 6e4) if dtype == "float16" else (1e-37, 1e38)
    return value == 0 or low < abs(value) < high


def _half(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float16(value))


_CONVERT = {"f64": float, "i64": int, "String": str}


def restored(op: str, columns: dict[str, Any], rest: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The attributes of an operation from its columns and the rest."""
    attributes = {**columns, **dict(rest)}
    for name in ("transpose_a", "transpose_b", "approximate"):
        if name in columns:
            attributes[name] = bool(columns[name])
    if op == "constant" and "value" not in dict(rest):
        dtype = attributes["dtype"]
        attributes["value"] = {"float32": float, "float16": float, "bool": bool}.get(dtype, int)(
            columns["value"]
        )
    return attributes
