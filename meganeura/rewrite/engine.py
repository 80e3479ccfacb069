"""The e-graph: declared once, loaded with one graph at a time, saturated in steps, and read back.

Operations are constructors `Op_<name>_<inputs>` over one sort. `kind` maps a class to its shape and
dtype and refuses to merge two, so that an unsound rule is an error and not a wrong result.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from meganeura.graph.node import Node
from meganeura.ops.registry import REGISTRY
from meganeura.rewrite.bindings import TableFiles, bindings
from meganeura.rewrite.encode import FACTS, LOSSLESS, Encoded, restored
from meganeura.rewrite.rules import ALL, RELATIONS, STABLE, Rule
from meganeura.rewrite.rules.rule import COLUMNS, constructor


@dataclass(frozen=True)
class Limits:
    """Where saturation stops, if it has not come to an end by itself.

    Steps and e-nodes are the same on every machine. `seconds` depends on how busy one is; it is a
    last resort, checked between steps.
    """

    steps: int = 64
    nodes: int = 200_000
    seconds: float = 10.0


class ENode:
    """One way to compute a class: an operation on classes, or a node of the graph as a leaf."""

    __slots__ = ("attributes", "children", "key", "leaf", "made_by", "op", "undone_by")

    def __init__(self, op: str, attributes: dict[str, Any], children: tuple[int, ...], key: Any):
        self.op = op
        self.attributes = attributes
        self.children = children
        self.key = key  # (constructor, children, columns, rest): equal for equal e-nodes of a graph
        self.leaf: int | None = None
        self.made_by: int | None = (
            None  # twice the number of a rule, and 1 for a part of its result
        )
        self.undone_by: int | None = None  # the number of a rule

    def __repr__(self) -> str:
        return f"<{self.op}{list(self.children)} {self.attributes}>"


@dataclass
class EGraph:
    """What was read back: the e-nodes of each class, in a fixed order.

    `of` is the class of each node of the graph. `written` is the e-node of each class that the
    graph itself had, -1 where a rule replaced it or where the class is new.
    """

    classes: list[list[ENode]]
    of: list[int]
    written: list[int]
    matches: dict[str, int] = field(default_factory=dict)
    stopped: str = "saturated"
    steps: int = 0


class Engine:
    """An e-graph with declarations and rules; each graph is loaded into a scope of its own."""

    def __init__(self, rules: Sequence[Rule] = ALL):
        self.rules = list(rules)
        self._b = bindings()
        self._span = self._b.RustSpan("", 0, 0)
        self._graph = self._b.EGraph()
        self._declared: dict[str, tuple[str, int]] = {}
        self._notes: set[str] = set()
        self._run("(sort T)")
        self._run("(constructor Node (i64) T :unextractable)")
        self._run("(constructor Leaf (i64) T)")
        self._run("(function kind (T) i64 :no-merge)")
        self._run("(relation lossless (String String))")
        self._run("(relation unshifted (T))")
        self._run("(ruleset load)")
        self._run("(ruleset opt)")
        for line in (*FACTS.values(), *RELATIONS):
            self._run(line)
        for name, columns, action in (
            ("in_leaf", "i64", "(union (Node i) (Leaf i))"),
            ("in_unshifted", "i64", "(unshifted (Node i))"),
            ("in_kind", "i64 i64", "(set (kind (Node i)) k)"),
        ):
            self._run(f"(relation {name} ({columns}))")
            self._run(
                f"(rule (({name} {'i k' if ' ' in columns else 'i'})) ({action}) :ruleset load)"
            )
        for narrow, wide in LOSSLESS.items():
            for dtype in wide:
                self._run(f'(lossless "{narrow}" "{dtype}")')
        for number, rule in enumerate(self.rules):
            for text in rule.texts(number):
                for op, arity in sorted(set(re.findall(r"\(Op_(\w+?)_(\d+) ", text))):
                    self._declare(op, int(arity))
                for table, op, arity in sorted(set(re.findall(r"\((New|Old)_(\w+?)_(\d+) ", text))):
                    self._declare_note(table, op, int(arity))
                self._run(text)

    def _run(self, text: str) -> list[Any]:
        # One command at a time: a parsed command carries a copy of the whole text it came from.
        with _ordinary_errors():
            return self._graph.run_program(*self._graph.parse_program(text))  # type: ignore[no-any-return]

    def _execute(self, *commands: Any) -> list[Any]:
        with _ordinary_errors():
            return self._graph.run_program(*commands)  # type: ignore[no-any-return]

    def _declare(self, op: str, arity: int) -> None:
        """The operation on so many inputs: its constructor, its table, and how its kind follows from
        those of its inputs where that is simple."""
        name = constructor(op, arity)
        if name in self._declared:
            return
        self._declared[name] = (op, arity)
        columns = [sort for _, sort in COLUMNS.get(op, ())]
        sorts = " ".join([*["T"] * arity, *columns, "i64"])
        self._run(f"(constructor {name} ({sorts}) T)")
        numbers = " ".join(["i64"] * (arity + 1) + columns + ["i64"])
        self._run(f"(relation in_{name} ({numbers}))")
        inputs = [f"v{i}" for i in range(arity)]
        rest = [f"w{i}" for i in range(len(columns) + 1)]
        nodes = " ".join([*(f"(Node {v})" for v in inputs), *rest])
        row = " ".join(["i", *inputs, *rest])
        self._run(f"(rule ((in_{name} {row})) ((union (Node i) ({name} {nodes}))) :ruleset load)")
        if not _keeps_kind(op, arity):
            return
        term = f"(= e ({name} {' '.join([*inputs, *rest])}))"
        for i in range(arity):  # every input has the kind of the i-th, or is a number
            first = f"(= k (kind v{i}))"
            rest_of_them = tuple(j for j in range(arity) if j != i)
            for others in dict.fromkeys(((), rest_of_them)):
                scalars = [f"(= k{j} (kind v{j})) (number k{j})" for j in others]
                same = [f"(= k (kind v{j}))" for j in range(arity) if j != i and j not in others]
                if i and not others:
                    continue
                conditions = " ".join([term, first, *scalars, *same])
                self._run(f"(rule ({conditions}) ((set (kind e) k)) :ruleset opt)")

    def _declare_note(self, table: str, op: str, arity: int) -> None:
        """A table of which rule made an operation ("New") or did away with it ("Old")."""
        name = constructor(op, arity).replace("Op", table, 1)
        if name not in self._notes:
            self._notes.add(name)
            columns = [sort for _, sort in COLUMNS.get(op, ())]
            sorts = " ".join([*["T"] * arity, *columns, "i64"])
            self._run(f"(function {name} ({sorts}) i64 :merge (min old new))")

    # --- one graph -----------------------------------------------------------------------------

    def explore(self, encoded: Encoded, limits: Limits | None = None) -> EGraph:
        """Load, saturate within the limits, read back."""
        for name in encoded.tables:
            if name.startswith("in_Op_"):
                op, arity = name.removeprefix("in_Op_").rsplit("_", 1)
                self._declare(op, int(arity))
        self._execute(self._b.Push(1))
        try:
            with TableFiles(encoded.tables) as paths:
                commands = [self._b.Input(self._span, name, path) for name, path in paths]
                self._execute(*commands, self._schedule("load"))
            found = EGraph([], [], [])
            self._saturate(found, limits or Limits())
            self._read(found, encoded)
        finally:
            if (
                not _forked()
            ):  # in a forked child the engine's threads are gone, and this would hang
                self._execute(self._b.Pop(self._span, 1))
        return found

    def _schedule(self, ruleset: str) -> Any:
        return self._b.RunSchedule(self._b.Run(self._span, self._b.RunConfig(ruleset)))

    def _saturate(self, found: EGraph, limits: Limits) -> None:
        """One step at a time: within a step, egglog itself knows no limit."""
        step, sizes = self._schedule("opt"), self._b.PrintSize(self._span, None)
        start = time.perf_counter()
        matches: dict[str, int] = defaultdict(int)
        found.stopped = "limit of steps"
        while found.steps < limits.steps:
            (output,) = self._execute(step)
            found.steps += 1
            for name, count in output.report.num_matches_per_rule.items():
                if "#" in name:
                    matches[str(name).strip('"').split("#")[0]] += int(count)
            if not output.report.updated:
                found.stopped = "saturated"
                break
            (printed,) = self._execute(sizes)
            if sum(size for name, size in printed.sizes if name.startswith("Op_")) > limits.nodes:
                found.stopped = "limit of e-nodes"
                break
            if time.perf_counter() - start > limits.seconds:
                found.stopped = "limit of time"
                break
        found.matches = {name: matches[name] for name in sorted(matches) if matches[name]}

    def _read(self, found: EGraph, encoded: Encoded) -> None:
        functions = self._graph.freeze().functions
        numbers: dict[Any, int] = {}
        to_i64 = self._graph.value_to_i64
        decode = {
            "i64": to_i64,
            "f64": self._graph.value_to_f64,
            "String": self._graph.value_to_string,
        }

        def number(value: Any) -> int:
            return numbers.setdefault(value, len(numbers))

        # The graph's own classes are numbered in its order, so that nothing depends on hashing.
        rows = ((to_i64(row.inputs[0]), row.output) for row in functions["Node"].rows)
        found.of = [number(value) for _, value in sorted(rows, key=lambda row: row[0])]
        members: dict[int, list[ENode]] = defaultdict(list)
        for row in functions["Leaf"].rows:
            i = to_i64(row.inputs[0])
            leaf = ENode(encoded.order[i].op, {}, (), ("", (), i))
            leaf.leaf = i
            members[number(row.output)].append(leaf)
        values = encoded.interner.values
        attributes: dict[Any, dict[str, Any]] = {}
        for name in sorted(self._declared):
            op, arity = self._declared[name]
            columns = COLUMNS.get(op, ())
            decoders = [decode[sort] for _, sort in columns]
            by_key: dict[Any, ENode] = {}
            for row in functions[name].rows:
                if row.subsumed:
                    continue
                cells = row.inputs
                children = tuple(map(number, cells[:arity]))
                data = tuple(d(v) for d, v in zip(decoders, cells[arity:-1], strict=True))
                rest = to_i64(cells[-1])
                shared = attributes.get((name, data, rest))
                if shared is None:
                    named = {c: v for (c, _), v in zip(columns, data, strict=True)}
                    shared = attributes[name, data, rest] = restored(op, named, values[rest])
                node = ENode(op, shared, children, (name, children, *data, rest))
                by_key[tuple(cells)] = node
                members[number(row.output)].append(node)
            for table, attribute in (("New", "made_by"), ("Old", "undone_by")):
                note = name.replace("Op", table, 1)
                for row in functions[note].rows if note in self._notes else ():
                    node_or_none = by_key.get(tuple(row.inputs))
                    if node_or_none is not None:
                        setattr(node_or_none, attribute, to_i64(row.output))
        found.classes = [sorted(members[c], key=lambda n: n.key) for c in range(len(numbers))]
        self._find_written(found, encoded)

    def _find_written(self, found: EGraph, encoded: Encoded) -> None:
        found.written = [-1] * len(found.classes)
        tables = [{n.key: j for j, n in enumerate(nodes)} for nodes in found.classes]
        for i, (entry, c) in enumerate(zip(encoded.rows, found.of, strict=True)):
            if found.written[c] < 0:
                key: Any = ("", (), i)
                if entry is not None:
                    name, row = entry
                    arity = len(encoded.order[i].inputs)
                    key = (name, tuple(found.of[k] for k in row[:arity]), *row[arity:])
                found.written[c] = tables[c].get(key, -1)


def _keeps_kind(op: str, arity: int) -> bool:
    """Whether the operation gives float32 back for float32, element by element."""
    record = REGISTRY[op]
    if record.kind != "pointwise" or op in ("cast", "gelu"):
        return op == "gelu"
    stand_ins = [Node("input", (), {}, (2, 3), "float32") for _ in range(arity)]
    try:
        return record.infer(*stand_ins) == ((2, 3), "float32")
    except (TypeError, ValueError):
        return False


@contextlib.contextmanager
def _ordinary_errors() -> Iterator[None]:
    """egglog's errors as RuntimeErrors; its panics are not even Exceptions."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ not in ("PanicException", "EggSmolError"):
            raise
        raise RuntimeError(f"egglog: {error}") from error


# --- one engine per thread -------------------------------------------------------------------------

_held = threading.local()
_process = os.getpid()


def _forked() -> bool:
    return os.getpid() != _process


def current_engine(stable: bool = False) -> Engine:
    """This thread's engine with all rules, or with those for stable formulas alone.

    An e-graph may only be used by the thread that made it. In a forked child neither leaving a
    scope nor giving an e-graph up would return, so there each use gets an engine that is kept for
    good: correct, and a reason to spawn processes instead.
    """
    rules = STABLE if stable else ALL
    if _forked():
        fresh = Engine(rules)
        _keep_forever(fresh._graph)
        return fresh
    engines: dict[bool, Engine] | None = getattr(_held, "engines", None)
    if engines is None:
        engines = _held.engines = {}
    if stable not in engines:
        engines[stable] = Engine(rules)
    return engines[stable]


def _keep_forever(thing: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    for held in getattr(_held, "engines", {}).values():
        _keep_forever(held._graph)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
