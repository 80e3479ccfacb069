"""Diffusion: what a right network leads to, and that a small one learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import ops
from meganeura.zoo.diffusion import DenoiserConfig, Diffusion, denoiser

TINY = DenoiserConfig(size=4, base=8, levels=2, groups=2, time_width=8)


class Knows(mg.Model):
    """v for images that are all one and the same."""

    def __init__(self, image: np.ndarray):
        super().__init__()
        self.picture = image
        self.input_shape = {"image": (None, *image.shape), "angle": (None, 1)}

    def call(self, inputs: Any) -> Any:
        turn = ops.reshape(inputs["angle"], (-1, 1, 1, 1))
        picture = ops.convert_to_tensor(self.picture)
        noise = (inputs["image"] - ops.cos(turn) * picture) / ops.sin(turn)
        return ops.cos(turn) * noise - ops.sin(turn) * picture


def test_a_network_that_knows_leads_to_the_image() -> None:
    image = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4, 1)
    found = Diffusion(Knows(image)).sample(3, steps=12, seed=1)
    np.testing.assert_allclose(found, np.broadcast_to(image, (3, 4, 4, 1)), atol=0.1)


def test_a_small_network_learns_two_images() -> None:
    mg.utils.set_random_seed(0)
    one = np.ones((4, 4, 1), "float32")
    one[:2] = -1
    images = np.stack([one, -one] * 16)
    model = Diffusion(denoiser(TINY))
    model.compile(mg.optimizers.Adam(1e-2))
    losses = model.fit(images, batch_size=16, epochs=50, verbose=0).history["loss"]
    assert np.mean(losses[-5:]) < 0.65 * losses[0]
    assert model.evaluate(images, verbose=0) < 0.7 * losses[0]
    found = model.sample(8, steps=15, seed=3)
    np.testing.assert_array_equal(found, model.sample(8, steps=15, seed=3))
    away = np.minimum(*(np.abs(found - i).mean((1, 2, 3)) for i in (one, -one)))
    assert np.median(away) < 0.4, away


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="angles"):
        Diffusion(denoiser(TINY), least=1.0, most=0.5)
    with pytest.raises(ValueError, match="at least 1"):
        Diffusion(denoiser(TINY)).sample(0)
