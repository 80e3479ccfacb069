"""Weights by name, in `.npz` and safetensors files: round trips, strictness, files that lie."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers
from meganeura.saving import DamagedFileError
from meganeura.saving.named_weights import NpzFile

ENDINGS = ["npz", "safetensors"]


def make(units: int = 4, last: str = "b") -> Any:
    return mg.Sequential(
        [
            mg.Input((6, 6, 1)),
            layers.Conv2D(2, 3, name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.Flatten(),
            layers.Dense(units, name=last),
        ],
        name="m",
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_round_trip(tmp_path: Path, ending: str) -> None:
    model, other = make(), make()
    model.compile("adam", "mse")
    model.fit(np.ones((4, 6, 6, 1)), np.ones((4, 4)), verbose=0)
    model.save_weights(tmp_path / f"w.{ending}")
    other.load_weights(tmp_path / f"w.{ending}")
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="exists already"):
        model.save_weights(tmp_path / f"w.{ending}", overwrite=False)


def test_names_are_paths(tmp_path: Path) -> None:
    model = make()
    model.save_weights(tmp_path / "w.npz")
    with np.load(tmp_path / "w.npz", allow_pickle=False) as file:
        assert sorted(file) == sorted(v.path for v in model.weights)
        np.testing.assert_array_equal(file["m/conv/kernel"], model.layers[0].kernel.numpy())
    np.savez_compressed(
        tmp_path / "z.npz", **{v.path: v.numpy().astype("float64") + 1 for v in model.weights}
    )
    before = model.get_weights()
    model.load_weights(tmp_path / "z.npz")
    for one, two in zip(before, model.get_weights(), strict=True):
        np.testing.assert_allclose(one + 1, two, rtol=1e-6)


def test_shards(tmp_path: Path) -> None:
    model, other = make(), make()
    model.save_weights(tmp_path / "w.safetensors", max_shard_size="200B")
    assert len(list(tmp_path.iterdir())) > 2
    other.load_weights(tmp_path / "w.safetensors.index.json")
    np.testing.assert_array_equal(
        model.layers[-1].get_weights()[0], other.layers[-1].get_weights()[0]
    )
    with pytest.raises(ValueError, match=r"for \.safetensors alone"):
        model.save_weights(tmp_path / "w.npz", max_shard_size=1)


@pytest.mark.parametrize("ending", ENDINGS)
def test_strict(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"w.{ending}"
    make(5, "c").save_weights(path)
    model = make(5)
    before = model.get_weights()
    with pytest.raises(
        ValueError,
        match=r"does not fit model 'm', which keeps its weights\. "
        r"missing: m/b/bias, m/b/kernel; unexpected: m/c/bias, m/c/kernel$",
    ):
        model.load_weights(path)
    other = make(4, "c")
    with pytest.raises(
        ValueError, match=r"mis-shaped: m/c/bias: \(5,\) for a weight of shape \(4,\), m/c/kernel"
    ):
        other.load_weights(path)
    for one, two in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.warns(UserWarning, match="left out. missing"):
        model.load_weights(path, skip_mismatch=True)
    with pytest.raises(ValueError, match="leave by_name out"):
        model.load_weights(path, by_name=True)
    with pytest.raises(FileNotFoundError):
        model.load_weights(tmp_path / f"nowhere.{ending}")


def test_automatic_names_count_from_the_first(tmp_path: Path) -> None:
    def build() -> Any:
        inner = mg.Sequential([mg.Input((3,)), layers.Dense(3), layers.Dense(3)])
        x = y = mg.Input((3,))
        for _ in range(10):
            y = layers.Dense(3)(y)
        return mg.Model(x, layers.Dense(2, name="head")(inner(y)))

    model = build()
    model.save_weights(tmp_path / "w.npz")
    _ = build(), mg.Sequential([mg.Input((3,)), layers.Dense(3)])
    other = build()
    assert [v.path for v in other.weights] != [v.path for v in model.weights]
    other.load_weights(tmp_path / "w.npz")
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    named = mg.Sequential([mg.Input((3,)), layers.Dense(2, name="block_2")], name="m")
    named.save_weights(tmp_path / "n.npz")
    with pytest.raises(ValueError, match="unexpected: m/block_2"):
        mg.Sequential([mg.Input((3,)), layers.Dense(2, name="block_1")], name="m").load_weights(
            tmp_path / "n.npz"
        )


def test_two_weights_of_one_path(tmp_path: Path) -> None:
    class Twice(mg.Model):
        def __init__(self) -> None:
            super().__init__(name="twice")
            self.a = layers.Dense(2, name="same")
            self.b = layers.Dense(2, name="same")

        def call(self, x: Any) -> Any:
            return self.b(self.a(x))

    model = Twice()
    with pytest.raises(ValueError, match="no weights yet"):
        model.save_weights(tmp_path / "w.npz")
    model(np.ones((1, 2), "float32"))
    with pytest.raises(ValueError, match="two weights of the path 'twice/same/kernel'"):
        model.save_weights(tmp_path / "w.npz")


def npy(array: Any = None, header: bytes | None = None, data: bytes = b"") -> bytes:
    file = io.BytesIO()
    if header is None:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
        return file.getvalue()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def described(shape: str, descr: str = "'<f4'") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("run",))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.npy", npy(np.array([Evil()], object)))], "no number"),
        ([("a.npy", pickle.dumps(Evil()))], "cannot be read"),
        ([("a.npy", npy(np.ones(2))), ("a.npy", npy(np.ones(2)))], "twice"),
        ([("a.txt", b"")], "no array"),
        ([("../a.txt", b"")], "no array"),
        ([("a.npy", npy(header=described("(1000000000000,)"), data=bytes(8)))], "holds 8 bytes"),
        (
            [("a.npy", npy(header=described("(-1, -2)"), data=bytes(8)))],
            "holds 8 bytes|cannot be read",
        ),
        ([("a.npy", npy(header=described("(2,)"), data=bytes(7)))], "holds 7 bytes"),
        ([("a.npy", npy(header=described("(2,)", "'<U4'"), data=bytes(32)))], "no number"),
        ([("a.npy", npy(header=b"{" * 3000))], "cannot be read"),
        ([("a.npy", npy(header=b"__import__('os')"))], "cannot be read"),
        ([("a.npy", b"")], "cannot be read"),
    ],
)
def test_hostile_npz(tmp_path: Path, members: Any, message: str, capsys: Any) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of names that are there twice
        with zipfile.ZipFile(tmp_path / "evil.npz", "w") as file:
            for name, data in members:
                file.writestr(name, data)
    with pytest.raises(DamagedFileError, match=message) as caught:
        make().load_weights(tmp_path / "evil.npz")
    assert "evil.npz" in str(caught.value) and capsys.readouterr().out == ""


def test_damaged_npz(tmp_path: Path) -> None:
    model = make()
    model.save_weights(tmp_path / "w.npz")
    whole = (tmp_path / "w.npz").read_bytes()
    rng = np.random.default_rng(0)
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "e.npz").write_bytes(whole[:cut])
        with pytest.raises(DamagedFileError):
            model.load_weights(tmp_path / "e.npz")
    for _ in range(100):
        data = bytearray(whole)
        data[rng.integers(len(data))] = rng.integers(256)
        (tmp_path / "e.npz").write_bytes(data)
        try:
            with NpzFile(tmp_path / "e.npz") as file:
                for name in file:
                    assert file[name].size >= 0
        except DamagedFileError:
            pass


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_failed_save_leaves_the_old_file(tmp_path: Path, ending: str, monkeypatch: Any) -> None:
    model, path = make(), tmp_path / f"w.{ending}"
    model.save_weights(path)
    before = path.read_bytes()

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("No space left on device")

    monkeypatch.setattr(mg.Variable, "numpy", fail)
    with pytest.raises(OSError, match="No space"):
        model.save_weights(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]
