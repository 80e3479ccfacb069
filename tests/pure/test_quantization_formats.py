"""The formats of packed tables: bits, errors, and what does not fit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from meganeura.quantization.formats import FORMATS, Format, named, pack, unpack

#: Two blocks, exact in float32, as the gguf package packs them (gguf 0.19): the bytes of each block.
BLOCKS = ((np.arange(64) * 37 % 101 - 50) / 8).astype("float32").reshape(2, 32)
GGUF = {
    "q8_0": [
        "4d2a81df3d9af856b41270cd2b89e745a2005ebb1977d53390ee4caa0866c3217fdc",
        "0e1f3c96f656b0106fca2984e3439efd5db71777d1318beb4ba50565bf1f7fd93993",
    ],
    "q4_1": [
        "ab3a40c6d0369bf257bd1369ce258ae0469cf258",
        "642fdbba9bf157ad0368ce248ad0469bf257bd13",
    ],
}


def table(rows: int = 24, columns: int = 96, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    scale = np.float32(10) ** random.integers(-9, 4, (rows, 1)).astype("float32")
    x = (random.standard_normal((rows, columns)) * scale).astype("float32")
    x[0], x[1] = 0, 3  # blocks without a largest value, and without a range
    return x


@pytest.mark.parametrize("name", GGUF)
def test_the_bits_are_those_of_gguf(name: str) -> None:
    scaled = BLOCKS.copy()
    scaled[1] /= 7
    packed = pack(named(name), scaled)
    assert packed.scales is not None
    halves = packed.scales.astype("<u4").view("<u2").reshape(2, -1)
    for words, own, expected in zip(packed.words, halves, GGUF[name], strict=True):
        assert own.tobytes().hex() + words.astype("<u4").tobytes().hex() == expected


@pytest.mark.parametrize("name", FORMATS)
def test_values_are_those_of_the_gguf_package(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    x, kind = table(), gguf.GGMLQuantizationType[name.upper()]
    expected = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
    np.testing.assert_array_equal(unpack(pack(named(name), x)), expected.reshape(x.shape))


def bound(kind: Format, x: np.ndarray) -> np.ndarray:
    """Half a step of the block, and what rounding its scales to halves can do: 2^-11 of a value, or
    2^-25 where a half has no more digits."""
    blocks = x.reshape(-1, kind.block)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    if kind.name == "f16":
        return (2.0**-11 * np.abs(blocks) + 2.0**-25).reshape(x.shape)
    steps = 127 if kind.name == "q8_0" else 15
    step = (largest if kind.name == "q8_0" else np.ptp(blocks, axis=1, keepdims=True)) / steps
    scales = 2.0**-11 * (steps * step + largest) + (steps + 1) * 2.0**-25
    return np.broadcast_to(0.5001 * step + scales, blocks.shape).reshape(x.shape)


@pytest.mark.parametrize("name", FORMATS)
def test_errors_are_within_half_a_step(name: str) -> None:
    x = table(seed=1)
    error = np.abs(unpack(pack(named(name), x)).astype("float64") - x)
    assert (error <= bound(named(name), x)).all()
    assert error.max() > 0


@pytest.mark.parametrize("name", FORMATS)
def test_packing_again_changes_nothing(name: str) -> None:
    once = pack(named(name), table(seed=2))
    again = pack(named(name), unpack(once))
    np.testing.assert_array_equal(unpack(again), unpack(once))


@pytest.mark.parametrize(("name", "ratio"), [("f16", 2.0), ("q8_0", 128 / 34), ("q4_1", 6.4)])
def test_bytes(name: str, ratio: float) -> None:
    kind, x = named(name), table(64, 96)
    packed = pack(kind, x)
    held = packed.words.nbytes + (0 if packed.scales is None else packed.scales.nbytes)
    assert held == kind.nbytes(*x.shape) == x.nbytes / ratio
    assert packed.shape == x.shape


def test_an_odd_number_of_blocks() -> None:
    x = table(3, 32)
    packed = pack(named("q8_0"), x)
    assert packed.scales is not None
    assert packed.scales.shape == (2,)
    assert np.abs(unpack(packed) - x).max() < np.abs(x).max() / 200


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="33 values are no multiple of 32"):
        pack(named("q8_0"), np.zeros((2, 33), "float32"))
    for name, value, why in (
        ("f16", 1e5, "does not fit into a half"),
        ("q8_0", 1e8, "a scale of .* does not fit"),
        ("q4_1", -1e5, "least value"),
        ("q8_0", np.nan, "finite"),
        ("q4_1", np.inf, "finite"),
    ):
        x = np.zeros((1, 32), "float32")
        x[0, 5] = value
        with pytest.raises(ValueError, match=why):
            pack(named(name), x)
    with pytest.raises(ValueError, match="offered are f16, q8_0, q4_1"):
        named("int8")


def test_there_is_one_object_for_each_format() -> None:
    for kind in FORMATS.values():
        assert pickle.loads(pickle.dumps(kind)) is kind
