"""Denoising diffusion (arXiv 2006.11239): images out of noise, by a network that tells them apart.

Noise and image are mixed by an angle, x = cos(a) image + sin(a) noise, and the network predicts
v = cos(a) noise - sin(a) image (arXiv 2202.00512), from which both follow at every angle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import meganeura as mg
from meganeura import layers, ops, random
from meganeura.backend import backend_object
from meganeura.data.batch import unpack
from meganeura.execution import compiled
from meganeura.graph.trace import Trace
from meganeura.layers import calling
from meganeura.layers.settings import Settings
from meganeura.utils import register_keras_serializable
from meganeura.variable import Variable


@dataclass(frozen=True)
class DenoiserConfig:
    """Sizes of the network; the defaults suit images of 8 by 8."""

    size: int = 8
    channels: int = 1
    base: int = 32
    levels: int = 2
    groups: int = 8
    time_width: int = 64


@register_keras_serializable("meganeura")
class AngleEmbedding(Settings, layers.Layer):
    """Sines and cosines of an angle (batch, 1), at frequencies from 1 to `highest`: (batch, width)."""

    arguments = ("width", "highest")

    def __init__(self, width: int, highest: float = 200.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.width = width
        self.highest = highest

    def call(self, angle: Any) -> Any:
        rates = np.geomspace(1.0, self.highest, self.width // 2).astype("float32")
        turn = angle * ops.convert_to_tensor(rates)
        return ops.concatenate([ops.sin(turn), ops.cos(turn)], axis=-1)


def denoiser(config: DenoiserConfig | None = None, name: str = "denoiser") -> Any:
    """A U-Net from {image (batch, size, size, channels), angle (batch, 1)} to v of the image's shape."""
    config = config or DenoiserConfig()
    image = mg.Input((config.size, config.size, config.channels), name="image")
    angle = mg.Input((1,), name="angle")
    time = layers.Dense(config.time_width, "silu", name="time")(
        AngleEmbedding(config.time_width, name="angles")(angle)
    )

    def block(path: str, x: Any, filters: int) -> Any:
        """skip(x) + conv(act(norm(conv(act(norm(x))) + time)))."""
        h = ops.silu(layers.GroupNormalization(config.groups, name=f"{path}.norm1")(x))
        h = layers.Conv2D(filters, 3, padding="same", name=f"{path}.conv1")(h)
        shift = layers.Dense(filters, name=f"{path}.time")(time)
        h = h + ops.expand_dims(ops.expand_dims(shift, 1), 1)
        h = ops.silu(layers.GroupNormalization(config.groups, name=f"{path}.norm2")(h))
        last = layers.Conv2D(
            filters, 3, padding="same", kernel_initializer="zeros", name=f"{path}.conv2"
        )
        if x.shape[-1] != filters:
            x = layers.Conv2D(filters, 1, name=f"{path}.skip")(x)
        return x + last(h)

    x, skips = layers.Conv2D(config.base, 3, padding="same", name="conv_in")(image), []
    for level in range(config.levels):
        x = block(f"encoder.{level}", x, config.base * 2**level)
        skips.append(x)
        if level < config.levels - 1:
            x = layers.Conv2D(x.shape[-1], 3, strides=2, padding="same", name=f"down.{level}")(x)
    x = block("middle", x, x.shape[-1])
    for level in reversed(range(config.levels)):
        if level < config.levels - 1:
            x = layers.UpSampling2D(2, name=f"up.{level}")(x)
        x = layers.Concatenate(name=f"join.{level}")([x, skips.pop()])
        x = block(f"decoder.{level}", x, config.base * 2**level)
    x = ops.silu(layers.GroupNormalization(config.groups, name="norm_out")(x))
    v = layers.Conv2D(
        config.channels, 3, padding="same", kernel_initializer="zeros", name="conv_out"
    )
    return mg.Model({"image": image, "angle": angle}, v(x), name=name)


class Diffusion(mg.Model):
    """A denoiser that learns by `fit(images)`, images in [-1, 1], and makes images by `sample`.

    network: a model from {"image", "angle"} to v, such as `denoiser` makes
    least, most: the angles between which images are mixed with noise
    """

    def __init__(self, network: Any, least: float = 0.02, most: float = 1.55, **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 <= least < most <= math.pi / 2:
            raise ValueError(
                f"Diffusion: angles go from 0 to pi/2, the least below the most; got {least} and {most}"
            )
        self.network = network
        self.least, self.most = least, most
        self.seeds = mg.random.SeedGenerator()
        self._sampler: dict[Any, Any] = {}

    def call(self, image: Any, angle: Any) -> Any:
        return self.network({"image": image, "angle": angle})

    def _loss(self, images: Any, training: bool) -> Any:
        count = images.shape[0]
        angle = random.uniform((count, 1), self.least, self.most, seed=self.seeds)
        noise = random.normal(images.shape, seed=self.seeds)
        turn = ops.reshape(angle, (count, 1, 1, 1))
        cosine, sine = ops.cos(turn), ops.sin(turn)
        mixed = cosine * images + sine * noise
        v = self.network({"image": mixed, "angle": angle}, training=training)
        return ops.mean(ops.square(v - (cosine * noise - sine * images)))

    def train_step(self, data: Any) -> Any:
        """One step on a batch of images."""
        images = ops.cast(unpack(data)[0], "float32")
        weights = self.network.trainable_variables
        loss, gradients = mg.value_and_grad(lambda: self._loss(images, True), weights)()
        self._track_loss(loss, images)
        self.optimizer.apply(gradients, weights)
        return self.get_metrics_result()

    def test_step(self, data: Any) -> Any:
        """The loss of a batch of images."""
        images = ops.cast(unpack(data)[0], "float32")
        self._track_loss(self._loss(images, False), images)
        return self.get_metrics_result()

    def sample(self, count: int, steps: int = 20, seed: int | None = None) -> np.ndarray:
        """`count` images out of noise, (count, size, size, channels), in `steps` steps (arXiv 2010.02502).

        All steps go to the device at once. Equal seeds give equal images.
        """
        if count < 1 or steps < 1:
            raise ValueError(f"sample: count and steps are at least 1, got {count} and {steps}")
        shape = (count, *self.network.input_shape["image"][1:])
        backend = backend_object()
        key = (shape, mg.config.optimize(), id(backend))
        if key not in self._sampler:
            self._sampler[key] = _Sampler(self.network, shape)
        sampler = self._sampler[key]
        noise = random.normal(shape, seed=mg.random.SeedGenerator(seed))
        return sampler.run(noise.numpy(), self.most, self.least, steps)


class _Sampler:
    """The plan of one step of sampling, on images that stay on the device."""

    def __init__(self, network: Any, shape: tuple[int, ...]):
        self.image = Variable(np.zeros(shape, "float32"), trainable=False, name="image")
        self.angle = Variable(np.float32(0), trainable=False, name="angle")
        self.step = Variable(np.float32(0), trainable=False, name="step")
        with Trace() as trace:
            image, angle = self.image.value, self.angle.value
            column = ops.broadcast_to(ops.reshape(angle, (1, 1)), (shape[0], 1))
            with calling.training_phase(False):
                v = network({"image": image, "angle": column})
            cosine, sine = ops.cos(angle), ops.sin(angle)
            clean, noise = cosine * image - sine * v, sine * image + cosine * v
            following = angle + self.step.value
            self.image.assign(ops.cos(following) * clean + ops.sin(following) * noise)
            self.angle.assign(following)
        self._inputs = [t.handle for t in trace.captured]
        self._variables = list(trace.variables)
        self._executable = compiled(trace.graph([]))

    def run(self, noise: np.ndarray, start: float, end: float, steps: int) -> np.ndarray:
        self.image.assign(noise)
        self.angle.assign(np.float32(start))
        self.step.assign(np.float32((end - start) / steps))
        self._executable.run_many(self._inputs, [v.handle for v in self._variables], steps)
        return self.image.numpy()
