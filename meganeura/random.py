"""Random numbers from counters: the same seed gives the same bits on every backend.

A draw is `random_bits(key)`, Philox 4x32-10 over the element's index, so it needs no state on the
device and fuses into the kernel that uses it. (https://keras.io/api/random)
"""

from __future__ import annotations

import math
import random as python_random
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import dtypes, ops
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.ops.dispatch import operation
from meganeura.ops.registry import make
from meganeura.variable import Variable

_generators: list[SeedGenerator] = []


class SeedGenerator:
    """A stream of seeds: two words, of which each `next()` advances the second.

    Inside a trace the advance is an update of the graph, so every step of a training plan draws
    anew. `seed=None` takes one from Python's generator, which `utils.set_random_seed` seeds.
    """

    def __init__(self, seed: int | None = None, name: str | None = None, **_: Any):
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer))):
            raise ValueError(f"SeedGenerator: seed must be an integer or None, not {seed!r}")
        if seed is not None and seed < 0:
            raise ValueError(f"SeedGenerator: seed must not be negative, and is {seed}")
        self.name = name or "seed_generator"
        self._given = None if seed is None else int(seed)
        value = python_random.randint(1, 10**9) if seed is None else int(seed)
        words = np.array([value & 0xFFFFFFFF, 0], np.uint32)
        self.state = Variable(words, trainable=False, name="seed_generator_state",
                              path=f"{self.name}/seed_generator_state")  # fmt: skip

    @property
    def initial_seed(self) -> int | None:
        return self._given

    def next(self, ordered: bool = True) -> Any:
        """The current seed, after which the generator moves on."""
        if trace.current() is None:
            now = self.state.numpy()
            self.state.assign(now + np.array([0, 1], np.uint32))
            return ops.convert_to_tensor(now)
        words = self.state.value
        one = ops.convert_to_tensor(np.array([0, 1], np.uint32))
        self.state.assign(ops.add(words, one))
        return words

    def get_config(self) -> dict[str, Any]:
        return {"seed": self._given}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SeedGenerator:
        return cls(**config)


def global_seed_generator() -> SeedGenerator:
    """The generator behind `seed=None`."""
    if not _generators:
        with trace.outside():
            _generators.append(SeedGenerator(name="global_seed_generator"))
    return _generators[0]


def reset_global_seed_generator() -> None:
    """Forget the generator behind `seed=None`; the next draw makes one anew."""
    _generators.clear()


def key(seed: Any) -> Any:
    """The two words that `seed` stands for: a generator's next, an integer's own, or a tensor."""
    if seed is None:
        seed = global_seed_generator()
    if isinstance(seed, SeedGenerator):
        return seed.next()
    if isinstance(seed, (int, np.integer)):
        value = int(seed)
        return np.array([value & 0xFFFFFFFF, (value >> 32) & 0xFFFFFFFF], np.uint32)
    return seed


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)


def _check_float(what: str, dtype: Any) -> None:
    if dtype is not None and dtypes.standardize(dtype) != "float32":
        raise ValueError(f"{what} draws float32 numbers, not {dtype}")


def _words(seed: Any) -> Node:
    words = ops.convert_to_node(seed)
    return words if words.dtype == "uint32" else make("cast", words, dtype="uint32")


def _unit(words: Node, shape: tuple[int, ...]) -> Node:
    """Uniform in [0, 1): the upper 24 bits of each word, exactly representable in float32."""
    bits = make("random_bits", words, shape=shape)
    return ops.cast(ops.right_shift(bits, 8), "float32") * 2.0**-24


@operation
def _uniform(words: Any, shape: tuple[int, ...], minval: Any, maxval: Any) -> Any:
    # Rounding must not reach maxval: the largest number below it is the most that comes out.
    values = _unit(_words(words), shape) * (maxval - minval) + minval
    if not all(isinstance(v, (int, float)) for v in (minval, maxval)) or minval >= maxval:
        return values
    return ops.minimum(values, float(np.nextafter(np.float32(maxval), np.float32(minval))))


def uniform(
    shape: Any, minval: float = 0.0, maxval: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Uniform numbers in [minval, maxval); whole ones where dtype is an integer."""
    if dtype is not None and "int" in str(dtype):
        return randint(shape, int(minval), int(maxval), dtype, seed)
    _check_float("uniform", dtype)
    return _uniform(key(seed), _shape(shape), minval, maxval)


@operation
def _normal(words: Any, shape: tuple[int, ...], mean: Any, stddev: Any) -> Any:
    """Box-Muller: one pair of uniform numbers for each, the first never 0."""
    pair = _unit(_words(words), (2, *shape))
    radius = ops.sqrt(-2.0 * ops.log(1.0 - pair[0]))
    return radius * ops.cos(2 * math.pi * pair[1]) * stddev + mean


def normal(
    shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Normally distributed numbers."""
    _check_float("normal", dtype)
    return _normal(key(seed), _shape(shape), mean, stddev)


@operation
def _truncated(words: Any, shape: tuple[int, ...], mean: Any, stddev: Any) -> Any:
    """The inverse distribution function, between the quantiles of -2 and 2 deviations."""
    edge = math.erf(2 / math.sqrt(2))
    u = _unit(_words(words), shape) * (2 * edge) - edge
    return ops.clip(_inverse_erf(u) * math.sqrt(2), -2.0, 2.0) * stddev + mean


def _inverse_erf(y: Any) -> Any:
    """M. Giles' single-precision approximation (GPU Computing Gems, 2011), relative error 1e-7."""
    w = -ops.log((1.0 - y) * (1.0 + y))
    near, far = w - 2.5, ops.sqrt(ops.maximum(w, 5.0)) - 3.0
    small, large = 2.81022636e-08, -0.000200214257
    for a in (3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
              -0.00417768164, 0.246640727, 1.50140941):  # fmt: skip
        small = small * near + a
    for a in (0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
              0.00943887047, 1.00167406, 2.83297682):  # fmt: skip
        large = large * far + a
    return ops.where(w < 5.0, small, large) * y


def truncated_normal(
    shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Normally distributed numbers within two deviations of the mean."""
    _check_float("truncated_normal", dtype)
    return _truncated(key(seed), _shape(shape), mean, stddev)


@operation
def _randint(words: Any, shape: tuple[int, ...], minval: int, maxval: int, dtype: str) -> Any:
    bits = make("random_bits", _words(words), shape=shape)
    span = make("constant", value=maxval - minval, dtype="uint32")
    return ops.cast(ops.cast(ops.mod(bits, span), "int32") + minval, dtype)  # wraps where it must


def randint(shape: Any, minval: int, maxval: int, dtype: Any = "int32", seed: Any = None) -> Any:
    """Whole numbers in [minval, maxval)."""
    if int(maxval) <= int(minval):
        raise ValueError(f"randint needs minval < maxval, and got {minval} and {maxval}")
    return _randint(key(seed), _shape(shape), int(minval), int(maxval), dtype or "int32")


@operation
def _dropout(inputs: Any, words: Any, rate: float, noise_shape: Any) -> Any:
    x = ops.convert_to_node(inputs)
    shape = x.shape if noise_shape is None else tuple(
        n if m is None else int(m) for n, m in zip(x.shape, noise_shape, strict=True)
    )  # fmt: skip
    kept = ops.greater_equal(_unit(_words(words), shape), rate)
    return ops.where(kept, x * (1.0 / (1.0 - rate)), 0.0)


def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
    """Each element 0 with probability `rate`, else divided by 1 - rate."""
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"dropout: rate must lie between 0 and 1, and is {rate}")
    if rate == 1.0:
        return ops.zeros_like(inputs)
    return _dropout(inputs, key(seed), float(rate), noise_shape)


@operation
def _bernoulli(words: Any, shape: tuple[int, ...], probability: Any) -> Any:
    return ops.cast(ops.less(_unit(_words(words), shape), probability), "float32")


def bernoulli(shape: Any, probability: float = 0.5, seed: Any = None) -> Any:
    """1 with this probability, else 0."""
    return _bernoulli(key(seed), _shape(shape), probability)


@operation
def _categorical(words: Any, logits: Any, num_samples: int, dtype: str) -> Any:
    """Gumbel's maximum: argmax(logits - ln(-ln u)) follows softmax(logits)."""
    x = ops.convert_to_node(logits)
    u = _unit(_words(words), (x.shape[0], num_samples, x.shape[1]))
    exponential = ops.maximum(-ops.log1p(-u), 2.0**-25)  # u may be 0, the logarithm's argument not
    noisy = ops.expand_dims(x, 1) - ops.log(exponential)
    return ops.cast(ops.argmax(noisy, axis=-1), dtype)


def categorical(logits: Any, num_samples: int, dtype: Any = "int32", seed: Any = None) -> Any:
    """Indices drawn from softmax(logits): (batch, classes) -> (batch, num_samples)."""
    if len(logits.shape) != 2:
        raise ValueError(f"categorical needs logits of shape (batch, classes), not {logits.shape}")
    return _categorical(key(seed), logits, int(num_samples), dtype or "int32")


def shuffle(x: Any, axis: int = 0, seed: Any = None) -> Any:
    """x with the slices along a dimension in random order."""
    words = key(seed)
    if not isinstance(words, np.ndarray):
        if isinstance(words, Node):
            raise ValueError(
                "shuffle is offered outside of compiled code; shuffle the data instead"
            )
        words = words.numpy()
    order = np.random.default_rng([int(w) for w in words]).permutation(x.shape[axis])
    return ops.take(x, order.astype("int32"), axis=axis)


def set_global_seed(seed: int) -> None:
    """Seed Python's, NumPy's and our generators, so that what follows repeats."""
    python_random.seed(seed)
    np.random.seed(seed % 2**32)
    reset_global_seed_generator()


def draw_seed(seed: Sequence[int] | int | None) -> Any:
    """The words of a seed, as `key` finds them."""
    return key(seed)


def __getattr__(name: str) -> Any:
    if name not in ("gamma", "beta"):
        raise AttributeError(f"module 'meganeura.random' has no attribute {name!r}")
    from meganeura import random_families  # is written with this module's functions

    return getattr(random_families, name)
