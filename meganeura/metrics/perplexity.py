"""How many tokens a language model hesitates between."""

from __future__ import annotations

from typing import Any

from meganeura import ops
from meganeura.losses.loss import apply_mask
from meganeura.masking import get_mask
from meganeura.metrics.metric import Metric, safe_divide
from meganeura.ops.dispatch import convert_to_node


class Perplexity(Metric):
    """exp(mean cross-entropy) over all tokens, each with its weight.

    y_true (batch, length) are token numbers, y_pred (batch, length, vocabulary) probabilities, or
    scores with `from_logits`. Tokens equal to `mask_token_id` do not count.
    """

    _direction = "down"

    def __init__(
        self,
        from_logits: bool = False,
        mask_token_id: int | None = None,
        dtype: Any = None,
        name: str | None = "perplexity",
    ):
        super().__init__(dtype, name)
        self.from_logits = from_logits
        self.mask_token_id = mask_token_id
        self.total = self.add_variable(name="aggregate_crossentropy")
        self.count = self.add_variable(name="number_of_samples")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        mask = get_mask(y_pred)
        true, predicted = convert_to_node(y_true), convert_to_node(y_pred)
        if true.ndim == predicted.ndim:
            true = ops.squeeze(true, -1)
        true = ops.cast(true, "int32")
        losses = ops.sparse_categorical_crossentropy(true, predicted, from_logits=self.from_logits)
        weights: Any = ops.ones(losses.shape)
        if sample_weight is not None:
            given = convert_to_node(sample_weight, "float32")
            given = ops.reshape(given, (*given.shape, *(1,) * (losses.ndim - given.ndim)))
            weights = ops.multiply(weights, given)
        if mask is not None:
            weights = apply_mask(weights, mask, "sum")
        if self.mask_token_id is not None:
            keep = ops.not_equal(true, self.mask_token_id)
            weights = ops.multiply(weights, ops.cast(keep, "float32"))
        self.total.assign_add(ops.sum(ops.multiply(losses, weights)))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> Any:
        return ops.where(
            ops.equal(self.count, 0.0), 0.0, ops.exp(safe_divide(self.total, self.count))
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "from_logits": self.from_logits,
            "mask_token_id": self.mask_token_id,
        }
