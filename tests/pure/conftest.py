"""These tests need no device: they compute with the NumPy reference, whatever the machine has.

MEGANEURA_PURE_BACKEND=wgpu runs them on the adapter all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from meganeura import backend


@pytest.fixture(autouse=True, scope="module")
def on_numpy() -> Iterator[None]:
    before = backend._current
    backend.set_backend(os.environ.get("MEGANEURA_PURE_BACKEND", "numpy"))
    yield
    backend._current = before
