"""Arrays out of pickles, without running what else a pickle may ask for."""

from __future__ import annotations

import ast
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np


def _encode(text: str, encoding: str) -> bytes:
    """What pickles of Python 3 call to make bytes; nothing but this encoding is allowed."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the encoding {encoding!r} is not allowed")
    return text.encode("latin1")


def _reconstruct(kind: Any, shape: Any, typecode: Any) -> np.ndarray:
    if kind is not np.ndarray:
        raise pickle.UnpicklingError("only NumPy's arrays are allowed")
    return np.ndarray.__new__(np.ndarray, (0,), "b")


_ALLOWED: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def loads(data: bytes, source: Any) -> Any:
    """The lists, dicts and arrays in a pickle. Raises ValueError where it asks for anything else."""
    try:
        return _ArrayUnpickler(io.BytesIO(data), encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises whatever it likes
        raise ValueError(f"{source} is damaged or no data set, and is refused: {error}") from error


def load_npz(path: Path, names: tuple[str, ...]) -> list[np.ndarray]:
    """Arrays of an `.npz` file by name; those of lists are pickled in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [_array(archive.read(f"{name}.npy"), f"{path}: {name}") for name in names]
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path} is not the data set's archive: {error}") from error


def _array(data: bytes, source: str) -> np.ndarray:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    length = int.from_bytes(stream.read(2 if version[0] == 1 else 4), "little")
    header = ast.literal_eval(stream.read(length).decode("latin1"))
    if header["descr"] != "|O":
        return np.load(io.BytesIO(data), allow_pickle=False)
    return np.asarray(loads(stream.read(), source), dtype=object)
