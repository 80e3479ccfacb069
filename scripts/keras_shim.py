"""What Keras's own tests see in place of Keras: names are looked up in meganeura's public modules.

The tests are read from the installed `keras` package and rewritten in memory by keras_suite.py; nothing of
them is kept. Messages of errors are not compared: ours are worded differently on purpose.

KERAS_SUITE_OF=keras points all of it at real Keras, confined to its public names in the same way: what passes
then is what a library with Keras's public names can be asked to pass.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import tempfile
import types
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl.testing import parameterized

#: The package under test.
PACKAGE = os.environ.get("KERAS_SUITE_OF", "meganeura")
mg: Any = importlib.import_module(PACKAGE)
ops: Any = importlib.import_module(f"{PACKAGE}.ops")

#: Where public names live, the most particular first.
_AREAS = (
    "layers", "losses", "metrics", "optimizers", "optimizers.schedules", "initializers", "regularizers",
    "constraints", "activations", "callbacks", "models", "utils", "saving", "random", "ops", "tree", "config",
    "dtype_policies", "backend", "datasets",
)  # fmt: skip
#: Names that Keras's tests use for public ones, or that are public under another roof.
_ALIASES = {
    "GroupedQueryAttention": "GroupQueryAttention",
    "dtype_policy": "dtype_policies",
    "saving_api": "saving",
    "serialization_lib": "saving",
    "numerical_utils": "utils",
}


def area(path: str) -> Any:
    """A public module of the package under test by its dotted name."""
    try:
        return importlib.import_module(f"{PACKAGE}.{path}")
    except ImportError:
        found: Any = mg
        for part in path.split("."):
            found = getattr(found, part)
        return found


def _missing(path: str) -> type:
    """Stands for a name without a public counterpart: the test that uses it fails and says so."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"{path} has no public counterpart")

    return type(path.rsplit(".", 1)[-1], (), {"__init__": refuse})


def resolve(module: str, name: str | None = None) -> Any:
    """What `from module import name` means here."""
    parts = module.split(".")[2:]  # without keras.src
    if name is None:
        return _module(parts)
    if name in ("testing", "test_case", "test_utils") or "testing" in parts:
        return globals().get(name, testing)
    if name == "backend" or (parts[:1] == ["backend"] and hasattr(backend, name)):
        return backend if name == "backend" else getattr(backend, name)
    import keras_suite

    if name in ("dtype_policy", "dtype_policies"):
        return _Policies()
    # A module of that name comes before what it defines.
    if keras_suite.is_module([*parts, name]):
        return _module([*parts, _ALIASES.get(name, name)])
    if name in _STAND_INS:
        return _STAND_INS[name]
    wanted = _ALIASES.get(name, name)
    homes = [".".join(parts[:n]) for n in (2, 1) if len(parts) >= n] if parts else []
    for home in [*homes, *_AREAS]:
        try:
            place = area(home)
        except (ImportError, AttributeError):
            continue
        if hasattr(place, wanted):
            return getattr(place, wanted)
    if wanted in _AREAS:
        return area(wanted)
    if hasattr(mg, wanted):
        return getattr(mg, wanted)
    return _missing(f"{module}.{name}")


def _module(parts: list[str]) -> Any:
    if parts[:1] == ["backend"]:
        return backend
    for n in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError, AttributeError):
            return area(".".join(_ALIASES.get(p, p) for p in parts[:n]))
    return mg


class _Backend(types.SimpleNamespace):
    """keras.backend as far as it is made of public parts."""

    SUPPORTS_SPARSE_TENSORS = False
    SUPPORTS_RAGGED_TENSORS = False

    def __getattr__(self, name: str) -> Any:
        for place in ("backend", "config", "ops", "utils", ""):
            found = area(place) if place else mg
            if hasattr(found, name):
                return getattr(found, name)
        raise AttributeError(f"backend.{name} has no public counterpart")


#: Switches of Keras's that choose nothing here, small helpers of its own, and classes that have no public name
#: while everybody gets instances of them.
_STAND_INS: dict[str, Any] = {
    "disable_flash_attention": lambda: None,
    "enable_flash_attention": lambda: None,
    "is_flash_attention_enabled": lambda: False,
    "skip_if_backend": lambda *_: lambda test: test,
}
if PACKAGE == "keras":
    _STAND_INS["Functional"] = type(mg.Model((_tensor := mg.Input((1,))), _tensor))
    mg.layers.GroupedQueryAttention = mg.layers.GroupQueryAttention  # its name inside Keras


def _standardize_dtype(dtype: Any) -> str:
    if PACKAGE == "keras":
        return mg.backend.standardize_dtype(dtype)
    from meganeura import dtypes

    named = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype
    return str(named) if not hasattr(dtypes, "standardize") else dtypes.standardize(dtype)


def _numpy(x: Any) -> np.ndarray:
    """An array of a tensor, of a variable, or of a list of them."""
    if isinstance(x, (list, tuple)):
        return np.asarray([_numpy(part) for part in x])
    return ops.convert_to_numpy(x) if hasattr(x, "detach") or hasattr(x, "numpy") else np.asarray(x)


class _Policies:
    """keras.dtype_policies and the switches of keras.config, by which Keras's tests reach each other."""

    def __getattr__(self, name: str) -> Any:
        if name == "dtype_policy":
            return self
        home = mg.dtype_policies if hasattr(mg.dtype_policies, name) else mg.config
        return getattr(home, name)

    def __call__(self) -> Any:
        return mg.config.dtype_policy()


def _get_mask(x: Any) -> Any:
    if PACKAGE == "keras":
        return getattr(x, "_keras_mask", None)
    return importlib.import_module("meganeura.masking").get_mask(x)


def _set_mask(x: Any, mask: Any) -> None:
    if PACKAGE == "keras":
        x._keras_mask = mask
    else:
        importlib.import_module("meganeura.masking").set_mask(x, mask)


backend = _Backend(
    Variable=mg.Variable,
    KerasTensor=mg.KerasTensor,
    backend=lambda: mg.backend.backend() if PACKAGE == "keras" else PACKAGE,
    convert_to_tensor=ops.convert_to_tensor,
    convert_to_numpy=ops.convert_to_numpy,
    standardize_dtype=_standardize_dtype,
    is_tensor=ops.is_tensor,
    numpy=ops,
    nn=ops,
    random=mg.random,
    shape=ops.shape,
    cast=ops.cast,
    AutocastScope=mg.autocast.autocast,
    config=mg.config,
    get_keras_mask=_get_mask,
    set_keras_mask=_set_mask,
    standardize_shape=tuple,
    compute_output_spec=lambda function, *args, **kwargs: function(*args, **kwargs),
    name_scope=lambda name, **_: contextlib.nullcontext(),
)


def _case_name(value: Any) -> str:
    return value.__name__.lower() if hasattr(value, "__name__") else str(value).lower()


def named_product(*sets: Any, **choices: Any) -> list[dict[str, Any]]:
    """All combinations, named after their parts, for `parameterized.named_parameters`."""
    combined: list[dict[str, Any]] = [{"testcase_name": ""}]
    columns = [list(s) for s in sets]
    columns += [
        [{"testcase_name": _case_name(v), name: v} for v in values]
        for name, values in choices.items()
    ]
    for column in columns:
        combined = [
            {**a, **b, "testcase_name": f"{a['testcase_name']}_{b['testcase_name']}"}
            for a in combined
            for b in column
        ]
    return combined


def get_test_data(
    train_samples: int, test_samples: int, input_shape: Any, num_classes: int, random_seed: int | None = None
) -> Any:  # fmt: skip
    """Blobs around a centre for each class."""
    random = np.random.RandomState(random_seed)
    total = train_samples + test_samples
    centres = 2 * num_classes * random.random((num_classes, *input_shape))
    labels = random.randint(0, num_classes, size=total)
    x = (centres[labels] + random.normal(loc=0, scale=1.0, size=(total, *input_shape))).astype(
        "float32"
    )
    return (x[:train_samples], labels[:train_samples]), (x[train_samples:], labels[train_samples:])


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(v is None or isinstance(v, int) for v in value)


def _over_shapes(function: Callable[[Any, Any], Any], shape: Any, dtype: Any) -> Any:
    """Apply to each shape of a structure, with the dtype of the same place."""
    if _is_shape(shape):
        return function(shape, dtype)
    if isinstance(shape, dict):
        return {
            k: _over_shapes(function, v, dtype[k] if isinstance(dtype, dict) else dtype)
            for k, v in shape.items()
        }
    kinds = dtype if isinstance(dtype, (list, tuple)) else [dtype] * len(shape)
    return type(shape)(_over_shapes(function, s, d) for s, d in zip(shape, kinds, strict=True))


def _array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    random = np.random.RandomState(42)
    shape = tuple(2 if n is None else n for n in shape)
    if dtype is not None and ("int" in str(dtype) or str(dtype) == "bool"):
        return random.randint(0, 2, size=shape).astype(str(dtype))
    return random.uniform(size=shape).astype("float32")


def _keras_tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    return mg.KerasTensor(shape, dtype=dtype or "float32")


class _AnyText(str):
    """The message of an error: equal to every text, for messages are not compared."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    def __hash__(self) -> int:
        return super().__hash__()

    def __contains__(self, part: object) -> bool:
        return isinstance(part, str)


class _Raised:
    """An error that a test looks at after the `with` block that caught it."""

    def __init__(self, error: BaseException):
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._error, name)

    def __str__(self) -> str:
        return _AnyText(self._error)


class _Raises:
    """unittest's context of assertRaises, with an `exception` whose message equals every text."""

    def __init__(self, context: Any):
        self._context = context

    def __enter__(self) -> _Raises:
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        caught = self._context.__exit__(*error)
        if caught:
            self.exception = _Raised(self._context.exception)
        return caught


class TestCase(parameterized.TestCase, unittest.TestCase):
    """The assertions of Keras's own test case, by their names."""

    maxDiff = None

    def setUp(self) -> None:
        mg.utils.set_random_seed(1337)
        mg.utils.clear_session()

    def get_temp_dir(self) -> str:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def convert_to_numpy(self, x: Any) -> np.ndarray:
        return _numpy(x)

    def assertRaisesRegex(self, kinds: Any, expected_regex: Any, *args: Any, **kwargs: Any) -> Any:
        return self.assertRaises(kinds, *args, **kwargs)

    def assertRaises(self, kinds: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            return super().assertRaises(kinds, *args, **kwargs)
        return _Raises(super().assertRaises(kinds, **kwargs))

    def assertAllClose(
        self, actual: Any, desired: Any, atol: float = 1e-6, rtol: float = 1e-6,
        tpu_atol: Any = None, tpu_rtol: Any = None, msg: str | None = None,
    ) -> None:  # fmt: skip
        # float32 rounds differently from library to library in its last bits
        np.testing.assert_allclose(
            _numpy(actual),
            _numpy(desired),
            atol=max(atol, 2e-6),
            rtol=max(rtol, 2e-6),
            err_msg=msg or "",
        )

    def assertNotAllClose(
        self, x1: Any, x2: Any, atol: float = 1e-6, rtol: float = 1e-6, msg: str | None = None
    ) -> None:
        x1, x2 = _numpy(x1), _numpy(x2)
        if x1.shape == x2.shape and np.allclose(x1, x2, atol=atol, rtol=rtol):
            raise AssertionError(msg or "the values are close to each other")

    def assertAlmostEqual(
        self, actual: Any, desired: Any, decimal: int = 3, tpu_decimal: Any = None, msg: str | None = None,
        places: Any = None, delta: Any = None,
    ) -> None:  # fmt: skip
        np.testing.assert_almost_equal(
            _numpy(actual), _numpy(desired), decimal=decimal, err_msg=msg or ""
        )

    def assertAllEqual(self, actual: Any, desired: Any, msg: str | None = None) -> None:
        np.testing.assert_array_equal(_numpy(actual), _numpy(desired), err_msg=msg or "")

    def assertLen(self, container: Any, expected_len: int, msg: str | None = None) -> None:
        self.assertEqual(len(container), expected_len, msg=msg)

    def assertSparse(self, x: Any, sparse: bool = True) -> None:
        if sparse:
            self.skipTest("sparse tensors are not offered")

    def assertRagged(self, x: Any, ragged: bool = True) -> None:
        if ragged:
            self.skipTest("ragged tensors are not offered")

    def assertDType(self, x: Any, dtype: Any, msg: str | None = None) -> None:
        self.assertEqual(_standardize_dtype(x.dtype), _standardize_dtype(dtype), msg=msg)

    def assertFileExists(self, path: Any) -> None:
        self.assertTrue(Path(path).exists(), f"{path} does not exist")

    def run_class_serialization_test(self, instance: Any, custom_objects: Any = None) -> Any:
        config = instance.get_config()
        text = json.dumps(config, default=mg.saving.serialize_keras_object)
        with mg.saving.custom_object_scope(custom_objects or {}):
            again = type(instance).from_config(config)
            self.assertEqual(
                json.dumps(again.get_config(), default=mg.saving.serialize_keras_object), text
            )
            described = mg.saving.serialize_keras_object(instance)
            third = mg.saving.deserialize_keras_object(json.loads(json.dumps(described)))
        self.assertEqual(
            json.dumps(third.get_config(), default=mg.saving.serialize_keras_object), text
        )
        public = {n for n in dir(instance) if not n.startswith("_")}
        self.assertEqual(public, {n for n in dir(again) if not n.startswith("_")})
        return again

    def run_layer_test(
        self, layer_cls: Any, init_kwargs: dict[str, Any], input_shape: Any = None, input_dtype: Any = None,
        input_sparse: bool = False, input_ragged: bool = False, input_data: Any = None,
        call_kwargs: dict[str, Any] | None = None, expected_output_shape: Any = None,
        expected_output_dtype: Any = None, expected_output_sparse: bool = False,
        expected_output_ragged: bool = False, expected_output: Any = None,
        expected_num_trainable_weights: int | None = None,
        expected_num_non_trainable_weights: int | None = None,
        expected_num_non_trainable_variables: int | None = None,
        expected_num_seed_generators: int | None = None, expected_num_losses: int | None = None,
        supports_masking: bool | None = None, expected_mask_shape: Any = None, custom_objects: Any = None,
        run_training_check: bool = True, run_mixed_precision_check: bool = True,
        assert_built_after_instantiation: bool = False, tpu_atol: Any = None, tpu_rtol: Any = None,
    ) -> None:  # fmt: skip
        """A layer's life: configuration, building, symbolic call, call on arrays, training."""
        if input_sparse or input_ragged:
            self.skipTest("sparse and ragged tensors are not offered")
        call_kwargs = call_kwargs or {}
        if input_shape is not None and input_dtype is None:
            input_dtype = "float32"
        layer = layer_cls(**init_kwargs)
        self.run_class_serialization_test(layer, custom_objects)
        if assert_built_after_instantiation:
            self.assertTrue(layer.built)

        def counts(one: Any) -> None:
            for name, expected in (
                ("trainable_weights", expected_num_trainable_weights),
                ("non_trainable_weights", expected_num_non_trainable_weights),
                ("non_trainable_variables", expected_num_non_trainable_variables),
            ):
                if expected is not None:
                    self.assertLen(getattr(one, name), expected, msg=name)

        def outputs(found: Any) -> None:
            if expected_output_shape is not None:
                got = mg.tree.map_structure(lambda t: tuple(t.shape), found)
                expected = expected_output_shape
                if _is_shape(expected):
                    leaves = mg.tree.flatten(found)
                    self.assertEqual(tuple(leaves[0].shape), tuple(expected))
                else:
                    self.assertEqual(
                        json.dumps(got, default=list), json.dumps(expected, default=list)
                    )
            if expected_output_dtype is not None:
                leaves = mg.tree.flatten(found)
                kinds = expected_output_dtype
                kinds = kinds if isinstance(kinds, (list, tuple)) else [kinds] * len(leaves)
                for leaf, kind in zip(leaves, kinds, strict=False):
                    self.assertEqual(_standardize_dtype(leaf.dtype), _standardize_dtype(kind))
            if expected_mask_shape is not None:
                self.assertEqual(
                    tuple(backend.get_keras_mask(found).shape), tuple(expected_mask_shape)
                )

        if input_shape is not None:  # building from shapes
            fresh = layer_cls(**init_kwargs)
            if isinstance(input_shape, dict) and set(input_shape) <= {
                f"{n}_shape" for n in _names(fresh)
            }:
                fresh.build(**input_shape)
            else:
                fresh.build(input_shape)
            self.assertTrue(fresh.built)
            counts(fresh)

        def strip(tree: Any) -> Any:
            return (
                {k.removesuffix("_shape"): v for k, v in tree.items()}
                if isinstance(tree, dict)
                else tree
            )

        def call(one: Any, given: Any) -> Any:
            if (
                isinstance(given, dict)
                and isinstance(input_shape, dict)
                and set(given) <= set(_names(one))
            ):
                return one(**given, **call_kwargs)
            return one(given, **call_kwargs)

        if input_data is not None or input_shape is not None:
            if input_shape is None:
                symbolic = mg.tree.map_structure(
                    lambda x: mg.KerasTensor(tuple(x.shape), dtype=_standardize_dtype(x.dtype)),
                    input_data,
                )
            else:
                symbolic = strip(_over_shapes(_keras_tensor, input_shape, input_dtype))
            fresh = layer_cls(**init_kwargs)
            if supports_masking is not None:
                self.assertEqual(fresh.supports_masking, supports_masking)
            found = call(fresh, symbolic)
            counts(fresh)
            outputs(found)
            data = (
                input_data
                if input_data is not None
                else strip(_over_shapes(_array, input_shape, input_dtype))
            )
            one = layer_cls(**init_kwargs)
            found = call(one, data)
            outputs(found)
            if expected_output is not None:
                for got, expected in zip(
                    mg.tree.flatten(found), mg.tree.flatten(expected_output), strict=True
                ):
                    self.assertAllClose(got, expected, msg="outputs")
            if expected_num_losses is not None:
                self.assertLen(one.losses, expected_num_losses)
            if run_training_check:
                self._trains(layer_cls(**init_kwargs), data, found, call)

    def _trains(self, layer: Any, data: Any, output: Any, call: Callable[[Any, Any], Any]) -> None:
        class Holder(mg.Model):
            def __init__(self) -> None:
                super().__init__()
                self.layer = layer

            def call(self, x: Any, training: bool = False) -> Any:
                return call(self.layer, x)

        arrays = [_numpy(x) for x in mg.tree.flatten(data)]
        if any(a.ndim == 0 or a.shape[0] != arrays[0].shape[0] for a in arrays):
            return
        targets = mg.tree.map_structure(lambda t: np.zeros(t.shape, "float32"), output)
        if any(
            _numpy(t).ndim == 0 or t.shape[0] != arrays[0].shape[0]
            for t in mg.tree.flatten(targets)
        ):
            return

        def loss(y_true: Any, y_pred: Any) -> Any:
            values = ops.cast(y_pred, "float32")
            return ops.mean(values, axis=-1) if len(values.shape) > 1 else values

        model = Holder()
        model.compile(optimizer="sgd", loss=loss)
        model.train_on_batch(data, targets)


def _names(layer: Any) -> list[str]:
    return list(inspect.signature(layer.call).parameters)


@contextlib.contextmanager
def _unchanged() -> Iterator[None]:
    yield


def _no(*_: Any, **__: Any) -> bool:
    return False


testing = types.SimpleNamespace(
    TestCase=TestCase, test_case=types.SimpleNamespace(TestCase=TestCase),
    test_utils=types.SimpleNamespace(named_product=named_product, get_test_data=get_test_data),
    named_product=named_product, get_test_data=get_test_data,
    tensorflow_uses_gpu=_no, jax_uses_gpu=_no, torch_uses_gpu=_no, uses_gpu=_no, uses_tpu=_no, jax_uses_tpu=_no,
    tensorflow_uses_tpu=_no,
)  # fmt: skip
test_case = testing.test_case
test_utils = testing.test_utils
