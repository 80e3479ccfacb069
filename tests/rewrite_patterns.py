"""Graphs that a rule's left side describes, made at random from the text of the rule itself.

Tensor variables become inputs of random small shapes, attributes become random attributes that fit,
and conditions that name other patterns are filled in. Whether all conditions hold is left to the
engine: of many instances, those that fit are rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.rewrite.rules import ALL, RELATIONS, Rule
from meganeura.rewrite.rules.rule import COLUMNS

Expression = str | list[Any]

_MOVEMENT = {"reshape", "transpose", "broadcast_to", "slice", "flip", "pad", "concatenate"}
_BOOLEAN = {"logical_and", "logical_or", "logical_not"}
_SHAPES = (
    (4, 4),
    (4,),
    (),
    (3, 4),
    (2, 4, 4),
    (1, 4),
    (1, 1, 4),
    (2, 1, 4),
    (4, 1),
    (1,),
    (3, 1, 1),
    (1, 1, 1, 4),
    (1, 4, 1, 1),
)
#: Beside products: what is a vector of channels, and what is nearly one.
_CHANNELS = (
    (4,), (4,), (4,), (1,), (1, 4), (3, 4), (2, 4), (16,), (1, 1, 1, 4), (1, 4, 1, 1), (), (1, 1, 1, 1, 4),
)  # fmt: skip
_TURNED = ((1, 4, 1, 1), (1, 4, 1, 1), (1, 1, 1, 1), (1, 1, 4, 1), (4,), (1, 3, 1, 1))


def parse(text: str) -> Expression:
    """An s-expression as nested lists."""
    stack: list[list[Any]] = [[]]
    for token in re.findall(r'\(|\)|"[^"]*"|[^\s()]+', text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    (whole,) = stack[0]
    return whole  # type: ignore[no-any-return]


class Misfit(Exception):
    """This instance does not exist: shapes do not fit."""


class Instance:
    """One random graph of a rule's left side."""

    def __init__(self, rule: Rule, side: int, random: np.random.Generator, inputs: list[Node]):
        self.random = random
        self.inputs = inputs
        self.tensors: dict[str, Node] = {}
        self.patterns: dict[str, Expression] = {}
        self.attributes: dict[str, Any] = {}
        self.columns: dict[str, Any] = {}
        self.bounds: dict[str, list[float]] = {}
        self.dtype = self._pick(
            ("float32", "float32", "int32", "uint32") if _any_dtype(rule) else ("float32",)
        )
        self.shapes = (
            _CHANNELS
            if re.search("matmul|conv", " ".join((rule.lhs[side], *rule.when)))
            else _SHAPES
        )
        if any("channel" in c for c in rule.when):
            self.shapes = _TURNED
        self.shape = self._pick(self.shapes)
        self._conditions(rule.when)
        self.outputs = [self.build(parse(rule.lhs[side]))]
        # What a condition names beside the left side has to be in the graph as well.
        self.outputs += [self.build(v) for v in self.patterns if v not in self.tensors]

    def _pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.random.integers(len(options)))]

    def _conditions(self, conditions: Sequence[str]) -> None:
        for text in conditions:
            condition = parse(text)
            head, *rest = condition
            if head in ("<", ">") and re.fullmatch(r"-?[\d.e+-]+", str(rest[-1])):
                self.bounds.setdefault(str(rest[0]), []).append(float(rest[1]))
            elif head == "=" and isinstance(rest[1], list) and str(rest[1][0]).startswith("Op_"):
                self.patterns[rest[0]] = rest[1]
            elif any(f"(relation {head} " in relation for relation in RELATIONS):
                makers = [
                    r
                    for r in ALL
                    if any(f.startswith(f"({head} root") for f in r.facts)
                    and not any(c.startswith(f"({head} ") for c in r.when)
                ]
                maker = self._pick(makers)
                self._conditions(maker.when)
                self.patterns[rest[0]] = parse(self._pick(maker.lhs))

    # --- values --------------------------------------------------------------------------------

    def build(self, expression: Expression, dtype: str | None = None, shape: Any = None) -> Node:
        if isinstance(expression, str):
            if expression in self.patterns:
                if expression not in self.tensors:
                    self.tensors[expression] = self.build(self.patterns[expression])
            elif expression not in self.tensors:
                self.tensors[expression] = self._leaf(dtype or self.dtype, shape)
            return self.tensors[expression]
        op, arity = str(expression[0]).removeprefix("Op_").rsplit("_", 1)
        given = expression[1 : 1 + int(arity)]
        columns, rest = expression[1 + int(arity) : -1], expression[-1]
        if op == "constant":
            return self._constant(columns, rest)
        attributes = {
            name: self._column(op, name, c)
            for (name, _), c in zip(COLUMNS.get(op, ()), columns, strict=True)
        }
        shapes = (self._operand_shapes(op, attributes) or [None] * int(arity))[: int(arity)]
        kinds = [dtype if op in _MOVEMENT else self._dtype(op, i) for i in range(int(arity))]
        inputs = [self.build(e, k, s) for e, k, s in zip(given, kinds, shapes, strict=True)]
        if rest != "0":
            if rest not in self.attributes:
                self.attributes[rest] = self._attributes(op, inputs)
            attributes |= self.attributes[rest]
        try:
            return make(op, *inputs, **attributes)
        except (ValueError, TypeError, IndexError) as error:
            raise Misfit from error

    def _leaf(self, dtype: str, shape: Any) -> Node:
        if shape is None:
            shape = self.shape if self.random.random() < 0.6 else self._pick(self.shapes)
        node = Node("input", (), {"name": f"x{len(self.inputs)}"}, tuple(shape), dtype)
        self.inputs.append(node)
        return node

    def _constant(self, columns: Sequence[Any], rest: str) -> Node:
        value, dtype = columns
        dtype = dtype.strip('"') if dtype.startswith('"') else self.dtype
        if re.fullmatch(r"-?[\d.]+", value):
            number = float(value)
        elif value in self.bounds:
            number = float(np.mean(self.bounds[value]))
        else:
            if value not in self.columns:
                self.columns[value] = float(
                    self.random.choice([-2.5, 0.75, 2.0, -1.0, 0.125, 3.0, 1e20, 0.0])
                )
            number = self.columns[value]
        return make(
            "constant",
            value=float(number) if dtype == "float32" else int(abs(number)) % 2**20,
            dtype=dtype,
        )

    def _dtype(self, op: str, position: int) -> str | None:
        if op in _BOOLEAN or (op == "where" and position == 0):
            return "bool"
        if op in ("matmul", "fused_matmul", "conv", "fused_conv"):
            return "float32"
        if op == "cast" and self.random.random() < 0.7:
            return str(self._pick(("float32", "uint8", "int32", "bool", "uint32")))
        return None

    # --- attributes ----------------------------------------------------------------------------

    def _column(self, op: str, name: str, text: str) -> Any:
        if text.startswith('"'):
            return text.strip('"')
        if re.fullmatch(r"\d+", text):
            return bool(int(text))
        if text not in self.columns:
            kinds = ("float32", "uint8", "int32", "bool")
            self.columns[text] = (
                str(self._pick(kinds)) if name == "dtype" else bool(self.random.integers(2))
            )
        return self.columns[text]

    def _operand_shapes(self, op: str, attributes: dict[str, Any]) -> list[Any] | None:
        """Operands of products, so that they fit; a bias may also be of the wrong length."""
        columns = self._pick((4, 4, 4, 1))
        bias = self._pick(((columns,), (columns,), (columns,), (1,)))
        if op in ("matmul", "fused_matmul"):
            rows, inner = self._pick(((4, 4), (3, 4), (4, 2), (1, 4)))
            a = (inner, rows) if attributes["transpose_a"] else (rows, inner)
            b = (columns, inner) if attributes["transpose_b"] else (inner, columns)
            batch = self._pick(((), (), (2,)))
            return [(*batch, *a), b, bias]
        if op in ("conv", "fused_conv"):
            groups = self._pick((1, 1, 2)) if columns == 4 else 1
            self.attributes.setdefault("g", self._geometry(groups))
            return [(2, 4, 3, 4), (2, 2, 4 // self.attributes["g"]["groups"], columns), bias]
        return None

    def _geometry(self, groups: int) -> dict[str, Any]:
        return {
            "strides": self._pick(((1, 1), (2, 1))),
            "padding": self._pick((((0, 0), (0, 0)), ((1, 1), (0, 1)))),
            "dilation": (1, 1),
            "groups": groups,
        }

    def _attributes(self, op: str, inputs: Sequence[Node]) -> dict[str, Any]:
        shape = inputs[0].shape
        rank = len(shape)
        if op == "reshape":
            size = int(np.prod(shape))
            last = shape[-1] if shape else 1
            options = [
                shape,
                (size,),
                (1, *shape),
                (1, 1, *shape),
                (*shape, 1),
                (size // last, last),
            ]
            options += [(1, size // last, last), (1,) * max(rank, 1)] if size == 1 or shape else []
            if size % (2 * last) == 0:
                options.append((2, size // (2 * last), last))
            if self.shapes is not _SHAPES and size:
                options = [
                    (1, size // last, last),
                    (size // last, last),
                    (size // last, last, 1),
                    *options,
                ]
                options = options[:2] * 3 + options
            kept = [
                tuple(1 if i == a else n for i, n in enumerate(s))
                for s in ((2, 4, 4),)
                for a in range(3)
            ]
            return {"shape": self._pick([s for s in (*options, *kept) if int(np.prod(s)) == size])}
        if op == "transpose":
            swapped = (*range(rank - 2), rank - 1, rank - 2)
            plain = tuple(int(i) for i in self.random.permutation(rank))
            first = (0, rank - 1, *range(1, rank - 1))
            return {
                "axes": self._pick((swapped, plain, first if rank > 2 else plain))
                if rank > 1
                else plain
            }
        if op == "broadcast_to":
            wide = tuple(int(self._pick((1, 4))) if n == 1 else n for n in shape)
            return {"shape": self._pick((wide, (2, *wide), shape, (3, 2, *wide), (*self.shape,)))}
        if op in ("sum", "max", "min", "prod"):
            axes = tuple(i for i in range(rank) if self.random.random() < 0.5)
            if rank and not axes:
                axes = (int(self.random.integers(rank)),)
            earlier = [a["axes"] for a in self.attributes.values() if "keepdims" in a]
            if earlier and max(earlier[0], default=-1) < rank and self.random.random() < 0.8:
                axes = earlier[0]  # two reductions of one rule mostly go along the same dimensions
            return {"axes": axes, "keepdims": bool(self.random.integers(2))}
        if op == "slice":
            some = tuple(int(self._pick((0, 0, min(1, n)))) for n in shape)
            return {"start": some, "stop": shape, "step": (1,) * rank}
        if op == "pad":
            if not rank:
                raise Misfit
            some = tuple(int(self._pick((0, 0, 0, 1))) for _ in shape)
            return {"low": some, "high": (0,) * rank, "value": 0.0}
        if op == "flip":
            return {"axes": tuple(i for i in range(rank) if self.random.random() < 0.5)}
        if op == "concatenate":
            return {"axis": int(self.random.integers(max(rank, 1)))}
        if op in ("conv", "fused_conv"):
            return self._geometry(1)
        raise NotImplementedError(f"attributes for {op}")


def _any_dtype(rule: Rule) -> bool:
    """Whether the left side may as well be about whole numbers."""
    return all('"float32"' not in t for t in rule.lhs)


def helpers_of(rule: Rule) -> list[Rule]:
    """The rules that note what this one asks for."""
    found: list[Rule] = []
    asked = list(rule.when)
    while asked:
        head = asked.pop()[1:].split(" ")[0]
        for other in ALL:
            if other not in found and any(f.startswith(f"({head} root") for f in other.facts):
                found.append(other)
                asked += other.when
    return found


def instances(rule: Rule, side: int, count: int, random: np.random.Generator) -> Graph:
    """One graph with many instances of a left side as its outputs."""
    inputs: list[Node] = []
    outputs: list[Node] = []
    for _ in range(count):
        try:
            outputs += Instance(rule, side, random, inputs).outputs
        except Misfit:
            continue
    return Graph(inputs, outputs)
