"""Tensors beside NumPy: operators stay on the device, NumPy's functions compute on the host."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from meganeura import Variable
from meganeura.tensor import Tensor, to_tensor

ARRAY = np.arange(6, dtype="float32").reshape(2, 3) + 1


@pytest.mark.parametrize(
    "operator",
    [
        lambda a, t: a + t,
        lambda a, t: a - t,
        lambda a, t: a * t,
        lambda a, t: a / t,
        lambda a, t: a // t,
        lambda a, t: a % t,
        lambda a, t: a**t,
        lambda a, t: a @ t.T,
        lambda a, t: a < t,
        lambda a, t: a == t,
        lambda a, t: np.float32(2) * t,
    ],
)
def test_operators_between_arrays_and_tensors(operator: Any) -> None:
    left = ARRAY[::-1].copy()
    found = operator(left, to_tensor(ARRAY))
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy(), operator(left, ARRAY), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        np.sum, np.mean, np.max, np.argmax, np.exp, np.round, np.any, np.abs, np.squeeze,
        lambda t: np.sum(t, axis=1), lambda t: np.concatenate([t, t]), lambda t: np.stack((t, t)),
        lambda t: np.allclose(t, t), lambda t: np.add.reduce(t), lambda t: np.where(t > 2, t, 0),
    ],
)  # fmt: skip
def test_functions_of_numpy(function: Any) -> None:
    found = function(to_tensor(ARRAY))
    assert not isinstance(found, Tensor)
    np.testing.assert_allclose(found, function(ARRAY), rtol=1e-6)


def test_adding_to_an_array_in_place() -> None:
    total = np.zeros((2, 3), "float32")
    total += to_tensor(ARRAY)
    np.testing.assert_array_equal(total, ARRAY)


def test_copies_and_pickles() -> None:
    tensor = to_tensor(ARRAY)
    variable = Variable(ARRAY, name="v", trainable=False)
    for again in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        np.testing.assert_array_equal(again(tensor), ARRAY)
        twin = again(variable)
        variable.assign(ARRAY * 2)
        np.testing.assert_array_equal(twin.numpy(), ARRAY)
        assert (twin.name, twin.trainable, twin.shape) == ("v", False, (2, 3))
        variable.assign(ARRAY)
