"""Losses between labels and scores or probabilities: one value for each sample."""

from __future__ import annotations

from typing import Any

from meganeura import config, ops
from meganeura.graph.node import Node
from meganeura.losses.regression import pair
from meganeura.masking import set_mask
from meganeura.ops.dispatch import convert_to_node, operation


def _class_axis(name: str, axis: Any) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise ValueError(f"{name}: axis must be an integer, got {axis!r}")
    return axis


def _smooth(true: Node, amount: float, classes: int) -> Any:
    """Targets mixed with an even distribution over `classes`."""
    if not amount:
        return true
    return ops.add(ops.multiply(true, 1.0 - amount), amount / classes)


def _one_hot_pair(name: str, y_true: Any, y_pred: Any, axis: int) -> tuple[Node, Node]:
    shapes = tuple(convert_to_node(x).shape for x in (y_true, y_pred))
    if len(shapes[0]) < len(shapes[1]) or (
        len(shapes[0]) == len(shapes[1]) and shapes[0][axis] == 1 < shapes[1][axis]
    ):
        raise ValueError(
            f"{name}: targets of shape {shapes[0]} look like class numbers beside predictions of "
            f"shape {shapes[1]}; use sparse_categorical_crossentropy for them, or one-hot targets"
        )
    true, pred = pair(name, y_true, y_pred)
    if true.shape != pred.shape:
        raise ValueError(
            f"{name}: the targets have the shape {true.shape} and the predictions {pred.shape}; "
            "one-hot targets have one entry for each class"
        )
    return true, pred


@operation
def categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """-sum(y_true * log(p)) over the classes, for one-hot targets.

    p is softmax(y_pred) with `from_logits`, else y_pred divided by its sum and clipped to
    [epsilon, 1 - epsilon]. Targets are smoothed to y_true * (1 - s) + s / classes.
    """
    axis = _class_axis("categorical_crossentropy", axis)
    true, pred = _one_hot_pair("categorical_crossentropy", y_true, y_pred, axis)
    true = _smooth(true, label_smoothing, true.shape[-1])
    return ops.categorical_crossentropy(true, pred, from_logits=from_logits, axis=axis)


@operation
def categorical_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:
    """-sum(alpha * (1 - p)^gamma * y_true * log(p)) over the classes, for one-hot targets."""
    axis = _class_axis("categorical_focal_crossentropy", axis)
    true, pred = _one_hot_pair("categorical_focal_crossentropy", y_true, y_pred, axis)
    true = _smooth(true, label_smoothing, true.shape[-1])
    if from_logits:
        pred = ops.softmax(pred, axis=axis)
    p = ops.divide(pred, ops.sum(pred, axis=axis, keepdims=True))
    p = ops.clip(p, config.epsilon(), 1.0 - config.epsilon())
    factor = ops.multiply(ops.power(ops.subtract(1.0, p), float(gamma)), alpha)
    entropy = ops.multiply(true, ops.log(p))
    return ops.negative(ops.sum(ops.multiply(factor, entropy), axis=axis))


@operation
def sparse_categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> Any:
    """-log(p[y_true]) for class numbers y_true of shape (...) or (..., 1); p as in the one-hot form.

    Samples of the class `ignore_class` count nothing, in the loss and in the mean.
    """
    name = "sparse_categorical_crossentropy"
    axis = _class_axis(name, axis)
    pred = convert_to_node(y_pred, "float32")
    true = convert_to_node(y_true)
    axis = axis % max(pred.ndim, 1)
    if true.ndim == pred.ndim and true.shape[axis] == 1:
        true = ops.squeeze(true, axis)
    expected = pred.shape[:axis] + pred.shape[axis + 1 :]
    if true.shape != expected:
        hint = (
            "; for one-hot targets use categorical_crossentropy" if true.shape == pred.shape else ""
        )
        raise ValueError(
            f"{name}: the targets have the shape {true.shape}, expected {expected}, one class "
            f"number for each prediction of shape {pred.shape}{hint}"
        )
    true = ops.cast(true, "int32")
    if ignore_class is None:
        return ops.sparse_categorical_crossentropy(true, pred, from_logits=from_logits, axis=axis)
    valid = ops.not_equal(true, int(ignore_class))
    true = ops.where(valid, true, 0)
    pred = ops.where(ops.expand_dims(valid, axis), pred, 0.0)
    loss = ops.sparse_categorical_crossentropy(true, pred, from_logits=from_logits, axis=axis)
    loss = ops.where(valid, loss, 0.0)
    set_mask(loss, valid)
    return loss


@operation
def binary_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: Any = -1,
) -> Any:
    """mean(-y_true * log(p) - (1 - y_true) * log(1 - p)) over `axis`.

    p is sigmoid(y_pred) with `from_logits`, else y_pred clipped to [epsilon, 1 - epsilon].
    """
    true, pred = pair("binary_crossentropy", y_true, y_pred)
    true = _smooth(true, label_smoothing, 2)
    entropy = ops.binary_crossentropy(true, pred, from_logits=from_logits)
    return ops.mean(entropy, axis=axis)


@operation
def binary_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: Any = -1,
) -> Any:
    """Binary cross-entropy times (1 - q)^gamma, where q is the probability of the true label.

    `apply_class_balancing` weights the labels 1 by alpha and 0 by 1 - alpha.
    """
    true, pred = pair("binary_focal_crossentropy", y_true, y_pred)
    true = _smooth(true, label_smoothing, 2)
    if from_logits:
        pred = ops.sigmoid(pred)
    other = ops.subtract(1.0, true)
    right = ops.add(ops.multiply(true, pred), ops.multiply(other, ops.subtract(1.0, pred)))
    entropy = ops.binary_crossentropy(true, pred, from_logits=False)
    loss = ops.multiply(ops.power(ops.subtract(1.0, right), float(gamma)), entropy)
    if apply_class_balancing:
        weight = ops.add(ops.multiply(true, float(alpha)), ops.multiply(other, 1.0 - alpha))
        loss = ops.multiply(weight, loss)
    return ops.mean(loss, axis=axis)


@operation
def categorical_generalized_cross_entropy(y_true: Any, y_pred: Any, q: float) -> Any:
    """(1 - p[y_true]^q) / q: between cross-entropy (q -> 0) and mean absolute error (q = 1)."""
    pred = convert_to_node(y_pred, "float32")
    true = ops.cast(convert_to_node(y_true), "int32")
    if true.ndim == pred.ndim and true.shape[-1] == 1:
        true = ops.squeeze(true, -1)
    hot = ops.cast(ops.one_hot(true, pred.shape[-1]), "float32")
    p = ops.sum(ops.multiply(pred, hot), axis=-1)
    return ops.divide(ops.subtract(1.0, ops.power(p, float(q))), float(q))


@operation
def circle(
    y_true: Any,
    y_pred: Any,
    ref_labels: Any = None,
    ref_embeddings: Any = None,
    remove_diagonal: bool = True,
    gamma: float = 80,
    margin: float = 0.4,
) -> Any:
    """Circle loss of L2-normalised embeddings y_pred (N, D) with class numbers y_true (N,).

    With d = max(1 - similarity, 0): softplus(logsumexp(gamma * max(1 + m - d, 0) * (1 - m - d))
    over other classes + logsumexp(-gamma * (m + d) * (m - d)) over the same class). Samples without
    a partner of the same or of another class count nothing.
    """
    embeddings = convert_to_node(y_pred, "float32")
    labels = ops.reshape(ops.cast(convert_to_node(y_true), "int32"), (-1, 1))
    others = embeddings if ref_embeddings is None else convert_to_node(ref_embeddings, "float32")
    other_labels = (
        labels
        if ref_labels is None
        else ops.reshape(ops.cast(convert_to_node(ref_labels), "int32"), (-1, 1))
    )
    distance = ops.maximum(ops.subtract(1.0, ops.matmul(embeddings, ops.transpose(others))), 0.0)
    same = ops.equal(labels, ops.transpose(other_labels))
    different = ops.logical_not(same)
    if remove_diagonal:
        diagonal = ops.eye(labels.shape[0], other_labels.shape[0], dtype="bool")
        same = ops.logical_and(same, ops.logical_not(diagonal))
    pull = ops.multiply(ops.add(distance, margin), ops.subtract(margin, distance))
    push = ops.multiply(
        ops.maximum(ops.subtract(1 + margin, distance), 0.0), ops.subtract(1 - margin, distance)
    )
    # Far below every real value, yet finite: GPU arithmetic with infinities is not to be trusted.
    nothing = -1e30
    pull = ops.logsumexp(ops.where(same, ops.multiply(pull, -float(gamma)), nothing), axis=1)
    push = ops.logsumexp(ops.where(different, ops.multiply(push, float(gamma)), nothing), axis=1)
    loss = ops.softplus(ops.add(pull, push))
    set_mask(loss, ops.greater(loss, 0.0))
    return loss


@operation
def ctc(y_true: Any, y_pred: Any) -> Any:
    """Connectionist temporal classification: -log of the probability of all paths that spell y_true.

    y_true: class numbers of shape (N, L), padded with 0, which is also the blank;
    y_pred: scores of shape (N, T, classes), before softmax.
    """
    labels, scores = convert_to_node(y_true), convert_to_node(y_pred, "float32")
    if labels.ndim != 2 or scores.ndim != 3 or labels.shape[0] != scores.shape[0]:
        raise ValueError(
            f"ctc: targets of shape (batch, length) and scores of shape (batch, time, classes) are "
            f"expected, got {labels.shape} and {scores.shape}"
        )
    labels = ops.cast(labels, "int32")
    batch, length = labels.shape
    time, states = scores.shape[1], 2 * length + 1
    nothing = -1e30
    # The states of a path: blank, label, blank, label, ..., blank.
    blanks = ops.zeros((batch, length), "int32")
    path = ops.reshape(ops.stack([blanks, labels], axis=-1), (batch, 2 * length))
    path = ops.concatenate([path, ops.zeros((batch, 1), "int32")], axis=1)
    emitted = ops.take_along_axis(
        ops.log_softmax(scores, axis=-1),
        ops.broadcast_to(ops.expand_dims(path, 1), (batch, time, states)),
        axis=2,
    )
    # A blank between two different labels may be skipped.
    two_before = ops.pad(path[:, :-2], ((0, 0), (2, 0))) if states > 2 else path
    skips = ops.logical_and(ops.not_equal(path, 0), ops.not_equal(path, two_before))
    place = ops.arange(states, dtype="int32")
    alpha = ops.where(ops.less(place, 2), emitted[:, 0], nothing)
    for t in range(1, time):
        before = ops.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=nothing)
        ways = [alpha, before]
        if states > 2:
            skipping = ops.pad(alpha[:, :-2], ((0, 0), (2, 0)), constant_values=nothing)
            ways.append(ops.where(skips, skipping, nothing))
        alpha = ops.add(ops.logsumexp(ops.stack(ways), axis=0), emitted[:, t])
    # A path ends in the last label or in the blank after it.
    count = ops.sum(ops.cast(ops.not_equal(labels, 0), "int32"), axis=1, keepdims=True)
    last = ops.multiply(count, 2)
    ends = ops.logical_or(ops.equal(place, last), ops.equal(place, ops.subtract(last, 1)))
    return ops.negative(ops.logsumexp(ops.where(ends, alpha, nothing), axis=1))
