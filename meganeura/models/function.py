"""A piece of a functional graph as something to call (https://keras.io/api/models)."""

from __future__ import annotations

from typing import Any

from meganeura.models.functional import Functional


class Function:
    """What lies between symbolic tensors: `Function(inputs, outputs)(arrays)`.

    Unlike a Model it is not compiled, trained or saved. Raises ValueError where the outputs do not
    follow from the inputs.
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None):
        self._inputs, self._outputs = inputs, outputs
        self._model = Functional(inputs, outputs, name=name)
        self.name = self._model.name

    @property
    def inputs(self) -> list[Any]:
        return list(self._model.inputs)

    @property
    def outputs(self) -> list[Any]:
        return list(self._model.outputs)

    def __call__(self, inputs: Any) -> Any:
        """The outputs for arrays, nodes or symbolic tensors in the structure of the inputs."""
        return self._model(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shapes of the outputs for other shapes of the inputs."""
        return self._model.compute_output_shape(input_shape)
