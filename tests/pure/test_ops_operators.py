"""Python's operators and methods on tensors, variables and nodes mean the operations."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meganeura import ops
from meganeura.execution import run_traced
from meganeura.tensor import Tensor, to_tensor
from meganeura.variable import Variable

A = np.array([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], "float32")
B = np.array([2.0, -3.0, 0.5], "float32")
BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.lt, operator.le, operator.gt, operator.ge, operator.ne, operator.eq,
]  # fmt: skip


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_between_everything(function: Callable[[Any, Any], Any]) -> None:
    """Tensor, variable, NumPy array and Python number, on either side."""
    expected = function(A, B)
    for a in (to_tensor(A), Variable(A)):
        for b in (to_tensor(B), Variable(B), B):
            found = function(a, b)
            assert isinstance(found, Tensor)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
            np.testing.assert_allclose(function(b, a).numpy(), function(B, A), rtol=1e-6)
        np.testing.assert_allclose(function(a, 2).numpy(), function(A, 2), rtol=1e-6)
        np.testing.assert_allclose(function(2.0, a).numpy(), function(2.0, A), rtol=1e-6)
    (inside,) = run_traced(lambda n: [function(function(n, B), 1.0)], [to_tensor(A)])
    np.testing.assert_allclose(inside.numpy(), function(function(A, B), 1.0), rtol=1e-6)


def test_the_rest() -> None:
    a, whole, flag = to_tensor(A), to_tensor(np.array([5, 6], "int32")), to_tensor(A > 0)
    np.testing.assert_array_equal((-a).numpy(), -A)
    np.testing.assert_array_equal((+a).numpy(), A)
    np.testing.assert_array_equal(abs(a).numpy(), np.abs(A))
    np.testing.assert_allclose((a**2).numpy(), A**2)
    np.testing.assert_allclose((2.0**a).numpy(), 2.0**A, rtol=1e-6)
    assert (whole & 3).numpy().tolist() == [1, 2] and (~whole).numpy().tolist() == [-6, -7]
    assert (3 | whole).numpy().tolist() == [7, 7] and (whole ^ 1).numpy().tolist() == [4, 7]
    np.testing.assert_array_equal((~flag).numpy(), A <= 0)
    np.testing.assert_array_equal((flag & (a < 2.0)).numpy(), (A > 0) & (A < 2))
    np.testing.assert_allclose((a @ B).numpy(), A @ B, rtol=1e-6)
    np.testing.assert_allclose((A @ to_tensor(B)).numpy(), A @ B, rtol=1e-6)


def test_methods() -> None:
    for a in (to_tensor(A), Variable(A)):
        assert a.astype("int32").dtype == "int32" and a.T.shape == (3, 2)
        assert a.reshape(3, 2).shape == a.reshape((3, -1)).shape == (3, 2)
        np.testing.assert_allclose(a.sum(axis=0).numpy(), A.sum(0))
        np.testing.assert_allclose([float(a.mean()), float(a.max()), float(a.min())], [1, 4, -2])
        assert len(a) == 2 and [row.shape for row in a] == [(3,), (3,)]


def test_comparing_with_what_is_no_number() -> None:
    a = to_tensor(A)
    assert (a == None) is False and (a != None) is True and (a == "x") is False  # noqa: E711
    with pytest.raises(TypeError):
        a + None
    assert len({a, a}) == 1  # hashable, by identity


def test_truth_of_one_value_only() -> None:
    assert bool(to_tensor(np.float32(2)) > 1.0)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(to_tensor(A))
    with pytest.raises(TypeError, match="0-d"):
        list(to_tensor(np.float32(1)))


def test_operands_are_not_changed() -> None:
    a = to_tensor(A)
    b = a
    b += 1.0
    np.testing.assert_array_equal(a.numpy(), A)
    np.testing.assert_array_equal(b.numpy(), A + 1)


def test_variables_inside_a_trace() -> None:
    v = Variable(np.float32(3), name="v")

    def function(x: Any) -> Any:
        before = v * x
        v.assign(before + 1.0)
        return [before, v - x, ops.stack([v, v])]

    found = run_traced(function, [to_tensor(np.float32(2))])
    assert [f.numpy().tolist() for f in found] == [6, 5, [7, 7]]
    assert v.numpy() == 7
