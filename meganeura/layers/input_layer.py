"""Input: where a functional model begins."""

from __future__ import annotations

from typing import Any

from meganeura import config, dtypes
from meganeura.layers.layer import Layer
from meganeura.symbolic import KerasTensor


class InputLayer(Layer):
    """Holds the place of an input: its shape without and with the batch, and its dtype."""

    def __init__(
        self,
        shape: Any = None,
        batch_size: int | None = None,
        dtype: Any = None,
        sparse: Any = None,
        ragged: Any = None,
        batch_shape: Any = None,
        input_tensor: Any = None,
        optional: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ):
        for old in ("input_shape", "batch_input_shape"):
            if old in kwargs:
                given = kwargs.pop(old)
                shape, batch_shape = (given, None) if old == "input_shape" else (None, given)
        if sparse or ragged:
            raise ValueError("Input: sparse and ragged inputs are not offered")
        super().__init__(name=name, **kwargs)
        if shape is not None and batch_shape is not None:
            raise ValueError("Input takes shape or batch_shape, not both")
        if input_tensor is not None:
            batch_shape, dtype = input_tensor.shape, input_tensor.dtype
        if batch_shape is None:
            if shape is None:
                raise ValueError("Input needs a shape, such as Input((28, 28, 1))")
            listed = (shape,) if isinstance(shape, int) else tuple(shape)
            batch_shape = (batch_size, *listed)
        if any(n is not None and (not isinstance(n, int) or n < 0) for n in batch_shape):
            raise ValueError(f"Input: the shape {tuple(batch_shape)} must hold lengths or None")
        self.batch_shape = tuple(batch_shape)
        self._dtype = dtypes.standardize(dtype or config.floatx())
        self.optional = optional
        self.built = True
        from meganeura.models.operation import CallNode

        tensor = input_tensor if input_tensor is not None else KerasTensor(
            self.batch_shape, self._dtype, self.name
        )  # fmt: skip
        CallNode(self, (), {}, tensor)

    @property
    def dtype(self) -> str:
        return self._dtype

    def call(self, *_: Any) -> Any:
        raise TypeError("an InputLayer is not called; it stands for the data")

    @property
    def output(self) -> Any:
        return self._inbound_nodes[0].outputs

    input = output

    def get_config(self) -> dict[str, Any]:
        return {
            "batch_shape": list(self.batch_shape),
            "dtype": self._dtype,
            "sparse": False,
            "ragged": False,
            "optional": self.optional,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        known = ("batch_shape", "dtype", "name", "optional", "batch_input_shape")
        config = {k: v for k, v in config.items() if k in known}
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = "float32"
        return cls(**config)


def Input(
    shape: Any = None,
    batch_size: int | None = None,
    dtype: Any = None,
    sparse: Any = None,
    ragged: Any = None,
    batch_shape: Any = None,
    name: str | None = None,
    tensor: Any = None,
    optional: bool = False,
) -> KerasTensor:
    """A KerasTensor to begin a functional model with; `shape` is without the batch."""
    layer = InputLayer(
        shape=shape,
        batch_size=batch_size,
        dtype=dtype,
        sparse=sparse,
        ragged=ragged,
        batch_shape=batch_shape,
        input_tensor=tensor,
        optional=optional,
        name=name,
    )
    return layer.output
