"""An optimizer's state from files of other versions of Keras, in the order of our variables.

Keras 3:           iteration, learning rate, slots as ours
Keras 2.11 to 15:  `iteration:0`, `Adam/m/dense/kernel:0`, ...: no learning rate, no product of momenta
before:            `Adam/iter:0`, `Adam/dense/kernel/m:0`, ...: one slot after the other
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

#: Slots that newer files interleave, variable by variable.
_PAIRS = (("m", "v"), ("accum_grad", "accum_var"), ("accumulator", "linear"))
_SLOTS = "m v vhat momentum rms mg accumulator accum_grad accum_var linear".split()


def fitted(
    optimizer: Any, arrays: Sequence[np.ndarray], names: Sequence[str] = ()
) -> list[np.ndarray] | None:
    """The arrays in the order of `optimizer.variables`, or None where they do not fit."""
    variables = list(optimizer.variables)
    arrays = _modern_order(list(arrays), names)
    missing = len(variables) - len(arrays)
    if missing > 0 and variables[1:] and variables[1].path.endswith("learning_rate"):
        arrays.insert(1, variables[1].numpy())
        missing -= 1
    if missing == 1 and variables[-1].path.endswith("momentum_product"):
        arrays.append(_product(optimizer, int(arrays[0])))
    fits = len(arrays) == len(variables) and all(
        tuple(v.shape) == np.shape(a) for v, a in zip(variables, arrays, strict=True)
    )
    return arrays if fits else None


def restore(optimizer: Any, arrays: Sequence[np.ndarray]) -> None:
    """Set all variables to what `fitted` gave."""
    for variable, array in zip(optimizer.variables, arrays, strict=True):
        variable.assign(np.asarray(array).astype(variable.dtype))


def _modern_order(arrays: list[np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    """Slot after slot, as before Keras 2.11, becomes variable after variable."""
    if len(names) != len(arrays) or not any(re.search(r"(^|/)iter(:0)?$", n) for n in names[:1]):
        return arrays
    slots: dict[str, list[np.ndarray]] = {}
    rest: list[np.ndarray] = []
    for name, array in zip(names, arrays, strict=True):
        slot = re.sub(r":\d+$", "", name).split("/")[-1]
        if slot in _SLOTS:
            slots.setdefault(slot, []).append(array)
        elif slot != "momentum_cache":  # a product of another schedule's momenta
            rest.append(array)
    for first, second in _PAIRS:
        if first in slots and len(slots.get(second, ())) == len(slots[first]):
            pairs = zip(slots.pop(first), slots.pop(second), strict=True)
            rest += [array for pair in pairs for array in pair]
    return rest + [array for group in slots.values() for array in group]


def _product(optimizer: Any, steps: int) -> np.ndarray:
    """Nadam's product of momenta after so many steps: Keras 2 did not write it."""
    exponents = 0.96 ** np.arange(1, steps + 1)
    return np.asarray(np.prod(optimizer.beta_1 * (1 - 0.5 * exponents)), "float32")
