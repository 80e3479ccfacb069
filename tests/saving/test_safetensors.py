"""safetensors: round trips, real dtypes, and files that lie about themselves."""

import json
import struct

import numpy as np
import pytest

from meganeura.saving.safe_h5 import DamagedFileError
from meganeura.saving.safetensors import load_safetensors, save_safetensors


def pack(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_round_trip(tmp_path):
    random = np.random.default_rng(0)
    tensors = {
        "a": random.standard_normal((3, 4)).astype("float32"),
        "b.weight": np.arange(5, dtype="int32"),
        "empty": np.zeros((0, 3), "float32"),
        "scalar": np.float32(2.5),
        "flags": np.array([True, False]),
        "half": np.array([1.5, -2], "float16"),
    }
    path = tmp_path / "model.safetensors"
    save_safetensors(path, tensors, {"format": "np"})
    with load_safetensors(tmp_path) as file:
        assert file.metadata == {"format": "np"}
        assert set(file) == set(tensors)
        for name, array in tensors.items():
            np.testing.assert_array_equal(file[name], array)
            assert file.shape(name) == np.shape(array)
        with pytest.raises(KeyError, match="'c'"):
            file["c"]


def test_bfloat16_and_float16_become_float32(tmp_path):
    values = np.array([1.0, -2.5, 3e38, 1e-30], "float32")
    bits = (values.view("uint32") >> 16).astype("uint16")
    data = bits.tobytes() + values[:2].astype("float16").tobytes()
    header = {"b": entry("BF16", (4,), (0, 8)), "h": entry("F16", (2,), (8, 12))}
    (tmp_path / "m.safetensors").write_bytes(pack(header, data))
    with load_safetensors(tmp_path / "m.safetensors") as file:
        np.testing.assert_array_equal(file["b"], (bits.astype("uint32") << 16).view("float32"))
        np.testing.assert_array_equal(file["h"], values[:2])
        assert file["b"].dtype == file["h"].dtype == np.float32


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "too few"),
        (struct.pack("<Q", 1 << 60), "declares a header"),
        (pack(b"{"), "not JSON"),
        (pack(b"[" * 100000), "not JSON"),
        (pack([1]), "not a JSON object"),
        (pack({"a": {}}), "incompletely"),
        (pack({"a": entry("F8")}, bytes(8)), "not supported"),
        (pack({"a": entry(shape=(-2,))}, bytes(8)), "not sizes"),
        (pack({"a": entry(shape=(2**40, 2**40))}, bytes(8)), "needs"),
        (pack({"a": entry(offsets=(0, 16))}, bytes(8)), "needs"),
        (pack({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)), "overlaps"),
        (pack({"a": entry(offsets=(4, 12))}, bytes(12)), "gap"),
        (pack({"a": entry()}, bytes(9)), "after its last"),
        (pack(b'{"a":' + json.dumps(entry()).encode() + b',"a":{}}', bytes(8)), "twice"),
    ],
)
def test_hostile_files_are_refused(tmp_path, content, message):
    path = tmp_path / "evil.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=message) as caught:
        load_safetensors(path)
    assert "evil" in str(caught.value)


def test_sharded_index(tmp_path):
    save_safetensors(tmp_path / "one.safetensors", {"a": np.ones(2, "float32")})
    save_safetensors(tmp_path / "two.safetensors", {"b": np.zeros(3, "float32")})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    with load_safetensors(tmp_path) as file:
        assert list(file) == ["a", "b"]
        np.testing.assert_array_equal(file["a"], np.ones(2))


@pytest.mark.parametrize(
    "weight_map",
    [
        {"a": "../one.safetensors"},
        {"a": "/etc/passwd"},
        {"a": "missing.safetensors"},
        [1],
        {"a": 3},
    ],
)
def test_hostile_index_is_refused(tmp_path, weight_map):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(DamagedFileError):
        load_safetensors(index)


def test_failed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "m.safetensors"
    save_safetensors(path, {"a": np.ones(2, "float32")})

    class Broken:
        shape, dtype = (2,), "float32"

        def __array__(self, *_, **__):
            raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        save_safetensors(path, {"a": Broken()})
    with load_safetensors(path) as file:
        np.testing.assert_array_equal(file["a"], np.ones(2))
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]
    with pytest.raises(ValueError, match="complex"):
        save_safetensors(path, {"a": np.ones(2, "complex64")})
