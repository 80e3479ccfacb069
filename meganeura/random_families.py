"""Random numbers of further distributions, made of uniform and normal ones (names of keras.random)."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura import ops, random
from meganeura.graph.node import Node
from meganeura.ops.dispatch import operation

#: Proposals for each number: the worst (shape 1) is taken with a probability of 0.951, so all eight fail once in 3e10.
_PROPOSALS = 8


def _gamma_from(normal: Any, uniform: Any, boost: Any, alpha: Any) -> Any:
    """Marsaglia and Tsang's method, doi 10.1145/358407.358414: the first accepted of a few proposals d v,
    v = (1 + x / sqrt(9 d))^3, d = alpha - 1/3; below alpha = 1, that of alpha + 1 times u^(1 / alpha)."""
    small = ops.less(alpha, 1.0)
    d = ops.where(small, alpha + 1.0, alpha) - 1.0 / 3.0
    cube = 1.0 + normal / ops.sqrt(9.0 * d)
    positive = ops.greater(cube, 0.0)
    v = ops.where(positive, cube, 1.0)
    v = v * v * v
    bound = 0.5 * normal * normal + d - d * v + d * ops.log(v)
    accepted = ops.logical_and(positive, ops.less(ops.log(1.0 - uniform), bound))
    out: Any = d  # the mode, nearly; reached once in 3e10
    for i in reversed(range(_PROPOSALS)):
        out = ops.where(accepted[i], (d * v)[i], out)
    return ops.where(small, out * ops.exp(ops.log(1.0 - boost) / alpha), out)


@operation
def _gamma(words: Any, more: Any, shape: tuple[int, ...], alpha: Any) -> Any:
    share = ops.broadcast_to(ops.cast(ops.convert_to_node(alpha), "float32"), shape)
    uniform = random.uniform((_PROPOSALS + 1, *shape), seed=more)
    return _gamma_from(
        random.normal((_PROPOSALS, *shape), seed=words), uniform[1:], uniform[0], share
    )


def _keys(seed: Any, count: int) -> list[Any]:
    """Keys that are independent of each other, from one seed."""
    if isinstance(seed, (int, np.integer)):
        first = random.key(seed)
        salts = (np.array([0x9E3779B9 * i & 0xFFFFFFFF, i], np.uint32) for i in range(count))
        return [first ^ salt for salt in salts]
    if seed is None or isinstance(seed, random.SeedGenerator):
        return [random.key(seed) for _ in range(count)]
    words: Any = seed if isinstance(seed, Node) else np.asarray(seed).astype(np.uint32)
    return [ops.bitwise_xor(words, np.array([0, i], np.uint32)) for i in range(count)]


def gamma(shape: Any, alpha: Any, dtype: Any = None, seed: Any = None) -> Any:
    """Numbers of the gamma distribution with shape parameter alpha > 0 (broadcast) and scale 1."""
    random._check_float("gamma", dtype)
    first, second = _keys(seed, 2)
    return _gamma(first, second, random._shape(shape), alpha)


def beta(shape: Any, alpha: Any, beta: Any, dtype: Any = None, seed: Any = None) -> Any:
    """Numbers of the beta distribution: a / (a + b) for a of gamma(alpha) and b of gamma(beta)."""
    random._check_float("beta", dtype)
    keys, size = _keys(seed, 4), random._shape(shape)
    a, b = _gamma(keys[0], keys[1], size, alpha), _gamma(keys[2], keys[3], size, beta)
    return ops.divide_no_nan(a, ops.add(a, b))
