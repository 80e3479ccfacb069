"""Whole models in files that are damaged or mean harm: one clear sentence, no memory, nothing run."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import meganeura as mg
from meganeura import layers

load = mg.models.load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """A compiled, trained model as `m.keras` and `m.h5`."""
    path = tmp_path_factory.mktemp("hostile")
    model = mg.Sequential([mg.Input((4,)), layers.Dense(3, name="a")])
    model.compile("adam", "mse")
    model.fit(np.ones((4, 4)), np.ones((4, 3)), verbose=0)
    model.save(path / "m.keras")
    model.save(path / "m.h5")
    return path


def members(folder: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(folder / "m.keras") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive(path: Path, parts: Any, compression: int = zipfile.ZIP_STORED) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of names that are there twice
        with zipfile.ZipFile(path, "w", compression) as file:
            for name, data in parts:
                file.writestr(name, data)
    return path


def changed(folder: Path, path: Path, change: Callable[[Any], None]) -> Path:
    parts = members(folder)
    config = json.loads(parts["config.json"])
    change(config)
    parts["config.json"] = json.dumps(config).encode()
    return archive(path, parts.items())


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("config.json", b"{}"), "is there twice"),
        (("../../evil", b""), "points outside"),
        (("/etc/evil", b""), "points outside"),
        (("..\\evil", b""), "points outside"),
    ],
)
def test_members_of_the_archive(
    folder: Path, tmp_path: Path, extra: tuple[str, bytes], message: str
) -> None:
    file = archive(tmp_path / "e.keras", [*members(folder).items(), extra])
    with pytest.raises(ValueError, match=message):
        load(file)
    with pytest.raises(ValueError, match=message):
        load(folder / "m.keras").load_weights(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[" * 200000 + b"]" * 200000, "not JSON"),
        (b'{"class_name": "Sequential", "config": ' + b'{"a": ' * 50000, "not JSON"),
        (b"[1]", "describes no model"),
        (b'{"class_name": "Sequential", "config": {}}', "does not fit"),
        (b'{"class_name": "Sequential", "config": {"layers": [3]}}', "is a dict"),
        (
            b'{"class_name": "Functional", "config": {"layers": 3, "input_layers": [],'
            b' "output_layers": []}}',
            "as dicts",
        ),
    ],
)
def test_configurations(folder: Path, tmp_path: Path, text: bytes, message: str) -> None:
    parts = {**members(folder), "config.json": text}
    with pytest.raises(ValueError, match=message):
        load(archive(tmp_path / "e.keras", parts.items()))


def in_layer(**values: Any) -> Callable[[Any], None]:
    return lambda config: config["config"]["layers"][1]["config"].update(values)


def instead(**values: Any) -> Callable[[Any], None]:
    return lambda config: config["config"]["layers"][1].update(values)


def another(**values: Any) -> Callable[[Any], None]:
    return lambda config: config["config"]["layers"].append(values)


def function(name: str) -> dict[str, Any]:
    return {"module": "builtins", "class_name": "function", "config": name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_layer(units=10**9), r"shape \(4, 1000000000\).*stores nothing"),
        (in_layer(units=10**8), "stores nothing"),
        (in_layer(units=-1), "positive integer"),
        (in_layer(activation=function("eval")), "'eval' is not known"),
        (in_layer(activation={"class_name": "__lambda__", "config": {}}), "__lambda__"),
        (
            in_layer(kernel_initializer={"module": "os", "class_name": "system", "config": {}}),
            "'system' is not known",
        ),
        (
            instead(module="subprocess", class_name="Popen", config={}),
            "'Popen', which is not known",
        ),
        (another(class_name="Lambda", config={"name": "l", "function": "f"}), "is a Lambda"),
        (another(class_name="TFSMLayer", config={"filepath": "/x"}), "not known"),
    ],
)
def test_what_configurations_ask_for(
    folder: Path, tmp_path: Path, change: Callable[[Any], None], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(changed(folder, tmp_path / "e.keras", change))


@pytest.mark.parametrize(
    "compiled",
    [
        {"optimizer": {"module": "os", "class_name": "system", "config": {}}},
        {"loss": function("exec")},
    ],
)
def test_what_cannot_be_compiled_is_left_out(
    folder: Path, tmp_path: Path, compiled: dict[str, Any]
) -> None:
    file = changed(folder, tmp_path / "e.keras", lambda c: c["compile_config"].update(compiled))
    with pytest.warns(UserWarning, match="is not known"):
        model = load(file)
    assert not model.compiled


def test_pickles_and_bombs(folder: Path, tmp_path: Path) -> None:
    parts = {**members(folder), "model.weights.h5": pickle.dumps([1])}
    with pytest.raises(ValueError, match="damaged or truncated"):
        load(archive(tmp_path / "e.keras", parts.items()))
    (tmp_path / "p.keras").write_bytes(pickle.dumps([1]))
    with pytest.raises(ValueError, match="not a .keras archive"):
        load(tmp_path / "p.keras")
    parts["model.weights.h5"] = bytes(20 << 20)
    bomb = archive(tmp_path / "b.keras", parts.items(), zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="zip bomb"):
        load(bomb)


def replaced(name: str, value: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = value

    return change


def attribute(group: str, name: str, value: Any) -> Callable[[h5py.File], None]:
    return lambda file: file[group].attrs.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (attribute("/", "model_config", "[" * 60000), "not JSON"),
        (attribute("/", "model_config", 3), "is a dict"),
        (replaced("model_weights/a", h5py.ExternalLink("x.h5", "/")), "is a link"),
        (replaced("model_weights/a", h5py.SoftLink("/")), "is a link"),
        (attribute("model_weights", "layer_names", np.array([b"../..", b"a"])), "has no"),
        (attribute("model_weights/a", "weight_names", np.array([b"/etc/passwd", b".."])), "has no"),
    ],
)
def test_legacy_files(
    folder: Path, tmp_path: Path, change: Callable[[h5py.File], None], message: str
) -> None:
    file = tmp_path / "e.h5"
    file.write_bytes((folder / "m.h5").read_bytes())
    with h5py.File(file, "a") as opened:
        change(opened)
    with pytest.raises(ValueError, match=message):
        load(file)


def test_groups_that_hold_themselves(folder: Path, tmp_path: Path) -> None:
    model = load(folder / "m.keras")
    model.save_weights(tmp_path / "e.weights.h5")
    with h5py.File(tmp_path / "e.weights.h5", "a") as file:
        file["layers/dense/again"] = file["layers"]
    with pytest.raises(ValueError, match="nested more than 64"):
        model.load_weights(tmp_path / "e.weights.h5")


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_random_damage(folder: Path, tmp_path: Path, ending: str) -> None:
    """Whatever bytes are changed or missing, the file loads or is refused by a ValueError."""
    whole = (folder / f"m.{ending}").read_bytes()
    rng, file = np.random.default_rng(0), tmp_path / f"e.{ending}"
    for round_ in range(60):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 6)):
            data[rng.integers(len(data))] = rng.integers(256)
        file.write_bytes(data if round_ % 3 else data[: rng.integers(len(data))])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                load(file)
            except (ValueError, TypeError) as error:
                assert str(error)


@pytest.mark.parametrize("ending", ["keras", "h5", "weights.h5"])
def test_a_failed_save_leaves_the_old_file(
    folder: Path, tmp_path: Path, ending: str, monkeypatch: Any
) -> None:
    model, file = load(folder / "m.keras"), tmp_path / f"m.{ending}"
    save = model.save_weights if ending == "weights.h5" else model.save
    save(file)
    before = file.read_bytes()

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("No space left on device")

    monkeypatch.setattr(h5py.Group, "create_dataset", fail)
    with pytest.raises(OSError, match="No space"):
        save(file)
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [file.name]
