"""Products timed in several ways: what is chosen, where it is kept, and that results stay right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura import config
from meganeura.backend.wgpu.tuner import Tuner
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import make
from meganeura.schedule import choices
from meganeura.schedule.templates import tiles

pytest.importorskip("wgpu")

SIZE = (1, 24, 36, 320)


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("MEGANEURA_CACHE", str(tmp_path))
    yield from checks.wgpu_backend_as("as a GPU")


@pytest.fixture
def tuning() -> Iterator[None]:
    config.set_tuning(True)
    yield
    config.set_tuning(False)


def product() -> tuple[Graph, list[np.ndarray]]:
    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal(s).astype("float32") for s in ((SIZE[1], SIZE[3]), SIZE[:1:-1])
    ]
    nodes = [Node("input", (), {"name": str(i)}, a.shape, "float32") for i, a in enumerate(arrays)]
    out = make("matmul", *nodes, transpose_a=False, transpose_b=False)
    return Graph(nodes, [make("relu", out)], [], {}), arrays


def run(backend: Any) -> None:
    graph, arrays = product()
    executable = backend.compile(graph)
    (found,) = executable.run([backend.upload(a) for a in arrays], [])
    expected = np.maximum(arrays[0].astype("float64") @ arrays[1], 0)
    shape = expected.shape
    np.testing.assert_allclose(backend.download(found, shape, "float32"), expected, atol=1e-4)


def test_products_are_timed_once_and_kept(backend: Any, tuning: None, tmp_path: Path) -> None:
    before = backend.limits
    run(backend)
    assert set(backend.tuner.choices) == {SIZE}
    assert backend.limits.measured not in ("", before.measured)
    assert Tuner(backend).choices == backend.tuner.choices  # as a new process reads them
    assert not backend.tuner.tune(product()[0])
    run(backend)


def test_nothing_is_timed_unasked(backend: Any) -> None:
    run(backend)
    assert not backend.tuner.choices
    assert backend.limits.measured == ""


def test_damaged_choices_are_left_out(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    label = tiles.TILES[3].label
    entries = [
        [[1, 8, 8, 256], f"{label}/2"],
        [[1, 8, 8, 9], "3x3/1"],
        [[1, 2], "x"],
        5,
        [[0, 0, 0, 0], label],
    ]
    monkeypatch.setattr("meganeura.disk_cache.load", lambda name: entries)
    assert Tuner(backend).choices == {(1, 8, 8, 256): f"{label}/2"}
    monkeypatch.setattr("meganeura.disk_cache.load", lambda name: {"no": "list"})
    assert Tuner(backend).choices == {}


def test_every_way_gives_the_product(backend: Any) -> None:
    """Each choice is followed, with its parts."""
    ways = [label for _, label in tiles.candidates(*SIZE, backend.limits)]
    assert len(ways) == len(set(ways)) > 10
    for label in ways[::5]:
        backend.tuner.choices = {SIZE: label}
        backend.limits = backend.tuner.limits(backend.limits)
        block, parts = choices.split(label)
        assert tiles.parts(*SIZE, backend.limits) == parts
        graph, _ = product()
        names = [k.name for k in backend.compile(graph).plan.kernels]
        assert any("matmul_parts" in name for name in names) == (parts > 1)
        run(backend)
