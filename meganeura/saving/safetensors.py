"""The safetensors format: a JSON header with names, dtypes, shapes and offsets, then raw little-endian data.

Files are memory-mapped and read one tensor at a time, so that loading needs host memory for the
largest tensor only. The header is checked completely before anything is read: sizes, overlaps,
gaps, duplicate names. Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meganeura.saving.atomic import atomic_path
from meganeura.saving.safe_h5 import DamagedFileError

LARGEST_HEADER = 100 << 20

#: File dtype -> (NumPy dtype of the bytes, dtype handed out). bfloat16 has no NumPy type.
_DTYPES: dict[str, tuple[str, str]] = {
    "F64": ("<f8", "float32"),
    "F32": ("<f4", "float32"),
    "F16": ("<f2", "float32"),
    "BF16": ("<u2", "float32"),
    "I64": ("<i8", "int32"),
    "I32": ("<i4", "int32"),
    "I16": ("<i2", "int32"),
    "I8": ("i1", "int32"),
    "U32": ("<u4", "uint32"),
    "U16": ("<u2", "int32"),
    "U8": ("u1", "uint8"),
    "BOOL": ("?", "bool"),
}


class SafetensorsFile(Mapping[str, np.ndarray]):
    """A mapping from names to arrays (float32, int32, ...), each read when it is asked for.

    `half=True` keeps F16 as float16. Use as a context manager, or call `close`.
    """

    def __init__(self, path: str | os.PathLike[str], half: bool = False):
        self.path = Path(path)
        self._half = half
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise self._damaged(f"has {size} bytes, too few for a header")
            (length,) = struct.unpack("<Q", prefix)
            if length > min(LARGEST_HEADER, size - 8):
                raise self._damaged(f"declares a header of {length} bytes in a file of {size}")
            try:
                header = json.loads(file.read(length), object_pairs_hook=self._unique)
            except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
                raise self._damaged(f"has a header that is not JSON ({error})") from error
            if not isinstance(header, dict):
                raise self._damaged("has a header that is not a JSON object")
            metadata = header.pop("__metadata__", None) or {}
            self.metadata: dict[str, str] = {str(k): str(v) for k, v in dict(metadata).items()}
            self._start = 8 + length
            self._entries = self._check(header, size - self._start)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(f"{self.path} {what}; it is not a sound safetensors file")

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise self._damaged("names a tensor twice")
        return found

    def _check(
        self, header: dict[str, Any], available: int
    ) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
        entries: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        for name, entry in header.items():
            try:
                dtype, shape = entry["dtype"], tuple(entry["shape"])
                begin, end = entry["data_offsets"]
            except (TypeError, KeyError, ValueError) as error:
                raise self._damaged(f"describes {name!r} incompletely") from error
            if dtype not in _DTYPES:
                raise self._damaged(f"stores {name!r} as {dtype!r}, which is not supported")
            if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
                raise self._damaged(f"gives {name!r} a shape or offsets that are not sizes")
            count = 1
            for n in shape:
                count *= n
            wanted = count * np.dtype(_DTYPES[dtype][0]).itemsize
            if end - begin != wanted or end > available:
                raise self._damaged(
                    f"gives {name!r} the bytes {begin} to {end} of {available}, "
                    f"and its shape {shape} needs {wanted}"
                )
            entries[name] = (dtype, shape, begin, end)
        position = 0
        for name, (_, _, begin, end) in sorted(entries.items(), key=lambda e: (e[1][2], e[1][3])):
            if begin != position:
                what = "overlaps the tensor before it" if begin < position else "follows a gap"
                raise self._damaged(f"has a tensor {name!r} that {what}")
            position = end
        if position != available:
            raise self._damaged(f"has {available - position} bytes after its last tensor")
        return entries

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._entries:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        dtype, shape, begin, _ = self._entries[name]
        stored, given = _DTYPES[dtype]
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(self._map, stored, count, self._start + begin).reshape(shape)
        if dtype == "BF16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        if dtype == "F16" and self._half:
            return array.copy()
        if dtype == "I64" and count and (array.max() > 2**31 - 1 or array.min() < -(2**31)):
            raise self._damaged(f"stores values in {name!r} that do not fit int32")
        return array.astype(given)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name][1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        self._map.close()

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ShardedSafetensors(Mapping[str, np.ndarray]):
    """Several safetensors files behind one index (`model.safetensors.index.json`)."""

    def __init__(self, index: str | os.PathLike[str], half: bool = False):
        self.path = Path(index)
        try:
            weight_map = json.loads(self.path.read_text("utf-8"))["weight_map"]
            pairs = {str(k): str(v) for k, v in weight_map.items()}
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{self.path} is not a safetensors index: {error}") from error
        folder = self.path.parent.resolve()
        self._files: dict[str, SafetensorsFile] = {}
        for name in sorted(set(pairs.values())):
            # A shard is a plain name beside the index: nothing outside the folder is opened.
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise DamagedFileError(f"{self.path} names the file {name!r} outside its folder")
            if (folder / name).resolve().parent != folder and not (folder / name).exists():
                raise DamagedFileError(f"{self.path} names the missing file {name!r}")
            if not (folder / name).is_file():
                raise DamagedFileError(f"{self.path} names the missing file {name!r}")
            self._files[name] = SafetensorsFile(folder / name, half)
        for key, name in pairs.items():
            if key not in self._files[name]:
                raise DamagedFileError(f"{self.path} expects {key!r} in {name}, which lacks it")
        self._where = pairs

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._where:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        return self._files[self._where[name]][name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._files[self._where[name]].shape(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def __enter__(self) -> ShardedSafetensors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load_safetensors(
    path: str | os.PathLike[str], half: bool = False
) -> SafetensorsFile | ShardedSafetensors:
    """Open a safetensors file, a sharded index, or a folder that holds either."""
    path = Path(path)
    if path.is_dir():
        names = ("model.safetensors", "model.safetensors.index.json")
        found = next((path / n for n in names if (path / n).is_file()), None)
        if found is None:
            single = sorted(path.glob("*.safetensors"))
            if len(single) != 1:
                raise FileNotFoundError(f"{path} holds neither {names[0]} nor {names[1]}")
            found = single[0]
        path = found
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if path.suffix == ".json":
        return ShardedSafetensors(path, half)
    return SafetensorsFile(path, half)


_WRITTEN = {"float32": "F32", "float16": "F16", "int32": "I32", "uint32": "U32",
            "uint8": "U8", "bool": "BOOL"}  # fmt: skip


def save_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = True,
) -> None:
    """Write arrays (or tensors and variables) to one safetensors file, atomically, one at a time."""
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = {str(k): str(v) for k, v in metadata.items()}
    position = 0
    for name, tensor in tensors.items():
        dtype = str(getattr(tensor, "dtype", np.asarray(tensor).dtype))
        if dtype not in _WRITTEN:
            raise ValueError(
                f"tensor {name!r} is {dtype}; safetensors files are written with {list(_WRITTEN)}"
            )
        shape = list(getattr(tensor, "shape", np.shape(tensor)))
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        offsets = [position, position + size]
        header[name] = {"dtype": _WRITTEN[dtype], "shape": shape, "data_offsets": offsets}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path, overwrite) as temporary, temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(np.asarray(tensor)).tobytes())
