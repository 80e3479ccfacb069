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


_NAMES = {"md5": "MD5", "sha256": "SHA-256"}


def checksum_of(path: Path, algorithm: str = "sha256") -> str:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fetch(name: str, origin: str, checksum: str, timeout: float = 30.0) -> Path:
    """The path of the cached file `name`, downloaded from `origin` if it is not there yet.

    The file is written beside its place, checked against `checksum` (SHA-256, or MD5 where no other
    was published), then renamed. Raises DownloadError where the network or the checksum fails.
    """
    algorithm = "md5" if len(checksum) == 32 else "sha256"
    return fetch_into(cache_folder(), name, origin, checksum, algorithm, timeout)


def fetch_into(
    folder: Path,
    name: str,
    origin: str,
    checksum: str | None,
    algorithm: str = "sha256",
    timeout: float = 30.0,
) -> Path:
    """`fetch` into a folder of one's own; without a checksum the content is taken as it comes."""
    target = folder / name
    if target.is_file() and checksum and checksum_of(target, algorithm) == checksum:
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
        found = checksum_of(Path(temporary), algorithm)
        if checksum and found != checksum:
            raise DownloadError(
                f"{origin} has the {_NAMES[algorithm]} {found}, expected {checksum}: the download is damaged or "
                "the file was replaced; nothing was kept"
            )
        os.replace(temporary, target)
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise DownloadError(
            f"{origin} could not be downloaded ({error}). Fetch it on a machine with a network and "
            f"put it at {target}."
        ) from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target
