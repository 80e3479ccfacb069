"""Models as JSON and back: Keras 3's format, Keras 2's, operations, custom classes, clones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import meganeura
from meganeura import Model, Sequential, layers, models, ops
from meganeura.layers import Input, Layer
from meganeura.ops.dispatch import map_tree


@pytest.fixture(autouse=True)
def fresh_names() -> None:
    meganeura.utils.clear_session()


def twin(model: Model, **arguments: Any) -> Model:
    """The model that the JSON describes, with the same weights; its JSON must be the same again."""
    text = model.to_json()
    made = models.model_from_json(text, **arguments)
    made.set_weights(model.get_weights())
    assert json.loads(made.to_json()) == json.loads(text)
    assert [w.shape for w in made.weights] == [w.shape for w in model.weights]
    return made


def agree(model: Model, other: Model, *inputs: np.ndarray) -> None:
    given = list(inputs) if len(inputs) > 1 else inputs[0]
    a, b = [], []
    map_tree(lambda t: a.append(np.asarray(t)), model(given))
    map_tree(lambda t: b.append(np.asarray(t)), other(given))
    assert len(a) == len(b) > 0
    for mine, theirs in zip(a, b, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape).astype("float32")


def test_sequential() -> None:
    model = Sequential(
        [
            Input((8, 8, 2), name="image"),
            layers.Conv2D(3, 3, padding="same", activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5, seed=3),
            layers.Dense(4, kernel_initializer="he_normal", bias_constraint="non_neg"),
        ],
        name="net",
    )
    agree(model, twin(model), values(2, 8, 8, 2))
    described = json.loads(model.to_json())
    assert (described["module"], described["class_name"]) == ("keras", "Sequential")
    first, conv = described["config"]["layers"][:2]
    assert first["config"]["batch_shape"] == [None, 8, 8, 2]
    assert (conv["module"], conv["build_config"]) == (
        "keras.layers",
        {"input_shape": [None, 8, 8, 2]},
    )
    assert conv["config"]["activation"] == "relu"
    assert conv["config"]["kernel_initializer"]["class_name"] == "GlorotUniform"


def test_a_sequential_that_is_not_built() -> None:
    model = Sequential([layers.Dense(3), layers.Dense(2)])
    made = models.model_from_json(model.to_json())
    assert not made.built and made(values(1, 4)).shape == (1, 2)


def test_shared_layers_nested_models_and_structures() -> None:
    a, b = Input((3,), name="a"), Input((3,), name="b")
    shared = layers.Dense(4, name="shared")
    inner_in = Input((4,), name="inner_in")
    inner = Model(inner_in, layers.Dense(4, name="deep")(inner_in), name="inner")
    left, right = inner(shared(a)), inner(shared(b))
    tail = Sequential([layers.Dense(2, name="last")], name="tail")
    joined = layers.Concatenate(name="cat")([left, right])
    model = Model({"a": a, "b": b}, {"x": tail(joined), "y": [left, right]}, name="whole")
    made = twin(model)
    x, y = values(2, 3), values(2, 3) + 1
    out, again = model({"a": x, "b": y}), made({"a": x, "b": y})
    np.testing.assert_array_equal(out["x"], again["x"])
    np.testing.assert_array_equal(out["y"][1], again["y"][1])
    described = json.loads(model.to_json())["config"]
    assert described["input_layers"] == {"a": ["a", 0, 0], "b": ["b", 0, 0]}
    assert described["output_layers"] == {
        "x": ["tail", 0, 0],
        "y": [["inner", 0, 0], ["inner", 1, 0]],
    }


def test_operations() -> None:
    a = Input((4, 3), name="a")
    x = ops.mean(a, axis=1, keepdims=True) + 2.0
    x = ops.concatenate([x, a[:, 1:2], -a[:, ::2]], axis=1) * np.array([1, 2, 3], "float32")
    parts = ops.split(x, 2, axis=1)
    y = ops.einsum("btc,bsc->bts", parts[0], parts[1])
    z = ops.where(y > 0.5, y, ops.clip(y, -1.0, 1.0))[..., None]
    model = Model(
        a, [ops.cast(z, "int32"), ops.reshape(z, (-1, 4)), ops.pad(y, ((0, 0), (1, 2), (0, 0)))]
    )
    agree(model, twin(model), values(2, 4, 3))
    entries = {e["name"]: e for e in json.loads(model.to_json())["config"]["layers"]}
    # what Keras 3.15 writes for the same
    assert entries["mean"]["module"] == "keras.src.ops.numpy"
    assert entries["mean"]["config"] == {"name": "mean", "axis": 1, "keepdims": True}
    add = entries["add"]["inbound_nodes"][0]["args"]
    assert add[0]["config"]["keras_history"] == ["mean", 0, 0] and add[1] == 2.0
    key = entries["get_item"]["inbound_nodes"][0]["args"][1]
    assert key[1] == {"class_name": "__slice__", "config": {"start": 1, "stop": 2, "step": None}}
    assert entries["multiply"]["inbound_nodes"][0]["args"][1]["class_name"] == "__numpy__"


def test_keyword_arguments_of_calls() -> None:
    a = Input((5, 4))
    attended = layers.MultiHeadAttention(2, 3)(a, a, use_causal_mask=True)
    model = Model(a, layers.Dropout(0.5)(attended, training=False))
    agree(model, twin(model), values(2, 5, 4))


class Scale(Layer):
    def __init__(self, by: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.by = by

    def call(self, x: Any) -> Any:
        return x * self.by


def test_custom_layers() -> None:
    model = Sequential([Input((3,)), Scale(3.0), layers.Dense(2)])
    agree(model, twin(model, custom_objects={"Scale": Scale}), values(2, 3))
    with pytest.raises(ValueError, match="layer 'Scale', which is not known.*custom_objects"):
        models.model_from_json(model.to_json())
    with meganeura.utils.custom_object_scope({"Scale": Scale}):
        agree(model, twin(model), values(2, 3))
    registered = meganeura.utils.register_keras_serializable("mine")(Scale)
    try:
        entry = json.loads(model.to_json())["config"]["layers"][1]
        assert entry["registered_name"] == "mine>Scale"
        agree(model, twin(model), values(2, 3))
    finally:
        del meganeura.utils.get_custom_objects()["mine>Scale"]
    assert registered is Scale


def test_custom_activations_by_name() -> None:
    def double(x: Any) -> Any:
        return x * 2.0

    model = Sequential([Input((3,)), layers.Dense(2, activation=double)])
    agree(model, twin(model, custom_objects={"double": double}), values(2, 3))
    with pytest.raises(ValueError, match="'double' is not known"):
        models.model_from_json(model.to_json())


def test_what_cannot_be_saved_or_read() -> None:
    model = Sequential([Input((3,)), layers.Lambda(lambda x: x, name="quick")])
    with pytest.raises(NotImplementedError, match="'quick' is a Lambda"):
        model.to_json()
    with pytest.raises(ValueError, match="is a Lambda, whose code a file must not bring"):
        layers.deserialize({"class_name": "Lambda", "config": {"name": "quick"}})
    with pytest.raises(ValueError, match="the text is not JSON"):
        models.model_from_json("{")
    with pytest.raises(ValueError, match="a dict with 'class_name'"):
        models.model_from_json("[]")
    with pytest.raises(ValueError, match="'Desne', which is not known.*'Dense'"):
        layers.deserialize({"class_name": "Desne", "config": {}})
    for name in ("add", "Layer.mro", "__class__"):
        with pytest.raises(ValueError, match="not known"):
            layers.deserialize({"class_name": name, "config": {}})
    with pytest.raises(TypeError, match="Dense has no argument 'unitss'"):
        layers.deserialize({"class_name": "Dense", "config": {"units": 2, "unitss": 3}})
    operation = {"module": "keras.src.ops.numpy", "class_name": "Nope", "name": "n", "config": {}}
    config = {"name": "m", "layers": [operation], "input_layers": [], "output_layers": []}
    with pytest.raises(ValueError, match="operation 'Nope', which meganeura.ops does not have"):
        models.Functional.from_config(config)


def small_config() -> dict[str, Any]:
    a = Input((3,), name="a")
    return Model(a, layers.Dense(2, name="d")(a), name="m").get_config()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("layers"), "model 'm' lacks 'layers'"),
        (lambda c: c.update(output_layers=["nope", 0, 0]), r"\['nope', 0, 0\] names no output"),
        (lambda c: c.update(output_layers=["d", 0, 5]), r"\['d', 0, 5\] names no output"),
        (lambda c: c.update(output_layers="d"), "'d' names no tensor"),
        (lambda c: c["layers"].pop(0), "is no graph: the calls of 'd' wait"),
    ],
)
def test_damaged_descriptions(change: Any, message: str) -> None:
    config = json.loads(json.dumps(small_config()))
    change(config)
    with pytest.raises(ValueError, match=message):
        Model.from_config(config)


# --- Keras 2 -----------------------------------------------------------------------------------


def legacy(name: str, class_name: str, calls: Any, **config: Any) -> dict[str, Any]:
    config = {"name": name, "trainable": True, "dtype": "float32", **config}
    return {"class_name": class_name, "name": name, "config": config, "inbound_nodes": calls}


def test_a_functional_model_of_keras_2() -> None:
    """Nested lists for calls, a nested model whose calls count from 1, arguments of old layers."""
    inner = {
        "name": "inner",
        "layers": [
            legacy(
                "inner_in",
                "InputLayer",
                [],
                batch_input_shape=[None, 4],
                sparse=False,
                ragged=False,
            ),
            legacy("deep", "Dense", [[["inner_in", 0, 0, {}]]], units=4, activation="tanh"),
        ],
        "input_layers": [["inner_in", 0, 0]],
        "output_layers": [["deep", 0, 0]],
    }
    config = {
        "name": "old",
        "layers": [
            legacy("ids", "InputLayer", [], batch_input_shape=[None, 6], sparse=False, ragged=False),
            legacy("table", "Embedding", [[["ids", 0, 0, {}]]], input_dim=9, output_dim=4, input_length=6),
            legacy("rnn", "LSTM", [[["table", 0, 0, {}]]], units=4, time_major=False, implementation=2),
            {"class_name": "Functional", "name": "inner", "config": inner,
             "inbound_nodes": [[["rnn", 0, 0, {}]], [["inner", 1, 0, {}]]]},
            legacy("cat", "Concatenate", [[["inner", 1, 0, {}], ["inner", 2, 0, {}]]], axis=-1),
            legacy("out", "Dense", [[["cat", 0, 0, {}]]], units=2, activation="softmax"),
        ],
        "input_layers": [["ids", 0, 0]],
        "output_layers": [["out", 0, 0]],
    }  # fmt: skip
    model = models.model_from_json(json.dumps({"class_name": "Functional", "config": config}))
    assert [w.path for w in model.weights][-4:] == [
        "deep/kernel",
        "deep/bias",
        "out/kernel",
        "out/bias",
    ]
    assert model.output_shape == (None, 2)
    ids = np.array([[1, 2, 3, 4, 5, 6]])
    hidden = model.get_layer("rnn")(model.get_layer("table")(ids))
    once = model.get_layer("inner")(hidden)
    both = np.concatenate([once, model.get_layer("inner")(once)], -1)
    np.testing.assert_allclose(model(ids), model.get_layer("out")(both), rtol=1e-6)


def test_a_sequential_of_keras_2() -> None:
    config = {
        "name": "old",
        "layers": [
            legacy(
                "c",
                "DepthwiseConv2D",
                None,
                kernel_size=[3, 3],
                groups=1,
                batch_input_shape=[None, 8, 8, 2],
            ),
            legacy("r", "LeakyReLU", None, alpha=0.1),
            legacy("f", "Flatten", None, data_format="channels_last"),
        ],
    }
    model = models.model_from_json(json.dumps({"class_name": "Sequential", "config": config}))
    assert model.output_shape == (None, 72)
    assert model.layers[1].negative_slope == 0.1
    config["layers"][0]["config"]["groups"] = 2
    with pytest.raises(TypeError, match="no argument 'groups'"):
        models.model_from_json(json.dumps({"class_name": "Sequential", "config": config}))


# --- clones ------------------------------------------------------------------------------------


def test_clones_have_weights_of_their_own() -> None:
    a = Input((3,), name="a")
    shared = layers.Dense(3, name="shared")
    x = shared(shared(a)) * 2.0
    inner = Sequential([layers.Dense(2, name="deep")], name="inner")
    model = Model(a, {"out": inner(x)}, name="m")
    clone = models.clone_model(model)
    assert [w.path for w in clone.weights] == [w.path for w in model.weights]
    assert not any(a is b for a in clone.weights for b in model.weights)
    clone.set_weights(model.get_weights())
    agree(model, clone, values(2, 3))
    assert clone.name == "m" and clone.get_layer("shared") is not shared


def test_clones_of_a_sequential_with_other_inputs_and_layers() -> None:
    model = Sequential([Input((3,)), layers.Dense(2), layers.Dropout(0.5)])
    clone = models.clone_model(model)
    assert clone.built and clone.output_shape == (None, 2)
    wide = models.clone_model(model, input_tensors=Input((3,), batch_size=7))
    assert wide.input_shape == (7, 3)

    def without_dropout(layer: Layer) -> Layer:
        kept = not isinstance(layer, layers.Dropout)
        return (
            type(layer).from_config(layer.get_config())
            if kept
            else layers.Identity(name=layer.name)
        )

    changed = models.clone_model(model, clone_function=without_dropout)
    assert type(changed.layers[1]).__name__ == "Identity"
    late = models.clone_model(Sequential([layers.Dense(2)]))
    assert not late.built
    with pytest.raises(ValueError, match="takes a model"):
        models.clone_model(layers.Dense(2))
