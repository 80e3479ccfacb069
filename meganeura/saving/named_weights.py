"""Weights in `.npz` and `.safetensors` files, each under the path of its variable."""

from __future__ import annotations

import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from meganeura.identifiers import snake_case
from meganeura.saving.atomic import atomic_path
from meganeura.saving.safe_h5 import DamagedFileError
from meganeura.saving.safetensors import load_safetensors
from meganeura.saving.safetensors_writer import by_path

ENDINGS = (".npz", ".safetensors", ".safetensors.index.json")

#: How many names of each kind an error lists.
LISTED = 10


def load(model: Any, filepath: str | os.PathLike[str], skip_mismatch: bool = False) -> None:
    """Read weights into a model, after every name and shape has been compared.

    Names that layers were given automatically (dense_7, dense_9) count from the first of their kind
    (dense, dense_1), on both sides, for they say how many layers a program made before. Raises ValueError
    with the missing, the unexpected and the mis-shaped ones, and the model keeps its weights; with
    `skip_mismatch` what does not fit is left out, and a warning lists it.
    """
    npz = str(filepath).endswith(".npz")
    with NpzFile(filepath) if npz else load_safetensors(filepath) as file:
        weights = by_path(model)
        stems = _automatic(model)
        stored = {counted: name for name, counted in _counted(file, stems).items()}
        found = {
            name: stored.get(counted, name) for name, counted in _counted(weights, stems).items()
        }
        back = {theirs: name for name, theirs in found.items()}
        told = differences(
            {name: tuple(v.shape) for name, v in weights.items()},
            {back.get(theirs, theirs): file.shape(theirs) for theirs in file},
        )
        if told and not skip_mismatch:
            raise ValueError(
                f"{filepath} does not fit model {model.name!r}, which keeps its weights. {told}"
            )
        if told:
            warnings.warn(f"{filepath}: weights that did not fit were left out. {told}")
        for name, variable in weights.items():
            if found[name] in file and file.shape(found[name]) == tuple(variable.shape):
                variable.assign(file[found[name]])


def _automatic(model: Any) -> set[str]:
    """The beginnings of names that the model and its layers were given automatically."""
    stems = set()
    for layer in [model, *model._flatten_layers()]:
        stem = snake_case(type(layer).__name__)
        if _NUMBERED.fullmatch(layer.name.removeprefix(stem) or "_1"):
            stems.add(stem)
    return stems


_NUMBERED = re.compile(r"_([1-9][0-9]*)")


def _counted(paths: Iterable[str], stems: set[str]) -> dict[str, str]:
    """Each path with the numbers of automatic names replaced by their rank beside the others."""

    def number(part: str) -> tuple[str, int] | None:
        if part in stems:
            return part, 0
        stem, _, count = part.rpartition("_")
        return (stem, int(count)) if stem in stems and _NUMBERED.fullmatch(f"_{count}") else None

    parts = {path: path.split("/") for path in paths}
    for depth in range(max((len(p) for p in parts.values()), default=1) - 1):
        met: dict[tuple[tuple[str, ...], str], set[int]] = {}
        for part in parts.values():
            found = number(part[depth]) if depth < len(part) - 1 else None
            if found is not None:
                met.setdefault((tuple(part[:depth]), found[0]), set()).add(found[1])
        ranks = {key: {n: i for i, n in enumerate(sorted(known))} for key, known in met.items()}
        for part in parts.values():
            found = number(part[depth]) if depth < len(part) - 1 else None
            if found is not None:
                rank = ranks[tuple(part[:depth]), found[0]][found[1]]
                part[depth] = f"{found[0]}_{rank}" if rank else found[0]
    return {path: "/".join(part) for path, part in parts.items()}


def differences(wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> str:
    """What is missing, unexpected and mis-shaped, in a sentence; empty where all fits."""
    shapes = [
        f"{name}: {found[name]} for a weight of shape {shape}"
        for name, shape in sorted(wanted.items())
        if name in found and found[name] != shape
    ]
    lists = {
        "missing": sorted(set(wanted) - set(found)),
        "unexpected": sorted(set(found) - set(wanted)),
        "mis-shaped": shapes,
    }
    return "; ".join(f"{kind}: {_listed(names)}" for kind, names in lists.items() if names)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def save_npz(
    filepath: str | os.PathLike[str], tensors: Mapping[str, Any], overwrite: bool = True
) -> None:
    """Write named arrays (or tensors, variables) to an uncompressed `.npz`, one at a time, without pickles."""
    with (
        atomic_path(filepath, overwrite) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        for name, tensor in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                array = np.asarray(tensor)
                np.lib.format.write_array(file, array, allow_pickle=False)


class NpzFile(Mapping[str, np.ndarray]):
    """The arrays of a `.npz`, each read when it is asked for. Headers are checked before; pickles are refused."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise self._damaged(f"cannot be opened ({error})") from error
        try:
            self._entries = dict(self._check())
        except BaseException:
            self._archive.close()
            raise

    def _damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(f"{self.path} {what}; it is not a sound .npz file")

    def _check(self) -> Iterator[tuple[str, tuple[zipfile.ZipInfo, tuple[int, ...]]]]:
        seen = set()
        for info in self._archive.infolist():
            if not info.filename.endswith(".npy"):
                raise self._damaged(f"holds {info.filename!r}, which is no array")
            name = info.filename.removesuffix(".npy")
            if name in seen:
                raise self._damaged(f"has {name!r} twice")
            seen.add(name)
            yield name, (info, self._header(name, info))

    def _header(self, name: str, info: zipfile.ZipInfo) -> tuple[int, ...]:
        try:
            with self._archive.open(info) as file:
                version = np.lib.format.read_magic(file)
                readers = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }
                shape, _, dtype = readers[version](file)
                start = file.tell()
        except Exception as error:  # NumPy's parser of headers raises whatever Python's own does
            raise self._damaged(f"has an array {name!r} that cannot be read ({error})") from error
        if dtype.kind not in "fiub":
            raise self._damaged(f"stores {name!r} as {dtype}, which is no number")
        count = 1
        for n in shape:
            count *= n
        if min(shape, default=0) < 0 or start + count * dtype.itemsize != info.file_size:
            raise self._damaged(
                f"gives {name!r} the shape {shape} of {dtype}, and holds {info.file_size - start} bytes for it"
            )
        return tuple(shape)

    def __getitem__(self, name: str) -> np.ndarray:
        info, shape = self._entries[name]
        try:
            with self._archive.open(info) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise self._damaged(f"has an array {name!r} that cannot be read ({error})") from error
        assert array.shape == shape
        return array

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name][1]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        self._archive.close()

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
