"""Model: a layer that can be compiled, trained, saved, and looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from meganeura import identifiers
from meganeura.layers import calling
from meganeura.layers.constructor import as_shapes, construct
from meganeura.layers.layer import Layer
from meganeura.models.trainer import Trainer
from meganeura.ops.dispatch import any_of
from meganeura.quantization.models import QuantizationReport
from meganeura.symbolic import KerasTensor


class Model(Trainer, Layer):
    """The base of all models (https://keras.io/api/models/model).

    `Model(inputs, outputs)` makes a functional model; a subclass that defines `call` makes its own.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Model and (
            any_of(KerasTensor, args) or "inputs" in kwargs and "outputs" in kwargs
        ):
            from meganeura.models.functional import Functional

            return Functional.__new__(Functional, *args, **kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any):
        if any_of(KerasTensor, args) or "inputs" in kwargs and "outputs" in kwargs:
            _make_functional(type(self))
            type(self).__mro__[type(self).__mro__.index(Model) - 1].__init__(self, *args, **kwargs)
            return
        if args:
            raise TypeError(
                f"model {type(self).__name__}: a subclass that defines call() takes no positional "
                f"arguments, got {args[0]!r}; pass name= and trainable= by keyword to super().__init__"
            )
        Layer.__init__(self, **kwargs)
        Trainer.__init__(self)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"model {type(self).__name__} defines no call()")

    @property
    def layers(self) -> list[Layer]:
        """The layers directly in this model."""
        return list(self._layers)

    @layers.setter
    def layers(self, _: Any) -> None:
        raise AttributeError("a model's `layers` cannot be set; use another name for the attribute")

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """The layer of this name, or at this index."""
        if (name is None) == (index is None):
            raise ValueError("get_layer takes a name or an index, one of them")
        if index is not None:
            if not -len(self.layers) <= index < len(self.layers):
                raise ValueError(
                    f"model {self.name!r} has {len(self.layers)} layers, no index {index}"
                )
            return self.layers[index]
        for layer in self.layers:
            if layer.name == name:
                return layer
        hint = identifiers.suggestion(str(name), [layer.name for layer in self.layers])
        raise ValueError(f"model {self.name!r} has no layer {name!r}{hint}")

    def build(self, input_shape: Any = None) -> None:
        """Make the weights by tracing the call on inputs of this shape, the batch included."""
        if input_shape is None:
            self.built = True
            return

        def tensor(shape: Any) -> Any:
            if isinstance(shape, dict):
                return {k: tensor(v) for k, v in shape.items()}
            if isinstance(shape, (tuple, list)) and all(
                n is None or isinstance(n, int) for n in shape
            ):
                return KerasTensor(shape)
            return [tensor(s) for s in shape]

        from meganeura.models.operation import output_spec

        self.built = True
        output_spec(self, (tensor(input_shape),), {})

    def _ensure_built(self, tensors: dict[str, Any]) -> None:
        # A subclass's own layers build themselves when call() reaches them.
        if not self.built and type(self).build is not Model.build:
            super()._ensure_built(tensors)
        elif (
            not self.built and tensors
        ):  # files say the shape, to build the model before its weights come
            shape = calling.shapes_of(next(iter(tensors.values())))
            object.__setattr__(self, "_build_shapes", {"input_shape": shape})
        self.built = True

    def build_from_config(self, config: dict[str, Any]) -> None:
        shape = (config or {}).get("input_shape")
        if shape is not None and not self.built:
            self.build(as_shapes(shape))

    def _finish(self, outputs: Any, tensors: dict[str, Any], given_mask: Any) -> None:
        """The layers inside gave the outputs their masks already."""
        if type(self).compute_mask is Layer.compute_mask:
            tensors = {}
        super()._finish(outputs, tensors, given_mask)

    def __reduce__(self) -> Any:
        """Copies and pickles: structure, weights, how it was compiled, the optimizer's state."""
        from meganeura.models.cloning import parts, restored

        return restored, parts(self)

    # --- looking at it -------------------------------------------------------------------------

    def summary(
        self,
        line_length: int | None = None,
        positions: Any = None,
        print_fn: Callable[[str], Any] | None = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Any = None,
    ) -> None:
        """Print the layers, their output shapes and weights."""
        from meganeura.models.summary import summary_text

        text = summary_text(
            self, line_length, positions, expand_nested, show_trainable, layer_range
        )
        (print_fn or print)(text)

    def explain(self, format: str = "text") -> str:
        """What the compiler did with the last compiled step (training if there was one).

        format: "text", or "html" for a page of its own with a drawing of the graph

        Raises ValueError before the first fit, evaluate or predict.
        """
        from meganeura.rewrite.explain import explain_html, explain_text

        if format not in ("text", "html"):
            raise ValueError(f"explain: format is {format!r}; use 'text' or 'html'")
        executable = self._last_executable()
        if executable is None:
            raise ValueError(
                f"model {self.name!r} was not run yet: call fit, evaluate or predict first"
            )
        report = executable.report()
        return (
            explain_text(report) if format == "text" else explain_html(report.get("graph"), report)
        )

    def quantize(self, mode: str, config: Any = None, filters: Any = None) -> QuantizationReport:
        """Pack the tables of dense, einsum and embedding layers for inference, and report what that did.

        mode:    "f16" (halves), "q8_0" or "q4_1" (GGUF's blocks of 32 values of 8 or 4 bits)
        filters: which layers: a pattern found in their names, a list of patterns, or a function of the layer

        Kernels read the packed words. What does not fit stays in float32, as the report says.
        """
        from meganeura.quantization.models import quantize

        if config is not None:
            raise ValueError("quantize: config is not offered; mode and filters say everything")
        return quantize(self, mode, filters)

    # --- files ---------------------------------------------------------------------------------

    def save_weights(
        self, filepath: str | os.PathLike[str], overwrite: bool = True, max_shard_size: Any = None
    ) -> None:
        """Save the weights, and the optimizer's state, to a `.weights.h5` file of Keras 3's layout.

        A name in `.npz` or `.safetensors` holds the weights alone, under their paths; with
        `max_shard_size`, in gigabytes or as "500MB", safetensors go to several files and an index.
        """
        from meganeura import saving

        saving.save_weights(self, filepath, overwrite, max_shard_size)

    def load_weights(
        self, filepath: str | os.PathLike[str], skip_mismatch: bool = False, **kwargs: Any
    ) -> None:
        """Load the weights of a file that Keras or meganeura wrote; all of it fits, or nothing changes."""
        from meganeura import saving

        saving.load_weights(self, filepath, skip_mismatch, **kwargs)

    def save(
        self, filepath: str | os.PathLike[str], overwrite: bool = True, zipped: bool | None = None
    ) -> None:
        """Save the whole model: structure, weights, how it was compiled, the optimizer's state."""
        from meganeura import saving

        saving.save_model(self, filepath, overwrite=overwrite, zipped=zipped)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "onnx",
        verbose: Any = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Write what the model computes in inference to an `.onnx` file; see `meganeura.onnx.export`."""
        from meganeura import onnx

        if format != "onnx":
            raise ValueError(f"export: format={format!r} is not offered; 'onnx' is")
        onnx.export(self, filepath, input_signature, **kwargs)
        if verbose:
            print(f"Saved artifact at {str(filepath)!r}.")

    def to_json(self, **kwargs: Any) -> str:
        """The structure as JSON, as Keras 3 writes it."""
        from meganeura.layers import serialize

        return json.dumps(serialize(self), **kwargs)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        from meganeura.models.functional import Functional

        if cls is Model or "input_layers" in config:
            return Functional.from_config(config, custom_objects)
        return construct(cls, config)


def _make_functional(cls: type) -> None:
    """Put Functional under a subclass that calls `super().__init__(inputs, outputs)`, as in Keras."""
    from meganeura.models.functional import Functional

    if issubclass(cls, Functional):
        return
    for base in cls.__mro__:
        if Model in base.__bases__:
            base.__bases__ = tuple(Functional if b is Model else b for b in base.__bases__)
            return
