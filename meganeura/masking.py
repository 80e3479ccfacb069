"""Masks that ride on tensors: a boolean per time step, kept beside the tensor it belongs to."""

from __future__ import annotations

import weakref
from typing import Any

_masks: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def get_mask(tensor: Any) -> Any:
    """The mask of a tensor, or None."""
    try:
        return _masks.get(tensor)
    except TypeError:  # NumPy arrays and numbers carry none
        return None


def set_mask(tensor: Any, mask: Any) -> None:
    """Give `tensor` a mask: True where its values count."""
    if mask is not None:
        _masks[tensor] = mask
