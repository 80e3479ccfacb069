"""Kernels that read and write four neighbours at once."""

from __future__ import annotations

import re

import pytest

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.schedule import Plan, schedule
from meganeura.schedule.merge import Part, dispatch
from meganeura.schedule.plan import Limits
from meganeura.schedule.quads import bound_as_quads

GPU = Limits(16, 1 << 30, 32768, 1024, 65535, software=False, quads_from=4)
SHAPE = (32, 64)


def leaf(name: str, shape: tuple[int, ...] = SHAPE, op: str = "input") -> Node:
    return Node(op, (), {"name": name}, shape, "float32")


def types(plan: Plan, kernel: int = 0) -> list[str]:
    return re.findall(r"b\d+: array<([^;]+)>;", plan.kernels[kernel].wgsl)


def planned(inputs: list[Node], *outputs: Node) -> Plan:
    return schedule(Graph(inputs, list(outputs), [], {}), GPU)


def test_elements_inside_elements() -> None:
    text = "let x = b0[b1[i + 1u]] + b10[j] * b0q[k];"
    found = bound_as_quads(text, ["b0", "b1"])
    inner = "b1[(i + 1u) >> 2u][(i + 1u) & 3u]"
    assert found == f"let x = b0[({inner}) >> 2u][({inner}) & 3u] + b10[j] * b0q[k];"


def test_neighbours_are_read_and_written_together() -> None:
    x, row, column = leaf("x"), leaf("row", (64,)), leaf("column", (32, 1))
    plan = planned([x, row, column], make("add", make("multiply", x, row), column))
    assert types(plan) == ["vec4<f32>", "vec4<f32>", "f32", "vec4<f32>"]
    assert plan.kernels[0].workgroups == (32 * 64 // 4 // 256, 1, 1)


@pytest.mark.parametrize("shape", [(32, 63), (3, 7)])
def test_what_has_no_quads_is_read_one_by_one(shape: tuple[int, int]) -> None:
    x, row = leaf("x", shape), leaf("row", (shape[1],))
    plan = planned([x, row], make("add", x, row))
    quads = shape[0] * shape[1] % 4 == 0
    assert types(plan) == (["vec4<f32>", "f32", "vec4<f32>"] if quads else ["f32"] * 3)


def test_a_buffer_read_both_ways() -> None:
    x = leaf("x", (64, 64))
    plan = planned([x], make("add", x, make("transpose", x, axes=(1, 0))))
    assert types(plan)[0] == "vec4<f32>"
    assert re.search(r"b0\[\w+ >> 2u\]\[\w+ & 3u\]", plan.kernels[0].wgsl)


def test_a_state_is_written_in_place() -> None:
    a, b, state = leaf("a", (16, 32)), leaf("b", (16, 64)), leaf("s", op="state")
    product = make("matmul", a, b, transpose_a=True, transpose_b=False)
    for new in (make("add", state, leaf("x")), make("subtract", state, product)):
        inputs = [n for n in Graph([], [new], [state], {}).nodes() if n.op == "input"]
        plan = schedule(Graph(inputs, [], [state], {0: new}), GPU)
        assert len(plan.kernels) == 1
        assert "vec4<f32>" in types(plan)


def test_kernels_that_read_differently_share_a_dispatch() -> None:
    one = Part(
        (64, 1, 1), (2, 1, 1), "", "b1[thread] = b0[thread];", [(7, False, "f32"), (8, True, "f32")]
    )
    quad = "b1[thread] = b0[thread] * 2.0;"
    four = Part((64, 1, 1), (1, 1, 1), "", quad, [(7, False, "vec4<f32>"), (9, True, "vec4<f32>")])
    text, workgroups, bound = dispatch([one, four], 65535)
    assert workgroups == (3, 1, 1)
    assert bound == [(7, False), (8, True), (9, True)]
    assert "b1[thread] = b0[thread >> 2u][thread & 3u];" in text
    assert "b2[thread] = b0[thread] * 2.0;" in text
