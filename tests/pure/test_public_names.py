"""Names that scripts use from keras.config, keras.backend, keras.mixed_precision and keras.random."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats as stats

import meganeura as mg
from meganeura import random


def test_policies() -> None:
    mg.mixed_precision.set_global_policy("float32")
    assert mg.mixed_precision.LossScaleOptimizer is mg.optimizers.LossScaleOptimizer
    assert mg.config.dtype_policy() == mg.mixed_precision.global_policy() == mg.DTypePolicy()
    with pytest.raises(ValueError, match="WGSL has no bfloat16.*use 'mixed_float16'"):
        mg.config.set_dtype_policy("mixed_bfloat16")


def test_backend_and_config() -> None:
    assert mg.config.backend() == mg.backend.backend()
    assert (mg.backend.floatx(), mg.backend.epsilon()) == ("float32", 1e-7)
    assert mg.backend.is_keras_tensor(mg.Input((2,))) and not mg.utils.is_keras_tensor(np.ones(2))
    assert mg.utils.standardize_dtype(np.float64) == mg.backend.standardize_dtype("float32")
    assert mg.backend.result_type("uint8", float) == "float32"
    assert mg.backend.result_type(bool, "int32") == "int32"
    assert mg.backend.is_int_dtype("uint8") and not mg.backend.is_int_dtype("bool")
    assert mg.backend.is_float_dtype("float32") and not mg.backend.is_float_dtype("int32")
    for module in (mg.backend, mg.config, random):
        assert not hasattr(module, "nonsense")


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.5])
def test_gamma(alpha: float) -> None:
    found = np.asarray(random.gamma((20_000,), alpha, seed=7))
    assert stats.kstest(found, stats.gamma(alpha).cdf).pvalue > 0.01
    np.testing.assert_array_equal(found, np.asarray(random.gamma((20_000,), alpha, seed=7)))
    generator = random.SeedGenerator(1)
    first, second = (np.asarray(random.gamma((9,), alpha, seed=generator)) for _ in range(2))
    assert not np.array_equal(first, second)


def test_beta_broadcasts_its_parameters() -> None:
    found = np.asarray(random.beta((20_000, 2), np.array([0.5, 3.0]), 2.0, seed=5))
    for column, alpha in zip(found.T, (0.5, 3.0), strict=True):
        assert stats.kstest(column, stats.beta(alpha, 2.0).cdf).pvalue > 0.01
    assert abs(np.corrcoef(found.T)[0, 1]) < 0.03
