"""Weight files: round trips, files of other models, and files that mean harm."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import meganeura as mg
from meganeura import layers
from meganeura.saving import DamagedFileError

SAMPLES = Path(__file__).parents[2].parent / "shared" / "keras" / "samples"


def model(units: int = 5) -> Any:
    return mg.Sequential(
        [
            mg.Input((6, 6, 2)),
            layers.Conv2D(3, 3, name="first"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(units, name="last"),
        ]
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.weights.h5"


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.get_weights(), b.get_weights(), strict=True))


def test_round_trip_with_optimizer(path: Path) -> None:
    first, second = model(), model()
    x, y = np.random.default_rng(0).random((8, 6, 6, 2), "float32"), np.zeros((8, 5), "float32")
    for m in (first, second):
        m.compile("adam", "mse")
    first.fit(x, y, verbose=0)
    first.save_weights(path)
    second.train_on_batch(x, y)
    second.load_weights(path)
    assert same(first, second)
    for a, b in zip(first.optimizer.variables, second.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_layout_is_keras3s(path: Path) -> None:
    model().save_weights(path)
    with h5py.File(path) as file:
        assert file["layers/conv2d/vars/0"].shape == (3, 3, 2, 3)
        assert file["layers/batch_normalization/vars/3"].shape == (3,)
        assert file["layers/dense/vars"].attrs["name"] == "last"
        assert len(file["layers/flatten/vars"]) == 0


def refuse(m: Any, path: Any, message: str, kind: type = ValueError) -> None:
    """The load fails with this message, and the model keeps every weight."""
    before = m.get_weights()
    with pytest.raises(kind, match=message):
        m.load_weights(path)
    assert all(np.array_equal(a, b) for a, b in zip(before, m.get_weights(), strict=True))


def test_other_model(path: Path) -> None:
    model(7).save_weights(path)
    refuse(model(), path, r"last/kernel.*\(48, 5\).*\(48, 7\)")


def test_skip_mismatch(path: Path) -> None:
    first, second = model(7), model()
    first.save_weights(path)
    with pytest.warns(UserWarning, match="did not fit"):
        second.load_weights(path, skip_mismatch=True)
    np.testing.assert_array_equal(first.get_weights()[0], second.get_weights()[0])


@pytest.mark.parametrize("size", [0, 7, 100, 3000])
def test_truncated(path: Path, size: int) -> None:
    m = model()
    m.save_weights(path)
    path.write_bytes(path.read_bytes()[:size])
    refuse(m, path, "not an HDF5 file|truncated|damaged")


def test_not_hdf5_missing_and_folder(path: Path, tmp_path: Path) -> None:
    path.write_text("weights")
    refuse(model(), path, "not an HDF5 file")
    refuse(model(), tmp_path / "none.weights.h5", "does not exist", FileNotFoundError)
    (tmp_path / "folder.weights.h5").mkdir()
    refuse(model(), tmp_path / "folder.weights.h5", "folder")


def spoil(path: Path, change: Any) -> None:
    model().save_weights(path)
    with h5py.File(path, "a") as file:
        change(file)


def external_storage(file: h5py.File) -> None:
    del file["layers/dense/vars/0"]
    file.create_dataset("layers/dense/vars/0", (48, 5), "f4", external=[("/etc/passwd", 0, 960)])


def soft_link(file: h5py.File) -> None:
    del file["layers/dense/vars/0"]
    file["layers/dense/vars/0"] = h5py.SoftLink("/layers/conv2d/vars/0")


def external_link(file: h5py.File) -> None:
    del file["layers/dense"]
    file["layers/dense"] = h5py.ExternalLink("other.h5", "/")


def terabytes(file: h5py.File) -> None:
    del file["layers/dense/vars/0"]
    file.create_dataset("layers/dense/vars/0", (2**20, 2**20), "f4", chunks=(1024, 1024))


def never_written(file: h5py.File) -> None:
    del file["layers/dense/vars/0"]
    file.create_dataset("layers/dense/vars/0", (48, 5), "f4", chunks=(48, 5))


def strings(file: h5py.File) -> None:
    del file["layers/dense/vars/0"]
    file["layers/dense/vars/0"] = np.array([b"x"])


def missing(file: h5py.File) -> None:
    del file["layers/dense/vars/1"]


def group_for_dataset(file: h5py.File) -> None:
    del file["layers/dense/vars/0"]
    file.create_group("layers/dense/vars/0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (external_storage, "another file"),
        (soft_link, "link"),
        (external_link, "link"),
        (terabytes, "shape|bytes"),
        (never_written, "stores none"),
        (strings, "shape|not numbers"),
        (missing, "2 weights.*1"),
        (group_for_dataset, "dataset"),
    ],
)
def test_hostile(path: Path, change: Any, message: str) -> None:
    spoil(path, change)
    refuse(model(), path, message)


def test_names_and_overwriting(path: Path, tmp_path: Path) -> None:
    m = model()
    with pytest.raises(ValueError, match=r"\.weights\.h5"):
        m.save_weights(tmp_path / "model.h5")
    with pytest.raises(ValueError, match="does not exist"):
        m.save_weights(tmp_path / "nowhere" / "a.weights.h5")
    m.save_weights(path)
    with pytest.raises(ValueError, match="exists already"):
        m.save_weights(path, overwrite=False)


def test_a_crash_keeps_the_old_file(path: Path, monkeypatch: Any) -> None:
    m = model()
    m.save_weights(path)
    before = path.read_bytes()
    monkeypatch.setattr(type(m.layers[-1]), "save_own_variables", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        m.save_weights(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_unbuilt_model_says_so(path: Path) -> None:
    model().save_weights(path)
    with pytest.raises(ValueError, match="build"):
        mg.Sequential([layers.Dense(3)]).load_weights(path)


# --- whole models ------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_whole_model(tmp_path: Path, ending: str) -> None:
    m = model()
    m.compile("adam", "mse", metrics=["mae"])
    x, y = np.random.default_rng(0).random((8, 6, 6, 2), "float32"), np.zeros((8, 5), "float32")
    m.fit(x, y, verbose=0)
    file = tmp_path / f"model.{ending}"
    m.save(file)
    again = mg.models.load_model(file)
    assert same(m, again)
    np.testing.assert_array_equal(m.predict(x, verbose=0), again.predict(x, verbose=0))
    assert again.train_on_batch(x, y) == m.train_on_batch(x, y)  # the optimizer goes on
    assert same(m, again)


def archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def test_hostile_archives(tmp_path: Path) -> None:
    file = tmp_path / "evil.keras"
    file.write_bytes(b"PK nothing")
    with pytest.raises(DamagedFileError, match="not a .keras archive"):
        mg.models.load_model(file)
    with pytest.raises(DamagedFileError, match="no 'config.json'"):
        mg.models.load_model(archive(file, {"metadata.json": b"{}"}))
    with pytest.raises(DamagedFileError, match="not JSON"):
        mg.models.load_model(archive(file, {"config.json": b"{"}))
    bomb = archive(file, {"config.json": b" " * (64 << 20)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(DamagedFileError, match="bomb|allowed"):
        mg.models.load_model(bomb)
    evil = {"class_name": "Lambda", "config": {"name": "l", "function": "os.system"}}
    with pytest.raises(ValueError, match="Lambda"):
        mg.models.load_model(archive(file, {"config.json": json.dumps(evil).encode()}))
    module = {"module": "os", "class_name": "system", "config": {}}
    with pytest.raises(ValueError, match="system"):
        mg.models.load_model(archive(file, {"config.json": json.dumps(module).encode()}))


def test_unknown_ending(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must end in"):
        model().save(tmp_path / "model.bin")
    with pytest.raises(ValueError, match="ends in"):
        mg.models.load_model(io.BytesIO())


@pytest.mark.skipif(not SAMPLES.exists(), reason="the Keras samples are not here")
@pytest.mark.parametrize(
    "name", ["seq_cnn_bn", "func_nested_shared", "lstm_stack", "mha_block", "keras2_cnn"]
)
@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_real_keras_models(name: str, ending: str) -> None:
    m = mg.models.load_model(SAMPLES / f"{name}.{ending}")
    z = np.load(SAMPLES / f"{name}.npz")
    x = [z[k] for k in sorted(z.files) if k.startswith("x_") and k[2:].isdigit()] or [z["x"]]
    y = m.predict(x[0] if len(x) == 1 else x, verbose=0)
    found = list(y) if isinstance(y, (list, tuple)) else [y]
    for i, got in enumerate(found):
        key = next(k for k in (f"y64_{i}", f"y_{i}", "y") if k in z.files)
        np.testing.assert_allclose(got, z[key], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("ending", ["keras", "weights.h5", "h5"])
def test_names_do_not_matter_but_by_name(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"m.{ending}"
    saved = model()
    (saved.save_weights if ending == "weights.h5" else saved.save)(file)
    names = {"first": "another", "last": "renamed"}

    def renamed(layer: Any) -> Any:
        config = layer.get_config()
        return type(layer).from_config({**config, "name": names.get(layer.name, layer.name)})

    other = mg.models.clone_model(saved, clone_function=renamed)
    assert other.layers[-1].name == "renamed"
    other.load_weights(file)
    assert same(saved, other)
    wider = mg.Sequential([mg.Input((48,)), layers.Dense(5, name="last"), layers.Dense(9)])
    if ending != "h5":
        with pytest.raises(ValueError, match="by_name=True is for those alone"):
            wider.load_weights(file, by_name=True)
        return
    wider.load_weights(file, by_name=True)
    np.testing.assert_array_equal(wider.get_weights()[0], saved.get_weights()[-2])
