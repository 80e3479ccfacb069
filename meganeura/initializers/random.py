"""The initializers that draw at random, from NumPy's PCG64 on the host."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.graph import trace
from meganeura.initializers.constant import Initializer, checked_shape

#: Standard deviation of a standard normal cut at two sigma.
_TRUNCATED_DEVIATION = 0.87962566103423978


def compute_fans(
    shape: Sequence[int],
    input_axes: Sequence[int] | None = None,
    output_axes: Sequence[int] | None = None,
) -> tuple[int, int]:
    """Inputs and outputs of one unit: (fan_in, fan_out).

    2-D weights are (in, out); with more dimensions the leading ones are a receptive field,
    (*window, in, out). Given `input_axes` and `output_axes` name the dimensions instead.
    """
    shape = tuple(shape)
    if input_axes is not None and output_axes is not None:
        return math.prod(shape[a] for a in input_axes), math.prod(shape[a] for a in output_axes)
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


class RandomInitializer(Initializer):
    """Base of the random initializers.

    `seed` is an integer, a `SeedGenerator`, or None. With an integer every call returns the same
    values; so it does with None, where the seed is drawn once, at construction, from Python's
    generator, which `utils.set_random_seed` seeds. A `SeedGenerator` moves on at every call.
    """

    def __init__(self, seed: Any = None):
        if (
            seed is not None
            and not hasattr(seed, "next")
            and not isinstance(seed, (int, np.integer))
        ):
            raise ValueError(
                f"initializer {type(self).__name__}: seed is {seed!r}; use an integer, a "
                "SeedGenerator, or None"
            )
        self._given_seed = int(seed) if isinstance(seed, np.integer) else seed
        self.seed = random.randint(1, 10**9) if seed is None else self._given_seed

    def generator(self) -> np.random.Generator:
        if hasattr(self.seed, "next"):
            with trace.outside():
                words = np.asarray(self.seed.next()).ravel()
            return np.random.default_rng([int(word) for word in words])
        return np.random.default_rng(self.seed % 2**64)

    def get_config(self) -> dict[str, Any]:
        seed = self._given_seed
        if hasattr(seed, "get_config"):
            seed = {
                "module": "keras.random",
                "class_name": "SeedGenerator",
                "config": seed.get_config(),
                "registered_name": None,
            }
        return {"seed": seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RandomInitializer:
        seed = config.get("seed")
        if isinstance(seed, dict):
            from meganeura.random import SeedGenerator

            config = {**config, "seed": SeedGenerator(**seed["config"])}
        return cls(**config)


def _floating(initializer: Initializer, dtype: Any) -> str:
    name = dtypes.standardize(dtype or "float32")
    if name not in dtypes.FLOATS:
        raise ValueError(
            f"initializer {type(initializer).__name__} makes weights of real numbers, not of {name}"
        )
    return name


def _uniform(
    generator: np.random.Generator, shape: Sequence[int], low: float, high: float
) -> np.ndarray:
    values = generator.random(shape, dtype=np.float32)
    values *= np.float32(high - low)
    values += np.float32(low)
    return values


def _normal(
    generator: np.random.Generator, shape: Sequence[int], mean: float, deviation: float
) -> np.ndarray:
    values = generator.standard_normal(shape, dtype=np.float32)
    values *= np.float32(deviation)
    values += np.float32(mean)
    return values


def _truncated_normal(
    generator: np.random.Generator, shape: Sequence[int], mean: float, deviation: float
) -> np.ndarray:
    """Normal values, redrawn until they lie within two standard deviations."""
    values = generator.standard_normal(shape, dtype=np.float32)
    flat = values.reshape(-1)
    outside = np.flatnonzero(np.abs(flat) > 2)
    while outside.size:
        flat[outside] = generator.standard_normal(outside.size, dtype=np.float32)
        outside = outside[np.abs(flat[outside]) > 2]
    values *= np.float32(deviation)
    values += np.float32(mean)
    return values


class RandomNormal(RandomInitializer):
    """Normal values: mean + stddev * N(0, 1)."""

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: Any = None):
        super().__init__(seed)
        self.mean = mean
        self.stddev = stddev

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        _floating(self, dtype)
        return _normal(self.generator(), checked_shape(self, shape), self.mean, self.stddev)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mean": self.mean, "stddev": self.stddev}


class TruncatedNormal(RandomNormal):
    """Normal values cut at two standard deviations; `stddev` is that before the cut."""

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        _floating(self, dtype)
        return _truncated_normal(
            self.generator(), checked_shape(self, shape), self.mean, self.stddev
        )


class RandomUniform(RandomInitializer):
    """Uniform values in [minval, maxval)."""

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: Any = None):
        super().__init__(seed)
        self.minval = minval
        self.maxval = maxval

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        _floating(self, dtype)
        return _uniform(self.generator(), checked_shape(self, shape), self.minval, self.maxval)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "minval": self.minval, "maxval": self.maxval}


class VarianceScaling(RandomInitializer):
    """Values of variance scale / n, where n is fan_in, fan_out or their mean.

    `distribution` is "truncated_normal" (its deviation corrected for the cut at two sigma),
    "untruncated_normal", or "uniform" in +-sqrt(3 scale / n).
    """

    modes = ("fan_in", "fan_out", "fan_avg")
    distributions = ("uniform", "truncated_normal", "untruncated_normal")

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ):
        super().__init__(seed)
        name = type(self).__name__
        if scale <= 0:
            raise ValueError(f"initializer {name}: scale must be positive, got {scale}")
        if mode not in self.modes:
            raise ValueError(f"initializer {name}: mode is {mode!r}; use one of {self.modes}")
        distribution = distribution.lower()
        if distribution == "normal":
            distribution = "truncated_normal"
        if distribution not in self.distributions:
            raise ValueError(
                f"initializer {name}: distribution is {distribution!r}; use one of "
                f"{self.distributions}"
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution
        self.input_axes = None if input_axes is None else list(input_axes)
        self.output_axes = None if output_axes is None else list(output_axes)

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        _floating(self, dtype)
        shape = checked_shape(self, shape)
        fan_in, fan_out = compute_fans(shape, self.input_axes, self.output_axes)
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, count)
        generator = self.generator()
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * variance)
            return _uniform(generator, shape, -limit, limit)
        deviation = math.sqrt(variance)
        if self.distribution == "truncated_normal":
            return _truncated_normal(generator, shape, 0.0, deviation / _TRUNCATED_DEVIATION)
        return _normal(generator, shape, 0.0, deviation)

    def get_config(self) -> dict[str, Any]:
        config = {
            "scale": self.scale,
            "mode": self.mode,
            "distribution": self.distribution,
            "input_axes": self.input_axes,
            "output_axes": self.output_axes,
        }
        if type(self) is not VarianceScaling:  # the named ones fix the first three
            config = {k: config[k] for k in ("input_axes", "output_axes")}
        return {**super().get_config(), **config}


class _Named(VarianceScaling):
    """A variance scaling whose scale, mode and distribution are fixed by its name."""

    fixed: tuple[float, str, str]

    def __init__(
        self,
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ):
        super().__init__(*self.fixed, seed, input_axes, output_axes)


class GlorotUniform(_Named):
    """Uniform in +-sqrt(6 / (fan_in + fan_out))."""

    fixed = (1.0, "fan_avg", "uniform")


class GlorotNormal(_Named):
    """Truncated normal of standard deviation sqrt(2 / (fan_in + fan_out))."""

    fixed = (1.0, "fan_avg", "truncated_normal")


class HeUniform(_Named):
    """Uniform in +-sqrt(6 / fan_in)."""

    fixed = (2.0, "fan_in", "uniform")


class HeNormal(_Named):
    """Truncated normal of standard deviation sqrt(2 / fan_in)."""

    fixed = (2.0, "fan_in", "truncated_normal")


class LecunUniform(_Named):
    """Uniform in +-sqrt(3 / fan_in)."""

    fixed = (1.0, "fan_in", "uniform")


class LecunNormal(_Named):
    """Truncated normal of standard deviation sqrt(1 / fan_in)."""

    fixed = (1.0, "fan_in", "truncated_normal")


class Orthogonal(RandomInitializer):
    """`gain` times an orthogonal matrix; weights of more dimensions are seen as (prod(rest), last).

    Rows are orthonormal where there are fewer of them than columns, columns otherwise.
    """

    def __init__(self, gain: float = 1.0, seed: Any = None):
        super().__init__(seed)
        self.gain = gain

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        name = _floating(self, dtype)
        shape = checked_shape(self, shape)
        if len(shape) < 2:
            raise ValueError(
                f"initializer Orthogonal needs a weight of at least 2 dimensions, got shape {shape}"
            )
        rows, columns = math.prod(shape[:-1]), shape[-1]
        tall = self.generator().standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(tall)
        q *= np.where(np.diagonal(r) < 0, -1.0, 1.0)  # makes the distribution uniform
        matrix = q if rows >= columns else q.T
        return (self.gain * matrix).reshape(shape).astype(name)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "gain": self.gain}
