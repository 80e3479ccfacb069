"""Random graphs through the e-graph: every form of every value is evaluated.

MEGANEURA_FUZZ multiplies how many are tried; 1 is the default.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import pytest
from rewrite_checks import check_egraph, check_graph, leaf, random_values

from meganeura.graph.autodiff import gradients
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.rewrite.engine import Engine
from meganeura.rewrite.rules import ALL

TIMES = int(os.environ.get("MEGANEURA_FUZZ", "1"))
_SHAPES = ((4, 4), (4,), (), (3, 4), (2, 4, 4), (1, 4), (4, 1), (1, 1, 4), (2, 1, 4), (1,))
_SINGLES = (
    "negative", "relu", "tanh", "sigmoid", "abs", "exp", "softplus", "silu", "erf", "stop_gradient",
)  # fmt: skip
_PAIRS = ("add", "subtract", "multiply", "add", "multiply", "maximum", "minimum", "divide")


class Maker:
    """Grows a graph at random, with constants that rules look for and values that several use."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.inputs: list[Node] = []
        self.nodes: list[Node] = []
        for _ in range(4):
            self._input()

    def _pick(self, options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def _input(self) -> Node:
        node = leaf(self._pick(_SHAPES))
        self.inputs.append(node)
        self.nodes.append(node)
        return node

    def _constant(self) -> Node:
        value = self._pick((0.0, 1.0, -1.0, 2.0, 0.5, 3.25, 0.0, 1.0, 0.7071067811865476))
        node = make("constant", value=value, dtype="float32")
        if self.random.random() < 0.4:
            node = make("broadcast_to", node, shape=self._pick(_SHAPES))
        return node

    def _any(self, floats: bool = True) -> Node:
        if self.random.random() < 0.15:
            return self._constant()
        recent = self.nodes[-6:] if self.random.random() < 0.7 else self.nodes
        node = self._pick(recent)
        return node if node.dtype == "float32" or not floats else self.inputs[0]

    def step(self) -> None:
        kind = self._pick(
            (
                "one",
                "one",
                "two",
                "two",
                "two",
                "move",
                "move",
                "reduce",
                "product",
                "choose",
                "conv",
            )
        )
        try:
            node = getattr(self, f"_{kind}")()
        except ValueError:  # shapes that do not fit
            return
        if node.size <= 400:
            self.nodes.append(node)

    def _one(self) -> Node:
        op = self._pick(_SINGLES)
        x = self._any()
        if op == "exp":  # stays in range
            x = make("minimum", x, make("constant", value=2.0, dtype="float32"))
        return make(op, x)

    def _two(self) -> Node:
        op, a, b = self._pick(_PAIRS), self._any(), self._any()
        if op == "divide":  # by something that is not near 0
            b = make("add", make("abs", b), make("constant", value=1.0, dtype="float32"))
        return make(op, a, b)

    def _move(self) -> Node:
        x = self._any()
        rank = x.ndim
        op = self._pick(
            ("reshape", "transpose", "broadcast_to", "slice", "flip", "pad", "concatenate")
        )
        if op == "reshape":
            last = max(x.shape[-1], 1) if x.shape else 1
            shapes = [x.shape, (x.size,), (1, *x.shape), (x.size // last, last), (*x.shape, 1)]
            return make(op, x, shape=self._pick(shapes))
        if op == "transpose":
            swapped = (*range(rank - 2), rank - 1, rank - 2) if rank > 1 else tuple(range(rank))
            return make(
                op, x, axes=self._pick((swapped, tuple(map(int, self.random.permutation(rank)))))
            )
        if op == "broadcast_to":
            return make(op, x, shape=self._pick((x.shape, (2, *x.shape), *_SHAPES)))
        if op == "slice":
            start = tuple(int(self._pick((0, 0, min(1, n)))) for n in x.shape)
            return make(op, x, start=start, stop=x.shape, step=(1,) * rank)
        if op == "flip":
            return make(op, x, axes=tuple(i for i in range(rank) if self.random.random() < 0.5))
        if op == "pad" and rank:
            low = tuple(int(self._pick((0, 0, 1))) for _ in range(rank))
            return make(op, x, low=low, high=(0,) * rank, value=0.0)
        if not rank:
            return make("flip", x, axes=())
        parts = [x] * int(self._pick((1, 2)))
        return make("concatenate", *parts, axis=int(self.random.integers(rank)))

    def _reduce(self) -> Node:
        x = self._any()
        axes = tuple(i for i in range(x.ndim) if self.random.random() < 0.5)
        keepdims = bool(self.random.integers(2))
        return make(self._pick(("sum", "sum", "max", "min")), x, axes=axes, keepdims=keepdims)

    def _product(self) -> Node:
        flags = {f"transpose_{s}": bool(self.random.integers(2)) for s in "ab"}
        operands = [self._any(), self._any()]
        if self.random.random() < 0.5:  # squares, which always fit, and may be turned
            for i in range(2):
                x = leaf(self._pick(((4, 4), (4, 4, 4))))
                self.inputs.append(x)
                axes = tuple(map(int, self.random.permutation(x.ndim)))
                operands[i] = self._pick((x, make("transpose", x, axes=axes)))
        node = make("matmul", *operands, **flags)
        node = make("multiply", node, make("constant", value=0.25, dtype="float32"))
        if self.random.random() < 0.3:
            return node
        biased = make(self._pick(("add", "subtract", "multiply")), node, self._any())
        return make(self._pick(_SINGLES[:5]), biased) if self.random.random() < 0.5 else biased

    def _choose(self) -> Node:
        compare = self._pick(("less", "less_equal", "equal", "not_equal"))
        return make("where", make(compare, self._any(), self._any()), self._any(), self._any())

    def _conv(self) -> Node:
        x, kernel = leaf((1, 3, 3, 2)), leaf((2, 2, 2, 4))
        vectors = [
            leaf(self._pick(((4,), (4,), (1, 1, 1, 4), (1,), (1, 4, 1, 1)))) for _ in range(3)
        ]
        self.inputs += [x, kernel, *vectors]
        padding = self._pick((((0, 0), (0, 0)), ((1, 0), (0, 1))))
        node = make("conv", x, kernel, strides=(1, 1), padding=padding, dilation=(1, 1), groups=1)
        if self.random.random() < 0.3:
            node = make("transpose", node, axes=(0, 3, 1, 2))
        for vector in vectors[: int(self.random.integers(4))]:
            node = make(self._pick(("add", "subtract", "multiply")), node, vector)
        return make(self._pick(_SINGLES[:5]), node)

    def graph(self) -> Graph:
        for _ in range(int(self.random.integers(5, 25))):
            self.step()
        made = [n for n in self.nodes if n.inputs]
        if not made:
            return Graph(self.inputs, [self.inputs[0]])
        outputs = [made[-1], *(self._pick(made) for _ in range(int(self.random.integers(3))))]
        if self.random.random() < 0.5:
            total: Node = make(
                "sum", outputs[0], axes=tuple(range(outputs[0].ndim)), keepdims=False
            )
            outputs += gradients([total], self.inputs[:4])
        return Graph(self.inputs, outputs)


@pytest.mark.parametrize("block", range(4 * TIMES))
def test_random_graphs(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        graph = Maker(seed).graph()
        try:
            check_graph(graph, np.random.default_rng(seed), 0.2, 1.5)
        except (AssertionError, RuntimeError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("product and bias", "(= 1 (rank kv))"),
        ("a broadcast into multiply", "(= u (shape_of v))"),
        ("transpose into the right operand", "(swaps a)"),
        ("reshape of one number", "(number k)"),
        ("sum of nothing", "(= n (size r))"),
    ],
)
def test_it_finds_rules_that_lack_a_condition(name: str, condition: str) -> None:
    rules = [
        dataclasses.replace(r, when=tuple(c for c in r.when if c != condition))
        if r.name == name
        else r
        for r in ALL
    ]
    assert rules != ALL
    engine = Engine(rules)
    for seed in range(300):
        graph = Maker(seed).graph()
        random = np.random.default_rng(seed)
        given = dict(
            zip(map(id, graph.inputs), random_values(graph.inputs, random, 0.2, 1.5), strict=True)
        )
        try:
            check_egraph(graph, given, engine)
        except (AssertionError, RuntimeError):
            return
    pytest.fail("300 random graphs had nothing against it")
