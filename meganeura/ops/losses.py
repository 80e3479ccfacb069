"""Cross-entropies, by their keras.ops names and with Keras's numerics."""

from __future__ import annotations

from typing import Any

from meganeura.graph.node import Node
from meganeura.ops import elementwise as math
from meganeura.ops.creation import one_hot
from meganeura.ops.dispatch import convert_to_node, operation, promote
from meganeura.ops.nodes import cast, normalize_axis, reshape
from meganeura.ops.reduction_functions import log_softmax, sum

EPSILON = 1e-7


def _log_probabilities(output: Node, from_logits: bool, axis: int) -> Node:
    if from_logits:
        return log_softmax(output, axis=axis)
    output = output / sum(output, axis=axis, keepdims=True)
    return math.log(math.clip(output, EPSILON, 1.0 - EPSILON))


@operation
def categorical_crossentropy(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1
) -> Any:
    """out = -sum t ln p over `axis`; probabilities are normalised, then held in [1e-7, 1 - 1e-7]."""
    t, p = promote(target, output, floating=True)
    if t.shape != p.shape:
        raise ValueError(
            f"categorical_crossentropy: target {t.shape} and output {p.shape} must have one shape; "
            "for integer labels use sparse_categorical_crossentropy"
        )
    if not p.ndim:
        raise ValueError("categorical_crossentropy needs at least one dimension, and got a scalar")
    return math.negative(sum(t * _log_probabilities(p, from_logits, axis), axis=axis))


@operation
def sparse_categorical_crossentropy(
    target: Any, output: Any, from_logits: bool = False, axis: int = -1
) -> Any:
    """out = -ln p[label]; labels of shape (...) or (..., 1), NaN for a label out of range."""
    labels = convert_to_node(target)
    (p,) = promote(output, floating=True)
    at = normalize_axis(axis, p.ndim)
    labels = cast(labels, "int32")
    expected = (*p.shape[:at], *p.shape[at + 1 :])
    if labels.ndim == p.ndim and labels.shape[at] == 1:
        labels = reshape(labels, (*labels.shape[:at], *labels.shape[at + 1 :]))
    if labels.shape != expected:
        hint = ""
        if labels.shape == p.shape:
            hint = "; for one-hot targets use categorical_crossentropy"
        raise ValueError(
            f"sparse_categorical_crossentropy: target of shape {labels.shape} for an output of shape "
            f"{p.shape}; expected {expected}{hint}"
        )
    logs = _log_probabilities(p, from_logits, at)
    hot = one_hot(labels, p.shape[at], axis=at)
    loss = math.negative(sum(math.where(hot > 0.0, logs, 0.0), axis=at))
    inside = math.logical_and(math.greater_equal(labels, 0), math.less(labels, p.shape[at]))
    return math.where(inside, loss, float("nan"))


@operation
def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    """out = -t ln p - (1 - t) ln(1 - p), with p held in [1e-7, 1 - 1e-7]; stable from logits."""
    t, p = promote(target, output, floating=True)
    if t.shape != p.shape:
        raise ValueError(
            f"binary_crossentropy: target {t.shape} and output {p.shape} must have one shape"
        )
    if from_logits:  # exact in both tails, and sigmoid(p) - t is its gradient at 0 as well
        return t * math.softplus(math.negative(p)) + (1.0 - t) * math.softplus(p)
    p = math.clip(p, EPSILON, 1.0 - EPSILON)
    return math.negative(t * math.log(p) + (1.0 - t) * math.log(1.0 - p))
