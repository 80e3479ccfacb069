"""Writing safetensors files, whole or in shards with an index, in float32, float16 or bfloat16."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meganeura.saving.atomic import atomic_path

#: dtype -> its name in files, and NumPy's for its bytes.
WRITTEN = {
    "float32": ("F32", "<f4"), "float64": ("F64", "<f8"), "float16": ("F16", "<f2"),
    "bfloat16": ("BF16", "<u2"), "int64": ("I64", "<i8"), "int32": ("I32", "<i4"),
    "int16": ("I16", "<i2"), "int8": ("I8", "i1"), "uint32": ("U32", "<u4"), "uint16": ("U16", "<u2"),
    "uint8": ("U8", "u1"), "bool": ("BOOL", "?"),
}  # fmt: skip
FLOATS = ("float32", "float16", "bfloat16")

#: Elements that are converted and written at once.
BLOCK = 1 << 20
_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


class _Entry:
    """One tensor: its dtype in the file, shape and size, known before its values are."""

    def __init__(self, name: str, tensor: Any, dtype: str | None):
        self.tensor = tensor if hasattr(tensor, "dtype") else np.asarray(tensor)
        own = str(self.tensor.dtype)
        if own not in WRITTEN:
            raise ValueError(
                f"save_safetensors: tensor {name!r} is {own}; files are written with {', '.join(WRITTEN)}"
            )
        self.dtype = dtype if dtype is not None and own in ("float64", *FLOATS) else own
        self.shape = tuple(int(n) for n in self.tensor.shape)
        size = np.dtype(WRITTEN[self.dtype][1]).itemsize
        self.size = int(np.prod(self.shape, dtype=np.int64)) * size

    def blocks(self, name: str) -> Iterator[memoryview]:
        """The bytes, some at a time."""
        array = np.ascontiguousarray(np.asarray(self.tensor)).reshape(-1)
        for start in range(0, array.size, BLOCK):
            yield _stored(name, array[start : start + BLOCK], self.dtype).data.cast("B")


def _stored(name: str, values: np.ndarray, dtype: str) -> np.ndarray:
    kind = WRITTEN[dtype][1]
    if dtype == "bfloat16":
        return values.view(np.uint16) if values.dtype.name == "bfloat16" else bfloat16_bits(values)
    if dtype != "float16":
        return values.astype(kind, copy=False)
    with np.errstate(over="ignore"):
        halves = values.astype(kind, copy=False)
    if np.any(np.isinf(halves) & np.isfinite(values)):
        raise ValueError(
            f"save_safetensors: tensor {name!r} has values beyond 65504, the largest of float16; "
            "use dtype='bfloat16' or 'float32'"
        )
    return halves


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values, rounded to the nearest, ties to even, as uint16; NaN stays NaN."""
    bits = np.asarray(values, "<f4").view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype("<u2")


def save_safetensors(
    path: str | os.PathLike[str],
    tensors: Any,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = True,
    dtype: str | None = None,
    max_shard_size: int | str | None = None,
) -> list[Path]:
    """Write tensors to a safetensors file, or to several with an index, and return their paths.

    tensors:        name -> array, tensor or variable; or a model (or layer), whose weights are written
                    under their paths
    dtype:          "float32", "float16" or "bfloat16" for all that are real numbers; without it each
                    keeps its own
    max_shard_size: bytes of a file at most, or "500MB", "5GB". What needs more than one goes to
                    NAME-00001-of-00003.safetensors and so on, and to NAME.safetensors.index.json which
                    says what is where. A tensor that is larger has a file of its own.

    One tensor at a time is in memory. A file is written aside and renamed; the index comes last. Raises
    ValueError for dtypes that the format lacks, and for float16 where a value is too large for it.
    """
    if dtype is not None and dtype not in FLOATS:
        raise ValueError(
            f"save_safetensors: dtype is {dtype!r}; use {', '.join(map(repr, FLOATS))}"
        )
    limit = _bytes(max_shard_size)
    if not isinstance(tensors, Mapping):
        tensors = by_path(tensors)
    if "__metadata__" in tensors:
        raise ValueError("save_safetensors: no tensor can have the name '__metadata__'")
    entries = {str(name): _Entry(str(name), x, dtype) for name, x in tensors.items()}
    shards = list(_shards(entries, limit))
    path = Path(path)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already; pass overwrite=True to replace it")
    if len(shards) == 1:
        _write(path, shards[0], metadata, overwrite)
        return [path]
    if path.suffix != ".safetensors":
        raise ValueError(
            f"save_safetensors: {path} is to become {len(shards)} files; its name must end in .safetensors"
        )
    index = path.with_name(f"{path.name}.index.json")
    if index.exists() and not overwrite:
        raise ValueError(f"{index} exists already; pass overwrite=True to replace it")
    where: dict[str, str] = {}
    written = []
    for i, shard in enumerate(shards):
        part = path.with_name(f"{path.stem}-{i + 1:05}-of-{len(shards):05}.safetensors")
        _write(part, shard, metadata, overwrite)
        where.update(dict.fromkeys(shard, part.name))
        written.append(part)
    total = sum(entry.size for entry in entries.values())
    with atomic_path(index, overwrite) as temporary:
        table = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
        temporary.write_text(json.dumps(table, indent=2) + "\n", "utf-8")
    path.unlink(missing_ok=True)  # a whole file of before would be read instead
    return [*written, index]


def by_path(model: Any) -> dict[str, Any]:
    """The weights of a model or layer by their paths. Raises ValueError where two have one path."""
    weights = getattr(model, "weights", None)
    if weights is None:
        raise ValueError(
            f"tensors are a table of names and arrays, or a model, not {type(model).__name__}"
        )
    if not getattr(model, "built", True):
        raise ValueError(
            f"model {model.name!r} has no weights yet; call build(), fit(), or the model itself on data first"
        )
    found: dict[str, Any] = {}
    for variable in weights:
        if found.setdefault(variable.path, variable) is not variable:
            raise ValueError(
                f"model {model.name!r} has two weights of the path {variable.path!r}; give their layers "
                "names of their own"
            )
    return found


def _bytes(size: int | str | None) -> int | None:
    if size is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMG]?i?B)?", str(size).strip(), re.IGNORECASE)
    count = int(float(found[1]) * _UNITS[(found[2] or "").upper()]) if found else 0
    if isinstance(size, bool) or count < 1:
        raise ValueError(
            f"save_safetensors: max_shard_size is a number of bytes or such as '500MB', got {size!r}"
        )
    return count


def _shards(entries: dict[str, _Entry], limit: int | None) -> Iterator[dict[str, _Entry]]:
    """The tensors in order, as many to a file as fit."""
    shard: dict[str, _Entry] = {}
    held = 0
    for name, entry in entries.items():
        if limit is not None and shard and held + entry.size > limit:
            yield shard
            shard, held = {}, 0
        shard[name] = entry
        held += entry.size
    yield shard


def _write(
    path: Path, entries: dict[str, _Entry], metadata: Mapping[str, str] | None, overwrite: bool
) -> None:
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = {str(k): str(v) for k, v in metadata.items()}
    position = 0
    for name, entry in _by_width(entries):
        end = position + entry.size
        kind = WRITTEN[entry.dtype][0]
        header[name] = {"dtype": kind, "shape": list(entry.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path, overwrite) as temporary, temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in _by_width(entries):
            for block in entry.blocks(name):
                file.write(block)


def _by_width(entries: dict[str, _Entry]) -> Iterable[tuple[str, _Entry]]:
    """Wide numbers first, so that each begins at a multiple of its width, as readers that map files want."""
    return sorted(entries.items(), key=lambda e: -np.dtype(WRITTEN[e[1].dtype][1]).itemsize)
