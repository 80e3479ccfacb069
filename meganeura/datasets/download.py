"""Downloading a file once: checksum, cache, and never a half-written file."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path


class DownloadError(RuntimeError):
    """A data file could not be fetched; the message says what to do instead."""


def cache_folder() -> Path:
    """Where data files are kept: MEGANEURA_HOME, else ~/.meganeura."""
    return Path(os.environ.get("MEGANEURA_HOME", Path.home() / ".meganeura")) / "datasets"


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fetch(name: str, origin: str, checksum: str, timeout: float = 30.0) -> Path:
    """The path of the cached file `name`, downloaded from `origin` if it is not there yet.

    The file is written beside its place, checked against `checksum` (SHA-256), then renamed.
    Raises DownloadError where the network or the checksum fails.
    """
    folder = cache_folder()
    target = folder / name
    if target.is_file() and sha256(target) == checksum:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    print(f"downloading {origin}", flush=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=name)
    try:
        with os.fdopen(handle, "wb") as file:
            with urllib.request.urlopen(origin, timeout=timeout) as response:
                while block := response.read(1 << 20):
                    file.write(block)
            file.flush()
            os.fsync(file.fileno())
        found = sha256(Path(temporary))
        if found != checksum:
            raise DownloadError(
                f"{origin} has the SHA-256 {found}, expected {checksum}: the download is damaged or "
                "the file was replaced; nothing was kept"
            )
        os.replace(temporary, target)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise DownloadError(
            f"{origin} could not be downloaded ({error}). Fetch it on a machine with a network and "
            f"put it at {target}, or give the folder that holds the data."
        ) from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target
