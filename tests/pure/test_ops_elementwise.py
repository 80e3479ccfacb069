"""Public elementwise operations against NumPy, SciPy and closed forms; their dtypes and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.special as special

from meganeura import ops
from meganeura.execution import run_traced
from meganeura.graph.autodiff import gradients
from meganeura.tensor import to_tensor

INFINITY, NAN = math.inf, math.nan
VALUES = np.array(
    [
        0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3,
        -3,
        6,
        10,
        -10,
        1000,
        -1000,
        INFINITY,
        -INFINITY,
        NAN,
    ],
    "float32",
)
FINITE = VALUES[np.isfinite(VALUES)]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return special.expit(x)


def elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


#: name: the function in double precision
CLOSED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "negative": np.negative, "abs": np.abs, "absolute": np.abs, "sign": np.sign, "square": np.square,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "arcsinh": np.arcsinh,
    "arccosh": np.arccosh, "arctanh": np.arctanh, "reciprocal": np.reciprocal, "floor": np.floor,
    "ceil": np.ceil, "round": np.round, "erf": special.erf, "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0), "relu6": lambda x: np.clip(x, 0, 6),
    "silu": lambda x: x * sigmoid(x), "swish": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "softplus": lambda x: np.logaddexp(x, 0), "softsign": lambda x: x / (1 + np.abs(x)), "elu": elu,
    "selu": lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772), "celu": elu,
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_silu": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "log_sigmoid": special.log_expit, "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_shrink": lambda x: np.where(np.abs(x) <= 0.5, 0, x),
    "soft_shrink": lambda x: x - np.clip(x, -0.5, 0.5), "tanh_shrink": lambda x: x - np.tanh(x),
    "squareplus": lambda x: np.where(x == -np.inf, 0, (x + np.sqrt(x * x + 4)) / 2),
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x < 1, (x + 1) ** 2 / 4, x)),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "logical_not": np.logical_not,
}  # fmt: skip


def agree(found: Any, expected: np.ndarray, relative: float = 3e-6, absolute: float = 1e-6) -> None:
    with np.errstate(over="ignore"):
        expected = expected.astype("float32") if expected.dtype.kind == "f" else expected
    np.testing.assert_allclose(np.asarray(found), expected, rtol=relative, atol=absolute)


@pytest.mark.parametrize("name", CLOSED)
def test_one_argument(name: str) -> None:
    random = np.random.default_rng(1)
    for x in (
        VALUES,
        random.normal(0, 3, (3, 1, 5)).astype("float32"),
        np.float32(0.3),
        np.zeros((0, 2), "float32"),
    ):
        with np.errstate(all="ignore"):
            expected = np.asarray(CLOSED[name](np.asarray(x, "float64")))
            found = getattr(ops, name)(x)
        assert found.shape == np.shape(x)
        assert found.dtype == ("bool" if expected.dtype == bool else "float32")
        agree(found, expected)


@pytest.mark.parametrize("name", sorted(set(CLOSED) - {"negative", "reciprocal", "arcsin"}))
def test_whole_numbers_are_taken(name: str) -> None:
    """Functions of the reals give float32 for integers and bools; the others keep the integers."""
    x = np.array([0, 1, -1, 2], "int32")
    with np.errstate(all="ignore"):
        found = getattr(ops, name)(x)
        expected = np.asarray(CLOSED[name](x.astype("float64")))
    kept = name in ("abs", "absolute", "sign", "square", "relu", "relu6", "round")
    assert found.dtype == ("int32" if kept else "bool" if expected.dtype == bool else "float32")
    agree(found, expected.astype("int32") if kept else expected)


BINARY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "true_divide": np.divide, "floor_divide": np.floor_divide, "mod": np.mod, "power": np.power,
    "maximum": np.maximum, "minimum": np.minimum, "arctan2": np.arctan2, "logaddexp": np.logaddexp,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor, "isclose": np.isclose,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(name: str) -> None:
    random = np.random.default_rng(2)
    a, b = (np.ascontiguousarray(m.ravel()) for m in np.meshgrid(VALUES, VALUES))
    normal = lambda *shape: random.normal(0, 3, shape).astype("float32")
    shapes = (normal(2, 1, 4), normal(3, 1)), (normal(0, 2), normal(2))
    for x, y in ((a, b), *shapes, (normal(3), 2.0), (3.0, normal(3))):
        with np.errstate(all="ignore"):
            wide = (np.asarray(x, "float64"), np.asarray(y, "float64"))
            expected = np.asarray(BINARY[name](*wide))
            found = getattr(ops, name)(x, y)
        agree(found, expected)


@pytest.mark.parametrize(
    "x, y, dtype",
    [
        (np.int32(3), 2, "int32"), (np.int32(3), 2.0, "float32"), (np.uint8(3), 2, "uint8"),
        (np.float32(3), 2, "float32"), (np.uint8(3), np.int32(2), "int32"), (np.bool_(True), 2, "int32"),
        (np.bool_(True), np.float32(2), "float32"), (3, 2, "int32"), (np.int64(3), np.float64(2), "float32"),
    ],
)  # fmt: skip
def test_promotion(x: Any, y: Any, dtype: str) -> None:
    """Python's numbers give way to tensors; between tensors the wider dtype wins."""
    found = ops.add(x, y)
    assert found.dtype == dtype and float(found.numpy()) == float(x) + float(y)


def test_arithmetic_of_bools_is_logic() -> None:
    x, y = np.array([True, True, False]), np.array([True, False, False])
    assert ops.add(x, y).numpy().tolist() == [True, True, False]
    assert ops.multiply(x, y).numpy().tolist() == [True, False, False]
    assert ops.maximum(x, y).dtype == ops.minimum(x, y).dtype == "bool"
    assert ops.subtract(x, y).numpy().tolist() == [0, 1, 0]


def test_integers_divided_by_zero_give_zero() -> None:
    x = np.array([7, -7, 7, -7], "int32")
    y = np.array([2, 2, -2, 0], "int32")
    assert ops.floor_divide(x, y).numpy().tolist() == [3, -4, -4, 0]
    assert ops.mod(x, y).numpy().tolist() == [1, 1, -1, 0]


def test_power_of_negative_bases() -> None:
    base = np.array([-2, -2, -2, 0, 0, 2], "float32")
    exponent = np.array([2, 3, 0.5, 0, -1, -2], "float32")
    with np.errstate(divide="ignore", invalid="ignore"):
        found = ops.power(base, exponent).numpy()
    np.testing.assert_array_equal(found, [4, -8, NAN, 1, INFINITY, 0.25])
    for whole in (0, 1, 2, 3, 7, 8, 9, 40):
        agree(ops.power(np.float32(-1.5), whole), np.asarray((-1.5) ** whole), 1e-6)
    agree(ops.power(np.float32(-2), -3), np.asarray(-0.125))
    assert ops.power(np.int32(-3), 5).numpy() == -243 and ops.power(np.int32(3), 2).dtype == "int32"


def test_arguments_of_activations() -> None:
    x = np.random.default_rng(3).normal(0, 2, (4, 6)).astype("float32")
    agree(ops.gelu(x, approximate=False), x * (1 + special.erf(x / math.sqrt(2))) / 2)
    agree(ops.elu(x, 0.5), elu(x, 0.5))
    agree(ops.celu(x, 2.0), np.maximum(x, 0) + 2 * np.expm1(np.minimum(x, 0) / 2))
    agree(ops.leaky_relu(x, 0.1), np.where(x > 0, x, 0.1 * x))
    agree(ops.glu(x), x[:, :3] * sigmoid(x[:, 3:]))
    agree(ops.glu(x, axis=0), x[:2] * sigmoid(x[2:]))
    agree(ops.threshold(x, 0.5, -7.0), np.where(x > 0.5, x, -7))
    agree(ops.hard_shrink(x, 1.0), np.where(np.abs(x) > 1, x, 0))
    agree(ops.squareplus(x, 1.0), (x + np.sqrt(x * x + 1)) / 2)
    with pytest.raises(ValueError, match="even length"):
        ops.glu(x[:, :5])


def test_where_clip_cast_and_rounding() -> None:
    x = np.array([-2.7, -0.5, 0.5, 1.5, 2.7], "float32")
    assert ops.where(x > 0, 1, 0).numpy().tolist() == [0, 0, 1, 1, 1]
    agree(ops.where(x > 0, x, 0.0), np.where(x > 0, x, 0))
    agree(ops.clip(x, -1, 1), np.clip(x, -1, 1))
    assert ops.cast(x, "int32").numpy().tolist() == [-2, 0, 0, 1, 2]
    assert ops.cast(x, bool).numpy().all() and ops.cast(x > 0, "float32").numpy().sum() == 3
    agree(ops.round(np.array([1.234, 5.675], "float32"), 2), np.array([1.23, 5.68]), 1e-6)
    agree(ops.nan_to_num(VALUES), np.nan_to_num(VALUES))
    agree(ops.nan_to_num(VALUES, 1.0, 2.0, 3.0), np.nan_to_num(VALUES, nan=1, posinf=2, neginf=3))
    assert ops.isclose(np.float32(NAN), NAN, equal_nan=True).numpy()
    with pytest.raises(ValueError, match="depends on the data"):
        ops.where(x > 0)
    with pytest.raises(ValueError, match="float17"):
        ops.cast(x, "float17")


def test_bits() -> None:
    x, y = np.array([12, 7, 255], "int32"), np.array([10, 1, 4], "int32")
    assert ops.bitwise_and(x, y).numpy().tolist() == (x & y).tolist()
    assert ops.bitwise_or(x, y).numpy().tolist() == (x | y).tolist()
    assert ops.bitwise_xor(x, y).numpy().tolist() == (x ^ y).tolist()
    assert ops.bitwise_not(x).numpy().tolist() == (~x).tolist()
    assert ops.left_shift(x, y).numpy().tolist() == (x << y).tolist()
    assert ops.right_shift(x, y).numpy().tolist() == (x >> y).tolist()


# --- gradients at the points where rules go wrong ----------------------------------------------


def slope(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """The gradients of the sum of 2 * function(...), which sits mid-graph."""
    tensors = [to_tensor(np.asarray(a, "float32")) for a in arrays]

    def differentiate(*nodes: Any) -> Sequence[Any]:
        return gradients(ops.sum(ops.multiply(function(*nodes), 2.0)), list(nodes))

    with np.errstate(all="ignore"):
        return [t.numpy() / 2 for t in run_traced(differentiate, tensors)]


@pytest.mark.parametrize(
    "name, at, expected",
    [
        ("abs", [0, 2, -2], [0, 1, -1]),
        ("relu", [0, 2, -2], [0, 1, 0]),
        ("elu", [0, 1000, -1000], [1, 1, 0]),
        ("selu", [0, 1000], [1.0507009873554805 * 1.6732632423543772, 1.0507009873554805]),
        ("celu", [0, 1000, -1000], [1, 1, 0]),
        ("softplus", [0, 1000, -1000], [0.5, 1, 0]),
        ("log_sigmoid", [0, 1000, -1000], [0.5, 0, 1]),
        ("sigmoid", [0, 1000, -1000], [0.25, 0, 0]),
        ("tanh", [0, 1000, -1000], [1, 0, 0]),
        ("gelu", [0, 1000, -1000], [0.5, 1, 0]),
        ("silu", [0, 1000, -1000], [0.5, 1, 0]),
        ("mish", [0, 1000, -1000], [0.6, 1, 0]),
        ("arcsinh", [0, 3, -3, 1e12], [1, 10**-0.5, 10**-0.5, 1e-12]),
        ("arctanh", [0, 0.5], [1, 4 / 3]),
        ("sqrt", [0, 4], [INFINITY, 0.25]),
        ("softsign", [0, 1, -1], [1, 0.25, 0.25]),
        ("floor", [0.5, 1], [0, 0]),
        ("square", [0, 3], [0, 6]),
        ("sparse_plus", [-2, 0, 2], [0, 0.5, 1]),
    ],
)
def test_gradient_at_special_values(name: str, at: list[float], expected: list[float]) -> None:
    (found,) = slope(getattr(ops, name), at)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_gradients_of_two_arguments() -> None:
    same = np.array([1.0, 2.0, 3.0])
    a, b = slope(ops.maximum, same, [1.0, 0.0, 9.0])
    np.testing.assert_array_equal(a, [0.5, 1, 0])  # a tie is shared
    np.testing.assert_array_equal(b, [0.5, 0, 1])
    a, b = slope(ops.arctan2, [0.0, 1.0], [0.0, 1.0])
    np.testing.assert_array_equal([a, b], [[0, 0.5], [0, -0.5]])
    a, b = slope(ops.power, [0.0, 0.0, -2.0], [2.0, 0.0, 3.0])
    np.testing.assert_array_equal([a, b], [[0, 0, 12], [0, 0, 0]])
    a, b = slope(ops.logaddexp, [0.0, 1000.0], [0.0, -1000.0])
    np.testing.assert_allclose([a, b], [[0.5, 1], [0.5, 0]])


def test_gradients_add_up_over_broadcast_dimensions() -> None:
    random = np.random.default_rng(4)
    x, y = random.normal(size=(2, 1, 4)), random.normal(size=(3, 1))
    a, b = slope(ops.multiply, x, y)
    np.testing.assert_allclose(a, np.broadcast_to(y.sum(), a.shape), rtol=1e-5)
    np.testing.assert_allclose(b, np.broadcast_to(x.sum(), b.shape), rtol=1e-5)
    condition = random.normal(size=(2, 3, 4)) > 0
    a, b = slope(lambda u, v: ops.where(condition, u, v), x, y)
    np.testing.assert_allclose(a, condition.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(b, (~condition).sum((0, 2))[:, None], rtol=1e-6)


def test_where_keeps_the_branch_that_is_not_taken_out_of_the_gradient() -> None:
    safe = lambda x: ops.where(x > 0.0, ops.log(ops.where(x > 0.0, x, 1.0)), 0.0)
    np.testing.assert_array_equal(slope(safe, [-1.0, 0.0, 2.0])[0], [0, 0, 0.5])


def test_stop_gradient() -> None:
    (found,) = slope(lambda x: x * ops.stop_gradient(x), [3.0, -2.0])
    np.testing.assert_array_equal(found, [3, -2])


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"add: shapes \(2, 3\) and \(4,\) cannot be broadcast"):
        ops.add(np.ones((2, 3)), np.ones(4))
    with pytest.raises(ValueError, match="cannot become a tensor"):
        ops.add(np.array(["a"]), 1)
