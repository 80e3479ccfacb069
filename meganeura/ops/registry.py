"""The registry of operations: one `Op` record says everything about one primitive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.graph.node import Node, Shape

#: Where a primitive belongs; the scheduler decides by this how a node may be fused.
KINDS = (
    "leaf",  # input, state, constant
    "generator",  # no tensor inputs or value depends on the coordinates: iota, random_bits
    "pointwise",  # out[i] = f(a[i], b[i], ...), with NumPy broadcasting of the inputs
    "movement",  # out[i] = a[map(i)]: reshape, transpose, slice, broadcast_to, pad, concatenate, ...
    "index",  # out[i] = a[... idx[...] ...]: take, take_along_axis
    "reduction",  # sum, max, min, prod, argmax, argmin over attributes["axes"]
    "template",  # has a kernel template of its own: matmul, conv, pooling, scatter_add, cumsum
)

GradientRule = Callable[[Node, Node], Sequence["Node | None"]]
InferRule = Callable[..., tuple[Shape, str]]


@dataclass(frozen=True)
class Sample:
    """Arguments for the registry-driven test of one primitive.

    `inputs` are arrays as the primitive takes them; `gradient` False skips the numeric gradient
    check (kinks, integers); `tolerance` is relative to the largest value of the float64 reference.
    """

    inputs: tuple[np.ndarray, ...]
    attributes: dict[str, Any]
    gradient: bool = True
    tolerance: float = 1e-5


@dataclass(frozen=True)
class Op:
    """One primitive.

    name:       the name in `Node.op`
    kind:       one of KINDS
    infer:      infer(*input_nodes, **attributes) -> (shape, dtype); raises ValueError with a
                sentence that names the argument, what was expected and what was received
    reference:  reference(*arrays, **attributes) -> array; NumPy, works in float64 as well
    gradient:   gradient(node, upstream) -> one Node or None per input; None: not differentiable
    wgsl:       for pointwise: text with {0}, {1}, ... for the operands, or a function
                wgsl(operands: list[str], dtypes: list[str], node) -> str. None for other kinds
    samples:    samples(numpy Generator) -> list[Sample], for the registry-driven test
    """

    name: str
    kind: str
    infer: InferRule
    reference: Callable[..., Any]
    gradient: GradientRule | None = None
    wgsl: str | Callable[[list[str], list[str], Node], str] | None = None
    samples: Callable[[np.random.Generator], list[Sample]] | None = None


REGISTRY: dict[str, Op] = {}


def register(op: Op) -> Op:
    if op.name in REGISTRY:
        raise ValueError(f"operation {op.name!r} is registered twice")
    if op.kind not in KINDS:
        raise ValueError(f"operation {op.name!r} has the unknown kind {op.kind!r}")
    REGISTRY[op.name] = op
    return op


class _Scopes(threading.local):
    """The provenance of the nodes that this thread makes, the innermost last."""

    def __init__(self) -> None:
        self.paths: list[str] = [""]


_scopes = _Scopes()


class scope:
    """Nodes made inside carry this layer path as provenance."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        outer = _scopes.paths[-1]
        _scopes.paths.append(f"{outer}/{self.name}" if outer else self.name)

    def __exit__(self, *_: object) -> None:
        _scopes.paths.pop()


class same_scope:
    """Nodes made inside carry exactly this provenance: a gradient belongs to the layer it is of."""

    def __init__(self, path: str):
        self.path = path

    def __enter__(self) -> None:
        _scopes.paths.append(self.path)

    def __exit__(self, *_: object) -> None:
        _scopes.paths.pop()


def make(op: str, *inputs: Node, **attributes: Any) -> Node:
    """Build one node; its shape and dtype come from the record's rule."""
    shape, dtype = REGISTRY[op].infer(*inputs, **attributes)
    return Node(op, inputs, attributes, shape, dtype, _scopes.paths[-1])
