"""Sequential: a plain stack of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meganeura import dtype_policies
from meganeura.layers import calling
from meganeura.layers.input_layer import InputLayer
from meganeura.layers.layer import Layer
from meganeura.models.functional import Functional
from meganeura.models.model import Model
from meganeura.symbolic import KerasTensor


class Sequential(Model):
    """Layers one after the other, each on the output of the one before.

    With an `Input` first (or `input_shape` on the first layer) the weights are made at once, else
    at the first call. (https://keras.io/guides/sequential_model)
    """

    def __init__(
        self, layers: Sequence[Any] | None = None, trainable: bool = True, name: str | None = None
    ):
        super().__init__(name=name, trainable=trainable)
        self._stack: list[Layer] = []
        self._graph_model: Any = None
        for layer in layers or ():
            self.add(layer, rebuild=False)
        self._rebuild()

    def add(self, layer: Any, rebuild: bool = True) -> None:
        """Put a layer on top."""
        if isinstance(layer, KerasTensor):
            layer = layer.history[0]
        if not isinstance(layer, Layer):
            if not callable(layer):
                raise ValueError(f"Sequential {self.name!r} takes layers, and got {layer!r}")
            from meganeura.layers.core import Lambda

            layer = Lambda(layer)
        if any(layer is held or layer.name == held.name for held in self._stack):
            raise ValueError(
                f"Sequential {self.name!r} has a layer named {layer.name!r} already; names are unique, "
                "and a layer is added once"
            )
        if isinstance(layer, InputLayer) and self._stack:
            raise ValueError(f"Sequential {self.name!r}: an Input must come first")
        if not self._stack and not isinstance(layer, InputLayer):
            shape = layer._first_input_shape
            if shape is None and isinstance(layer, (Functional, Sequential)) and layer.built:
                shape = layer.input_shape if isinstance(layer.input_shape, tuple) else None
            if shape is not None:
                self._stack.append(InputLayer(batch_shape=shape))
        self._stack = [*self._stack, layer]
        if rebuild:
            self._rebuild()

    def pop(self, rebuild: bool = True) -> Layer:
        """Take the last layer off."""
        if not self.layers:
            raise ValueError(f"Sequential {self.name!r} has no layer to pop")
        layer = self._stack[-1]
        self._stack = self._stack[:-1]
        if rebuild:
            self._rebuild()
        return layer

    def _rebuild(self) -> None:
        object.__setattr__(self, "_graph_model", None)
        self.built = False
        if self._stack and isinstance(self._stack[0], InputLayer) and len(self._stack) > 0:
            if len(self._stack) > 1:
                self._build_on(self._stack[0].output)

    def _build_on(self, tensor: KerasTensor) -> None:
        x = tensor
        with calling.name_scope(self):
            for layer in self._stack:
                if not isinstance(layer, InputLayer):
                    x = layer(x)
        model = Functional(tensor, x, name=self.name)
        object.__setattr__(self, "_graph_model", model)
        object.__setattr__(self, "_build_shapes", {"input_shape": tensor.shape})
        self.built = True

    def build(self, input_shape: Any = None) -> None:
        """Make the weights for inputs of this shape, the batch included."""
        if self._graph_model is not None:
            return
        if input_shape is None or not self._stack:
            raise ValueError(
                f"Sequential {self.name!r} cannot be built without an input shape and layers"
            )
        if isinstance(self._stack[0], InputLayer):
            self._rebuild()
            return
        if not isinstance(input_shape, (tuple, list)) or isinstance(input_shape[0], (tuple, list)):
            raise ValueError(
                f"Sequential {self.name!r} takes one input, and got the shapes {input_shape}"
            )
        shape = tuple(input_shape)
        first = InputLayer(batch_shape=(None, *shape[1:]), dtype=self._stack[0]._expected_dtype())
        self._stack = [first, *self._stack]
        self._build_on(first.output)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._stack:
            raise ValueError(f"Sequential {self.name!r} has no layers; add() some first")
        if self._graph_model is None and args:
            from meganeura.ops.creation import shape

            lengths = shape(args[0])
            if len(lengths):
                self.build((None, *lengths[1:]))
        return super().__call__(*args, **kwargs)

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if self._graph_model is not None:
            return self._graph_model.call(inputs, training=training, mask=mask)
        x = inputs
        for layer in self.layers:
            x = layer(x)
        return x

    @property
    def layers(self) -> list[Layer]:
        """The layers without the InputLayer."""
        return [layer for layer in self._stack if not isinstance(layer, InputLayer)]

    @property
    def _layers(self) -> list[Layer]:
        return self.layers

    def _graph(self, what: str) -> Any:
        if self._graph_model is None:
            raise AttributeError(f"Sequential {self.name!r} has no {what} before it is built")
        return getattr(self._graph_model, what)

    @property
    def inputs(self) -> list[KerasTensor]:
        return self._graph("inputs")

    @property
    def outputs(self) -> list[KerasTensor]:
        return self._graph("outputs")

    @property
    def input(self) -> Any:
        return self._graph("input")

    @property
    def output(self) -> Any:
        return self._graph("output")

    @property
    def input_shape(self) -> Any:
        return self._graph("input_shape")

    @property
    def output_shape(self) -> Any:
        return self._graph("output_shape")

    @property
    def input_names(self) -> list[str]:
        return self._graph("input_names")

    @property
    def output_names(self) -> list[str]:
        return self._graph("output_names")

    def _casts_inputs(self) -> bool:
        return self._graph_model is None

    def get_config(self) -> dict[str, Any]:
        from meganeura.layers import serialize

        config: dict[str, Any] = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": dtype_policies.serialize(self.dtype_policy),
        }
        config["layers"] = [serialize(layer) for layer in self._stack]
        if self._graph_model is not None:
            config["build_input_shape"] = list(self._build_shapes["input_shape"])
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        from meganeura.layers import deserialize

        model = cls(name=config.get("name"), trainable=config.get("trainable", True))
        model.dtype_policy = dtype_policies.from_file(config.get("dtype"))
        for entry in config.get("layers", ()):
            model.add(deserialize(entry, custom_objects), rebuild=False)
        model._rebuild()
        shape = config.get("build_input_shape")
        if (
            model._graph_model is None
            and shape
            and model._stack
            and isinstance(shape, (list, tuple))
        ):
            model.build(tuple(shape))
        return model
