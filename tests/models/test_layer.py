"""Layer: weights, tracking, calls, losses, masks, configs, and the errors of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meganeura import Model, Sequential, Variable, layers, ops, random
from meganeura.layers import Input, InputSpec, Layer
from meganeura.masking import get_mask, set_mask
from meganeura.tensor import Tensor, to_tensor


class Affine(Layer):
    """x W + b with a bias that is not trained."""

    def __init__(self, units: int, scale: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = units
        self.scale = scale

    def build(self, input_shape: Any) -> None:
        self.shift = self.add_weight(
            shape=(self.units,), initializer="ones", trainable=False, name="shift"
        )
        self.w = self.add_weight(shape=(input_shape[-1], self.units), name="w", regularizer="l2")

    def call(self, x: Any, training: bool = False) -> Any:
        y = ops.matmul(x, self.w) * self.scale + self.shift
        return y * 2.0 if training else y


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


# --- weights -----------------------------------------------------------------------------------


def test_built_at_the_first_call_and_trainable_weights_come_first() -> None:
    layer = Affine(3, name="affine")
    assert not layer.built and layer.weights == []
    out = layer(ones(2, 4))
    assert isinstance(out, Tensor) and out.shape == (2, 3) and layer.built
    assert [w.path for w in layer.weights] == ["affine/w", "affine/shift"]
    assert [w.name for w in layer.trainable_weights] == ["w"]
    assert [w.name for w in layer.non_trainable_weights] == ["shift"]
    assert layer.count_params() == 15
    np.testing.assert_allclose(out, ones(2, 4) @ layer.w.numpy() + 1, rtol=1e-6)


def test_set_weights_changes_nothing_unless_all_fit() -> None:
    layer = Affine(3)
    with pytest.raises(ValueError, match="has 0 weights, and 1 arrays.*not built"):
        layer.set_weights([ones(2)])
    layer.build((None, 4))
    before = layer.get_weights()
    with pytest.raises(ValueError, match=r"shift.*shape \(3,\).*shape \(4,\)"):
        layer.set_weights([ones(4, 3) * 7, ones(4)])
    np.testing.assert_array_equal(layer.get_weights()[0], before[0])
    layer.set_weights([ones(4, 3) * 7, ones(3) * 5])
    assert layer.w.numpy()[0, 0] == 7 and layer.shift.numpy()[0] == 5


def test_weights_in_lists_dicts_and_nested_layers_are_found_in_order() -> None:
    class Holder(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first = layers.Dense(2, name="first")
            self.many = [layers.Dense(2, name="in_list")]
            self.named = {"a": layers.Dense(2, name="in_dict"), "b": [layers.Dense(2, name="deep")]}
            self.own = Variable(ones(2), name="own")
            self.draws = random.SeedGenerator(3)
            self.many.append(layers.Dense(2, name="appended"))

        def call(self, x: Any) -> Any:
            for layer in (self.first, *self.many, self.named["a"], *self.named["b"]):
                x = layer(x)
            return x * self.own

    holder = Holder()
    holder(ones(1, 2))
    assert holder.weights[0].name == "own"
    assert [layer.name for layer in holder._flatten_layers()][1:] == [
        "first", "in_list", "appended", "in_dict", "deep"
    ]  # fmt: skip
    assert len(holder.weights) == 11
    assert len(holder.variables) == 12  # and the state of the generator
    holder.first = layers.Identity()
    assert len(holder.weights) == 9


def test_a_shared_layer_counts_once() -> None:
    dense = layers.Dense(2)

    class Twice(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.a = dense
            self.b = dense

        def call(self, x: Any) -> Any:
            return self.b(self.a(x))

    twice = Twice()
    twice(ones(1, 2))
    assert len(twice.weights) == 2


def test_trainable_reaches_all_layers_below() -> None:
    model = Sequential([Input((3,)), layers.Dense(2), Sequential([layers.Dense(2)])])
    assert len(model.trainable_weights) == 4
    model.trainable = False
    assert model.trainable_weights == [] and len(model.non_trainable_weights) == 4
    assert all(not w.trainable for w in model.weights)
    model.layers[1].trainable = True
    assert model.trainable_weights == []  # the model as a whole is frozen
    model.trainable = True
    assert len(model.trainable_weights) == 4
    frozen = layers.Dense(2, trainable=False)
    frozen.build((None, 3))
    assert frozen.trainable_weights == [] and len(frozen.weights) == 2


def test_add_weight_refuses_unknown_lengths() -> None:
    with pytest.raises(ValueError, match="axis -1 of its input.*known length"):
        layers.Dense(2, name="d").build((None, None))
    with pytest.raises(ValueError, match="'loose'.*definite shape"):
        Layer(name="loose").add_weight(shape=(None, 2), name="w")


# --- calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [None, False, True])
def test_training_is_inherited_by_layers_inside(training: bool | None) -> None:
    class Outer(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Affine(2)

        def call(self, x: Any) -> Any:
            return self.inner(x)

    outer = Outer()
    base = outer(ones(1, 2)).numpy()
    found = outer(ones(1, 2), training=training).numpy()
    np.testing.assert_allclose(found, base * (2 if training else 1), rtol=1e-6)


def test_arguments_of_call_by_position_and_name() -> None:
    class Mix(Layer):
        def call(self, a: Any, b: Any = None, *, factor: float = 1.0) -> Any:
            return a * factor if b is None else (a + b) * factor

    layer = Mix(name="mix")
    assert layer(ones(1), ones(1)).numpy() == [2]
    assert layer(a=ones(1), b=ones(1), factor=3.0).numpy() == [6]
    with pytest.raises(TypeError, match="'mix'.*no argument 'factr'.*'factor'"):
        layer(ones(1), factr=2.0)
    with pytest.raises(TypeError, match="'mix'.*takes 2 arguments.*3 were given"):
        layer(ones(1), ones(1), ones(1))
    with pytest.raises(TypeError, match="called without 'a'"):
        layer(b=ones(1))


def test_the_object_may_have_another_name_than_self() -> None:
    class Short(Layer):
        def __init__(s, size: int) -> None:
            super().__init__()
            s.size = size

        def build(s, shape: Any) -> None:
            s.w = s.add_weight(shape=(shape[-1], s.size), initializer="ones")

        def call(s, x: Any) -> Any:
            return ops.matmul(x, s.w)

    assert Short(2)(ones(1, 3)).numpy().tolist() == [[3, 3]]
    assert Short(2)(Input((3,))).shape == (None, 2)
    assert Short(2).get_config()["size"] == 2


def test_training_is_a_bool() -> None:
    with pytest.raises(TypeError, match="'d' .*training is True, False or None"):
        layers.Dense(2, name="d")(ones(1, 2), ones(1, 2))


def test_structures_of_tensors_go_in_and_out() -> None:
    class Swap(Layer):
        def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
            return {"sum": inputs["a"] + inputs["b"], "parts": [inputs["a"], 3]}

    out = Swap()({"a": ones(2), "b": ones(2)})
    assert out["sum"].numpy().tolist() == [2, 2] and out["parts"][1] == 3
    symbolic = Swap()({"a": Input((2,)), "b": Input((2,))})
    assert symbolic["sum"].shape == (None, 2)


@pytest.mark.parametrize("given", [[[1.0, 2.0]], 3.0, "text"])
def test_plain_numbers_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="'d' .*takes arrays or tensors.*numpy.array"):
        layers.Dense(2, name="d")(given)


def test_arrays_of_other_libraries_are_taken() -> None:
    class Foreign:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.ones((2, 3))

    assert layers.Dense(4)(Foreign()).shape == (2, 4)


def test_a_layer_that_looks_at_values_runs_op_by_op() -> None:
    class Branch(Layer):
        def call(self, x: Any) -> Any:
            return x * 2.0 if float(ops.sum(x)) > 0 else x

    branch = Branch()
    assert branch(ones(2)).numpy().tolist() == [2, 2]
    assert branch(-ones(2)).numpy().tolist() == [-1, -1]
    with pytest.raises(TypeError, match="run_eagerly"):
        branch(Input((2,)))


def test_forgotten_super_init() -> None:
    class Careless(Layer):
        def __init__(self) -> None:
            pass

        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(RuntimeError, match=r"Careless.*super\(\).__init__"):
        Careless()(ones(1))


def test_errors_inside_a_call_name_the_layer() -> None:
    class Wrong(Layer):
        def call(self, x: Any) -> Any:
            return ops.matmul(x, ops.ones((7, 2)))

    with pytest.raises(ValueError) as caught:
        Wrong(name="wrong")(ones(2, 3))
    assert any("'wrong' (Wrong)" in note and "(2, 3)" in note for note in caught.value.__notes__)


def test_assignments_in_call_are_kept() -> None:
    class Counter(Layer):
        def build(self, input_shape: Any) -> None:
            self.seen = self.add_weight(shape=(), dtype="int32", trainable=False, name="seen")

        def call(self, x: Any) -> Any:
            self.seen.assign_add(1)
            return x + ops.cast(self.seen, "float32")

    counter = Counter()
    assert counter(ones(1)).numpy() == [2]
    assert counter(ones(1)).numpy() == [3]
    counter(Input((1,)))  # wiring runs nothing
    assert counter.seen.numpy() == 2


# --- input specs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        (InputSpec(ndim=3), (2, 3), r"'l' expects an input of 3 dimensions.*\(2, 3\)"),
        (InputSpec(min_ndim=3), (2, 3), "at least 3"),
        (InputSpec(max_ndim=1), (2, 3), "at most 1"),
        (InputSpec(axes={-1: 4}), (2, 3), r"length 4 at axis -1.*\(2, 3\)"),
        (InputSpec(shape=(None, 4)), (2, 3), r"shape \(None, 4\).*\(2, 3\)"),
        ([InputSpec(), InputSpec()], (2, 3), r"expects 2 input\(s\), and got 1"),
    ],
)
def test_input_specs(spec: Any, shape: tuple[int, ...], message: str) -> None:
    layer = layers.Identity(name="l")
    layer.input_spec = spec
    with pytest.raises(ValueError, match=message):
        layer(ones(*shape))
    with pytest.raises(ValueError, match=r"'l' expects"):
        layer(Input(shape[1:]))


def test_another_width_than_the_layer_was_built_for() -> None:
    dense = layers.Dense(2, name="d")
    dense(ones(1, 3))
    with pytest.raises(ValueError, match=r"'d' expects length 3 at axis -1.*\(1, 4\)"):
        dense(ones(1, 4))


# --- losses ------------------------------------------------------------------------------------


def test_losses_of_calls_and_weights() -> None:
    class Penalised(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Affine(2)

        def call(self, x: Any) -> Any:
            self.add_loss(ops.sum(x) * 0.5)
            return self.inner(x)

    layer = Penalised()
    layer(ones(2, 3))
    assert len(layer.losses) == 2
    assert float(layer.losses[0]) == 3.0
    expected = 0.01 * np.sum(layer.inner.w.numpy() ** 2)
    np.testing.assert_allclose(float(layer.losses[1]), expected, rtol=1e-5)
    layer(ones(4, 3))
    assert len(layer.losses) == 2 and float(layer.losses[0]) == 6.0  # those of the last call
    layer.trainable = False
    assert len(layer.losses) == 1


def test_activity_regularizers_count_per_sample() -> None:
    layer = layers.Identity(activity_regularizer="l1")
    layer(ones(4, 5) * -2)
    np.testing.assert_allclose(float(layer.losses[0]), 0.01 * 4 * 5 * 2 / 4, rtol=1e-6)
    both = layers.ActivityRegularization(l1=1.0, l2=3.0)
    both(ones(2, 3) * 2)
    np.testing.assert_allclose(float(both.losses[0]), (1 * 12 + 3 * 24) / 2, rtol=1e-6)


# --- masks -------------------------------------------------------------------------------------


def test_masks_ride_along_where_layers_support_them() -> None:
    ids = np.array([[3, 0, 0], [1, 2, 0]])
    embedded = layers.Embedding(4, 2, mask_zero=True)(ids)
    expected = [[True, False, False], [True, True, False]]
    assert get_mask(embedded).numpy().tolist() == expected
    assert get_mask(layers.Dropout(0.5)(embedded)).numpy().tolist() == expected
    assert get_mask(layers.Dense(3)(embedded)).numpy().tolist() == expected
    with pytest.warns(UserWarning, match="does not support masking"):
        assert get_mask(layers.Flatten()(embedded)) is None
    plain = layers.Embedding(4, 2)(ids)
    assert get_mask(plain) is None


def test_a_layer_gets_the_mask_of_its_input() -> None:
    class Mean(Layer):
        def call(self, x: Any, mask: Any = None) -> Any:
            if mask is None:
                return ops.mean(x, axis=1)
            weight = ops.expand_dims(ops.cast(mask, "float32"), -1)
            return ops.sum(x * weight, axis=1) / ops.sum(weight, axis=1)

        def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
            return None

    x = to_tensor(np.arange(6, dtype="float32").reshape(1, 3, 2))
    assert Mean()(x).numpy().tolist() == [[2, 3]]
    assert Mean()(x, mask=np.array([[True, True, False]])).numpy().tolist() == [[1, 2]]
    set_mask(x, to_tensor(np.array([[True, False, False]])))
    assert Mean()(x).numpy().tolist() == [[0, 1]]
    inputs = Input((3, 2))
    model = Model(inputs, Mean()(layers.Masking(0.0)(inputs)))
    found = model(np.array([[[5, 5], [0, 0], [1, 3]]], "float32"))
    assert found.numpy().tolist() == [[3, 4]]


def test_masking_layer() -> None:
    x = np.array([[[1, 2], [7, 7], [7, 1]]], "float32")
    out = layers.Masking(7.0)(x)
    assert out.numpy().tolist() == [[[1, 2], [0, 0], [7, 1]]]
    assert get_mask(out).numpy().tolist() == [[True, False, True]]


# --- names and configs -------------------------------------------------------------------------


def test_constructor_errors() -> None:
    with pytest.raises(TypeError, match="Affine has no argument 'unitz'.*'units'"):
        Affine(3, unitz=4)
    with pytest.raises(ValueError, match="without '/'"):
        layers.Dense(3, name="a/b")
    with pytest.raises(ValueError, match="units must be a positive integer, not 0"):
        layers.Dense(0)


def test_configs_are_the_constructor_arguments() -> None:
    layer = Affine(3, scale=2.0, name="mine", trainable=False)
    config = layer.get_config()
    assert config["units"] == 3 and config["scale"] == 2.0 and config["trainable"] is False
    again = Affine.from_config(config)
    assert (again.units, again.scale, again.name, again.trainable) == (3, 2.0, "mine", False)

    class Odd(Layer):
        def __init__(self, thing: Any):
            super().__init__()

    with pytest.raises(NotImplementedError, match="Odd takes the argument 'thing'.*get_config"):
        Odd(object()).get_config()


def test_compute_output_shape() -> None:
    assert layers.Dense(3).compute_output_shape((None, 5, 2)) == (None, 5, 3)
    assert layers.Concatenate().compute_output_shape([(None, 2), (None, 3)]) == (None, 5)
    assert Affine(4).compute_output_shape((7, 2)) == (7, 4)
    assert layers.Reshape((3, -1)).compute_output_shape((None, 6)) == (None, 3, 2)


def test_build_with_several_inputs() -> None:
    class Bilinear(Layer):
        def build(self, left_shape: Any, right_shape: Any) -> None:
            shape = (left_shape[-1], right_shape[-1])
            self.form = self.add_weight(shape=shape, initializer="ones", name="form")

        def call(self, left: Any, right: Any) -> Any:
            return ops.sum(ops.matmul(left, self.form) * right, axis=-1)

    layer = Bilinear()
    assert layer(ones(2, 3), ones(2, 4)).numpy().tolist() == [12, 12]
    again = Bilinear()
    again.build_from_config(layer.get_build_config())
    assert again.form.shape == (3, 4)
    assert Bilinear()(Input((3,)), right=Input((4,))).shape == (None,)


def test_wrapper_keeps_its_layer_in_the_config() -> None:
    class Doubled(layers.Wrapper):
        def call(self, x: Any) -> Any:
            return self.layer(x) * 2.0

    doubled = Doubled(layers.Dense(3, name="inner"), name="doubled")
    assert doubled(ones(1, 2)).shape == (1, 3)
    again = Doubled.from_config(doubled.get_config())
    assert again.layer.name == "inner" and again.layer.units == 3
    with pytest.raises(ValueError, match="Doubled wraps a layer"):
        Doubled(3)
