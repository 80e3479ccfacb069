"""The backends, and which of them is current."""

from __future__ import annotations

import importlib
import os
from typing import Any

_current: Any = None


def backend_object() -> Any:
    """The current backend, chosen at first use: MEGANEURA_BACKEND, else wgpu, else NumPy."""
    global _current
    if _current is None:
        _current = _choose(os.environ.get("MEGANEURA_BACKEND", ""))
    return _current


def backend() -> str:
    """The name of the current backend, "wgpu" or "numpy" (as `keras.backend.backend`)."""
    return str(backend_object().name)


def set_backend(name: str) -> None:
    """Choose the backend ("wgpu" or "numpy") for everything made from now on.

    Variables and tensors stay where they were made, so call this before building a model.
    """
    global _current
    _current = _choose(name)


def _choose(name: str) -> Any:
    if name not in ("", "wgpu", "numpy"):
        raise ValueError(f"MEGANEURA_BACKEND is {name!r}; the backends are 'wgpu' and 'numpy'")
    from meganeura.backend.numpy.backend import NumpyBackend

    if name == "numpy":
        return NumpyBackend()
    from meganeura.backend.wgpu.backend import NoAdapterError, WgpuBackend

    try:
        return WgpuBackend()
    except NoAdapterError as error:
        if name == "wgpu":
            raise
        print(f"meganeura: {error} Computing with NumPy on the CPU instead.", flush=True)
        return NumpyBackend()


def describe() -> str:
    """One line on the device that computes, as it is printed once at the start."""
    return str(backend_object().describe())


#: keras.backend's other functions, name -> (module, name there); loaded when first asked for.
_ELSEWHERE = {
    **{
        name: ("config", name)
        for name in (
            "epsilon floatx image_data_format set_epsilon set_floatx set_image_data_format"
        ).split()
    },
    "clear_session": ("utils", "clear_session"),
    "is_keras_tensor": ("symbolic", "is_keras_tensor"),
    "is_float_dtype": ("dtypes", "is_float_dtype"),
    "is_int_dtype": ("dtypes", "is_int_dtype"),
    "result_type": ("dtypes", "common_dtype"),
    "standardize_dtype": ("dtypes", "standardize"),
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'meganeura.backend' has no attribute {name!r}")
    where, there = _ELSEWHERE[name]
    return getattr(importlib.import_module(f"meganeura.{where}"), there)
