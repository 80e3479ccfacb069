"""Sums and means over samples, and the mean of any function of targets and predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meganeura import losses, ops
from meganeura.graph.node import Node
from meganeura.losses.loss import apply_mask, match_ranks
from meganeura.masking import get_mask
from meganeura.metrics.metric import Metric, safe_divide
from meganeura.ops.dispatch import convert_to_node


def per_sample(
    values: Any, sample_weight: Any, reduce: Callable[..., Any]
) -> tuple[Node, Node | None]:
    """Values and weights as one of each for a sample, the values multiplied by the weights.

    What goes beyond the dimensions of the weights is reduced before they are applied.
    """
    mask = get_mask(values)
    values = convert_to_node(values, "float32")
    weights: Any = None
    if sample_weight is not None:
        weights = convert_to_node(sample_weight, "float32")
        if mask is not None:
            weights = apply_mask(weights, mask, "sum")
        values, weights = match_ranks(values, weights)
        if values.ndim > weights.ndim:
            values = reduce(values, axis=tuple(range(weights.ndim, values.ndim)))
        rank = weights.ndim
        if any(w not in (1, v) for w, v in zip(weights.shape, values.shape, strict=False)):
            raise ValueError(
                f"sample_weight has the shape {weights.shape}, but there is one value for each of "
                f"{values.shape}"
            )
        weights = ops.broadcast_to(weights, values.shape)
        values = ops.multiply(values, weights)
        if rank > 1:
            weights = reduce(weights, axis=tuple(range(1, rank)))
    if values.ndim > 1:
        values = reduce(values, axis=tuple(range(1, values.ndim)))
    return values, weights


class Sum(Metric):
    """The (weighted) sum of all values."""

    def __init__(self, name: str | None = "sum", dtype: Any = None):
        super().__init__(dtype, name)
        self.total = self.add_variable(name="total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        values, _ = per_sample(values, sample_weight, ops.sum)
        self.total.assign_add(ops.sum(values))

    def result(self) -> Any:
        return convert_to_node(self.total)


class Mean(Metric):
    """The (weighted) mean of all values: sum(value * weight) / sum(weight)."""

    def __init__(self, name: str | None = "mean", dtype: Any = None):
        super().__init__(dtype, name)
        self.total = self.add_variable(name="total")
        self.count = self.add_variable(name="count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        values, weights = per_sample(values, sample_weight, ops.mean)
        self.total.assign_add(ops.sum(values))
        if weights is not None:
            self.count.assign_add(ops.sum(weights))
        else:
            self.count.assign_add(float(values.shape[0] if values.ndim else 1))

    def result(self) -> Any:
        return safe_divide(self.total, self.count)


class MeanMetricWrapper(Mean):
    """The mean over samples of `fn(y_true, y_pred, **kwargs)`."""

    def __init__(
        self, fn: Callable[..., Any], name: str | None = None, dtype: Any = None, **kwargs: Any
    ):
        super().__init__(name or getattr(fn, "__name__", None), dtype)
        self._fn = fn
        self._fn_kwargs = kwargs
        if self._direction is None and (
            isinstance(fn, losses.Loss) or any(fn is f for f in losses.FUNCTIONS.values())
        ):
            self._direction = "down"

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        mask = get_mask(y_pred)
        values = self._fn(y_true, y_pred, **self._fn_kwargs)
        weights = apply_mask(sample_weight, mask, "sum")
        Mean.update_state(self, values, weights)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), **self._fn_kwargs}
        if type(self) is MeanMetricWrapper:
            config["fn"] = losses.serialize(self._fn)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Metric:
        if cls is MeanMetricWrapper:
            config = {**config, "fn": losses.deserialize(config["fn"])}
        return cls(**config)
