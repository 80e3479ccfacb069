"""KerasTensor: the placeholder that functional models are wired with. Its shape may hold None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.graph.operand import Operand

_names: dict[str, int] = {}


class KerasTensor(Operand):
    """A symbolic tensor: `shape` (None for a length known only at run time), dtype, name.

    `history` is `(operation, call_index, tensor_index)`: which call of which layer or operation
    made it. Operators and `meganeura.ops` functions on it extend the functional graph.
    """

    def __init__(
        self, shape: Any, dtype: Any = "float32", name: str | None = None, history: Any = None
    ):
        self.shape: tuple[int | None, ...] = tuple(
            None if length is None else int(length) for length in shape
        )
        self.dtype = dtypes.standardize(dtype)
        self.name = name or "keras_tensor"
        self.history = history
        self.mask: Any = None  # another KerasTensor where a layer computed one

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def _keras_history(self) -> Any:
        return self.history

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise ValueError(
            f"{self!r} is symbolic and has no values; use meganeura.ops on it, or wrap NumPy code in a layer"
        )

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is symbolic and has no truth value; use ops.where instead of if")

    def __len__(self) -> int:
        raise TypeError(f"{self!r} is symbolic; use its .shape")

    def __iter__(self) -> Any:
        raise TypeError(f"{self!r} is symbolic and cannot be iterated over; use ops.unstack")

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype}, name={self.name}>"


#: Set by the functional API: handler(function, args, kwargs) -> KerasTensor(s).
handler: Callable[..., Any] | None = None


def is_keras_tensor(x: Any) -> bool:
    """Whether x is a symbolic tensor, as `Input` makes them."""
    return isinstance(x, KerasTensor)
