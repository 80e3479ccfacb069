"""Masks that ride on tensors: a boolean per time step, kept beside the tensor it belongs to."""

from __future__ import annotations

import weakref
from typing import Any

# By identity, since == on tensors compares their values.
_masks: dict[int, tuple[weakref.ref[Any], Any]] = {}


def get_mask(tensor: Any) -> Any:
    """The mask of a tensor, or None."""
    entry = _masks.get(id(tensor))
    return entry[1] if entry is not None and entry[0]() is tensor else None


def set_mask(tensor: Any, mask: Any) -> None:
    """Give `tensor` a mask, True where its values count; None takes it away."""
    key = id(tensor)
    if mask is None:
        _masks.pop(key, None)
    else:
        _masks[key] = (weakref.ref(tensor, lambda _, masks=_masks: masks.pop(key, None)), mask)
