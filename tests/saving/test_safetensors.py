"""safetensors: round trips, real dtypes, and files that lie about themselves."""

import json
import os
import struct

import numpy as np
import pytest

from meganeura.saving import safetensors as reader
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
        (struct.pack("<Q", 1 << 20) + bytes(64), "declares a header"),
        (pack(b"{}")[:9], "declares a header"),
        (pack({"a": entry(shape=(2.0,))}, bytes(8)), "not sizes"),
        (pack({"a": entry(shape=(True, 2))}, bytes(8)), "not sizes"),
        (pack({"a": entry(offsets=(8, 0))}, bytes(8)), "needs"),
        (pack({"a": {**entry(), "data_offsets": [0]}}, bytes(8)), "incompletely"),
        (pack({"a": entry(shape=(2**62, 0), offsets=(0, 0)), "b": 3}), "incompletely"),
        (pack({"a": entry(), "b": entry(offsets=(0, 8))}, bytes(8)), "overlaps"),
        (pack({"a": entry()}, bytes(7)), "needs"),
        (pack({"__metadata__": [1], "a": entry()}, bytes(8)), "__metadata__"),
        (pack(b"\xff\xfe{}"), "not JSON"),
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
    ("text", "message"),
    [
        ('{"weight_map": {"a": "../one.safetensors"}}', "no plain name"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "no plain name"),
        ('{"weight_map": {"a": "..\\\\one.safetensors"}}', "no plain name"),
        ('{"weight_map": {"a": "sub/../one.safetensors"}}', "no plain name"),
        ('{"weight_map": {"a": "one.bin"}}', "no plain name"),
        ('{"weight_map": {"a": "missing.safetensors"}}', "missing"),
        ('{"weight_map": {"a": "folder.safetensors"}}', "missing"),
        ('{"weight_map": {"a": "outside.safetensors"}}', "outside its folder"),
        ('{"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}}', "name twice"),
        ('{"weight_map": {"b": "one.safetensors"}}', "lacks it"),
        ('{"weight_map": [1]}', "no readable"),
        ('{"weight_map": {"a": 3}}', "no plain name"),
        ("[1]", "no readable"),
        ("[" * 100000, "no readable"),
        ('{"weights": {}}', "no readable"),
    ],
)
def test_hostile_index_is_refused(tmp_path, text, message):
    (tmp_path / "in" / "folder.safetensors").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "in"):
        save_safetensors(place / "one.safetensors", {"a": np.ones(2, "float32")})
    (tmp_path / "in" / "outside.safetensors").symlink_to(tmp_path / "one.safetensors")
    index = tmp_path / "in" / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(DamagedFileError, match=message):
        load_safetensors(index)


def test_links_within_the_folder_and_in_a_cache_are_followed(tmp_path):
    folder = tmp_path / "snapshots" / "f00"
    (tmp_path / "blobs").mkdir()
    folder.mkdir(parents=True)
    save_safetensors(tmp_path / "blobs" / "abc", {"a": np.ones(2, "float32")})
    save_safetensors(folder / "own.safetensors", {"b": np.ones(3, "float32")})
    (folder / "one.safetensors").symlink_to("../../blobs/abc")
    (folder / "two.safetensors").symlink_to("own.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    with load_safetensors(folder) as file:
        assert file["a"].shape == (2,) and file["b"].shape == (3,)


def test_a_file_that_shrinks_while_it_is_open(tmp_path):
    path = tmp_path / "m.safetensors"
    save_safetensors(path, {"a": np.ones(1000, "float32")})
    with load_safetensors(path) as file:
        os.truncate(path, 2000)
        with pytest.raises(DamagedFileError, match="cut off"):
            file["a"]


def test_large_tensors_are_read_block_by_block(tmp_path, monkeypatch):
    """Rows, single values and rows that are larger than a block, into places of any layout."""
    monkeypatch.setattr(reader, "BLOCK", 64)
    random = np.random.default_rng(0)
    tensors = {
        name: random.standard_normal(shape).astype("float32")
        for name, shape in {"rows": (50, 3), "flat": (1001,), "wide": (3, 2, 41), "one": ()}.items()
    }
    for dtype in ("float32", "float16", "bfloat16"):
        save_safetensors(tmp_path / "m.safetensors", tensors, dtype=dtype)
        with load_safetensors(tmp_path) as file:
            for name, array in tensors.items():
                whole = file[name]
                np.testing.assert_allclose(whole, array, rtol=1e-2 if dtype != "float32" else 0)
                turned = np.empty(array.shape[::-1], "float64")
                file.read_into(name, turned.T)
                np.testing.assert_array_equal(turned.T, whole)
            with pytest.raises(ValueError, match="has the shape"):
                file.read_into("rows", np.empty((3, 50)))


SPECIAL = np.array(
    [0.0, -0.0, 1.0, 1 + 2**-8, 1 + 3 * 2**-8, 65504, 1e-8, 3e-39, -2.5, np.inf, -np.inf, np.nan],
    "float32",
)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shards", [None, 700])
def test_both_ways_with_the_safetensors_package(tmp_path, dtype, shards):
    safetensors = pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    random = np.random.default_rng(0)
    tensors = {
        f"layer.{i}.é": random.standard_normal((3, 4 * i)).astype("float32") for i in range(9)
    }
    tensors |= {"special": SPECIAL, "scalar": np.float32(3), "ids": np.arange(5, dtype="int32")}
    wanted = {
        n: torch.tensor(x).to(getattr(torch, dtype)) if x.dtype == np.float32 else torch.tensor(x)
        for n, x in tensors.items()
    }
    written = save_safetensors(
        tmp_path / "ours.safetensors", tensors, {"format": "pt"}, dtype=dtype, max_shard_size=shards
    )
    theirs = {}
    for path in written:
        if path.suffix == ".json":
            continue
        with safetensors.safe_open(path, "pt") as file:
            assert file.metadata() == {"format": "pt"}
            theirs |= {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118
        assert shards is None or path.stat().st_size < 700 + 1200
    assert set(theirs) == set(wanted)
    for name, tensor in wanted.items():
        assert theirs[name].dtype == tensor.dtype
        np.testing.assert_array_equal(theirs[name].float().numpy(), tensor.float().numpy())
    save_file(wanted, tmp_path / "theirs.safetensors")
    with (
        load_safetensors(written[-1]) as ours,
        load_safetensors(tmp_path / "theirs.safetensors") as same,
    ):
        assert set(ours) == set(same) == set(wanted)
        for name, tensor in wanted.items():
            np.testing.assert_array_equal(ours[name], tensor.float().numpy())
            np.testing.assert_array_equal(same[name], tensor.float().numpy())
        assert (
            ours.stored_dtype("special")
            == {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
        )


def test_shards(tmp_path):
    tensors = {f"t{i}": np.full(100, i, "float32") for i in range(5)}
    paths = save_safetensors(tmp_path / "m.safetensors", tensors, max_shard_size="0.9KB")
    assert [p.name for p in paths] == [
        "m-00001-of-00003.safetensors", "m-00002-of-00003.safetensors",
        "m-00003-of-00003.safetensors", "m.safetensors.index.json",
    ]  # fmt: skip
    index = json.loads(paths[-1].read_text())
    assert index["metadata"] == {"total_size": 2000} and index["weight_map"]["t4"] == paths[2].name
    with load_safetensors(paths[-1]) as file:
        assert list(file) == list(tensors) and float(file["t3"][0]) == 3
    assert save_safetensors(tmp_path / "n.safetensors", tensors, max_shard_size="1GB") == [
        tmp_path / "n.safetensors"
    ]
    assert len(save_safetensors(tmp_path / "o.safetensors", tensors, max_shard_size=1)) == 6
    with pytest.raises(ValueError, match="exists already"):
        save_safetensors(tmp_path / "m.safetensors", tensors, overwrite=False, max_shard_size=800)
    for size in (0, -1, "5 parsecs", True, "GB"):
        with pytest.raises(ValueError, match="max_shard_size"):
            save_safetensors(tmp_path / "m.safetensors", tensors, max_shard_size=size)


def test_what_cannot_be_written(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match=r"'big' has values beyond 65504"):
        save_safetensors(path, {"big": np.full(3, 1e6, "float32")}, dtype="float16")
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        save_safetensors(path, {}, dtype="int8")
    with pytest.raises(ValueError, match="__metadata__"):
        save_safetensors(path, {"__metadata__": np.ones(1)})
    with pytest.raises(ValueError, match="a table of names"):
        save_safetensors(path, [np.ones(1)])
    assert not list(tmp_path.iterdir())


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
