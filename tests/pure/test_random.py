"""Random numbers: known answers of the generator, distributions, and what the same seed repeats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as stats

from meganeura import ops, random
from meganeura.execution import run_traced
from meganeura.ops.random_bits import philox
from meganeura.tensor import to_tensor

N = 40_000


def test_philox_known_answers() -> None:
    """The first two blocks for the key 0, the first of them being the published test vector."""
    first = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(np.array([0, 0], "uint32"), 4).tolist() == first
    assert philox(np.array([0, 0], "uint32"), 3).tolist() == first[:3]
    assert (
        philox(np.array([0, 0], "uint32"), 9)[4:].tolist()
        == block([0, 0], 1) + block([0, 0], 2)[:1]
    )
    seed = [0xFFFFFFFF, 0x12345678]
    assert philox(np.array(seed, "uint32"), 8).tolist() == block(seed, 0) + block(seed, 1)


def block(key: list[int], index: int) -> list[int]:
    """One block with Python's integers."""
    c, k = [index, 0, 0, 0], list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_uniform() -> None:
    x = random.uniform((N,), seed=1).numpy()
    assert x.dtype == np.float32 and x.min() >= 0 and x.max() < 1
    assert stats.kstest(x, "uniform").pvalue > 1e-3
    y = random.uniform((100, 400), -3.0, 5.0, seed=2).numpy()
    assert y.shape == (100, 400) and y.min() >= -3 and y.max() < 5
    assert stats.kstest(y.ravel(), "uniform", (-3, 8)).pvalue > 1e-3
    tiny = random.uniform((N,), 1.0, 1.0000004, seed=3).numpy()  # rounding must not reach the end
    assert tiny.min() >= 1 and tiny.max() < np.float32(1.0000004)
    whole = random.uniform((N,), 0, 7, dtype="int32", seed=4).numpy()
    assert whole.dtype == np.int32 and sorted(set(whole.tolist())) == list(range(7))


def test_normal() -> None:
    x = random.normal((N,), 2.0, 3.0, seed=5).numpy()
    assert np.isfinite(x).all() and stats.kstest(x, "norm", (2, 3)).pvalue > 1e-3
    assert np.corrcoef(x[:-1], x[1:])[0, 1] == pytest.approx(0, abs=0.02)


def test_truncated_normal() -> None:
    x = random.truncated_normal((N,), 1.0, 2.0, seed=6).numpy()
    assert x.min() >= -3 and x.max() <= 5
    assert stats.kstest((x - 1) / 2, stats.truncnorm(-2, 2).cdf).pvalue > 1e-3


def test_randint_bernoulli_categorical() -> None:
    x = random.randint((N,), -2, 5, seed=7).numpy()
    counts = np.bincount(x + 2)
    assert len(counts) == 7 and stats.chisquare(counts).pvalue > 1e-3
    wide = random.randint((N,), -(2**31), 2**31 - 1, seed=8).numpy()
    assert wide.min() < -(2**30) and wide.max() > 2**30
    assert random.bernoulli((N,), 0.3, seed=9).numpy().mean() == pytest.approx(0.3, abs=0.01)
    logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-30]], "float32"))
    drawn = random.categorical(logits, N, seed=10).numpy()
    assert drawn.shape == (2, N) and drawn.dtype == np.int32
    assert stats.chisquare(np.bincount(drawn[0]), N * np.array([0.1, 0.2, 0.7])).pvalue > 1e-3
    assert drawn[1].max() == 1


def test_dropout() -> None:
    x = np.full((200, 200), 2.0, "float32")
    y = random.dropout(x, 0.25, seed=11).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(2 / 0.75)} and y.mean() == pytest.approx(
        2, abs=0.05
    )
    rows = random.dropout(x, 0.5, noise_shape=(200, 1), seed=12).numpy()
    assert (rows == rows[:, :1]).all() and 0 < (rows == 0).mean() < 1
    some = random.dropout(x, 0.5, noise_shape=(None, 1), seed=12).numpy()
    np.testing.assert_array_equal(rows, some)
    np.testing.assert_array_equal(random.dropout(x, 0.0, seed=1).numpy(), x)
    assert not random.dropout(x, 1.0).numpy().any()
    nan = random.dropout(np.full((50,), math.nan, "float32"), 0.5, seed=13).numpy()
    assert 0 < np.isnan(nan).sum() < 50  # what is dropped is 0, not NaN * 0


def test_shuffle() -> None:
    x = np.arange(60).reshape(20, 3).astype("float32")
    y = random.shuffle(x, seed=14).numpy()
    assert sorted(y[:, 0]) == sorted(x[:, 0]) and (y[:, 1] - y[:, 0] == 1).all() and (y != x).any()
    assert random.shuffle(x, axis=1, seed=3).shape == (20, 3)


DRAWS: list[Callable[[Any], Any]] = [
    lambda seed: random.uniform((5, 3), seed=seed),
    lambda seed: random.normal((5, 3), seed=seed),
    lambda seed: random.truncated_normal((5, 3), seed=seed),
    lambda seed: random.randint((5, 3), 0, 2**30, seed=seed),
    lambda seed: random.dropout(np.ones((5, 3), "float32"), 0.5, seed=seed),
    lambda seed: random.categorical(np.zeros((5, 9), "float32"), 3, seed=seed),
    lambda seed: random.shuffle(np.arange(15), seed=seed),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_seeds(draw: Callable[[Any], Any]) -> None:
    """An integer repeats; a generator moves on, and repeats from its own seed; None follows the global one."""
    same = np.testing.assert_array_equal
    same(draw(5).numpy(), draw(5).numpy())
    assert (draw(5).numpy() != draw(6).numpy()).any()
    one, other = random.SeedGenerator(5), random.SeedGenerator(5)
    first, second = draw(one).numpy(), draw(one).numpy()
    assert (first != second).any()
    same(first, draw(other).numpy())
    same(second, draw(other).numpy())
    random.set_global_seed(3)
    first, second = draw(None).numpy(), draw(None).numpy()
    assert (first != second).any()
    random.set_global_seed(3)
    same(first, draw(None).numpy())


def test_a_generator_inside_a_trace() -> None:
    """The advance is an update of the graph: one plan draws anew at each run, as eager code does."""
    inside, outside = random.SeedGenerator(9), random.SeedGenerator(9)

    def function(x: Any) -> Any:
        return [x + random.uniform((4,), seed=inside), random.normal((4,), seed=inside)]

    for _ in range(3):
        a, b = run_traced(function, [to_tensor(np.zeros(4, "float32"))])
        np.testing.assert_array_equal(a.numpy(), random.uniform((4,), seed=outside).numpy())
        np.testing.assert_array_equal(b.numpy(), random.normal((4,), seed=outside).numpy())
    np.testing.assert_array_equal(inside.state.numpy(), [9, 6])
    assert inside.state.shape == (2,) and inside.state.dtype == "uint32"
    assert random.SeedGenerator.from_config(inside.get_config()).initial_seed == 9


def test_bits_do_not_depend_on_the_shape() -> None:
    flat = random.uniform((12,), seed=1).numpy()
    np.testing.assert_array_equal(random.uniform((3, 4), seed=1).numpy().ravel(), flat)
    assert random.uniform((0, 3), seed=1).shape == (0, 3)
    assert random.normal((), seed=1).shape == ()


def test_gradient_flows_through_what_is_kept() -> None:
    from meganeura.graph.autodiff import gradients

    def function(x: Any) -> Any:
        y = random.dropout(x, 0.5, seed=4)
        return [y, gradients(ops.sum(y), [x])[0]]

    y, slope = run_traced(function, [to_tensor(np.ones(50, "float32"))])
    np.testing.assert_array_equal(y.numpy(), slope.numpy())


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: random.SeedGenerator(-1), "negative"),
        (lambda: random.SeedGenerator(1.5), "integer"),
        (lambda: random.randint((2,), 5, 5), "minval < maxval"),
        (lambda: random.dropout(np.ones(3), 1.5), "between 0 and 1"),
        (lambda: random.categorical(np.ones(3), 2), "batch, classes"),
        (lambda: random.normal((2,), dtype="int32"), "float32"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
