"""The tests of the public operations and of random numbers once more, computed by the adapter."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meganeura import backend

pytest.importorskip("wgpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pure"))

for _part in ("elementwise", "movement", "reduction", "control_flow", "operators"):
    _module = importlib.import_module(f"test_ops_{_part}")
    for _name, _test in list(vars(_module).items()):
        if _name.startswith("test_"):
            globals()[f"test_{_part}_{_name[5:]}"] = _test
for _name, _test in list(vars(importlib.import_module("test_random")).items()):
    if _name.startswith("test_"):
        globals()[f"test_random_{_name[5:]}"] = _test


@pytest.fixture(autouse=True, scope="module")
def on_the_adapter() -> Iterator[None]:
    before = backend._current
    backend.set_backend("wgpu")
    yield
    backend._current = before


def test_the_adapter_computes() -> None:
    assert backend.backend() == "wgpu"
