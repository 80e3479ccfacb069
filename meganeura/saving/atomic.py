"""Writing a file so that a crash at any moment leaves the old one or the new one, never half of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_path(target: str | os.PathLike[str], overwrite: bool = True) -> Iterator[Path]:
    """A temporary sibling of `target` to write to; on success it is synced and renamed over it.

    On an exception the temporary file is removed and `target` is untouched. Raises ValueError
    where the folder does not exist or where `target` exists and `overwrite` is False.
    """
    path = Path(target)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: the folder {path.parent} does not exist")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already; pass overwrite=True to replace it")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else _default_mode())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _default_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable where the system can (Windows cannot open a folder)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
