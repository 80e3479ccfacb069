"""Every rule against the references: instances of its left side, all forms of them evaluated."""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np
import pytest
from rewrite_checks import check_egraph, random_values
from rewrite_patterns import helpers_of, instances

from meganeura.rewrite.engine import Engine
from meganeura.rewrite.rules import ALL, STABLE, Rule

_CASES = [(rule, side) for rule in ALL for side in range(len(rule.lhs))]


def check_rule(rule: Rule, side: int, count: int = 60) -> int:
    """How often the rule matched; an AssertionError where a form differs from the others."""
    random = np.random.default_rng(zlib.crc32(f"{rule.name} {side}".encode()))
    engine = Engine([rule, *helpers_of(rule)])
    matched = 0
    for low in (-2.0, 0.1):
        graph = instances(rule, side, count, random)
        given = dict(
            zip(map(id, graph.inputs), random_values(graph.inputs, random, low), strict=True)
        )
        _, found = check_egraph(graph, given, engine)
        matched += found.matches.get(rule.name, 0)
    return matched


@pytest.mark.parametrize(("rule", "side"), _CASES, ids=lambda v: getattr(v, "name", str(v)))
def test_both_sides_are_equal(rule: Rule, side: int) -> None:
    assert check_rule(rule, side) > 0, f"no instance of {rule.name!r} fits: {rule.lhs[side]}"


def test_every_rule_says_why() -> None:
    for rule in ALL:
        assert rule.name and rule.reason and rule.lhs, rule
    assert all(r in ALL for r in STABLE)


# --- the harness can fail ----------------------------------------------------------------------


def named(name: str) -> Rule:
    return next(r for r in ALL if r.name == name)


def without(name: str, condition: str) -> Rule:
    rule = named(name)
    left = tuple(c for c in rule.when if not c.startswith(condition))
    assert len(left) < len(rule.when), f"{name!r} has no condition {condition!r}: {rule.when}"
    return dataclasses.replace(rule, when=left)


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("product and bias", "(= 1 (rank kv))"),
        ("product and bias", "(= n (last q))"),
        ("convolution and bias", "(= 1 (rank kv))"),
        ("transpose into the left operand", "(swaps a)"),
        ("transpose of a product", "(swaps a)"),
        ("transpose of ones", "(moves_ones k a)"),
        ("transpose there and back", "(stays c)"),
        ("reshape to itself", "(= q (kind x))"),
        ("slice of everything", "(= q (kind root))"),
        ("reshape of one number", "(number k)"),
        ("sum of nothing", "(= n (size r))"),
        ("a broadcast into add", "(= u (shape_of v))"),
        ("a broadcast into less", "(= u (shape_of r))"),
        ("leading ones into add", "(leads l q)"),
        ("add with a number before a broadcast", "(number k)"),
        ("a broadcast into where", "(= u (shape_of q))"),
        ("cast twice", "(lossless f d)"),
        ("absolute value of a negative", '(= "float32"'),
        ("choose twice by one condition", "(= q (kind y))"),
        ("exact gelu", "(bell b x)"),
        ("multiply constants", "(< s 1e30)"),
        ("second bias of a product", "(= 1 (rank kv))"),
    ],
)
def test_a_missing_condition_is_caught(name: str, condition: str) -> None:
    mutant = without(name, condition)
    engine = Engine(
        [mutant, *helpers_of(mutant)]
    )  # it is still a rule: no variable lost its meaning
    assert mutant in engine.rules
    try:
        matched = sum(check_rule(mutant, side, 100) for side in range(len(mutant.lhs)))
    except (AssertionError, RuntimeError):
        return
    pytest.fail(f"{name!r} without {condition!r} matched {matched} times, and nothing was wrong")


@pytest.mark.parametrize(
    ("name", "rhs"),
    [
        ("silu", "(Op_sigmoid_1 x 0)"),
        ("add a negative", "(Op_subtract_2 y x 0)"),
        ("reshape twice", "x"),
        ("transpose of a product", "(Op_matmul_2 x y (- 1 tb) (- 1 ta) 0)"),
        ("product and relu", '(Op_fused_matmul_3 x y b ta tb "tanh" 0)'),
        ("transpose into the left operand", "(Op_matmul_2 x y ta tb 0)"),
        ("log of sigmoid", "(Op_softplus_1 x 0)"),
        ("merge factors", '(Op_multiply_2 x (Op_constant_0 (+ a b) "float32" 0) 0)'),
        ("subtraction by axpy", "(Op_axpy_3 x y r 0)"),
        ("sum of negatives", "(Op_sum_1 u a)"),
        ("sum of doubles", "(Op_sum_1 u a)"),
        ("factor out of a sum", "(Op_reshape_1 (Op_sum_1 u k) s)"),
        ("sum of deviations", "(Op_reshape_1 (Op_subtract_2 (Op_sum_1 u k) m 0) s)"),
        ("mask from the output", '(Op_less_2 y (Op_constant_0 0.0 "float32" 0) 0)'),
    ],
)
def test_a_wrong_right_side_is_caught(name: str, rhs: str) -> None:
    planted = dataclasses.replace(named(name), rhs=rhs)
    with pytest.raises((AssertionError, RuntimeError)):
        check_rule(planted, 0)
