"""The losses as classes: a function with its arguments, a reduction and a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meganeura.losses import classification as c
from meganeura.losses import regression as r
from meganeura.losses.loss import Loss


class LossFunctionWrapper(Loss):
    """A loss made of a function `fn(y_true, y_pred, **arguments)` that gives one value a sample."""

    def __init__(
        self,
        fn: Callable[..., Any],
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
        **arguments: Any,
    ):
        super().__init__(name or getattr(fn, "__name__", None), reduction, dtype)
        self.fn = fn
        self.arguments = arguments

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.fn(y_true, y_pred, **self.arguments)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), **self.arguments}
        if type(self) is LossFunctionWrapper:
            from meganeura import losses

            config["fn"] = losses.serialize(self.fn)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Loss:
        if cls is LossFunctionWrapper:
            from meganeura import losses

            config = {**config, "fn": losses.get(config["fn"])}
        return cls(**config)


class _Plain(LossFunctionWrapper):
    """A loss whose function takes no arguments beyond targets and predictions."""

    function: Callable[..., Any]
    default_name: str

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(type(self).function, reduction, name or self.default_name, dtype)


class MeanSquaredError(_Plain):
    """The mean of (y_true - y_pred)^2."""

    function = staticmethod(r.mean_squared_error)
    default_name = "mean_squared_error"


class MeanAbsoluteError(_Plain):
    """The mean of |y_true - y_pred|."""

    function = staticmethod(r.mean_absolute_error)
    default_name = "mean_absolute_error"


class MeanAbsolutePercentageError(_Plain):
    """The mean of 100 * |y_true - y_pred| / |y_true|."""

    function = staticmethod(r.mean_absolute_percentage_error)
    default_name = "mean_absolute_percentage_error"


class MeanSquaredLogarithmicError(_Plain):
    """The mean of (log(y_true + 1) - log(y_pred + 1))^2."""

    function = staticmethod(r.mean_squared_logarithmic_error)
    default_name = "mean_squared_logarithmic_error"


class LogCosh(_Plain):
    """The mean of log(cosh(y_pred - y_true))."""

    function = staticmethod(r.log_cosh)
    default_name = "log_cosh"


class Poisson(_Plain):
    """The mean of y_pred - y_true * log(y_pred)."""

    function = staticmethod(r.poisson)
    default_name = "poisson"


class KLDivergence(_Plain):
    """sum(y_true * log(y_true / y_pred)) over the last axis."""

    function = staticmethod(r.kl_divergence)
    default_name = "kl_divergence"


class Hinge(_Plain):
    """The mean of max(1 - y_true * y_pred, 0), with labels -1 and 1 (or 0 and 1)."""

    function = staticmethod(r.hinge)
    default_name = "hinge"


class SquaredHinge(_Plain):
    """The mean of max(1 - y_true * y_pred, 0)^2, with labels -1 and 1 (or 0 and 1)."""

    function = staticmethod(r.squared_hinge)
    default_name = "squared_hinge"


class CategoricalHinge(_Plain):
    """max(neg - pos + 1, 0), with the scores of the true class and of the best other."""

    function = staticmethod(r.categorical_hinge)
    default_name = "categorical_hinge"


class CTC(_Plain):
    """-log of the probability of all paths that spell the labels; see `losses.ctc`."""

    function = staticmethod(c.ctc)
    default_name = "ctc"


class Huber(LossFunctionWrapper):
    """The mean of e^2 / 2 where |e| <= delta, else delta * |e| - delta^2 / 2."""

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "huber_loss",
        dtype: Any = None,
    ):
        super().__init__(r.huber, reduction, name, dtype, delta=delta)


class CosineSimilarity(LossFunctionWrapper):
    """The negative cosine of the angle between targets and predictions."""

    def __init__(
        self,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cosine_similarity",
        dtype: Any = None,
    ):
        super().__init__(r.cosine_similarity, reduction, name, dtype, axis=axis)


class BinaryCrossentropy(LossFunctionWrapper):
    """Cross-entropy of labels 0 and 1 with probabilities, or with scores (`from_logits`)."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            c.binary_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class BinaryFocalCrossentropy(LossFunctionWrapper):
    """Binary cross-entropy that counts well-classified samples less, by (1 - q)^gamma."""

    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_focal_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            c.binary_focal_crossentropy,
            reduction,
            name,
            dtype,
            apply_class_balancing=apply_class_balancing,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class CategoricalCrossentropy(LossFunctionWrapper):
    """Cross-entropy of one-hot labels with probabilities, or with scores (`from_logits`)."""

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            c.categorical_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class CategoricalFocalCrossentropy(LossFunctionWrapper):
    """Categorical cross-entropy weighted by alpha * (1 - p)^gamma."""

    def __init__(
        self,
        alpha: Any = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_focal_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            c.categorical_focal_crossentropy,
            reduction,
            name,
            dtype,
            alpha=alpha,
            gamma=gamma,
            from_logits=from_logits,
            label_smoothing=label_smoothing,
            axis=axis,
        )


class SparseCategoricalCrossentropy(LossFunctionWrapper):
    """Cross-entropy of class numbers with probabilities, or with scores (`from_logits`)."""

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        axis: int = -1,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(
            c.sparse_categorical_crossentropy,
            reduction,
            name,
            dtype,
            from_logits=from_logits,
            ignore_class=ignore_class,
            axis=axis,
        )


class CategoricalGeneralizedCrossEntropy(LossFunctionWrapper):
    """(1 - p[y_true]^q) / q, which tolerates wrong labels; q between 0 and 1."""

    def __init__(
        self,
        q: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_generalized_cross_entropy",
        dtype: Any = None,
    ):
        if not 0 < q < 1:
            raise ValueError(
                f"loss CategoricalGeneralizedCrossEntropy: q must lie between 0 and 1, got {q}"
            )
        super().__init__(c.categorical_generalized_cross_entropy, reduction, name, dtype, q=q)


class Dice(LossFunctionWrapper):
    """1 - 2 * overlap / (sum of both), over all entries or along `axis`."""

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "dice",
        axis: Any = None,
        dtype: Any = None,
    ):
        super().__init__(r.dice, reduction, name, dtype, axis=axis)


class Tversky(LossFunctionWrapper):
    """Dice loss with its own weights for missed (alpha) and false (beta) entries."""

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "tversky",
        axis: Any = None,
        dtype: Any = None,
    ):
        super().__init__(r.tversky, reduction, name, dtype, alpha=alpha, beta=beta, axis=axis)


class Circle(LossFunctionWrapper):
    """Circle loss of L2-normalised embeddings with class numbers; see `losses.circle`."""

    def __init__(
        self,
        gamma: float = 80.0,
        margin: float = 0.4,
        remove_diagonal: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "circle",
        dtype: Any = None,
    ):
        super().__init__(
            c.circle,
            reduction,
            name,
            dtype,
            gamma=gamma,
            margin=margin,
            remove_diagonal=remove_diagonal,
        )
