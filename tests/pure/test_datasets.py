"""IDX files and the download cache, with good and bad input."""

import gzip
import hashlib
import struct

import numpy as np
import pytest

from meganeura.datasets.download import DownloadError, fetch
from meganeura.datasets.idx import find_idx, read_idx


def idx_bytes(array: np.ndarray) -> bytes:
    header = b"\x00\x00\x08" + bytes([array.ndim])
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def array():
    return np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_round_trip(tmp_path, array, pack):
    path = tmp_path / "images-idx3-ubyte"
    path.write_bytes(pack(idx_bytes(array)))
    np.testing.assert_array_equal(read_idx(path), array)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b"\x00\x00\x0d" + b[3:], "not an IDX file"),
        (lambda b: b[:3], "not an IDX file"),
        (lambda b: b[:7], "truncated"),
        (lambda b: b[:-1], "truncated"),
        (lambda b: b + b"x", "bytes after its data"),
        (lambda b: b[:4] + b"\xff" * 12 + b[16:], "more than"),
        (lambda b: gzip.compress(b)[:-9], "cannot be read|truncated"),
    ],
)
def test_damage_is_named(tmp_path, array, change, message):
    path = tmp_path / "bad"
    path.write_bytes(change(idx_bytes(array)))
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(path)
    assert "bad" in str(caught.value)


def test_find_idx_knows_the_spellings(tmp_path):
    (tmp_path / "t10k-images.idx3-ubyte.gz").write_bytes(b"")
    assert find_idx(tmp_path, "t10k-images-idx3-ubyte").name == "t10k-images.idx3-ubyte.gz"
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte"):
        find_idx(tmp_path, "train-images-idx3-ubyte")


def test_fetch_keeps_a_good_file_only(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGANEURA_HOME", str(tmp_path / "home"))
    source = tmp_path / "source.bin"
    source.write_bytes(b"digits")
    good = hashlib.sha256(b"digits").hexdigest()
    with pytest.raises(DownloadError, match="SHA-256"):
        fetch("a.bin", source.as_uri(), "0" * 64)
    assert not list((tmp_path / "home" / "datasets").iterdir())
    path = fetch("a.bin", source.as_uri(), good)
    source.unlink()
    assert fetch("a.bin", source.as_uri(), good) == path  # from the cache, without the source
    with pytest.raises(DownloadError, match="could not be downloaded"):
        fetch("b.bin", source.as_uri(), good)
