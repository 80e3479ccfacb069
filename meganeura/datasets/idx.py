"""The IDX format of the MNIST files: a big-endian header, then unsigned bytes."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

#: More than any data set in this format needs; a header that declares more is refused.
LARGEST = 1 << 31


def read_idx(path: str | Path) -> np.ndarray:
    """The uint8 array in an IDX file, gzip-compressed or not.

    Raises ValueError, naming the file, where it is not IDX of unsigned bytes, where it is
    truncated or damaged, or where bytes follow the data.
    """
    path = Path(path)
    raw = path.open("rb")
    with raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = gzip.GzipFile(fileobj=raw) if compressed else raw
        try:
            magic = stream.read(4)
            if len(magic) < 4 or magic[:3] != b"\x00\x00\x08" or not 1 <= magic[3] <= 4:
                raise ValueError(f"{path} is not an IDX file of unsigned bytes")
            header = stream.read(4 * magic[3])
            if len(header) < 4 * magic[3]:
                raise ValueError(f"{path} is truncated: its header ends early")
            shape = struct.unpack(f">{magic[3]}I", header)
            count = 1
            for length in shape:
                count *= length
            if count > LARGEST:
                raise ValueError(f"{path} declares {count} bytes, more than the {LARGEST} allowed")
            data = stream.read(count + 1)
        except (EOFError, OSError) as error:
            raise ValueError(f"{path} cannot be read as IDX: {error}") from error
    if len(data) != count:
        what = "is truncated" if len(data) < count else "has bytes after its data"
        raise ValueError(f"{path} {what}: its header declares {count} bytes for shape {shape}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def find_idx(folder: str | Path, name: str) -> Path:
    """The file `name` in `folder`, compressed or not, with either spelling of the MNIST mirrors."""
    folder = Path(folder)
    spellings = (
        name,
        name + ".gz",
        name.replace("-idx", ".idx"),
        name.replace("-idx", ".idx") + ".gz",
    )
    for spelling in spellings:
        if (folder / spelling).is_file():
            return folder / spelling
    raise FileNotFoundError(f"{folder} holds none of {', '.join(spellings)}")
