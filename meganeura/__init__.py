"""meganeura: neural networks on any GPU, in Keras's words (https://keras.io/api)."""

from __future__ import annotations

import importlib
from typing import Any

from meganeura.version import __version__ as __version__

#: Public name -> where it lives; loaded when first asked for, so that importing costs little.
_NAMES: dict[str, str] = {
    **{
        name: ""
        for name in (
            "activations backend callbacks config constraints datasets dtype_policies dtypes graph initializers layers "
            "losses metrics mixed_precision models onnx ops optim optimizers preprocessing "
            "random regularizers saving tree utils zoo"
        ).split()
    },
    "Model": "models",
    "Sequential": "models",
    "Functional": "models",
    "Function": "models.function",
    "DTypePolicy": "dtype_policies",
    "Input": "layers",
    "InputSpec": "layers",
    "Layer": "layers",
    "KerasTensor": "symbolic",
    "Variable": "variable",
    "Tensor": "tensor",
    "Optimizer": "optimizers",
    "Initializer": "initializers",
    "Regularizer": "regularizers",
    "Constraint": "constraints",
    "Loss": "losses",
    "Metric": "metrics",
    "value_and_grad": "gradient",
    "grad": "gradient",
    "function": "recorded",
    "checkpoint": "recomputation",
}


def __getattr__(name: str) -> Any:
    if name == "GradientTape":
        raise AttributeError(
            "meganeura has no GradientTape: write a function that returns the loss, and take "
            "meganeura.value_and_grad(function, variables)()"
        )
    if name not in _NAMES:
        raise AttributeError(f"module 'meganeura' has no attribute {name!r}")
    where = _NAMES[name]
    if where:
        value = getattr(importlib.import_module(f"meganeura.{where}"), name)
    else:
        value = importlib.import_module(f"meganeura.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_NAMES, "__version__"])
