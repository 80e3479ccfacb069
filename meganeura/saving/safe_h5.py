"""Reading HDF5 from strangers: no links, no other files, and no size that the model does not ask for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

#: A compressed dataset above this many bytes may not expand by more than LARGEST_EXPANSION.
LARGE = 64 << 20
LARGEST_EXPANSION = 1000


class DamagedFileError(ValueError):
    """The file is damaged, truncated, hostile or of another kind; the message names it and says how."""


class SafeGroup:
    """A group whose members are looked at before they are opened."""

    def __init__(self, group: h5py.Group, file: str):
        self._group = group
        self._file = file

    def __contains__(self, name: str) -> bool:
        return name in self._names()

    def _names(self) -> list[str]:
        with self._reading():
            return list(self._group.keys())

    def names(self) -> list[str]:
        """The members' names, in the file's order."""
        return self._names()

    def _member(self, name: str) -> Any:
        with self._reading():
            here = f"{self._group.name.rstrip('/')}/{name}"
            link = self._group.get(name, getlink=True)
            if link is None:
                raise DamagedFileError(f"{self._file} has no {here!r}")
            if not isinstance(link, h5py.HardLink):
                raise DamagedFileError(
                    f"{self._file}: {here!r} is a link to elsewhere, which is refused; "
                    "files with links are not made by saving a model"
                )
            return self._group[name]

    def group(self, name: str) -> SafeGroup:
        member = self._member(name)
        if not isinstance(member, h5py.Group):
            raise DamagedFileError(f"{self._file}: {member.name!r} should be a group")
        return SafeGroup(member, self._file)

    def is_group(self, name: str) -> bool:
        return isinstance(self._member(name), h5py.Group)

    def walk(self, path: str) -> SafeGroup:
        """The group at a path with slashes, each step checked."""
        group = self
        for part in filter(None, path.split("/")):
            group = group.group(part)
        return group

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._dataset(name).shape)

    def read(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """The values of a dataset. With `shape`, another shape is refused before a byte is read."""
        dataset = self._dataset(name)
        if shape is not None and tuple(dataset.shape) != tuple(shape):
            raise DamagedFileError(
                f"{self._file}: {dataset.name!r} has the shape {tuple(dataset.shape)}, "
                f"expected {tuple(shape)}"
            )
        with self._reading():
            return np.asarray(dataset[()])

    def _dataset(self, name: str) -> h5py.Dataset:
        dataset = self._member(name)
        if not isinstance(dataset, h5py.Dataset):
            raise DamagedFileError(f"{self._file}: {dataset.name!r} should be a dataset")
        with self._reading():
            if dataset.external or dataset.is_virtual:
                raise DamagedFileError(
                    f"{self._file}: {dataset.name!r} keeps its data in another file, which is refused"
                )
            if dataset.dtype.kind not in "fiub":
                raise DamagedFileError(
                    f"{self._file}: {dataset.name!r} holds {dataset.dtype}, not numbers"
                )
            declared, stored = dataset.nbytes, dataset.id.get_storage_size()
            if declared and not stored:
                raise DamagedFileError(
                    f"{self._file}: {dataset.name!r} declares {declared} bytes and stores none"
                )
            if declared > LARGE and declared > LARGEST_EXPANSION * stored:
                raise DamagedFileError(
                    f"{self._file}: {dataset.name!r} declares {declared} bytes but stores {stored}; "
                    "refused as a decompression bomb"
                )
        return dataset

    def declared_bytes(self) -> int:
        """The size of all datasets below, links left aside; groups that hold themselves count once."""
        total, seen, stack = 0, set(), [self._group]
        with self._reading():
            while stack:
                group = stack.pop()
                address = h5py.h5o.get_info(group.id).addr
                if address in seen:
                    continue
                seen.add(address)
                for name in group:
                    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                        continue
                    member = group[name]
                    if isinstance(member, h5py.Group):
                        stack.append(member)
                    elif isinstance(member, h5py.Dataset):
                        stored = member.id.get_storage_size()
                        total += min(member.nbytes, LARGEST_EXPANSION * stored)
        return total

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute; one split into name0, name1, ... for its length is joined."""
        with self._reading():
            attributes = self._group.attrs
            if name in attributes:
                return attributes[name]
            if f"{name}0" not in attributes:
                return default
            parts, index = [], 0
            while f"{name}{index}" in attributes:
                parts.append(np.asarray(attributes[f"{name}{index}"]))
                index += 1
            return np.concatenate(parts)

    def strings(self, name: str) -> list[str]:
        """An attribute that holds names, as text; empty where it is absent."""
        values = self.attribute(name)
        if values is None:
            return []
        return [text(v) for v in np.asarray(values).ravel() if not isinstance(v, float)]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except DamagedFileError:
            raise
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            raise DamagedFileError(f"{self._file} is damaged: {error}") from error


def text(value: Any) -> str:
    """An HDF5 string of either kind as `str`."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@contextlib.contextmanager
def open_h5(path: str | os.PathLike[str] | Any) -> Iterator[SafeGroup]:
    """The root of an HDF5 file (a path, or a binary file object), opened for reading."""
    name = str(getattr(path, "name", path) if hasattr(path, "read") else Path(path))
    if not hasattr(path, "read"):
        if not Path(path).exists():
            raise FileNotFoundError(f"{name} does not exist")
        if Path(path).is_dir():
            raise DamagedFileError(f"{name} is a folder, not a weights file")
        if not h5py.is_hdf5(path):
            size = Path(path).stat().st_size
            raise DamagedFileError(f"{name} ({size} bytes) is not an HDF5 file")
    try:
        file = h5py.File(path, "r")
    except (OSError, RuntimeError, ValueError) as error:
        raise DamagedFileError(f"{name} is damaged or truncated: {error}") from error
    with file:
        yield SafeGroup(file, name)
