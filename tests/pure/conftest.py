"""These tests need no device: they compute with the NumPy reference, whatever the machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meganeura import backend


@pytest.fixture(autouse=True, scope="module")
def on_numpy() -> Iterator[None]:
    before = backend._current
    backend.set_backend("numpy")
    yield
    backend._current = before
