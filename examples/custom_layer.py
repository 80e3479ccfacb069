"""A layer of one's own, written with meganeura.ops, in a subclassed model.

    python examples/custom_layer.py

The layer is a mixture of linear experts: out = sum_e softmax(x G)_e (x W_e + b_e). Nothing about it
is known to the library; the compiler differentiates it and fuses what it can.
"""

import numpy as np

import meganeura as mg
from meganeura import layers, ops


class MixtureOfLinear(layers.Layer):
    """out[n, o] = sum_e gate[n, e] * (sum_i x[n, i] W[e, i, o] + b[e, o])."""

    def __init__(self, units: int, experts: int = 4, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.experts = experts

    def build(self, input_shape):
        width = input_shape[-1]
        self.gate = self.add_weight((width, self.experts), "glorot_uniform", name="gate")
        self.kernel = self.add_weight(
            (self.experts, width, self.units), "glorot_uniform", name="kernel"
        )
        self.bias = self.add_weight((self.experts, self.units), "zeros", name="bias")

    def call(self, x):
        gate = ops.softmax(ops.matmul(x, self.gate), axis=-1)
        each = ops.einsum("ni,eio->neo", x, self.kernel) + self.bias
        return ops.sum(ops.expand_dims(gate, -1) * each, axis=1)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "experts": self.experts}


class Regressor(mg.Model):
    def __init__(self):
        super().__init__(name="regressor")
        self.mixture = MixtureOfLinear(24, experts=6)
        self.normalize = layers.LayerNormalization()
        self.head = layers.Dense(1)

    def call(self, x):
        return self.head(ops.gelu(self.normalize(self.mixture(x))))


def main() -> None:
    mg.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (2000, 3)).astype("float32")
    y = (np.sin(2 * x[:, :1]) * x[:, 1:2] + np.abs(x[:, 2:])).astype("float32")
    model = Regressor()
    model.compile(optimizer=mg.optimizers.AdamW(5e-3), loss="mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=100, epochs=20, validation_split=0.2, verbose=2)
    print(model.explain())
    print(
        "on one array, computed at once:", model(x[:2]).numpy().ravel(), "expected", y[:2].ravel()
    )
    if history.history["val_loss"][-1] > 0.1:
        raise SystemExit("the model did not learn")


if __name__ == "__main__":
    main()
