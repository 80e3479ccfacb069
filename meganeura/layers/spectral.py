"""Spectral normalisation: a wrapper that keeps the largest singular value of a kernel at one."""

from __future__ import annotations

from typing import Any

from meganeura import initializers, layers, ops
from meganeura.layers.layer import Layer


def _unit(x: Any) -> Any:
    return ops.multiply(x, ops.rsqrt(ops.maximum(ops.sum(ops.square(x)), 1e-12)))


class SpectralNormalization(Layer):
    """In training, divides the kernel of `layer` by its largest singular value, then applies it.

    The singular value is estimated by `power_iterations` steps of the power method, which go on
    from the vector of the last call.
    """

    def __init__(self, layer: Any, power_iterations: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        if not isinstance(layer, Layer):
            raise ValueError(f"layer SpectralNormalization wraps a layer, got {layer!r}")
        if power_iterations < 1:
            raise ValueError(
                f"layer {self.name!r}: power_iterations must be at least 1, got {power_iterations}"
            )
        self.layer = layer
        self.power_iterations = power_iterations

    def build(self, input_shape: Any = None) -> None:
        if not self.layer.built:
            self.layer.build(input_shape)
            self.layer.built = True
        self.kernel = kernel = self._kernel()  # Keras counts it among this layer's weights
        self.vector_u = self.add_weight(
            shape=(1, kernel.shape[-1]),
            initializer=initializers.TruncatedNormal(stddev=0.02),
            trainable=False,
            name="vector_u",
        )
        self.built = True

    def _kernel(self) -> Any:
        for name in ("kernel", "embeddings"):
            if getattr(self.layer, name, None) is not None:
                return getattr(self.layer, name)
        raise ValueError(
            f"layer {self.name!r}: the wrapped {type(self.layer).__name__} has neither a kernel "
            "nor embeddings"
        )

    def call(self, inputs: Any, training: Any = False) -> Any:
        if training:
            self._normalise()
        return self.layer(inputs)

    def _normalise(self) -> None:
        kernel = self.kernel
        weight = ops.convert_to_tensor(kernel)
        matrix = ops.reshape(weight, (-1, weight.shape[-1]))
        old = ops.convert_to_tensor(self.vector_u)
        u = old
        for _ in range(self.power_iterations):
            v = _unit(ops.matmul(u, ops.transpose(matrix)))
            u = _unit(ops.matmul(v, matrix))
        size = ops.reshape(ops.matmul(ops.matmul(v, matrix), ops.transpose(u)), ())
        usable = ops.any(ops.not_equal(weight, 0.0))
        change = ops.subtract(ops.divide(weight, ops.where(usable, size, 1.0)), weight)
        self.vector_u.assign(ops.where(usable, u, old))
        # The kernel becomes the divided one, and the gradient is that with respect to it.
        kernel.assign(ops.add(weight, ops.stop_gradient(change)))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        own = {"layer": layers.serialize(self.layer), "power_iterations": self.power_iterations}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Layer:
        inner = layers.deserialize(config["layer"], custom_objects)
        return cls(inner, **{k: v for k, v in config.items() if k != "layer"})
