"""Losses between numbers, and between distributions: one value for each sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from meganeura import config, ops
from meganeura.graph.node import Node
from meganeura.losses.loss import match_ranks
from meganeura.ops.dispatch import convert_to_node, operation


def pair(name: str, y_true: Any, y_pred: Any) -> tuple[Node, Node]:
    """Targets and predictions as float32 nodes of one rank. Raises ValueError where they disagree."""
    pred = convert_to_node(y_pred)
    pred = pred if pred.dtype == "float32" else ops.cast(pred, "float32")
    true = convert_to_node(y_true, "float32")
    true, pred = match_ranks(true, pred)
    shapes = zip(reversed(true.shape), reversed(pred.shape), strict=False)
    if any(a != b and 1 not in (a, b) for a, b in shapes):
        raise ValueError(
            f"{name}: the targets have the shape {tuple(true.shape)} and the predictions "
            f"{tuple(pred.shape)}; they must agree"
        )
    return true, pred


def _mean_of(function: Callable[[Node, Node], Any], name: str) -> Callable[[Any, Any], Any]:
    def compute(y_true: Any, y_pred: Any) -> Any:
        true, pred = pair(name, y_true, y_pred)
        return ops.mean(function(true, pred), axis=-1)

    return compute


@operation
def mean_squared_error(y_true: Any, y_pred: Any) -> Any:
    """mean((y_true - y_pred)^2) over the last axis."""
    return _mean_of(lambda t, p: ops.square(ops.subtract(t, p)), "mean_squared_error")(
        y_true, y_pred
    )


@operation
def mean_absolute_error(y_true: Any, y_pred: Any) -> Any:
    """mean(|y_true - y_pred|) over the last axis."""
    return _mean_of(lambda t, p: ops.abs(ops.subtract(t, p)), "mean_absolute_error")(y_true, y_pred)


@operation
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Any:
    """100 * mean(|y_true - y_pred| / max(|y_true|, epsilon)) over the last axis."""

    def ratio(true: Node, pred: Node) -> Any:
        size = ops.maximum(ops.abs(true), config.epsilon())
        return ops.abs(ops.divide(ops.subtract(true, pred), size))

    return ops.multiply(_mean_of(ratio, "mean_absolute_percentage_error")(y_true, y_pred), 100.0)


@operation
def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Any:
    """mean((log(max(y_true, epsilon) + 1) - log(max(y_pred, epsilon) + 1))^2) over the last axis."""

    def logarithm(x: Node) -> Any:
        return ops.log1p(ops.maximum(x, config.epsilon()))

    return _mean_of(
        lambda t, p: ops.square(ops.subtract(logarithm(p), logarithm(t))),
        "mean_squared_logarithmic_error",
    )(y_true, y_pred)


@operation
def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Any:
    """mean over the last axis of e^2 / 2 where |e| <= delta, else delta * |e| - delta^2 / 2."""

    def penalty(true: Node, pred: Node) -> Any:
        error = ops.subtract(pred, true)
        size = ops.abs(error)
        inside = ops.multiply(ops.square(error), 0.5)
        outside = ops.subtract(ops.multiply(size, float(delta)), 0.5 * delta * delta)
        return ops.where(ops.less_equal(size, float(delta)), inside, outside)

    return _mean_of(penalty, "huber")(y_true, y_pred)


@operation
def log_cosh(y_true: Any, y_pred: Any) -> Any:
    """mean(log(cosh(y_pred - y_true))) over the last axis, without overflow."""

    def penalty(true: Node, pred: Node) -> Any:
        error = ops.subtract(pred, true)
        return ops.subtract(ops.add(error, ops.softplus(ops.multiply(error, -2.0))), math.log(2.0))

    return _mean_of(penalty, "log_cosh")(y_true, y_pred)


@operation
def poisson(y_true: Any, y_pred: Any) -> Any:
    """mean(y_pred - y_true * log(y_pred + epsilon)) over the last axis."""

    def penalty(true: Node, pred: Node) -> Any:
        return ops.subtract(pred, ops.multiply(true, ops.log(ops.add(pred, config.epsilon()))))

    return _mean_of(penalty, "poisson")(y_true, y_pred)


@operation
def kl_divergence(y_true: Any, y_pred: Any) -> Any:
    """sum(y_true * log(y_true / y_pred)) over the last axis, both clipped to [epsilon, 1]."""
    true, pred = pair("kl_divergence", y_true, y_pred)
    true, pred = (ops.clip(x, config.epsilon(), 1.0) for x in (true, pred))
    return ops.sum(ops.multiply(true, ops.log(ops.divide(true, pred))), axis=-1)


def _unit(x: Node, axis: Any) -> Any:
    """x / |x| along `axis`, and zeros where x is all zeros."""
    square = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return ops.multiply(x, ops.rsqrt(ops.maximum(square, config.epsilon() ** 2)))


@operation
def cosine_similarity(y_true: Any, y_pred: Any, axis: Any = -1) -> Any:
    """The negative cosine of the angle between targets and predictions along `axis`."""
    true, pred = pair("cosine_similarity", y_true, y_pred)
    return ops.negative(ops.sum(ops.multiply(_unit(true, axis), _unit(pred, axis)), axis=axis))


def _signs(true: Node) -> Node:
    """Labels as -1 and 1; a batch whose labels are all 0 or 1 is mapped to them."""
    binary = ops.all(ops.logical_or(ops.equal(true, 0.0), ops.equal(true, 1.0)))
    return ops.where(binary, ops.subtract(ops.multiply(true, 2.0), 1.0), true)


def _margin(true: Node, pred: Node) -> Any:
    return ops.maximum(ops.subtract(1.0, ops.multiply(_signs(true), pred)), 0.0)


@operation
def hinge(y_true: Any, y_pred: Any) -> Any:
    """mean(max(1 - y_true * y_pred, 0)) over the last axis; labels 0 and 1 count as -1 and 1."""
    return _mean_of(_margin, "hinge")(y_true, y_pred)


@operation
def squared_hinge(y_true: Any, y_pred: Any) -> Any:
    """mean(max(1 - y_true * y_pred, 0)^2) over the last axis; labels 0 and 1 count as -1 and 1."""
    return _mean_of(lambda t, p: ops.square(_margin(t, p)), "squared_hinge")(y_true, y_pred)


@operation
def categorical_hinge(y_true: Any, y_pred: Any) -> Any:
    """max(neg - pos + 1, 0), with pos the score of the true class and neg the best of the others."""
    true, pred = pair("categorical_hinge", y_true, y_pred)
    positive = ops.sum(ops.multiply(true, pred), axis=-1)
    negative = ops.max(ops.multiply(ops.subtract(1.0, true), pred), axis=-1)
    return ops.maximum(ops.add(ops.subtract(negative, positive), 1.0), 0.0)


@operation
def dice(y_true: Any, y_pred: Any, axis: Any = None) -> Any:
    """1 - 2 * sum(y_true * y_pred) / (sum(y_true) + sum(y_pred) + epsilon)."""
    true, pred = pair("dice", y_true, y_pred)
    shared = ops.multiply(ops.sum(ops.multiply(true, pred), axis=axis), 2.0)
    total = ops.add(ops.sum(true, axis=axis), ops.sum(pred, axis=axis))
    return ops.subtract(1.0, ops.divide(shared, ops.add(total, config.epsilon())))


@operation
def tversky(
    y_true: Any, y_pred: Any, alpha: float = 0.5, beta: float = 0.5, axis: Any = None
) -> Any:
    """1 - s / (s + alpha * m + beta * f + epsilon): shared s, missed m, falsely found f."""
    true, pred = pair("tversky", y_true, y_pred)
    shared = ops.sum(ops.multiply(true, pred), axis=axis)
    missed = ops.sum(ops.multiply(true, ops.subtract(1.0, pred)), axis=axis)
    false = ops.sum(ops.multiply(pred, ops.subtract(1.0, true)), axis=axis)
    weighted = ops.add(ops.multiply(missed, float(alpha)), ops.multiply(false, float(beta)))
    total = ops.add(ops.add(shared, weighted), config.epsilon())
    return ops.subtract(1.0, ops.divide(shared, total))
