"""The e-graph: loading a graph in bulk, saturating it in steps, and reading it back.

Operations are constructors `Op_<name>_<inputs>` over one sort; attributes that rules look at are
columns, the others are interned to one number. `kind` maps a class to its shape and dtype and
refuses to merge two, so that an unsound rule is an error and not a wrong result.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import math
import os
import re
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from meganeura.graph.node import Graph, Node
from meganeura.rewrite.rules import ALL, Rule
from meganeura.rewrite.rules.rule import COLUMNS, constructor


def bindings() -> Any:
    """egglog's compiled module, without the rest of its package where that works: 10 ms, not 200."""
    if "egglog.bindings" in sys.modules:
        return sys.modules["egglog.bindings"]
    try:
        package = importlib.util.find_spec("egglog")
        assert package is not None
        locations = package.submodule_search_locations
        spec = importlib.machinery.PathFinder.find_spec("egglog.bindings", locations)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (AssertionError, ImportError):
        from egglog import bindings as module  # type: ignore[no-redef]
    return module


@dataclass
class ENode:
    """One way to compute a class."""

    op: str
    attributes: dict[str, Any]
    children: tuple[int, ...]
    leaf: int | None = None  # the position of an input or state


@dataclass
class EGraph:
    """What was read back: the e-nodes of each class, in a fixed order."""

    classes: list[list[ENode]]
    of: list[int]  # node of the graph -> class
    roots: list[int]
    matches: dict[str, int] = field(default_factory=dict)
    stopped: str = "saturated"
    iterations: int = 0


class Interner:
    """Python values as small numbers; 0 is the empty tuple."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.values: list[Any] = []
        self[()]

    def __getitem__(self, value: Any) -> int:
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.values)
            self.values.append(value)
        return found


class Engine:
    """Declarations and rules are made once; each graph is loaded into a scope of its own."""

    def __init__(self, rules: list[Rule] | None = None):
        self.b = bindings()
        self.span = self.b.RustSpan("", 0, 0)
        self.graph = self.b.EGraph()
        self.declared: set[str] = set()
        for line in (
            "(sort T)",
            "(constructor Node (i64) T :unextractable)",
            "(constructor Leaf (i64) T)",
            "(function kind (T) i64 :no-merge)",
            "(function last (i64) i64 :no-merge)",
            "(function compose (i64 i64) i64 :no-merge)",
            "(function keeping (i64) i64 :no-merge)",
            "(function reshape_to (i64) i64 :no-merge)",
            "(relation vector (i64))",
            "(relation number (i64))",
            "(relation identity (i64))",
            "(relation swaps (i64))",
            "(relation unshifted (T))",
            "(ruleset load)",
            "(ruleset opt)",
            "(relation in_leaf (i64))",
            "(relation in_kind (i64 i64))",
            "(relation in_last (i64 i64))",
            "(relation in_compose (i64 i64 i64))",
            "(relation in_keeping (i64 i64))",
            "(relation in_reshape_to (i64 i64))",
            "(relation in_unshifted (i64))",
            "(rule ((in_leaf i)) ((union (Node i) (Leaf i))) :ruleset load)",
            "(rule ((in_kind i k)) ((set (kind (Node i)) k)) :ruleset load)",
            "(rule ((in_last i k)) ((set (last i) k)) :ruleset load)",
            "(rule ((in_compose i j k)) ((set (compose i j) k)) :ruleset load)",
            "(rule ((in_keeping i k)) ((set (keeping i) k)) :ruleset load)",
            "(rule ((in_reshape_to i k)) ((set (reshape_to i) k)) :ruleset load)",
            "(rule ((in_unshifted i)) ((unshifted (Node i))) :ruleset load)",
        ):
            self._run(line)
        for number, rule in enumerate(ALL if rules is None else rules):
            for text in rule.texts(number):
                for op, arity in set(re.findall(r"\bOp_(\w+?)_(\d+)\b", text)):
                    self.declare(op, int(arity))
                self._run(text)

    def _run(self, text: str) -> list[Any]:
        return self._execute(*self.graph.parse_program(text))

    def _execute(self, *commands: Any) -> list[Any]:
        """Run commands; the engine's panics are no Exceptions, and become one here."""
        try:
            return self.graph.run_program(*commands)
        except Exception:
            raise
        except BaseException as error:
            if type(error).__name__ == "PanicException":
                raise RuntimeError(f"egglog: {error}") from error
            raise

    def declare(self, op: str, arity: int) -> str:
        name = constructor(op, arity)
        if name not in self.declared:
            self.declared.add(name)
            columns = [sort for _, sort in COLUMNS.get(op, ())]
            sorts = " ".join([*["T"] * arity, *columns, "i64"])
            self._run(f"(constructor {name} ({sorts}) T)")
            self._run(f"(relation in_{name} ({' '.join(['i64'] * (arity + 1) + columns + ['i64'])}))")
            inputs = [f"v{i}" for i in range(arity)]
            rest = [f"w{i}" for i in range(len(columns) + 1)]
            nodes = " ".join([*(f"(Node {v})" for v in inputs), *rest])
            self._run(
                f"(rule ((in_{name} i {' '.join([*inputs, *rest])})) "
                f"((union (Node i) ({name} {nodes}))) :ruleset load)"
            )
        return name

    # --- one graph -----------------------------------------------------------------------------

    def explore(
        self, graph: Graph, iterations: int = 12, nodes: int = 200_000, seconds: float = 2.0
    ) -> tuple[EGraph, Interner]:
        """Load, saturate within the limits, read back."""
        order = graph.nodes()
        position = {id(n): i for i, n in enumerate(order)}
        interner = Interner()
        tables = self._tables(order, position, interner)
        for name in list(tables):
            if name.startswith("in_Op_"):
                op, arity = re.fullmatch(r"in_Op_(\w+)_(\d+)", name).groups()  # type: ignore[union-attr]
                self.declare(op, int(arity))
        self._execute(self.b.Push(1))
        try:
            self._load(tables)
            matches, done, stopped = self._saturate(iterations, nodes, seconds)
            found = self._read(order, interner)
        finally:
            self._execute(self.b.Pop(self.span, 1))
        found.matches, found.iterations, found.stopped = matches, done, stopped
        found.roots = [found.of[position[id(n)]] for n in graph.roots]
        return found, interner

    def _tables(
        self, order: list[Node], position: dict[int, int], interner: Interner
    ) -> dict[str, list[str]]:
        tables: dict[str, list[str]] = defaultdict(list)
        kinds: dict[int, tuple[tuple[int, ...], str]] = {}
        perms: dict[int, tuple[int, ...]] = {}
        for i, node in enumerate(order):
            kind = interner[("kind", node.shape, node.dtype)]
            kinds[kind] = (node.shape, node.dtype)
            tables["in_kind"].append(f"{i}\t{kind}")
            if node.op in ("input", "state"):
                tables["in_leaf"].append(str(i))
                continue
            columns, rest = split(node)
            row = [i, *(position[id(x)] for x in node.inputs), *columns, interner[rest]]
            tables[f"in_{constructor(node.op, len(node.inputs))}"].append("\t".join(map(str, row)))
            if node.op == "transpose":
                perms[interner[rest]] = node.attributes["axes"]
            if node.op == "exp" and node.inputs[0].op != "subtract":
                tables["in_unshifted"].append(str(position[id(node.inputs[0])]))
            if node.op == "sum":
                kept = {"axes": node.attributes["axes"], "keepdims": True}
                tables["in_keeping"].append(f"{interner[rest]}\t{interner[frozen(kept)]}")
                tables["in_reshape_to"].append(f"{kind}\t{interner[frozen({'shape': node.shape})]}")
        for a, first in list(perms.items()):
            for b, second in list(perms.items()):
                if len(first) == len(second):
                    joined = tuple(first[j] for j in second)
                    number = interner[frozen({"axes": joined})]
                    perms.setdefault(number, joined)
                    tables["in_compose"].append(f"{a}\t{b}\t{number}")
        for number, axes in perms.items():
            plain = tuple(range(len(axes)))
            if axes == plain:
                tables["identity"].append(str(number))
            if len(axes) >= 2 and axes == (*plain[:-2], plain[-1], plain[-2]):
                tables["swaps"].append(str(number))
        for number, (shape, _) in kinds.items():
            if len(shape) == 1:
                tables["vector"].append(str(number))
            if not shape:
                tables["number"].append(str(number))
            tables["in_last"].append(f"{number}\t{shape[-1] if shape else 1}")
        for name in ("in_keeping", "in_reshape_to", "in_unshifted"):
            if name in tables:
                tables[name] = list(dict.fromkeys(tables[name]))
        return tables

    def _load(self, tables: dict[str, list[str]]) -> None:
        with _files(tables) as paths:
            commands = [self.b.Input(self.span, name, path) for name, path in paths]
            load = self.b.RunSchedule(self.b.Run(self.span, self.b.RunConfig("load")))
            self._execute(*commands, load)

    def _saturate(self, iterations: int, nodes: int, seconds: float) -> tuple[dict[str, int], int, str]:
        """One iteration at a time: egglog itself knows no limit within a run."""
        step = self.b.RunSchedule(self.b.Run(self.span, self.b.RunConfig("opt")))
        start = time.perf_counter()
        matches: dict[str, int] = defaultdict(int)
        for done in range(1, iterations + 1):
            (output,) = self._execute(step)
            report = output.report
            for name, count in report.num_matches_per_rule.items():
                matches[str(name).split("#")[0].strip('"')] += int(count)
            if not report.updated:
                return dict(matches), done, "saturated"
            (sizes,) = self._execute(self.b.PrintSize(self.span, None))
            if sum(size for name, size in sizes.sizes if name.startswith("Op_")) > nodes:
                return dict(matches), done, "node limit"
            if time.perf_counter() - start > seconds:
                return dict(matches), done, "time limit"
        return dict(matches), iterations, "iteration limit"

    def _read(self, order: list[Node], interner: Interner) -> EGraph:
        functions = self.graph.freeze().functions
        numbers: dict[Any, int] = {}

        def number(value: Any) -> int:
            return numbers.setdefault(value, len(numbers))

        to_i64, to_f64, to_text = self.graph.value_to_i64, self.graph.value_to_f64, self.graph.value_to_string
        of = [0] * len(order)
        for row in functions["Node"].rows:
            i = to_i64(row.inputs[0])
            if i < len(order):
                of[i] = number(row.output)
        found: dict[int, list[tuple[Any, ENode]]] = defaultdict(list)
        for row in functions["Leaf"].rows:
            i = to_i64(row.inputs[0])
            found[number(row.output)].append((("", i), ENode(order[i].op, {}, (), leaf=i)))
        decode = {"i64": to_i64, "f64": to_f64, "String": to_text}
        for name in sorted(self.declared):
            op, arity = re.fullmatch(r"Op_(\w+)_(\d+)", name).groups()  # type: ignore[union-attr]
            k, columns = int(arity), COLUMNS.get(op, ())
            for row in functions[name].rows:
                if row.subsumed:
                    continue
                values = row.inputs
                children = tuple(number(v) for v in values[:k])
                attributes = dict(interner.values[to_i64(values[-1])])
                if "opaque" not in attributes:
                    for (column, sort), v in zip(columns, values[k:-1], strict=True):
                        attributes[column] = restored(column, decode[sort](v))
                node = ENode(op, attributes, children)
                found[number(row.output)].append(((name, children, repr(sorted(attributes.items()))), node))
        classes = [[n for _, n in sorted(found[c], key=lambda e: repr(e[0]))] for c in range(len(numbers))]
        return EGraph(classes, of, [])


def frozen(attributes: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(attributes.items()))


def split(node: Node) -> tuple[list[str], tuple[tuple[str, Any], ...]]:
    """A node's attributes as the columns that rules see, and the rest."""
    columns = COLUMNS.get(node.op, ())
    names = [name for name, _ in columns]
    values = []
    for name, sort in columns:
        value = node.attributes[name]
        if sort == "f64":
            values.append(repr(float(value)))
        elif sort == "i64":
            values.append(str(int(value)))
        else:
            values.append(str(value))
    if node.op == "constant":
        number = node.attributes["value"]
        exact = isinstance(number, float) and math.isfinite(number) and not (number == 0 and math.copysign(1, number) < 0)
        if not exact:  # NaN, infinities, -0.0 and integers are told apart by the rest
            values[0] = "0.0"
            values[1] = f"opaque {node.attributes['dtype']}"
            return values, (("opaque", repr(number)), ("value", number), ("dtype", node.attributes["dtype"]))
    return values, frozen({k: v for k, v in node.attributes.items() if k not in names})


def restored(column: str, value: Any) -> Any:
    return bool(value) if column in ("transpose_a", "transpose_b", "approximate") else value


class _files:
    """Tables as files that egglog reads: in memory where the system can, else temporary ones."""

    def __init__(self, tables: dict[str, list[str]]):
        self.tables = {k: v for k, v in tables.items() if v}
        self.open: list[int] = []
        self.folder: Any = None

    def __enter__(self) -> list[tuple[str, str]]:
        return list(self._paths())

    def _paths(self) -> Iterator[tuple[str, str]]:
        for name, rows in self.tables.items():
            data = ("\n".join(rows) + "\n").encode()
            if hasattr(os, "memfd_create"):
                handle = os.memfd_create(name)
                self.open.append(handle)
                os.write(handle, data) if len(data) < 1 << 20 else _write_all(handle, data)
                yield name, f"/proc/self/fd/{handle}"
            else:
                if self.folder is None:
                    self.folder = tempfile.TemporaryDirectory()
                path = os.path.join(self.folder.name, name)
                with open(path, "wb") as file:
                    file.write(data)
                yield name, path

    def __exit__(self, *_: object) -> None:
        for handle in self.open:
            os.close(handle)
        if self.folder is not None:
            self.folder.cleanup()


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


_engines = threading.local()


def engine() -> Engine:
    """This thread's engine: an e-graph cannot be used from another thread, nor after a fork."""
    held = getattr(_engines, "held", None)
    if held is None or held[0] != os.getpid():
        held = _engines.held = (os.getpid(), Engine())
    return held[1]
