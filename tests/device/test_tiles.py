"""Every size of block, and the kernels for a few rows, at shapes that do not fit them evenly."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.schedule.templates import product as products
from meganeura.schedule.templates import tiles

pytest.importorskip("wgpu")


@pytest.fixture(scope="module")
def backend() -> Iterator[Any]:
    yield from checks.wgpu_backend_as("as a GPU")


def product(backend: Any, m: int, n: int, k: int, ta: bool, tb: bool) -> None:
    random = np.random.default_rng(m * n + k)
    a, b = (random.standard_normal(s).astype("float32") for s in ((m, k), (k, n)))
    nodes = [
        Node("input", (), {"name": name}, shape[::-1] if turned else shape, "float32")
        for name, shape, turned in (("a", a.shape, ta), ("b", b.shape, tb))
    ]
    out = make("relu", make("matmul", *nodes, transpose_a=ta, transpose_b=tb))
    executable = backend.compile(Graph(nodes, [out], [], {}), False)
    handles = [backend.upload(np.ascontiguousarray(x.T if t else x)) for x, t in ((a, ta), (b, tb))]
    (found,) = executable.run(handles, [])
    expected = np.maximum(a.astype("float64") @ b.astype("float64"), 0)
    np.testing.assert_allclose(backend.download(found, (m, n), "float32"), expected, atol=2e-4)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("tile", tiles.TILES, ids=lambda t: f"{t.bm}x{t.bn}/{t.slices}")
def test_blocks(
    backend: Any, tile: tiles.Tile, turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not tile.fits(backend.limits):
        pytest.skip("the adapter has too little workgroup memory")
    monkeypatch.setattr(tiles, "choose", lambda *_: tile)
    product(backend, 69, 74, 37, *turned)  # nothing fits, nothing is a multiple of 4
    product(backend, 132, 264, 84, *turned)  # quads, but no whole tiles


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(1, 64, 96), (2, 77, 33), (3, 160, 20), (1, 1030, 50)])
def test_a_few_rows(backend: Any, shape: tuple[int, int, int], turned: bool) -> None:
    product(backend, *shape, False, turned)


@pytest.fixture(scope="module")
def software() -> Iterator[Any]:
    yield from checks.wgpu_backend()


@pytest.mark.parametrize("size", sorted({size for _, size in products._REGISTERS}))
def test_registers_of_software_devices(
    software: Any, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not software.limits.software:
        pytest.skip("the adapter is a GPU")
    monkeypatch.setattr(products, "_REGISTERS", ((0, size),))
    product(software, 69, 77, 19, False, True)  # few tiles, in groups of 8, and edges on both sides
    product(software, 530, 261, 3, True, False)  # groups of 32


@pytest.mark.parametrize("terms", [2048, 2030])
def test_terms_in_parts(backend: Any, terms: int) -> None:
    """A product with few outputs and many terms, its bias and its activation after the sum."""
    random = np.random.default_rng(terms)
    a, b = (random.standard_normal(s).astype("float32") for s in ((52, terms), (terms, 72)))
    bias = random.standard_normal(72).astype("float32")
    nodes = [
        Node("input", (), {"name": str(i)}, x.shape, "float32") for i, x in enumerate((a, b, bias))
    ]
    flags = {"transpose_a": False, "transpose_b": False, "activation": "relu"}
    graph = Graph(nodes, [make("fused_matmul", *nodes, **flags)], [], {})
    executable = backend.compile(graph, False)
    assert any("matmul_parts" in k.name for k in executable.plan.kernels)
    (found,) = executable.run([backend.upload(x) for x in (a, b, bias)], [])
    expected = np.maximum(a.astype("float64") @ b.astype("float64") + bias, 0)
    np.testing.assert_allclose(backend.download(found, (52, 72), "float32"), expected, atol=5e-4)


def test_the_choice_respects_the_device(backend: Any) -> None:
    small = dataclasses.replace(backend.limits, workgroup_bytes=16384, invocations=256)
    for m, n, k in ((4096, 4096, 4096), (50, 720, 2048), (8, 8, 100000), (128, 49152, 576)):
        assert tiles.choose(1, m, n, k, small).fits(small)
    assert tiles.choose(1, 8, 8, 100000, small).slices > 1
    assert tiles.parts(1, 256, 256, 4096, small) > 1
    assert tiles.parts(1, 4096, 4096, 4096, small) == 1
