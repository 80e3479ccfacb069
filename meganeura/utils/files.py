"""Downloads with a checksum and a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import urllib.parse
import zipfile
from pathlib import Path
from typing import Any

from meganeura.datasets import download

_CHECKSUM_LENGTHS = {32: "md5", 64: "sha256"}


def get_file(
    fname: str | None = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: str | None = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    force_download: bool = False,
) -> str:
    """The path of a file that is downloaded from `origin` once and kept.

    With file_hash (MD5 or SHA-256) a file of another content is refused. With extract, an archive is
    unpacked next to it and the path of that folder is returned; members that point outside of it are
    refused. The cache is MEGANEURA_HOME, else ~/.meganeura.
    """
    if not origin:
        raise ValueError("get_file: give origin, the address of the file")
    name = os.path.basename(fname or urllib.parse.urlparse(origin).path)
    if not name or name in (".", ".."):
        raise ValueError(f"get_file: {origin} names no file; give fname")
    checksum = file_hash or md5_hash
    algorithm = _algorithm(hash_algorithm, checksum)
    root = Path(cache_dir) if cache_dir is not None else download.cache_folder().parent
    folder = root / cache_subdir
    path = folder / name
    if force_download:
        path.unlink(missing_ok=True)
    if not (path.is_file() and checksum is None):
        download.fetch_into(folder, name, origin, checksum, algorithm)
    if not (extract or untar):
        return str(path)
    return str(_extracted(path, archive_format))


def _algorithm(wanted: str, checksum: str | None) -> str:
    if wanted in ("md5", "sha256"):
        return wanted
    if wanted != "auto":
        raise ValueError(
            f"get_file: hash_algorithm must be 'auto', 'md5' or 'sha256', got {wanted!r}"
        )
    if checksum is not None and len(checksum) not in _CHECKSUM_LENGTHS:
        raise ValueError(
            f"get_file: a checksum has 32 (MD5) or 64 (SHA-256) digits, got {len(checksum)}"
        )
    return _CHECKSUM_LENGTHS.get(len(checksum or ""), "sha256")


def _extracted(path: Path, archive_format: Any) -> Path:
    """The folder with the archive's content; unpacked beside its place, then renamed."""
    target = path.with_name(path.name + "_extracted")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    mark = target / ".complete"
    if mark.is_file() and mark.read_text() == digest:
        return target
    partial = target.with_name(target.name + ".partial")
    for old in (partial, target):
        shutil.rmtree(old, ignore_errors=True)
    partial.mkdir(parents=True)
    if tarfile.is_tarfile(path) and archive_format in ("auto", "tar", None):
        with tarfile.open(path) as archive:
            try:
                archive.extractall(partial, filter="data")
            except (tarfile.TarError, OSError) as error:
                shutil.rmtree(partial)
                raise ValueError(f"get_file: {path} is damaged or unsafe: {error}") from error
    elif zipfile.is_zipfile(path) and archive_format in ("auto", "zip", None):
        with zipfile.ZipFile(path) as zipped:
            for member in zipped.namelist():
                if not (partial / member).resolve().is_relative_to(partial.resolve()):
                    shutil.rmtree(partial)
                    raise ValueError(
                        f"get_file: {path} has a member outside its folder: {member!r}"
                    )
            zipped.extractall(partial)
    else:
        shutil.rmtree(partial)
        raise ValueError(f"get_file: {path} is neither a tar nor a zip archive")
    (partial / ".complete").write_text(digest)
    os.replace(partial, target)
    return target
