"""Utilities: labels, padding, names, seeds, nested structures, objects as configs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import meganeura
from meganeura import (
    activations,
    identifiers,
    initializers,
    layers,
    losses,
    metrics,
    optimizers,
    regularizers,
    tree,
    utils,
)


def test_importing_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, meganeura, meganeura.models, meganeura.layers, meganeura.utils;"
        "print([m for m in ('egglog', 'wgpu', 'h5py', 'scipy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names() -> None:
    for name in dir(meganeura):
        if not name.startswith("_") and name not in ("onnx", "zoo", "graph", "backend"):
            assert getattr(meganeura, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Modle'"):
        _ = meganeura.Modle


# --- labels and sequences ----------------------------------------------------------------------


def test_to_categorical() -> None:
    np.testing.assert_array_equal(utils.to_categorical([0, 2, 1]), np.eye(3)[[0, 2, 1]])
    assert utils.to_categorical([[1], [0]], 4).shape == (2, 4)
    assert utils.to_categorical(np.zeros((2, 3), int), 5).shape == (2, 3, 5)
    assert utils.to_categorical([1]).dtype == np.float32
    with pytest.raises(ValueError, match="from 0 to 5 do not fit 3 classes"):
        utils.to_categorical([0, 5], 3)
    with pytest.raises(ValueError, match="must be whole"):
        utils.to_categorical([0.5])


def test_normalize() -> None:
    x = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(utils.normalize(x), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(utils.normalize(x, order=1), [[3 / 7, 4 / 7], [0, 0]], rtol=1e-6)


@pytest.mark.parametrize(("longest", "padded"), [(1, 4), (4, 4), (5, 8), (9, 8)])
def test_pad_sequences_to_buckets(longest: int, padded: int) -> None:
    """The smallest bucket that is long enough; the largest one cuts."""
    found = utils.pad_sequences([[7] * longest, [1]], padding="post", buckets=(8, 4))
    assert found.shape == (2, padded)
    assert found[0].tolist() == [7] * min(longest, padded) + [0] * (padded - longest)


def test_pad_sequences_without_buckets_to_choose_from() -> None:
    with pytest.raises(ValueError, match="buckets are lengths of at least 1"):
        utils.pad_sequences([[1]], buckets=())


def test_pad_sequences() -> None:
    given = [[1], [2, 3], [4, 5, 6]]
    assert utils.pad_sequences(given).tolist() == [[0, 0, 1], [0, 2, 3], [4, 5, 6]]
    assert utils.pad_sequences(given, padding="post", value=-1).tolist() == [
        [1, -1, -1],
        [2, 3, -1],
        [4, 5, 6],
    ]
    assert utils.pad_sequences(given, maxlen=2).tolist() == [[0, 1], [2, 3], [5, 6]]
    assert utils.pad_sequences(given, maxlen=2, truncating="post").tolist() == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]
    assert utils.pad_sequences([[[1, 2]], []], dtype="float32").tolist() == [[[1, 2]], [[0, 0]]]
    with pytest.raises(ValueError, match="padding must be 'pre' or 'post', not 'left'"):
        utils.pad_sequences(given, padding="left")


# --- names and seeds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("Dense", "dense"), ("Conv2D", "conv2d"), ("MaxPooling2D", "max_pooling2d"), ("ReLU", "re_lu"),
        ("LSTM", "lstm"), ("BatchNormalization", "batch_normalization"), ("PReLU", "p_re_lu"),
        ("Conv2DTranspose", "conv2d_transpose"), ("UpSampling2D", "up_sampling2d"),
    ],
)  # fmt: skip
def test_snake_case(name: str, snake: str) -> None:
    assert identifiers.snake_case(name) == snake


def test_automatic_names_count_until_the_session_is_cleared() -> None:
    utils.clear_session()
    assert [layers.Dense(1).name for _ in range(3)] == ["dense", "dense_1", "dense_2"]
    utils.clear_session()
    assert layers.Dense(1).name == "dense"


def test_set_random_seed_repeats_weights() -> None:
    def kernel() -> np.ndarray:
        layer = layers.Dense(3)
        layer.build((None, 4))
        return layer.get_weights()[0]

    utils.set_random_seed(5)
    one, two = kernel(), kernel()
    utils.set_random_seed(5)
    np.testing.assert_array_equal(kernel(), one)
    assert not np.array_equal(one, two)
    for bad in (-1, 1.5, True):
        with pytest.raises(ValueError, match="non-negative integer"):
            utils.set_random_seed(bad)


# --- tree --------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")
NESTED = {"b": [1, (2, 3)], "a": Pair(4, None)}


def test_flatten_and_pack() -> None:
    assert tree.flatten(NESTED) == [4, None, 1, 2, 3]
    assert tree.pack_sequence_as(NESTED, "vwxyz") == {"b": ["x", ("y", "z")], "a": Pair("v", "w")}
    assert list(tree.pack_sequence_as(NESTED, range(5))) == ["b", "a"]
    assert tree.flatten_with_path(NESTED)[0] == (("a", 0), 4)
    assert tree.flatten(7) == [7] and not tree.is_nested(7) and tree.is_nested(())
    with pytest.raises(ValueError, match="5 leaves, and 2 were given"):
        tree.pack_sequence_as(NESTED, [1, 2])


def test_map_structure() -> None:
    doubled = tree.map_structure(lambda x: x and x * 2, NESTED)
    assert doubled == {"b": [2, (4, 6)], "a": Pair(8, None)}
    assert tree.map_structure(lambda x, y: x + y, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert tree.map_structure(str, [None, 1], none_is_leaf=False) == [None, "1"]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1], (1,), "a list and a tuple"),
        ([1], 1, "a list and a leaf"),
        ([1], [1, 2], "1 and 2 entries"),
        ({"a": 1}, {"b": 1}, r"keys \['a'\] and \['b'\]"),
    ],
)
def test_different_structures(a: Any, b: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tree.map_structure(lambda x, y: x, a, b)


def test_traverse() -> None:
    assert tree.traverse(lambda x: "pair" if isinstance(x, Pair) else None, NESTED)["a"] == "pair"
    assert tree.traverse(lambda x: sum(x) if isinstance(x, (list, tuple)) and None not in x else None,
                         [1, [2, (3, 4)]], top_down=False) == 10  # fmt: skip


# --- objects -----------------------------------------------------------------------------------

OBJECTS = [
    lambda: layers.Dense(3, activation="relu"),
    lambda: optimizers.Adam(0.5),
    lambda: losses.MeanSquaredError(),
    lambda: metrics.MeanAbsoluteError(),
    lambda: initializers.HeNormal(seed=3),
    lambda: regularizers.L2(0.25),
    lambda: meganeura.constraints.MaxNorm(3),
    lambda: meganeura.Sequential([layers.Input((2,)), layers.Dense(1)]),
]


@pytest.mark.parametrize("make", OBJECTS)
def test_objects_as_configs(make: Any) -> None:
    thing = make()
    config = json.loads(json.dumps(utils.serialize_keras_object(thing)))
    assert config["class_name"] == type(thing).__name__ and config["module"].startswith("keras")
    again = utils.deserialize_keras_object(config)
    assert type(again) is type(thing) and again.get_config() == thing.get_config()


def test_structures_and_arrays_as_configs() -> None:
    given = {"a": [1, 2.5, None, "x"], "l": losses.Huber(), "n": np.arange(3)}
    again = utils.deserialize_keras_object(
        json.loads(json.dumps(utils.serialize_keras_object(given)))
    )
    assert again["a"] == [1, 2.5, None, "x"] and isinstance(again["l"], losses.Huber)
    np.testing.assert_array_equal(again["n"], np.arange(3))
    assert utils.serialize_keras_object(activations.relu) == "relu"
    with pytest.raises(ValueError, match="cannot be written"):
        utils.serialize_keras_object(object())


def test_custom_objects() -> None:
    class Thing:
        def __init__(self, size: int):
            self.size = size

        def get_config(self) -> dict[str, Any]:
            return {"size": self.size}

    config = utils.serialize_keras_object(Thing(3))
    assert utils.deserialize_keras_object(config, {"Thing": Thing}).size == 3
    with pytest.raises(ValueError, match="'Thing' is not known"):
        utils.deserialize_keras_object(config)
    assert utils.get_registered_name(Thing) == "Thing"
    utils.register_keras_serializable("pack", "Other")(Thing)
    try:
        assert utils.get_registered_name(Thing) == "pack>Other"
        assert utils.get_registered_object("pack>Other") is Thing
        assert utils.deserialize_keras_object(utils.serialize_keras_object(Thing(4))).size == 4
    finally:
        del utils.get_custom_objects()["pack>Other"]

    class Bare:
        pass

    with pytest.raises(ValueError, match=r"Bare has no get_config\(\)"):
        utils.register_keras_serializable()(Bare)
