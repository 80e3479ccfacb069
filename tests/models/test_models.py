"""Functional, Sequential and subclassed models: wiring, sharing, nesting, and what is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meganeura
from meganeura import Model, Sequential, layers, models, ops, random
from meganeura.layers import Input
from meganeura.masking import get_mask


@pytest.fixture(autouse=True)
def fresh_names() -> None:
    meganeura.utils.clear_session()


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


def same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-6)


# --- functional --------------------------------------------------------------------------------


def test_a_chain() -> None:
    inputs = Input((4,), name="data")
    hidden = layers.Dense(3, activation="relu", name="hidden")
    model = Model(inputs, layers.Dense(2, name="out")(hidden(inputs)), name="chain")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    w, b, v, c = model.get_weights()
    same(model(x), np.maximum(x @ w + b, 0) @ v + c)
    assert [w.path for w in model.weights] == [
        "hidden/kernel", "hidden/bias", "out/kernel", "out/bias"
    ]  # fmt: skip
    assert model.input_shape == (None, 4) and model.output_shape == (None, 2)
    assert [layer.name for layer in model.layers] == ["data", "hidden", "out"]
    assert model.get_layer("hidden") is hidden and model.get_layer(index=1) is hidden
    with pytest.raises(ValueError, match="'chain' has no layer 'hiden'.*'hidden'"):
        model.get_layer("hiden")
    with pytest.raises(ValueError, match="has 3 layers, no index 9"):
        model.get_layer(index=9)


def two_headed() -> Model:
    a, b = Input((3,), name="a"), Input((3,), name="b")
    shared = layers.Dense(4, name="shared")
    left, right = shared(a), shared(b)
    joined = layers.Concatenate(name="cat")([left, right * 2.0])
    return Model([a, b], {"sum": layers.Add(name="add")([left, right]), "all": joined})


def test_shared_layers_several_inputs_and_a_dict_of_outputs() -> None:
    model = two_headed()
    assert len(model.weights) == 2
    x, y = ones(2, 3), ones(2, 3) * 3
    w, b = model.get_weights()
    p, q = x @ w + b, y @ w + b
    for given in ([x, y], (x, y), {"a": x, "b": y}, {"b": y, "a": x, "more": x}):
        out = model(given)
        assert list(out) == ["sum", "all"]
        same(out["sum"], p + q)
        same(out["all"], np.concatenate([p, 2 * q], -1))
    assert model.output_names == ["sum", "all"]
    assert model.input_names == ["a", "b"]
    with pytest.raises(ValueError, match=r"takes 2 input\(s\) \(a, b\), and 1 were given"):
        model(x)
    with pytest.raises(ValueError, match="needs the inputs 'a', 'b', and got 'a', 'c'"):
        model({"a": x, "c": y})


def test_layers_are_listed_by_depth_as_keras_lists_them() -> None:
    a, b = Input((2,), name="a"), Input((2,), name="b")
    short = layers.Dense(2, name="short")(a)
    long = layers.Dense(2, name="long_2")(layers.Dense(2, name="long_1")(b))
    model = Model([a, b], layers.Add(name="add")([short, long]))
    # measured with Keras 3.15
    assert [layer.name for layer in model.layers] == ["b", "a", "long_1", "short", "long_2", "add"]


def test_models_between_tensors_in_the_middle() -> None:
    whole = Sequential([Input((3,)), layers.Dense(4, name="one"), layers.Dense(2, name="two")])
    features = Model(whole.inputs, whole.get_layer("one").output)
    same(features(ones(1, 3)), ones(1, 3) @ whole.layers[0].kernel.numpy())
    tail = Model(whole.get_layer("one").output, whole.output)
    same(tail(features(ones(1, 3))), whole(ones(1, 3)))
    assert len(tail.weights) == 2
    both = Model(whole.input, [layer.output for layer in whole.layers])
    assert [tuple(t.shape) for t in both(ones(5, 3))] == [(5, 4), (5, 2)]


def test_nested_models_are_layers() -> None:
    inner_in = Input((4,))
    inner = Model(inner_in, layers.Dense(2, name="deep")(inner_in), name="inner")
    a = Input((4,))
    twice = inner(inner(a)[:, :1] * ones(1, 4))
    model = Model(a, Sequential([layers.Dense(1, name="last")], name="tail")(twice))
    assert [w.path for w in model.weights][:2] == ["deep/kernel", "deep/bias"]
    assert [layer.name for layer in model.layers if isinstance(layer, Model)] == ["inner", "tail"]
    x = ones(3, 4)
    first = np.asarray(inner(x))[:, :1] * ones(1, 4)
    same(model(x), model.get_layer("tail")(inner(first)))


def test_operations_and_operators_on_symbolic_tensors() -> None:
    a = Input((2, 3))
    x = (1.0 - a) ** 2 / 4.0 + ops.mean(a, axis=-1, keepdims=True)
    x = ops.where(x > 0.5, x, -x)[:, ::-1, None, 1:]
    model = Model(a, x)
    data = np.random.default_rng(0).normal(size=(4, 2, 3)).astype("float32")
    y = (1 - data) ** 2 / 4 + data.mean(-1, keepdims=True)
    same(model(data), np.where(y > 0.5, y, -y)[:, ::-1, None, 1:])
    assert model.output_shape == (None, 2, 1, 2)
    assert model.layers == [model.layers[0]] and len(model.operations) > 5


def test_random_draws_need_a_layer() -> None:
    with pytest.raises(ValueError, match="would draw once and for all.*Dropout"):
        random.dropout(Input((3,)), 0.5)


def test_unknown_lengths_stay_unknown() -> None:
    a = Input((None, 4))
    assert layers.Dense(3)(a).shape == (None, None, 3)
    assert layers.Conv1D(3, 300)(a).shape == (None, None, 3)
    assert layers.LSTM(3)(a).shape == (None, 3)
    assert layers.GlobalAveragePooling1D()(a).shape == (None, 4)
    assert ops.reshape(a, (-1, 2)).shape == (None, 2)
    assert layers.Reshape((12,))(a).shape == (None, 12)
    assert layers.Add()([a, Input((5, 4))]).shape == (None, 5, 4)
    image = Input((None, None, 3))
    assert layers.Conv2D(8, 3, strides=2)(image).shape == (None, None, None, 8)
    assert layers.Flatten()(image).shape == (None, None)
    fixed = Input((4,), batch_size=6)
    assert layers.Dense(2)(fixed).shape == (6, 2)


def test_errors_of_symbolic_calls_speak_of_none() -> None:
    with pytest.raises(ValueError, match=r"\(None, None, 4\), \(None, 5, 3\) cannot be merged"):
        layers.Add()([Input((None, 4)), Input((5, 3))])


def test_a_vector_feeds_an_input_of_width_one() -> None:
    a = Input((1,))
    model = Model(a, a * 2.0)
    assert model(ones(3)).shape == (3, 1)


def test_integer_inputs() -> None:
    a = Input((2,), dtype="int32")
    model = Model(a, layers.Embedding(5, 3)(a))
    assert model(np.array([[1, 4]])).shape == (1, 2, 3)
    assert model(np.array([[1.0, 4.0]])).shape == (1, 2, 3)


def test_what_a_functional_model_refuses() -> None:
    a, b = Input((3,), name="a"), Input((3,), name="b")
    with pytest.raises(ValueError, match="depend on the input 'b'.*not among the"):
        Model(a, layers.Add()([a, b]))
    with pytest.raises(ValueError, match="inputs must be KerasTensors"):
        Model(inputs=ones(1, 3), outputs=layers.Dense(2)(a))
    with pytest.raises(ValueError, match="an input is listed twice"):
        Model([a, a], layers.Dense(2)(a))
    with pytest.raises(ValueError, match="2 layers are named 'same'"):
        Model(a, layers.Dense(2, name="same")(layers.Dense(2, name="same")(a)))
    model = Model(a, layers.Dense(2)(a), name="m")
    with pytest.raises(
        ValueError, match=r"'m': input 'a' expects the shape \(None, 3\), and got \(2, 4\)"
    ):
        model(ones(2, 4))
    with pytest.raises(ValueError, match="is symbolic and has no values"):
        np.asarray(a)
    with pytest.raises(TypeError, match="ops.where"):
        bool(a > 0)


def test_inputs_that_no_layer_uses_are_kept() -> None:
    a, b = Input((3,), name="a"), Input((2,), name="b")
    model = Model([a, b], layers.Dense(2)(a))
    assert model([ones(1, 3), ones(1, 2)]).shape == (1, 2)
    assert [layer.name for layer in model.layers] == ["a", "b", "dense"]  # as Keras lists them
    assert len(model.inputs) == 2


def test_optional_inputs() -> None:
    class Either(layers.Layer):
        def call(self, x: Any, y: Any = None) -> Any:
            return x if y is None else x + y

    a, b = Input((2,)), Input((2,), optional=True, name="b")
    model = Model([a, b], Either()(a, b))
    same(model([ones(1, 2), ones(1, 2)]), [[2, 2]])
    same(model([ones(1, 2), None]), [[1, 1]])
    needs = Model([a, Input((2,), name="c")], a * 1.0, name="needs")
    with pytest.raises(ValueError, match="input 'c' is None"):
        needs([ones(1, 2), None])


def test_masks_pass_through_models() -> None:
    ids = Input((3,), dtype="int32")
    inner = Sequential([layers.Embedding(5, 2, mask_zero=True), layers.Dense(2)])
    model = Model(ids, layers.Dropout(0.5)(inner(ids)))
    out = model(np.array([[1, 2, 0]]))
    assert get_mask(out).numpy().tolist() == [[True, True, False]]


def test_the_training_flag_reaches_nested_models() -> None:
    inner = Sequential([Input((50,)), layers.Dropout(0.5, seed=1)])
    a = Input((50,))
    model = Model(a, inner(a))
    same(model(ones(1, 50)), ones(1, 50))
    same(model(ones(1, 50), training=False), ones(1, 50))
    dropped = np.asarray(model(ones(1, 50), training=True))
    assert set(dropped.ravel().tolist()) == {0.0, 2.0}
    always = Model(a, layers.Dropout(0.5)(a, training=True))
    assert set(np.asarray(always(ones(1, 50))).ravel().tolist()) == {0.0, 2.0}


def test_a_functional_subclass_makes_its_own_layers() -> None:
    class Tiny(Model):
        def __init__(self, width: int = 3, **kwargs: Any):
            a = Input((2,))
            super().__init__(inputs=a, outputs=layers.Dense(width, name="d")(a), **kwargs)
            self.width = width

        def get_config(self) -> dict[str, Any]:
            return {"width": self.width, "name": self.name}

    model = Tiny(4, name="tiny")
    assert model.output_shape == (None, 4) and model(ones(1, 2)).shape == (1, 4)
    assert isinstance(model, models.Functional) and len(model.weights) == 2
    assert Tiny.from_config(model.get_config()).output_shape == (None, 4)


def test_a_deep_chain_needs_no_recursion() -> None:
    x = first = Input((2,))
    identity = layers.Identity()
    for _ in range(1500):
        x = identity(x)
    model = Model(first, x)
    same(model(ones(1, 2)), ones(1, 2))
    assert len(model.layers) == 2


# --- Sequential --------------------------------------------------------------------------------


def test_sequential_is_built_at_the_first_call_or_by_an_input() -> None:
    late = Sequential([layers.Dense(3), layers.Dense(2)])
    assert not late.built and late.weights == []
    with pytest.raises(AttributeError, match="no output_shape before it is built"):
        _ = late.output_shape
    assert late(ones(5, 4)).shape == (5, 2)
    assert late.input_shape == (None, 4) and len(late.weights) == 4
    assert [w.path for w in late.weights][0] == "sequential/dense/kernel"
    early = Sequential([Input((4,)), layers.Dense(3)])
    assert early.built and early.layers[0].name == "dense_2" and len(early.layers) == 1
    built = Sequential([layers.Dense(3)])
    built.build((None, 7))
    assert built.weights[0].shape == (7, 3)


@pytest.mark.parametrize(
    "keywords", [{"input_shape": (4,)}, {"input_dim": 4}, {"batch_input_shape": (None, 4)}]
)
def test_old_ways_to_say_the_input_shape(keywords: dict[str, Any]) -> None:
    model = Sequential([layers.Dense(3, **keywords), layers.Dense(2)])
    assert model.input_shape == (None, 4) and model.output_shape == (None, 2)


def test_add_and_pop() -> None:
    model = Sequential(name="stack")
    with pytest.raises(ValueError, match="'stack' has no layers"):
        model(ones(1, 2))
    model.add(Input((4,)))
    model.add(layers.Dense(3, name="one"))
    model.add(layers.Dense(2, name="two"))
    assert model.output_shape == (None, 2)
    assert model.pop().name == "two"
    assert model.output_shape == (None, 3)
    kept = model.get_weights()[0]
    model.add(layers.Dense(5, name="three"))
    same(model.get_weights()[0], kept)
    assert model.output_shape == (None, 5)
    with pytest.raises(ValueError, match="has a layer named 'one' already"):
        model.add(layers.Dense(1, name="one"))
    with pytest.raises(ValueError, match="takes layers, and got 3"):
        model.add(3)
    with pytest.raises(ValueError, match="Input must come first"):
        model.add(Input((4,)))
    empty = Sequential(name="empty")
    with pytest.raises(ValueError, match="'empty' has no layer to pop"):
        empty.pop()


def test_a_sequential_of_models_and_functions() -> None:
    base = Sequential([Input((4,)), layers.Dense(3)])
    model = Sequential([base, lambda x: x * 2.0, layers.Dense(1)])
    assert model.input_shape == (None, 4) and model.output_shape == (None, 1)
    assert type(model.layers[1]).__name__ == "Lambda"


# --- subclasses --------------------------------------------------------------------------------


class Residual(Model):
    def __init__(self, width: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.width = width
        self.blocks = [layers.Dense(width, activation="relu") for _ in range(2)]
        self.head = layers.Dense(1)
        self.drop = layers.Dropout(0.5)

    def call(self, x: Any, training: bool = False) -> Any:
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.drop(x, training=training))


def test_a_subclass_is_built_by_its_call() -> None:
    model = Residual(4, name="res")
    assert model(ones(2, 4)).shape == (2, 1) and model.built
    assert [w.path for w in model.weights][:2] == ["res/dense/kernel", "res/dense/bias"]
    assert [type(layer).__name__ for layer in model.layers] == [
        "Dense",
        "Dense",
        "Dense",
        "Dropout",
    ]
    assert len(model.weights) == 6 and len(model.variables) == 7
    built = Residual(4)
    built.build((None, 4))
    assert len(built.weights) == 6
    again = Residual.from_config(model.get_config())
    assert again.width == 4 and again.name == "res"


def test_a_subclass_inside_a_functional_model() -> None:
    a = Input((4,))
    model = Model(a, Residual(4)(a))
    assert model.output_shape == (None, 1) and len(model.weights) == 6
    assert model(ones(3, 4)).shape == (3, 1)


def test_a_model_without_call() -> None:
    class Empty(Model):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty defines no call\(\)"):
        Empty()(ones(1, 2))
    with pytest.raises(TypeError, match="takes no positional arguments, got 3"):
        Model(3)


def pickled(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("again", [copy.deepcopy, pickled])
def test_copies_and_pickles(again: Callable[[Any], Any]) -> None:
    model = two_headed()
    model.compile("adam", "mse")
    data = [ones(4, 3), ones(4, 3)], {"sum": ones(4, 4), "all": ones(4, 8)}
    model.fit(*data, verbose=0)
    twin = again(model)
    given = [ones(2, 3), ones(2, 3) * 2]
    same(twin(given)["all"], model(given)["all"])
    before = twin.get_weights()
    model.fit(*data, verbose=0)
    for a, b in zip(before, twin.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    twin.fit(*data, verbose=0)
    for a, b in zip(model.get_weights(), twin.get_weights(), strict=True):
        same(a, b)  # the optimizer's state came along


def test_copies_of_subclassed_models_and_layers() -> None:
    model = Residual(4)
    out = model(ones(2, 4))
    for again in (copy.deepcopy, pickled):
        same(again(model)(ones(2, 4)), out)
    dense = layers.Dense(3)
    out = dense(ones(2, 4))
    twin = copy.deepcopy(dense)
    dense.set_weights([ones(4, 3), ones(3)])
    same(twin(ones(2, 4)), out)


# --- summary -----------------------------------------------------------------------------------


def printed(model: Model, **arguments: Any) -> list[str]:
    lines: list[str] = []
    model.summary(print_fn=lines.append, **arguments)
    return "\n".join(lines).splitlines()


def test_summary_of_a_chain() -> None:
    model = Sequential(
        [Input((28, 28, 1)), layers.Conv2D(32, 3), layers.Flatten(), layers.Dense(10)]
    )
    lines = printed(model)
    assert lines[0] == 'Model: "sequential"' and "Connected to" not in lines[2]
    assert len({len(line) for line in lines[1:10]}) == 1
    assert (
        "│ conv2d (Conv2D)" in lines[4]
        and "(None, 26, 26, 32)" in lines[4]
        and " 320 │" in lines[4]
    )
    assert "216,330" in lines[8]
    assert lines[10:13] == [
        " Total params: 216,650 (846.29 KB)",
        " Trainable params: 216,650 (846.29 KB)",
        " Non-trainable params: 0 (0.00 B)",
    ]


def test_summary_of_a_graph() -> None:
    lines = printed(two_headed(), show_trainable=True)
    text = "\n".join(lines)
    assert "Connected to" in lines[2] and "Trainable" in lines[2]
    assert "a[0][0], b[0][0]" in text and "multiply (Multiply)" in text
    assert all(len(line) == 108 for line in lines[1:-4])
    unbuilt = "\n".join(printed(Sequential([layers.Dense(2)])))
    assert "0 (unbuilt)" in unbuilt and "│ ?" in unbuilt
    subclass = Residual(4)
    subclass(ones(2, 4))
    assert "(2, 4)" in "\n".join(printed(subclass))


def test_summary_options() -> None:
    inner = Sequential([Input((3,)), layers.Dense(2, name="deep")], name="inner")
    model = Sequential([Input((3,)), layers.Dense(3, name="top"), inner])
    assert "└ deep (Dense)" in "\n".join(printed(model, expand_nested=True))
    assert "top (Dense)" not in "\n".join(printed(model, layer_range=["inner", "inner"]))
    assert len(printed(model, line_length=60)[1]) == 60
    assert printed(model, positions=[0.5, 0.8, 1.0])[1].index("┳") == 43
    with pytest.raises(ValueError, match="layer_range is two names"):
        printed(model, layer_range=["top"])
    with pytest.raises(ValueError, match="no layer is named 'nope'"):
        printed(model, layer_range=["nope", "top"])
    with pytest.raises(ValueError, match="line_length 12 is too short"):
        printed(model, line_length=12)


def test_counting_parameters() -> None:
    model = Sequential([layers.Dense(3)])
    with pytest.raises(ValueError, match="not built yet"):
        model.count_params()
    model.build((None, 2))
    assert model.count_params() == 9


def test_explain() -> None:
    model = Sequential([Input((3,)), layers.Dense(2)], name="told")
    with pytest.raises(ValueError, match="'told' was not run yet"):
        model.explain()
    model.predict(ones(4, 3), verbose=0)
    predicted = model.explain()
    assert "nodes as written" in predicted
    model.compile("sgd", "mse")
    model.fit(ones(4, 3), ones(4, 2), verbose=0)
    assert model.explain() != predicted  # of the training step
    assert model.explain(format="html").startswith("<!doctype html>")
    with pytest.raises(ValueError, match="format is 'pdf'; use 'text' or 'html'"):
        model.explain(format="pdf")
