"""The area under a curve of rates that a threshold traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import config, ops
from meganeura.metrics.confusion import FourCounts, checked_thresholds, update_counts
from meganeura.metrics.metric import safe_divide
from meganeura.ops.dispatch import convert_to_node

_CURVES = ("ROC", "PR", "PRGAIN")
_METHODS = ("interpolation", "minoring", "majoring")


class AUC(FourCounts):
    """Area under the ROC curve (or the precision-recall curve), as a sum over thresholds.

    curve:             "ROC": recall over fp / (fp + tn). "PR": precision over recall, interpolated
                       through the counts. "PRGAIN": the gains of precision and recall
    summation_method:  the height of each strip: the mean of its sides ("interpolation"), the
                       smaller ("minoring") or the larger ("majoring")
    thresholds:        used in place of `num_thresholds` evenly spaced ones
    multi_label:       average the areas of the columns, weighted by `label_weights`
    from_logits:       apply a sigmoid to the scores first
    """

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        name: str | None = None,
        dtype: Any = None,
        thresholds: Sequence[float] | None = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Sequence[float] | None = None,
        from_logits: bool = False,
    ):
        super().__init__(dtype, name)
        if str(curve).upper() not in _CURVES:
            raise ValueError(f"metric AUC: curve is {curve!r}; use one of {', '.join(_CURVES)}")
        if str(summation_method).lower() not in _METHODS:
            raise ValueError(
                f"metric AUC: summation_method is {summation_method!r}; use one of "
                f"{', '.join(_METHODS)}"
            )
        if num_labels and not multi_label:
            raise ValueError("metric AUC: num_labels is for multi_label=True only")
        self._given_thresholds = None
        if thresholds is not None:
            self._given_thresholds = sorted(checked_thresholds("AUC", list(thresholds)))
            inner = self._given_thresholds
        elif num_thresholds < 2:
            raise ValueError(f"metric AUC: num_thresholds must be at least 2, got {num_thresholds}")
        else:
            inner = [float(t) for t in np.linspace(0, 1, num_thresholds)[1:-1]]
        self.num_thresholds = len(inner) + 2
        # The ends lie a little outside, so that no score equals them.
        self.thresholds = [-config.epsilon(), *inner, 1 + config.epsilon()]
        self.curve = str(curve).upper()
        self.summation_method = str(summation_method).lower()
        self.multi_label = multi_label
        self.num_labels = num_labels
        self.label_weights = None if label_weights is None else [float(w) for w in label_weights]
        self.from_logits = from_logits
        self._built = False
        if not multi_label:
            self._build(())
        elif num_labels:
            self._build((num_labels,))

    def _build(self, labels: tuple[int, ...]) -> None:
        self._make_counts((self.num_thresholds, *labels))
        self._built = True

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        pred = convert_to_node(y_pred, "float32")
        if self.multi_label and pred.ndim != 2:
            raise ValueError(
                f"metric AUC: multi_label=True needs predictions of shape (samples, labels), got "
                f"{pred.shape}"
            )
        if not self._built:
            self._build((pred.shape[-1],))
        if self.from_logits:
            pred = ops.sigmoid(pred)
        update_counts(
            self._counts,
            y_true,
            pred,
            self.thresholds,
            sample_weight,
            multi_label=self.multi_label,
            label_weights=None if self.multi_label else self.label_weights,
        )

    def result(self) -> Any:
        if not self._built:
            return ops.zeros((), "float32")
        if self.curve == "PR" and self.summation_method == "interpolation":
            strips = self._interpolated()
        else:
            x, y = self._curve()
            heights = {
                "interpolation": lambda a, b: ops.multiply(ops.add(a, b), 0.5),
                "minoring": ops.minimum,
                "majoring": ops.maximum,
            }[self.summation_method](y[:-1], y[1:])
            strips = ops.multiply(ops.subtract(x[:-1], x[1:]), heights)
        area = ops.sum(strips, axis=0)
        if not self.multi_label:
            return area
        if self.label_weights is None:
            return ops.mean(area)
        weights = np.asarray(self.label_weights, np.float32)
        return safe_divide(ops.sum(ops.multiply(area, weights)), ops.sum(weights))

    def _curve(self) -> tuple[Any, Any]:
        tp, fp, tn, fn = self._nodes()
        recall = safe_divide(tp, ops.add(tp, fn))
        if self.curve == "ROC":
            return safe_divide(fp, ops.add(fp, tn)), recall
        if self.curve == "PR":
            return recall, safe_divide(tp, ops.add(tp, fp))
        ratio = safe_divide(ops.add(tp, fn), ops.add(tn, fp))
        none = ops.equal(tp, 0.0)
        recall_gain = ops.subtract(1.0, ops.multiply(ratio, safe_divide(fn, tp)))
        precision_gain = ops.subtract(1.0, ops.multiply(ratio, safe_divide(fp, tp)))
        recall_gain = ops.maximum(ops.where(none, 0.0, recall_gain), 0.0)
        return recall_gain, ops.where(none, 1.0, precision_gain)

    def _interpolated(self) -> Any:
        """The area of each strip of the PR curve when tp and fp change linearly between thresholds.

        With p = tp + fp, tp = slope * p + intercept, and the integral of tp / p over tp is
        slope * (change of tp + intercept * log(p_left / p_right)), over all positives.
        """
        tp, fp, _, fn = self._nodes()
        p = ops.add(tp, fp)
        gain = ops.subtract(tp[:-1], tp[1:])
        slope = safe_divide(gain, ops.maximum(ops.subtract(p[:-1], p[1:]), 0.0))
        intercept = ops.subtract(tp[1:], ops.multiply(slope, p[1:]))
        both = ops.logical_and(ops.greater(p[:-1], 0.0), ops.greater(p[1:], 0.0))
        ratio = ops.where(both, safe_divide(p[:-1], p[1:]), 1.0)
        area = ops.multiply(slope, ops.add(gain, ops.multiply(intercept, ops.log(ratio))))
        return safe_divide(area, ops.add(tp[1:], fn[1:]))

    def get_config(self) -> dict[str, Any]:
        own: dict[str, Any] = {
            "num_thresholds": self.num_thresholds,
            "curve": self.curve,
            "summation_method": self.summation_method,
            "multi_label": self.multi_label,
            "num_labels": self.num_labels,
            "label_weights": self.label_weights,
            "from_logits": self.from_logits,
        }
        if self._given_thresholds is not None:
            own["thresholds"] = self._given_thresholds
        return {**super().get_config(), **own}
