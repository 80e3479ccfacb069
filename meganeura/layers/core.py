"""Dense, Embedding, and the small layers that every model uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meganeura import activations, ops
from meganeura.layers.calling import InputSpec
from meganeura.layers.layer import Layer
from meganeura.layers.lora import Adaptable
from meganeura.layers.settings import Settings, known_channels
from meganeura.masking import set_mask


class Dense(Adaptable, Settings, Layer):
    """out = activation(x W + b) over the last dimension.

    x (..., inputs), W (inputs, units), b (units,). (https://keras.io/api/layers/core_layers/dense)
    """

    arguments = ("units", "activation", "use_bias", "kernel_initializer", "bias_initializer",
                 "kernel_regularizer", "bias_regularizer", "kernel_constraint", "bias_constraint")  # fmt: skip

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        lora_train_bias: bool = True,
        quantization_config: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        if isinstance(units, bool) or not isinstance(units, int) or units < 1:
            raise ValueError(
                f"layer {self.name!r}: units must be a positive integer, not {units!r}"
            )
        if quantization_config:
            raise ValueError(f"layer {self.name!r}: quantization_config is not offered")
        self._want_lora(lora_rank, lora_alpha, lora_train_bias)
        self.settle(
            units=units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )
        self.input_spec = InputSpec(min_ndim=2)
        self.supports_masking = True
        self.bias: Any = None

    def build(self, input_shape: Any) -> None:
        inputs = known_channels(self, input_shape, -1)
        self.kernel = self._add_table(
            name="kernel",
            shape=(inputs, self.units),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.units,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: inputs})
        self._build_lora()

    def call(self, inputs: Any, training: Any = None) -> Any:
        x = self._beside(inputs, ops.matmul(inputs, self.kernel))
        if self.bias is not None:
            x = ops.add(x, self.bias)
        return x if self.activation is None else self.activation(x)


class Embedding(Adaptable, Settings, Layer):
    """out[..., :] = table[index]: a learnt vector for each whole number below input_dim.

    With mask_zero, index 0 is padding and later layers are told. (https://keras.io/api/layers/core_layers/embedding)
    """

    arguments = ("input_dim", "output_dim", "embeddings_initializer", "embeddings_regularizer",
                 "embeddings_constraint", "mask_zero")  # fmt: skip
    _table = "embeddings"
    _table_inputs = (1,)

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ):
        kwargs.pop("input_length", None)  # Keras 2 had it, and no layer needs it
        super().__init__(**kwargs)
        if quantization_config:
            raise ValueError(f"layer {self.name!r}: quantization_config is not offered")
        self._want_lora(lora_rank, lora_alpha)
        self.settle(
            input_dim=input_dim,
            output_dim=output_dim,
            embeddings_initializer=embeddings_initializer,
            embeddings_regularizer=embeddings_regularizer,
            embeddings_constraint=embeddings_constraint,
            mask_zero=mask_zero,
        )
        self.supports_masking = mask_zero
        if weights is not None:
            self.build()
            self.set_weights(weights if isinstance(weights, (list, tuple)) else [weights])

    def build(self, input_shape: Any = None) -> None:
        self.embeddings = self._add_table(
            name="embeddings",
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
        )
        self._build_lora()

    def call(self, inputs: Any) -> Any:
        index = ops.cast(inputs, "int32")
        rows = ops.take(self.embeddings, index, axis=0)
        if self.lora is None or self.lora.merged:
            return rows
        thin = ops.matmul(ops.take(self.lora.a, index, axis=0), self.lora.b)
        return ops.add(rows, ops.multiply(thin, self.lora.scale))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.not_equal(inputs, 0) if self.mask_zero else None

    def _expected_dtype(self) -> str:
        return "int32"


class Activation(Layer):
    """An activation, by name or as a function, as a layer of its own."""

    def __init__(self, activation: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.activation = activations.get(activation)

    def call(self, inputs: Any) -> Any:
        return self.activation(inputs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": activations.serialize(self.activation)}


class Identity(Layer):
    """out = x."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return inputs


class Lambda(Layer):
    """A function as a layer. It is never loaded from a file, since files hold no code here.

    (https://keras.io/api/layers/core_layers/lambda)
    """

    _passes_on = True

    def __init__(
        self,
        function: Callable[..., Any],
        output_shape: Any = None,
        mask: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not callable(function):
            raise TypeError(f"layer {self.name!r}: Lambda takes a function, and got {function!r}")
        self.function = function
        self.arguments = dict(arguments or {})
        self._mask = mask
        self.supports_masking = mask is not None

    def call(self, inputs: Any, mask: Any = None, training: Any = None) -> Any:
        import inspect

        names = inspect.signature(self.function).parameters
        given = dict(self.arguments)
        for name, value in (("mask", mask), ("training", training)):
            if name in names:
                given[name] = value
        return self.function(inputs, **given)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return self._mask(inputs, mask) if callable(self._mask) else self._mask

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(
            f"layer {self.name!r} is a Lambda, and its function cannot be saved; write a Layer subclass "
            "and register it with register_keras_serializable"
        )


class Masking(Layer):
    """Time steps whose features all equal `mask_value` are masked, and their features zeroed."""

    def __init__(self, mask_value: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.mask_value = mask_value
        self.supports_masking = True

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.any(ops.not_equal(inputs, self.mask_value), axis=-1)

    def call(self, inputs: Any) -> Any:
        seen = ops.any(ops.not_equal(inputs, self.mask_value), axis=-1, keepdims=True)
        outputs = ops.multiply(inputs, ops.cast(seen, inputs.dtype))
        set_mask(outputs, ops.squeeze(seen, -1))
        return outputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mask_value": self.mask_value}
