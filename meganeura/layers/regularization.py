"""Layers that act while training only: dropout, noise, and losses on activity."""

from __future__ import annotations

import math
from typing import Any

from meganeura import ops, random, regularizers
from meganeura.layers.calling import InputSpec
from meganeura.layers.layer import Layer
from meganeura.layers.settings import checked_data_format


class _Random(Layer):
    """A layer with a rate (or deviation) and a generator of its own."""

    #: The constructor's number, its largest value (None: unbounded), and whether that is included.
    number: str = "rate"
    most: float | None = 1.0

    def __init__(self, number: float, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        good = isinstance(number, (int, float)) and not isinstance(number, bool) and number >= 0
        if not good or (self.most is not None and number > self.most):
            top = "" if self.most is None else f" and {self.most:g}"
            raise ValueError(
                f"layer {self.name!r}: {self.number} must lie between 0{top}, and is {number!r}"
            )
        setattr(self, self.number, number)
        self.seed = seed
        self.supports_masking = True
        if number > 0:
            self.seed_generator = random.SeedGenerator(seed, name=self.name)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), self.number: getattr(self, self.number), "seed": self.seed}


class Dropout(_Random):
    """Each element is 0 with probability `rate` while training, and 1 / (1 - rate) times itself else.

    (https://keras.io/api/layers/regularization_layers/dropout)
    """

    def __init__(
        self, rate: float, noise_shape: Any = None, seed: int | None = None, **kwargs: Any
    ):
        super().__init__(rate, seed, **kwargs)
        self.rate: float
        self.noise_shape = None if noise_shape is None else self._lengths(noise_shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        return random.dropout(inputs, self.rate, self._noise_shape(inputs), self.seed_generator)

    def _lengths(self, noise_shape: Any) -> tuple[int | None, ...]:
        lengths = tuple(noise_shape) if isinstance(noise_shape, (list, tuple)) else (0,)
        if any(n is not None and (not isinstance(n, int) or n < 1) for n in lengths):
            raise ValueError(
                f"layer {self.name!r}: noise_shape must be a list of positive integers or None, "
                f"got {noise_shape!r}"
            )
        return lengths

    def _noise_shape(self, inputs: Any) -> Any:
        return self.noise_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "noise_shape": self.noise_shape}


class _SpatialDropout(Dropout):
    """Whole feature maps are dropped."""

    rank: int

    def __init__(
        self,
        rate: float,
        seed: int | None = None,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ):
        super().__init__(rate, seed=seed, name=name, dtype=dtype, **kwargs)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _noise_shape(self, inputs: Any) -> Any:
        first = getattr(self, "data_format", "channels_last") == "channels_first"
        ones = (1,) * self.rank
        return (None, None, *ones) if first else (None, *ones, None)

    def get_config(self) -> dict[str, Any]:
        # Keras's constructors of these take a dtype's name, and nothing about training
        config = super().get_config()
        kept = {k: v for k, v in config.items() if k not in ("noise_shape", "trainable")}
        return {
            **kept,
            "dtype": self.dtype_policy.name,
            **({} if self.trainable else {"trainable": False}),
        }


class SpatialDropout1D(_SpatialDropout):
    """Dropout of whole features over time: inputs (batch, time, features)."""

    rank = 1


class SpatialDropout2D(_SpatialDropout):
    """Dropout of whole channels of images."""

    rank = 2

    def __init__(
        self, rate: float, data_format: str | None = None, seed: int | None = None, **kwargs: Any
    ):
        super().__init__(rate, seed, **kwargs)
        self.data_format = checked_data_format(self.name, data_format)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "data_format": self.data_format}


class SpatialDropout3D(SpatialDropout2D):
    """Dropout of whole channels of volumes."""

    rank = 3


class GaussianNoise(_Random):
    """x plus normal noise of deviation `stddev` while training."""

    number = "stddev"
    most = None

    def __init__(self, stddev: float, seed: int | None = None, **kwargs: Any):
        super().__init__(stddev, seed, **kwargs)
        self.stddev: float

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.stddev == 0:
            return inputs
        return inputs + random.normal(inputs.shape, 0.0, self.stddev, seed=self.seed_generator)


class GaussianDropout(_Random):
    """x times normal noise of mean 1 and deviation sqrt(rate / (1 - rate)) while training."""

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        super().__init__(rate, seed, **kwargs)
        self.rate: float

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        deviation = math.sqrt(self.rate / (1.0 - self.rate))
        return inputs * random.normal(inputs.shape, 1.0, deviation, seed=self.seed_generator)


class AlphaDropout(_Random):
    """Dropout that keeps the mean and variance of self-normalising networks (arXiv 1706.02515)."""

    def __init__(
        self, rate: float, noise_shape: Any = None, seed: int | None = None, **kwargs: Any
    ):
        super().__init__(rate, seed, **kwargs)
        self.rate: float
        self.noise_shape = noise_shape

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        low = -1.7580993408473766  # -alpha * scale of selu
        shape = tuple(inputs.shape)
        if self.noise_shape is not None:
            shape = tuple(
                n if m is None else m for n, m in zip(shape, self.noise_shape, strict=True)
            )
        kept = ops.greater_equal(random.uniform(shape, seed=self.seed_generator), self.rate)
        a = ((1 - self.rate) * (1 + self.rate * low**2)) ** -0.5
        return ops.where(kept, inputs, low) * a - a * low * self.rate

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "noise_shape": self.noise_shape}


class ActivityRegularization(Layer):
    """Adds l1 sum|x| + l2 sum x^2 to the loss, per sample."""

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **kwargs: Any):
        super().__init__(activity_regularizer=regularizers.L1L2(l1=l1, l2=l2), **kwargs)
        self.supports_masking = True
        self.l1 = l1
        self.l2 = l2

    def call(self, inputs: Any) -> Any:
        return inputs + 0.0

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("activity_regularizer", None)
        return {**config, "l1": self.l1, "l2": self.l2}
