"""Convolution, pooling and einsum over random shapes: identities that hold whatever the numbers."""

from __future__ import annotations

import geometries
import numpy as np
import registry_checks as checks
from hypothesis import given, settings
from hypothesis import strategies as st

from meganeura import ops
from meganeura.ops.registry import REGISTRY, Sample

thorough = settings(max_examples=60, derandomize=True, deadline=None)


def evaluated(name: str, sample: Sample) -> np.ndarray:
    inputs = map(checks.in_double, sample.inputs)
    return np.asarray(REGISTRY[name].reference(*inputs, **sample.attributes))


@thorough
@given(geometries.convolutions())
def test_convolution_and_its_gradients_are_adjoint(samples: dict[str, Sample]) -> None:
    """<conv(x, k), dy> = <x, input gradient(dy, k)> = <k, kernel gradient(x, dy)>."""
    for name, sample in samples.items():
        checks.check_inference(REGISTRY[name], 0, sample)
    x, kernel = samples["conv"].inputs
    dy = samples["conv_input_gradient"].inputs[0]
    found = [
        (evaluated("conv", samples["conv"]) * dy).sum(),
        (evaluated("conv_input_gradient", samples["conv_input_gradient"]) * x).sum(),
        (evaluated("conv_kernel_gradient", samples["conv_kernel_gradient"]) * kernel).sum(),
    ]
    scale = max(abs(found[0]), float(dy.size) ** 0.5)
    np.testing.assert_allclose(np.array(found) / scale, found[0] / scale, atol=1e-9)


@thorough
@given(geometries.poolings())
def test_pooling_agrees_with_itself(samples: dict[str, Sample]) -> None:
    """The index points at the maximum, and gradients are the adjoints of gathering and summing."""
    for name, sample in samples.items():
        checks.check_inference(REGISTRY[name], 0, sample)
    (x,), dy = samples["max_pool"].inputs, samples["sum_pool_gradient"].inputs[0]
    best = evaluated("max_pool", samples["max_pool"])
    np.testing.assert_array_equal(evaluated("max_pool_gather", samples["max_pool_gather"]), best)
    back = evaluated("max_pool_gradient", samples["max_pool_gradient"])
    np.testing.assert_allclose((back * x).sum(), (best * dy).sum(), rtol=1e-9, atol=1e-9)
    total = evaluated("sum_pool", samples["sum_pool"])
    spread = evaluated("sum_pool_gradient", samples["sum_pool_gradient"])
    np.testing.assert_allclose((spread * x).sum(), (total * dy).sum(), rtol=1e-9, atol=1e-9)


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[np.ndarray]]:
    """One to three operands over five labels, repeated ones and all."""
    lengths = {c: draw(st.integers(1, 4)) for c in "abcde"}
    terms = draw(
        st.lists(st.text("abcde", min_size=0, max_size=4), min_size=1, max_size=3).filter(any)
    )
    used = sorted({c for t in terms for c in t})
    output = draw(st.lists(st.sampled_from(used), unique=True, max_size=4))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    arrays = [random.standard_normal([lengths[c] for c in t]).astype("float32") for t in terms]
    arrow = draw(st.booleans())
    return ",".join(terms) + ("->" + "".join(output) if arrow else ""), arrays


@settings(max_examples=150, derandomize=True, deadline=None)
@given(equations())
def test_einsum_as_in_numpy(case: tuple[str, list[np.ndarray]]) -> None:
    equation, arrays = case
    expected = np.einsum(equation, *arrays)
    found = np.asarray(ops.convert_to_numpy(ops.einsum(equation, *arrays)))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
