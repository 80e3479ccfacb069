"""Leaves of the graph: inputs, states, and constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura.ops.registry import Op, register


def _never(*_: Any, **__: Any) -> Any:
    raise RuntimeError("inputs and states are bound by the executor, never evaluated")


register(Op("input", "leaf", _never, _never))
register(Op("state", "leaf", _never, _never))
register(
    Op(
        "constant",
        "leaf",
        infer=lambda value, dtype: ((), dtype),
        reference=lambda value, dtype: np.asarray(value, dtype),
    )
)
register(
    Op(
        "literal",
        "leaf",
        infer=lambda data, shape, dtype: (tuple(shape), dtype),
        reference=lambda data, shape, dtype: np.frombuffer(data, dtype).reshape(shape),
    )
)
