"""keras.utils for data: pictures from folders, time series, splits, downloads, plots, progress."""

from __future__ import annotations

import hashlib
import io
import pickle
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import datasets, layers, utils
from meganeura.datasets import download, pickles, texts


def test_timeseries_windows_and_targets() -> None:
    data, targets = np.arange(20.0), np.arange(100.0, 120.0)
    made = utils.timeseries_dataset_from_array(
        data,
        targets,
        3,
        sequence_stride=2,
        sampling_rate=2,
        batch_size=4,
        start_index=1,
        end_index=16,
    )
    # windows start at 1, 3, ..., the last that fits below 16 is at 11
    batches = list(made)
    x, y = (np.concatenate(part) for part in zip(*batches, strict=True))
    starts = np.arange(1, 12, 2)
    np.testing.assert_array_equal(x, starts[:, None] + [0, 2, 4])
    np.testing.assert_array_equal(y, 100 + starts)
    assert len(made) == 2 and len(batches[1][0]) == 2
    assert len(utils.timeseries_dataset_from_array(data, targets[:5], 2)[0][0]) == 5
    assert utils.timeseries_dataset_from_array(data, None, 20)[0].shape == (1, 20)
    with pytest.raises(ValueError, match="spans 21 steps, and there are 20"):
        utils.timeseries_dataset_from_array(data, None, 21)
    with pytest.raises(ValueError, match="sampling_rate"):
        utils.timeseries_dataset_from_array(data, None, 2, sampling_rate=0)


def test_timeseries_trains() -> None:
    series = np.sin(np.arange(60) / 3).astype("float32")
    made = utils.timeseries_dataset_from_array(
        series[:-5], series[5:], 5, batch_size=16, shuffle=True
    )
    model = mg.Sequential([mg.Input((5,)), layers.Dense(1)])
    model.compile("adam", "mse")
    assert len(model.fit(made, epochs=2, verbose=0).history["loss"]) == 2


def test_shuffling_changes_with_each_pass_and_is_seeded() -> None:
    def passes() -> list[list[float]]:
        made = utils.timeseries_dataset_from_array(np.arange(9.0), None, 1, 1, 1, 4, True, 7)
        return [np.concatenate(list(made)).ravel().tolist() for _ in range(2)]

    first, second = passes()
    assert first != second and sorted(first) == sorted(second) == list(range(9))
    assert passes() == [first, second]


def test_map_take_cache() -> None:
    reads: list[int] = []
    made = utils.timeseries_dataset_from_array(np.arange(10.0), np.arange(10.0), 2, batch_size=3)
    read = made._read
    made._read = lambda numbers: (reads.extend(numbers.tolist()), read(numbers))[1]
    kept = made.map(lambda x, y: (x * 2, {"y": y})).cache()
    for _ in range(2):
        x, y = kept[0]
        np.testing.assert_array_equal(x, [[0, 2], [2, 4], [4, 6]])
        np.testing.assert_array_equal(y["y"], [0, 1, 2])
    assert reads == [0, 1, 2]
    assert len(made.take(2)) == 2 and len(list(made.take(2).prefetch(1))) == 2


def test_split_dataset() -> None:
    x, y = np.arange(10.0), np.arange(10) * 2
    left, right = utils.split_dataset((x, y), left_size=0.7)
    assert (len(left), len(right)) == (7, 3)
    assert [tuple(map(float, s)) for s in right] == [(7, 14), (8, 16), (9, 18)]
    assert left.batch(4)[1][0].tolist() == [4, 5, 6]
    a, b = utils.split_dataset(x, right_size=4, shuffle=True, seed=0)
    assert sorted([float(s) for s in a] + [float(s) for s in b]) == x.tolist() and len(b) == 4
    for sizes, match in (({}, "give left_size"), ({"left_size": 1.5}, "between 0 and 1")):
        with pytest.raises(ValueError, match=match):
            utils.split_dataset(x, **sizes)
    with pytest.raises(ValueError, match="more than"):
        utils.split_dataset(x, 8, 8)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    pytest.importorskip("PIL")
    rng = np.random.default_rng(0)
    for k, kind in enumerate(("cats", "dogs")):
        (tmp_path / kind).mkdir()
        for i in range(3):
            image = np.full((8, 6, 3), 10 * i + 100 * k, "uint8")
            utils.save_img(tmp_path / kind / f"{i}.png", image, scale=False)
    utils.save_img(tmp_path / "cats" / "noise.png", rng.integers(0, 255, (5, 5, 3)), scale=False)
    (tmp_path / "cats" / "notes.txt").write_text("no picture")
    return tmp_path


def test_pictures_from_folders(pictures: Path) -> None:
    made = utils.image_dataset_from_directory(
        pictures, image_size=(4, 4), batch_size=4, shuffle=False, verbose=False
    )
    assert made.class_names == ["cats", "dogs"] and len(made) == 2
    images, labels = made[0]
    assert images.shape == (4, 4, 4, 3) and images.dtype == np.float32 and labels.dtype == np.int32
    np.testing.assert_array_equal(images[:3, 0, 0, 0], [0, 10, 20])
    assert labels.tolist() == [0, 0, 0, 0] and made[1][1].tolist() == [1, 1, 1]
    assert Path(made.file_paths[3]).name == "noise.png"
    kinds = {"categorical": (4, 2), "binary": (4, 1)}
    for mode, shape in kinds.items():
        _, y = utils.image_dataset_from_directory(
            pictures, label_mode=mode, batch_size=4, image_size=(2, 2), verbose=False
        )[0]
        assert y.shape == shape and y.dtype == np.float32
    alone = utils.image_dataset_from_directory(pictures, labels=None, color_mode="grayscale",
                                               image_size=(2, 2), verbose=False)  # fmt: skip
    assert alone[0].shape == (7, 2, 2, 1)


def test_pictures_in_two_parts(pictures: Path) -> None:
    options: dict[str, Any] = {"image_size": (2, 2), "verbose": False, "validation_split": 0.3}
    train, held = utils.image_dataset_from_directory(pictures, subset="both", seed=1, **options)
    assert len(held.file_paths) == 2
    assert set(train.file_paths).isdisjoint(held.file_paths)
    again = utils.image_dataset_from_directory(pictures, subset="validation", seed=1, **options)
    assert again.file_paths == held.file_paths
    with pytest.raises(ValueError, match="overlap"):
        utils.image_dataset_from_directory(pictures, subset="training", **options)
    with pytest.raises(ValueError, match="subset"):
        utils.image_dataset_from_directory(pictures, **options)


def test_pictures_that_are_not_there(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    with pytest.raises(ValueError, match="does not exist"):
        utils.image_dataset_from_directory(tmp_path / "no")
    with pytest.raises(ValueError, match="holds no pictures"):
        utils.image_dataset_from_directory(tmp_path)
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match="cannot be read as a picture"):
        utils.load_img(tmp_path / "a.png")


def test_one_picture(pictures: Path) -> None:
    image = utils.load_img(
        pictures / "cats" / "noise.png", target_size=(3, 2), keep_aspect_ratio=True
    )
    assert image.size == (2, 3)
    array = utils.img_to_array(image)
    assert array.shape == (3, 2, 3) and array.dtype == np.float32
    back = utils.img_to_array(utils.array_to_img(array, scale=False))
    np.testing.assert_array_equal(back, array)
    assert utils.img_to_array(image, "channels_first").shape == (3, 3, 2)
    with pytest.raises(ValueError, match="1, 3 or 4 channels"):
        utils.array_to_img(np.zeros((2, 2, 2)))


def serve(path: Path) -> str:
    return path.absolute().as_uri()


def test_get_file(tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "data.bin"
    source.write_bytes(b"numbers")
    digest = hashlib.sha256(b"numbers").hexdigest()
    found = utils.get_file(origin=serve(source), file_hash=digest, cache_dir=tmp_path / "cache")
    assert Path(found).read_bytes() == b"numbers"
    source.write_bytes(b"others")
    options: dict[str, Any] = {"origin": serve(source), "cache_dir": tmp_path / "cache"}
    assert utils.get_file(file_hash=digest, **options) == found  # from the cache
    with pytest.raises(download.DownloadError, match="nothing was kept"):
        utils.get_file(file_hash="0" * 32, **options)
    assert Path(found).read_bytes() == b"numbers"
    assert Path(utils.get_file(force_download=True, **options)).read_bytes() == b"others"
    with pytest.raises(download.DownloadError, match="put it at"):
        utils.get_file(origin=serve(tmp_path / "gone"), cache_dir=tmp_path / "cache")
    with pytest.raises(ValueError, match="32 .MD5. or 64"):
        utils.get_file(file_hash="12", **options)


def test_archives_are_unpacked_inside_their_folder(tmp_path: Path, capsys: Any) -> None:
    good = tmp_path / "good.zip"
    with zipfile.ZipFile(good, "w") as archive:
        archive.writestr("a/b.txt", "text")
    folder = utils.get_file(origin=serve(good), extract=True, cache_dir=tmp_path / "cache")
    assert (Path(folder) / "a" / "b.txt").read_text() == "text"
    bad_zip, bad_tar = tmp_path / "bad.zip", tmp_path / "bad.tar"
    with zipfile.ZipFile(bad_zip, "w") as archive:
        archive.writestr("../../evil.txt", "text")
    with tarfile.open(bad_tar, "w") as tar:
        member = tarfile.TarInfo("../../evil.txt")
        tar.addfile(member, io.BytesIO())
    for bad in (bad_zip, bad_tar):
        with pytest.raises(ValueError, match="outside|unsafe"):
            utils.get_file(origin=serve(bad), extract=True, cache_dir=tmp_path / "cache")
    assert not list(tmp_path.rglob("evil.txt"))


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("pydot")
    a, b = mg.Input((4,), name="a"), mg.Input((4,), name="b")
    inner = mg.Sequential(
        [mg.Input((4,)), layers.Dense(3, activation="relu", name="deep")], name="in"
    )
    model = mg.Model([a, b], layers.Add(name="sum")([inner(a), inner(b)]))
    dot = utils.model_to_dot(model, show_shapes=True, show_dtype=True, show_trainable=True)
    text = dot.to_string()
    assert text.count("->") == 3 and "(None, 3)" in text and "sum : Add" in text
    nested = utils.model_to_dot(model, expand_nested=True, show_layer_activations=True).to_string()
    assert "deep : Dense (relu)" in nested and "cluster" in nested
    utils.plot_model(model, tmp_path / "m.dot")
    assert (tmp_path / "m.dot").read_text().startswith("digraph")
    with pytest.raises(ValueError, match="ends in"):
        utils.plot_model(model, tmp_path / "m.bmp")
    with pytest.raises(ValueError, match="not built"):
        utils.model_to_dot(mg.Sequential([layers.Dense(2)]))


def test_plots_say_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['pydot'] = None\n"
        "import meganeura as mg\n"
        "try: mg.utils.plot_model(mg.Sequential([mg.Input((2,)), mg.layers.Dense(1)]))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install pydot" in done.stdout


def test_progress(capsys: Any) -> None:
    bar = utils.Progbar(3, verbose=2, stateful_metrics=["rate"])
    for i in range(3):
        bar.add(1, [("loss", float(i)), ("rate", i / 10)])
    assert capsys.readouterr().out == "3/3 - loss: 1 - rate: 0.2\n"
    drawn = utils.Progbar(2, interval=0)
    drawn.update(1, [("loss", 1.0)])
    drawn.update(2)
    assert "2/2" in capsys.readouterr().err


def test_packing_of_steps() -> None:
    assert utils.unpack_x_y_sample_weight((1, 2)) == (1, 2, None)
    assert utils.unpack_x_y_sample_weight(1) == (1, None, None)
    assert utils.pack_x_y_sample_weight(1) == 1 and utils.pack_x_y_sample_weight([1, 2]) == (
        [1, 2],
    )
    assert utils.pack_x_y_sample_weight(1, None, 3) == (1, None, 3)
    with pytest.raises(ValueError, match="4 parts"):
        utils.unpack_x_y_sample_weight((1, 2, 3, 4))


@pytest.mark.parametrize("name", ["FeatureSpace", "audio_dataset_from_directory"])
def test_what_is_refused(name: str) -> None:
    with pytest.raises(AttributeError, match="not offered"):
        getattr(utils, name)
    with pytest.raises(AttributeError, match="did you mean 'plot_model'"):
        assert utils.plot_modell


# --- data sets ---------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: Any) -> Path:
    """A cache whose files are taken as they are: their checksums are those of the real data."""
    monkeypatch.setenv("MEGANEURA_HOME", str(tmp_path))
    folder = tmp_path / "datasets"
    folder.mkdir()
    sums = {
        module.CHECKSUM: name
        for module, name in (
            (datasets.imdb, "imdb.npz"),
            (datasets.reuters, "reuters.npz"),
            (datasets.california_housing, "california_housing.npz"),
            (datasets.cifar10, "cifar-10-python.tar.gz"),
            (datasets.cifar100, "cifar-100-python.tar.gz"),
        )
    }
    monkeypatch.setattr(
        download,
        "checksum_of",
        lambda path, algorithm: next((k for k, v in sums.items() if v == path.name), "none"),
    )
    return folder


def lists(*rows: list[int]) -> np.ndarray:
    return texts.ragged(list(rows))


def test_imdb(cache: Path) -> None:
    x, y = lists([1, 5, 9], [2], [3, 4]), np.array([0, 1, 1])
    np.savez(cache / "imdb.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    (train, labels), (test, _) = datasets.imdb.load_data(num_words=9, maxlen=4, seed=0)
    order = np.arange(3)
    np.random.RandomState(0).shuffle(order)
    expected = [[1, *(w + 3 if w + 3 < 9 else 2 for w in x[i])] for i in order if len(x[i]) < 3]
    assert train.tolist() == test.tolist() == expected
    assert labels.tolist() == [y[i] for i in order if len(x[i]) < 3]
    with pytest.raises(ValueError, match="maxlen=1"):
        datasets.imdb.load_data(maxlen=1)


def test_reuters_and_housing(cache: Path) -> None:
    np.savez(cache / "reuters.npz", x=lists([1], [2], [3], [4, 1], [5]), y=np.arange(5))
    (x, y), (x_test, _) = datasets.reuters.load_data(oov_char=None, index_from=0, start_char=None)
    assert (len(x), len(y), len(x_test)) == (4, 4, 1)
    np.savez(cache / "california_housing.npz", x=np.ones((10, 8)), y=np.arange(10.0))
    (x, y), (x_test, _) = datasets.california_housing.load_data(test_split=0.3)
    assert x.shape == (7, 8) and x_test.shape == (3, 8)
    with pytest.raises(NotImplementedError, match="california_housing"):
        datasets.boston_housing.load_data()


def test_cifar(cache: Path) -> None:
    pixels = np.arange(2 * 3072).reshape(2, 3072) % 256
    batch = {"data": pixels.astype("uint8"), "labels": [3, 7], "fine_labels": [1, 2]}
    batch["coarse_labels"] = [9, 8]
    content = pickle.dumps(batch, protocol=2)
    for name, members in (
        ("cifar-10-python.tar.gz", [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]),
        ("cifar-100-python.tar.gz", ["train", "test"]),
    ):
        folder = "cifar-10-batches-py" if "10-" in name else "cifar-100-python"
        folder = "cifar-100-python" if "100" in name else folder
        with tarfile.open(cache / name, "w:gz") as tar:
            for member in members:
                info = tarfile.TarInfo(f"{folder}/{member}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    (x, y), (x_test, _) = datasets.cifar10.load_data()
    assert x.shape == (10, 32, 32, 3) and y.shape == (10, 1) and y.dtype == np.uint8
    np.testing.assert_array_equal(x[0, 0, 1], pixels[0, [1, 1025, 2049]])
    (_, y), _ = datasets.cifar100.load_data("coarse")
    assert y.ravel().tolist() == [9, 8]
    with pytest.raises(ValueError, match="fine"):
        datasets.cifar100.load_data("rough")


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("run",))


@pytest.mark.parametrize(
    "data", [pickle.dumps(Evil()), pickle.dumps(np.zeros(2), 2)[:-9], b"", b"cos\nsystem\n."]
)
def test_pickles_run_nothing(data: bytes, capsys: Any) -> None:
    with pytest.raises(ValueError, match="refused"):
        pickles.loads(data, "x")
    assert not capsys.readouterr().out


def test_no_network_is_said(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("MEGANEURA_HOME", str(tmp_path))
    monkeypatch.setattr(datasets.fashion_mnist, "FOLDER", (tmp_path / "none").as_uri() + "/")
    with pytest.raises(download.DownloadError, match="put it at .*fashion-train-images"):
        datasets.fashion_mnist.load_data()
