"""The base class of the losses: weights, masks and reduction."""

from __future__ import annotations

from typing import Any

from meganeura import config, dtype_policies, ops
from meganeura.graph.node import Node
from meganeura.identifiers import auto_name
from meganeura.masking import get_mask
from meganeura.ops.dispatch import convert_to_node, map_tree, operation

REDUCTIONS = ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none", None)


def dtype_name(dtype: Any) -> str:
    """The computation dtype of a dtype argument: a name, a policy or its config; None is
    `config.floatx()`, whatever the policy of layers is."""
    return dtype_policies.get(dtype or config.floatx()).compute_dtype


def match_ranks(a: Node, b: Node) -> tuple[Node, Node]:
    """Make ranks equal where they differ by one trailing dimension of length one: (N,) and (N, 1)."""
    for _ in range(2):
        if a.ndim == b.ndim + 1 and a.shape[-1] == 1:
            if b.ndim == 1:
                b = ops.expand_dims(b, -1)
            else:
                a = ops.squeeze(a, -1)
        a, b = b, a
    return a, b


class Loss:
    """Base of the losses: `loss(y_true, y_pred, sample_weight=None)` returns the reduced loss.

    reduction: "sum_over_batch_size" or "mean" (the mean over all values of the loss array, masked
               ones left out), "sum", "mean_with_sample_weight" (divided by the sum of the weights),
               "none" or None (the loss array itself)

    A subclass defines `call(y_true, y_pred)`, with ops, and returns one loss for each sample.
    """

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ):
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"loss {type(self).__name__}: reduction is {reduction!r}; use one of "
                f"{', '.join(map(repr, REDUCTIONS))}"
            )
        self.name = name or auto_name(type(self).__name__)
        self.reduction = reduction
        self._dtype = dtype_name(dtype)

    @property
    def dtype(self) -> str:
        """In which dtype the loss is computed."""
        return self._dtype

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return _evaluate(self, y_true, y_pred, sample_weight, map_tree(get_mask, y_pred))

    def call(self, y_true: Any, y_pred: Any) -> Any:
        raise NotImplementedError(
            f"loss {type(self).__name__} must define call(self, y_true, y_pred)"
        )

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "reduction": self.reduction}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Loss:
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name} reduction={self.reduction}>"


@operation
def _evaluate(loss: Loss, y_true: Any, y_pred: Any, sample_weight: Any, mask: Any) -> Node:
    y_pred = map_tree(lambda x: convert_to_node(x, loss.dtype), y_pred)
    y_true = map_tree(lambda x: convert_to_node(x, loss.dtype), y_true)
    values = convert_to_node(loss.call(y_true, y_pred), loss.dtype)
    own = get_mask(values)
    if isinstance(mask, (list, tuple, dict)):  # a structure of predictions carries no one mask
        mask = None
    if mask is not None and own is not None:
        mask = ops.logical_and(mask, own)
    elif own is not None:
        mask = own
    try:
        return reduce_weighted(values, sample_weight, mask, loss.reduction)
    except ValueError as error:
        raise ValueError(f"loss {loss.name!r}: {error}") from error


def reduce_weighted(
    values: Any, sample_weight: Any = None, mask: Any = None, reduction: str | None = "mean"
) -> Node:
    """The loss array times weights and mask, reduced.

    Where a mean is taken, a mask counts its true entries only: mask * (entries / true entries).
    """
    values = convert_to_node(values)
    weights = apply_mask(sample_weight, mask, reduction)
    if weights is not None:
        values, weights = match_ranks(values, weights)
        if not _fits(weights.shape, values.shape):
            raise ValueError(
                f"sample_weight has the shape {weights.shape}, but there is one loss for each of "
                f"{values.shape}"
            )
        while weights.ndim < values.ndim:  # one weight a sample, several losses each
            weights = ops.expand_dims(weights, -1)
        values = ops.multiply(values, weights)
    if reduction in (None, "none") or values.ndim == 0:
        return values
    total = ops.sum(values)
    if reduction == "sum":
        return total
    if reduction == "mean_with_sample_weight" and weights is not None:
        return _safe_divide(total, ops.sum(ops.broadcast_to(weights, values.shape)))
    return ops.divide(total, float(max(values.size, 1)))


def apply_mask(sample_weight: Any, mask: Any, reduction: str | None) -> Node | None:
    """Sample weights and mask as one array of weights, or None where there is neither."""
    weights = None if sample_weight is None else convert_to_node(sample_weight, "float32")
    if mask is None:
        return weights
    counts = convert_to_node(mask, "float32")
    if reduction in ("mean", "sum_over_batch_size"):
        counts = ops.multiply(counts, _safe_divide(float(counts.size), ops.sum(counts)))
    if weights is None:
        return counts
    counts, weights = match_ranks(counts, weights)
    return ops.multiply(counts, _extend(weights, counts))


def _extend(weights: Node, counts: Node) -> Node:
    while weights.ndim < counts.ndim:
        weights = ops.expand_dims(weights, -1)
    return weights


def _fits(weights: tuple[int, ...], values: tuple[int, ...]) -> bool:
    if len(weights) > len(values):
        return False
    return all(w in (1, v) for w, v in zip(weights, values, strict=False))


def _safe_divide(x: Any, y: Any) -> Node:
    """x / y, and 0 where y is 0."""
    y = convert_to_node(y)
    zero = ops.equal(y, 0.0)
    return ops.where(zero, 0.0, ops.divide(x, ops.where(zero, 1.0, y)))
