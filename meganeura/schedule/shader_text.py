"""The texts in shaders/, with their ${holes} filled."""

from __future__ import annotations

import functools
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any


@functools.cache
def _text(name: str) -> Template:
    installed = files("meganeura") / "shaders" / name
    path = installed if installed.is_file() else Path(__file__).parents[2] / "shaders" / name
    # Comments stay behind: they name functions, and a kernel is given those that its text calls.
    return Template(re.sub(r"^//.*\n", "", path.read_text("utf-8"), flags=re.MULTILINE))


def shader(name: str, **holes: Any) -> str:
    """`shaders/name.wgsl` with every hole filled; a hole without a value is an error."""
    return _text(f"{name}.wgsl").substitute({k: str(v) for k, v in holes.items()})
