"""Coordinates: what is simplified has the same value, and reshapes that cancel leave nothing."""

from __future__ import annotations

import random

import pytest

from meganeura.schedule import index as ix


def value(x: ix.Index, at: dict[str, int]) -> int:
    total = x.constant
    for atom, c in x.terms:
        if atom[0] == "var":
            found = at[atom[1]]
        else:
            inner = value(atom[1], at)
            found = inner // atom[2] if atom[0] == "div" else inner % atom[2]
        total += c * found
    return total


@pytest.mark.parametrize("seed", range(4))
def test_quotients_and_remainders_keep_their_values(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        sizes = {name: rng.choice((1, 2, 3, 4, 6, 8)) for name in "abc"}
        x = ix.const(rng.choice((0, 0, 1, 3)))
        for name, size in sizes.items():
            x = ix.add(x, ix.mul(ix.var(name, size), rng.choice((1, 2, 3, 4, 6, 12))))
        for _ in range(rng.randint(1, 3)):
            k, before = rng.choice((1, 2, 3, 4, 6, 8, 12, 24)), x
            whole = rng.random() < 0.5
            x = ix.div(x, k) if whole else ix.mod(x, k)
            for _ in range(4):
                at = {name: rng.randrange(size) for name, size in sizes.items()}
                old = value(before, at)
                assert value(x, at) == (old // k if whole else old % k), (before, k)


@pytest.mark.parametrize("shape", [(2, 2, 1, 6, 6), (4, 36), (24, 6), (2, 12, 6), (144,)])
def test_reshapes_cancel(shape: tuple[int, ...]) -> None:
    """Coordinates of a row and an element in it, there and back."""
    full = (2, 2, 6, 6)
    at = (*ix.unravel(ix.var("r", 24), full[:3]), ix.var("k", 6))
    there = ix.unravel(ix.ravel(at, full), shape)
    assert ix.unravel(ix.ravel(there, shape), full) == at


def test_a_row_is_found_again_through_a_reshape() -> None:
    at = (*ix.unravel(ix.var("r", 24), (2, 2, 6)), ix.var("k", 6))
    found = ix.unravel(ix.ravel(at, (2, 2, 6, 6)), (2, 2, 1, 6, 6))
    assert found == (*ix.unravel(ix.var("r", 24), (2, 2, 1, 6)), ix.var("k", 6))
