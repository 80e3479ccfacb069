"""Boston Housing is not offered: one of its features is built on the race of the inhabitants."""

from __future__ import annotations

from typing import Any


def load_data(*args: Any, **kwargs: Any) -> Any:
    """Raises NotImplementedError."""
    raise NotImplementedError(
        "the Boston Housing data are not offered, since one of their features is built on the race of "
        "the inhabitants; use meganeura.datasets.california_housing, a regression of the same kind"
    )
