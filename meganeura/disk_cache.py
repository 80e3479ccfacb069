"""Files of earlier processes, so that a second one neither optimises nor schedules again.

A file is found by everything that its content depends on, and begins with a digest of the rest. One
that is missing, damaged or of another version is never an error, and never gives a wrong result.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from meganeura.version import __version__

#: Change this when the meaning of a file changes between releases.
SCHEMA = 2
LARGEST_FILE = 64 << 20
LARGEST_FOLDER = 512 << 20
#: Looking through the folder takes a while when it is full: at the first save, and now and then.
_SAVES_A_TRIM = 256
_saves = itertools.count()


def folder() -> Path | None:
    """Where files are kept; None where MEGANEURA_CACHE is 0."""
    chosen = os.environ.get("MEGANEURA_CACHE", "")
    if chosen == "0":
        return None
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "meganeura" / "plans"


@functools.cache
def source_digest() -> str:
    """A digest of the compiler's own text and of its shaders: while they are developed, an old
    file must not survive."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    rooms = ("rewrite", "schedule", "ops", "graph")
    shaders = Path(str(files("meganeura") / "shaders"))
    shaders = shaders if shaders.is_dir() else package.parent / "shaders"
    found = [p for room in rooms for p in (package / room).rglob("*.py")]
    for path in sorted([*found, package / "dtypes.py", *shaders.glob("*.wgsl")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def key(*parts: Any) -> str:
    """The name of a file: a digest of all that its content depends on."""
    text = repr((SCHEMA, __version__, source_digest(), *parts))
    return hashlib.sha256(text.encode()).hexdigest()


def load(name: str) -> Any:
    """The content that was saved under this name, or None."""
    place = folder()
    if place is None:
        return None
    path = place / f"{name}.json"
    try:
        if path.stat().st_size > LARGEST_FILE:
            return None
        digest, text = path.read_bytes().split(b"\n", 1)
        if digest != _digest(text):
            return None
        content = json.loads(text)
    except (OSError, ValueError):
        return None
    with contextlib.suppress(OSError):  # the folder of somebody else
        os.utime(path)
    return content


def save(name: str, content: Any) -> None:
    """Keep plain JSON values; failing to is no error."""
    place = folder()
    if place is None:
        return
    with contextlib.suppress(OSError, ValueError, TypeError):
        text = json.dumps(content).encode()
        if len(text) > LARGEST_FILE:
            return
        place.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place, suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(text) + b"\n" + text)
            os.replace(temporary, place / f"{name}.json")
        except BaseException:
            os.unlink(temporary)
            raise
        if next(_saves) % _SAVES_A_TRIM == 0:
            _trim(place)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _trim(place: Path) -> None:
    """Drop the files that were not used for longest while the folder is too large."""
    with os.scandir(place) as entries:
        found = [(e.stat(), e.path) for e in entries if e.name.endswith(".json")]
    total = sum(stat.st_size for stat, _ in found)
    for stat, path in sorted(found, key=lambda item: item[0].st_mtime):
        if total <= LARGEST_FOLDER:
            return
        total -= stat.st_size
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
