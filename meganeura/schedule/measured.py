"""Choices that come with the package, by adapter: see `choices.py` for their form."""

from __future__ import annotations

from meganeura.schedule.choices import Size

MEASURED: dict[str, dict[Size, str]] = {}
