"""A formula as it stands in a book is as accurate as the library's own, and so is its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rewrite_checks import evaluate, leaf

import meganeura as mg
from meganeura import config, ops
from meganeura.graph.autodiff import gradients
from meganeura.graph.node import Graph
from meganeura.rewrite import optimise
from meganeura.rewrite.stable import stable

EXTREME = np.array([[1000.0, 0.0, -1000.0, 5.0], [-2.0, -1000.0, -1001.0, 700.0]])
TARGETS = np.array([[0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.5, 0.0]])


def _softmax(x: Any) -> Any:
    return ops.exp(x) / ops.sum(ops.exp(x), axis=-1, keepdims=True)


def _shifted_softmax(x: Any) -> Any:
    e = ops.exp(x - ops.max(x, axis=-1, keepdims=True))
    return e / ops.sum(e, axis=-1, keepdims=True)


def _expanded_softmax(x: Any) -> Any:
    e = ops.exp(x)
    return e / ops.expand_dims(ops.sum(e, axis=-1), -1)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + ops.exp(-x))


def _cross_entropy(p: Any, t: Any) -> Any:
    return -ops.sum(t * ops.log(p), axis=-1)


def _binary(p: Any, t: Any) -> Any:
    return -(t * ops.log(p) + (1 - t) * ops.log(1 - p))


#: what a user writes, and what the library has for it
FORMULAS: dict[str, tuple[Any, Any]] = {
    "cross-entropy of a softmax written out": (
        lambda x, t: _cross_entropy(_softmax(x), t),
        lambda x, t: ops.categorical_crossentropy(t, x, from_logits=True),
    ),
    "cross-entropy of a shifted softmax": (
        lambda x, t: _cross_entropy(_shifted_softmax(x), t),
        lambda x, t: ops.categorical_crossentropy(t, x, from_logits=True),
    ),
    "cross-entropy with the sum expanded": (
        lambda x, t: _cross_entropy(_expanded_softmax(x), t),
        lambda x, t: ops.categorical_crossentropy(t, x, from_logits=True),
    ),
    "cross-entropy of the library's softmax": (
        lambda x, t: _cross_entropy(ops.softmax(x), t),
        lambda x, t: ops.categorical_crossentropy(t, x, from_logits=True),
    ),
    "logsumexp": (
        lambda x, t: ops.log(ops.sum(ops.exp(x), axis=1)),
        lambda x, t: ops.logsumexp(x, axis=1),
    ),
    "logsumexp over all": (
        lambda x, t: ops.log(ops.sum(ops.exp(x))),
        lambda x, t: ops.logsumexp(x),
    ),
    "logsumexp with its dimension": (
        lambda x, t: ops.log(ops.sum(ops.exp(x), axis=0, keepdims=True)),
        lambda x, t: ops.logsumexp(x, axis=0, keepdims=True),
    ),
    "binary cross-entropy": (
        lambda x, t: _binary(ops.sigmoid(x), t),
        lambda x, t: ops.binary_crossentropy(t, x, from_logits=True),
    ),
    "binary cross-entropy of a sigmoid written out": (
        lambda x, t: _binary(_sigmoid(x), t),
        lambda x, t: ops.binary_crossentropy(t, x, from_logits=True),
    ),
    "log-sigmoid": (lambda x, t: ops.log(ops.sigmoid(x)), lambda x, t: ops.log_sigmoid(x)),
    "softplus": (lambda x, t: ops.log(1 + ops.exp(x)), lambda x, t: ops.softplus(x)),
    "softplus by log1p": (lambda x, t: ops.log1p(ops.exp(x)), lambda x, t: ops.softplus(x)),
    "softmax": (lambda x, t: _softmax(x), lambda x, t: ops.softmax(x)),
    "sigmoid by the exponential": (
        lambda x, t: ops.exp(x) / (1 + ops.exp(x)),
        lambda x, t: ops.sigmoid(x),
    ),
    "silu": (lambda x, t: x / (1 + ops.exp(-x)), lambda x, t: ops.silu(x)),
    "tanh": (
        lambda x, t: (ops.exp(x) - ops.exp(-x)) / (ops.exp(x) + ops.exp(-x)),
        lambda x, t: ops.tanh(x),
    ),
    "logaddexp": (lambda x, t: ops.log(ops.exp(x) + ops.exp(t)), lambda x, t: ops.logaddexp(x, t)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values_and_gradients(name: str) -> None:
    written, library = FORMULAS[name]
    x, t = leaf(EXTREME.shape), leaf(TARGETS.shape)

    def graph_of(formula: Any, forms: Any) -> Graph:
        weights = np.linspace(0.5, 1.5, 8).astype("float32").reshape(2, 4)
        value = formula(x, t)
        total = ops.sum(value * weights) if value.shape == (2, 4) else ops.sum(value)
        (loss,) = forms(total)
        return Graph([x, t], [value, *gradients([loss], [x])])

    user, _ = optimise(graph_of(written, lambda loss: stable([loss], keep=[x])))
    plain = graph_of(library, lambda loss: [loss])
    for arrays in ([EXTREME, TARGETS], [EXTREME / 500, TARGETS]):
        for found, expected in zip(evaluate(user, arrays), evaluate(plain, arrays), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
            assert np.isfinite(found).all()


def test_without_the_rules_these_formulas_fail() -> None:
    """So that the test above shows something."""
    x, t = leaf(EXTREME.shape), leaf(TARGETS.shape)
    failed = 0
    for written, _ in FORMULAS.values():
        value = written(x, t)
        graph = Graph([x, t], [value, *gradients([ops.sum(value)], [x])])
        found = evaluate(graph, [EXTREME, TARGETS])
        failed += not all(np.isfinite(v).all() for v in found)
    assert failed >= len(FORMULAS) - 2


def test_minus_infinity_everywhere() -> None:
    x = leaf((3,))
    graph = Graph([x], [ops.log(ops.sum(ops.exp(x)))])
    assert evaluate(optimise(graph)[0], [np.full(3, -np.inf)])[0] == -np.inf


def test_clipped_probabilities_are_left_alone() -> None:
    """Clipping is part of what was asked for: log(clip(p)) has a bound, and keeps it."""
    x, t = leaf(EXTREME.shape), leaf(TARGETS.shape)
    graph = Graph([x, t], [_cross_entropy(ops.clip(ops.softmax(x), 1e-7, 1.0), t)])
    found = evaluate(optimise(graph)[0], [EXTREME, TARGETS])[0]
    np.testing.assert_allclose(found, evaluate(graph, [EXTREME, TARGETS])[0], rtol=1e-6)
    assert found.max() < 17
    graph = Graph([x, t], [_cross_entropy(ops.softmax(x) + 1e-7, t)])
    assert evaluate(optimise(graph)[0], [EXTREME, TARGETS])[0].max() < 17


def test_an_exponential_that_is_safe_keeps_its_form() -> None:
    x = leaf((2, 3))
    (loss,) = stable([ops.sum(ops.log_softmax(x))], keep=[x])
    ops_before = [n.op for n in Graph([x], [ops.sum(ops.log_softmax(x))]).nodes()]
    assert [n.op for n in Graph([x], [loss]).nodes()] == ops_before


def test_nodes_that_gradients_are_taken_of_stay() -> None:
    x = leaf((2, 3))
    p = ops.softmax(x)
    loss = ops.sum(ops.log(p))
    (kept,) = stable([loss], keep=[p])
    (slope,) = gradients([kept], [p])
    values = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    probabilities, found = evaluate(Graph([x], [p, slope]), [values])
    np.testing.assert_allclose(found, 1 / probabilities, rtol=1e-6)


def test_without_logarithms_nothing_is_done() -> None:
    x = leaf((2, 3))
    loss = ops.sum(ops.tanh(x) * 2.0)
    assert stable([loss], keep=[x])[0] is loss


def test_value_and_grad_uses_it() -> None:
    def loss(x: Any) -> Any:
        return ops.sum(_cross_entropy(_softmax(x), TARGETS.astype("float32")))

    value, slope = mg.value_and_grad(loss)(EXTREME.astype("float32"))
    assert np.isfinite(slope.numpy()).all()
    probabilities = np.exp(EXTREME - EXTREME.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    np.testing.assert_allclose(slope.numpy(), probabilities - TARGETS, atol=1e-6)
    before = config.optimize()
    try:
        config.set_optimize(False)
        _, slope = mg.value_and_grad(loss)(EXTREME.astype("float32"))
        assert not np.isfinite(slope.numpy()).all(), "as written, where nothing is optimised"
    finally:
        config.set_optimize(before)
