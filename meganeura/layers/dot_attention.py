"""Attention without projections: dot-product (Luong) and additive (Bahdanau)."""

from __future__ import annotations

from typing import Any

from meganeura import ops, random
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings, one_of


class Attention(Settings, Layer):
    """softmax(scores) value, called on [query, value] or [query, value, key].

    score_mode "dot": query key^T (times a learned scale with `use_scale`). "concat":
    weight * sum(tanh(scale * (query + key))). Masks are a list [query_mask, value_mask]: masked
    values get no weight, masked queries give 0.
    """

    arguments: tuple[str, ...] = ("use_scale", "score_mode", "dropout", "seed")

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        kind = type(self).__name__
        self.supports_masking = True
        self.use_scale = use_scale
        self.score_mode = one_of(kind, "score_mode", score_mode, ("dot", "concat"))
        if not 0 <= dropout < 1:
            raise ValueError(f"layer {kind}: dropout must be at least 0 and below 1, got {dropout}")
        self.dropout = dropout
        self.seed = seed
        if dropout > 0:
            self.seed_generator = random.SeedGenerator(seed)
        self.scale: Any = None
        self.concat_score_weight: Any = None

    def _check(self, inputs: Any, mask: Any = None) -> None:
        """Raises ValueError unless inputs (or their shapes) and masks are lists of two or three."""
        shape = isinstance(inputs, (list, tuple)) and all(
            isinstance(n, (int, type(None))) for n in inputs
        )
        if shape or not isinstance(inputs, (list, tuple)) or len(inputs) not in (2, 3):
            raise ValueError(
                f"layer {self.name!r} is called on [query, value] or [query, value, key], got "
                f"{f'one tensor of shape {tuple(inputs)}' if shape else inputs!r}"
            )
        if mask is not None and (
            not isinstance(mask, (list, tuple)) or not 2 <= len(mask) <= len(inputs)
        ):
            raise ValueError(
                f"layer {self.name!r}: mask must be a list of two or three masks, one for each input, "
                f"of which any may be None; got {mask!r}"
            )

    def build(self, input_shape: Any) -> None:
        self._check(input_shape)
        if self.use_scale:
            self.scale = self.add_weight(name="scale", shape=(), initializer="ones")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight(
                name="concat_score_weight", shape=(), initializer="ones"
            )
        self.built = True

    def _scores(self, query: Any, key: Any) -> Any:
        if self.score_mode == "dot":
            scores = ops.matmul(query, ops.swapaxes(key, -2, -1))
            return scores if self.scale is None else ops.multiply(scores, self.scale)
        both = ops.add(ops.expand_dims(query, -2), ops.expand_dims(key, -3))
        if self.scale is not None:
            both = ops.multiply(both, self.scale)
        return ops.multiply(ops.sum(ops.tanh(both), axis=-1), self.concat_score_weight)

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: Any = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        self._check(inputs, mask)
        query, value = inputs[0], inputs[1]
        key = inputs[2] if len(inputs) > 2 else value
        query_mask, value_mask = (mask[0], mask[1]) if mask else (None, None)
        scores = ops.cast(self._scores(query, key), "float32")  # minus 1e9 is no half
        allowed = None
        if value_mask is not None:
            allowed = ops.expand_dims(ops.cast(value_mask, "bool"), -2)
        if use_causal_mask:
            rows = ops.reshape(ops.arange(scores.shape[-2], dtype="int32"), (1, -1, 1))
            columns = ops.reshape(ops.arange(scores.shape[-1], dtype="int32"), (1, 1, -1))
            causal = ops.less_equal(columns, rows)
            allowed = causal if allowed is None else ops.logical_and(allowed, causal)
        if allowed is not None:
            scores = ops.where(allowed, scores, ops.subtract(scores, 1e9))
        weights = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
        if training and self.dropout > 0:
            weights = random.dropout(weights, self.dropout, seed=self.seed_generator)
        outputs = ops.matmul(weights, value)
        if query_mask is not None:
            kept = ops.expand_dims(ops.cast(query_mask, "bool"), -1)
            outputs = ops.where(kept, outputs, 0.0)
        return (outputs, weights) if return_attention_scores else outputs

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return mask[0] if mask else None

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        self._check(input_shape)
        return (*input_shape[0][:-1], input_shape[1][-1])


class AdditiveAttention(Attention):
    """softmax(sum(scale * tanh(query + key))) value, with a learned scale for each feature."""

    arguments = ("use_scale", "dropout", "seed")

    def __init__(self, use_scale: bool = True, dropout: float = 0.0, **kwargs: Any):
        super().__init__(use_scale=use_scale, dropout=dropout, **kwargs)

    def build(self, input_shape: Any) -> None:
        self._check(input_shape)
        if self.use_scale:
            self.scale = self.add_weight(
                name="scale", shape=(input_shape[0][-1],), initializer="glorot_uniform"
            )
        self.built = True

    def _scores(self, query: Any, key: Any) -> Any:
        both = ops.tanh(ops.add(ops.expand_dims(query, -2), ops.expand_dims(key, -3)))
        return ops.sum(both if self.scale is None else ops.multiply(both, self.scale), axis=-1)
