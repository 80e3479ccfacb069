"""The safetensors format: a JSON header with names, dtypes, shapes and offsets, then raw little-endian data.

Tensors are read one at a time, when they are asked for, a megabyte at once, and each value goes
straight to where it is wanted, so that loading needs host memory for the largest tensor only. (A mapped
file would count as the process's memory for as long as it is open.) The header is checked completely
before anything is read: sizes, overlaps, gaps, duplicate names. Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meganeura.saving.safe_h5 import DamagedFileError
from meganeura.saving.safetensors_writer import save_safetensors as save_safetensors

LARGEST_HEADER = 100 << 20

#: Bytes of a file that are read at once.
BLOCK = 1 << 20

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
        self._lock = threading.Lock()
        self._file = self.path.open("rb", buffering=0)
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def _read_header(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        prefix = self._file.read(8) or b""
        if len(prefix) < 8:
            raise self._damaged(f"has {size} bytes, too few for a header")
        (length,) = struct.unpack("<Q", prefix)
        if length > min(LARGEST_HEADER, size - 8):
            raise self._damaged(f"declares a header of {length} bytes in a file of {size}")
        text = bytearray(length)
        self._fill(memoryview(text), 8, "its header")
        try:
            header = json.loads(text.decode("utf-8"), object_pairs_hook=self._unique)
        except (ValueError, RecursionError) as error:
            if isinstance(error, DamagedFileError):
                raise
            raise self._damaged(f"has a header that is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise self._damaged("has a header that is not a JSON object")
        metadata = header.pop("__metadata__", None) or {}
        if not isinstance(metadata, dict):
            raise self._damaged("has a __metadata__ that is not a table of texts")
        self.metadata: dict[str, str] = {str(k): str(v) for k, v in metadata.items()}
        self._start = 8 + length
        self._entries = self._check(header, size - self._start)

    def _fill(self, view: memoryview, position: int, what: str) -> None:
        """Read bytes of the file from this position on, all that the view has room for."""
        with self._lock:
            self._file.seek(position)
            done = 0
            while done < len(view):
                count = self._file.readinto(view[done:])
                if not count:
                    raise self._damaged(f"ends within {what}; it was cut off while it was read")
                done += count

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
        out = np.empty(self.shape(name), self.dtype(name))
        self.read_into(name, out)
        return out

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Read a tensor into an array of its shape, which may be a transposed view and of another dtype.

        No more than a block of a megabyte or a few lies in memory beside `out`.
        """
        kind, shape, begin, _ = self._entry(name)
        if out.shape != shape:
            raise ValueError(f"{name!r} has the shape {shape}, and was to be read into {out.shape}")
        self._read(name, kind, self._start + begin, out)

    def _read(self, name: str, kind: str, position: int, out: np.ndarray) -> None:
        size = np.dtype(_DTYPES[kind][0]).itemsize
        row = size * int(np.prod(out.shape[1:], dtype=np.int64))
        if out.ndim > 1 and row > BLOCK:
            for i in range(len(out)):
                self._read(name, kind, position + i * row, out[i])
        elif row * (len(out) if out.ndim else 1) > BLOCK:
            step = max(1, BLOCK // row)
            for i in range(0, len(out), step):
                self._read(name, kind, position + i * row, out[i : i + step])
        else:
            block = np.empty(out.shape, _DTYPES[kind][0])
            self._fill(
                block.data.cast("B") if block.size else memoryview(b""), position, repr(name)
            )
            out[...] = self._values(name, kind, block)

    def _values(self, name: str, kind: str, block: np.ndarray) -> np.ndarray:
        if kind == "BF16":
            return (block.astype(np.uint32) << 16).view(np.float32)
        if kind == "I64" and block.size and (block.max() >= 2**31 or block.min() < -(2**31)):
            raise self._damaged(f"stores values in {name!r} that do not fit int32")
        return block

    def _entry(self, name: str) -> tuple[str, tuple[int, ...], int, int]:
        if name not in self._entries:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        return self._entries[name]

    def dtype(self, name: str) -> str:
        """The dtype that a tensor is given in."""
        kind = self._entry(name)[0]
        return "float16" if kind == "F16" and self._half else _DTYPES[kind][1]

    def stored_dtype(self, name: str) -> str:
        """The file's own word for a tensor's dtype, such as "BF16"."""
        return self._entry(name)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name)[1]

    def __contains__(self, name: object) -> bool:  # Mapping's own would read the tensor
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ShardedSafetensors(Mapping[str, np.ndarray]):
    """Several safetensors files behind one index (`model.safetensors.index.json`)."""

    def __init__(self, index: str | os.PathLike[str], half: bool = False):
        self.path = Path(index)
        self._where = self._pairs()
        self._files: dict[str, SafetensorsFile] = {}
        try:
            for name in sorted(set(self._where.values())):
                self._files[name] = SafetensorsFile(self._shard(name), half)
            for key, name in self._where.items():
                if key not in self._files[name]:
                    raise self._damaged(f"expects {key!r} in {name}, which lacks it")
        except BaseException:
            self.close()
            raise

    def _damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(f"{self.path} {what}; it is not a sound safetensors index")

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise self._damaged("has a name twice")
        return found

    def _pairs(self) -> dict[str, str]:
        if self.path.stat().st_size > LARGEST_HEADER:
            raise self._damaged(f"has {self.path.stat().st_size} bytes")
        try:
            text = self.path.read_text("utf-8")
            weight_map = json.loads(text, object_pairs_hook=self._unique)["weight_map"]
            return {str(key): str(name) for key, name in weight_map.items()}
        except DamagedFileError:
            raise
        except (KeyError, AttributeError, TypeError, ValueError, RecursionError) as error:
            raise self._damaged(f"has no readable weight_map ({error!r})") from error

    def _shard(self, name: str) -> Path:
        """The place of a shard. It is a plain name beside the index, and where that is a link, the link
        stays in the folder or leads, as the Hugging Face cache lays its files out, to ../../blobs."""
        if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
            raise self._damaged(f"names the file {name!r}, which is no plain name in its folder")
        path = self.path.parent / name
        if not path.is_file():
            raise self._damaged(f"names the missing file {name!r}")
        folder = self.path.parent.resolve()
        allowed = [folder]
        if folder.parent.name == "snapshots":
            allowed.append(folder.parent.parent / "blobs")
        if path.resolve().parent not in allowed:
            raise self._damaged(f"names the file {name!r}, a link to a place outside its folder")
        return path

    def _file(self, name: str) -> SafetensorsFile:
        if name not in self._where:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        return self._files[self._where[name]]

    def __getitem__(self, name: str) -> np.ndarray:
        return self._file(name)[name]

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Read a tensor into an array of its shape, as `SafetensorsFile.read_into`."""
        self._file(name).read_into(name, out)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file(name).shape(name)

    def dtype(self, name: str) -> str:
        """The dtype that a tensor is given in."""
        return self._file(name).dtype(name)

    def stored_dtype(self, name: str) -> str:
        """The file's own word for a tensor's dtype, such as "BF16"."""
        return self._file(name).stored_dtype(name)

    def __contains__(self, name: object) -> bool:
        return name in self._where

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
    """Open a safetensors file, a sharded index, or a folder that holds either.

    Gives a mapping from names to arrays, which reads each when it is asked for; use it as a context
    manager. float64, float16 and bfloat16 become float32 (float16 stays with `half`), int64 int32.
    Raises FileNotFoundError, and DamagedFileError for files that are not sound.
    """
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
