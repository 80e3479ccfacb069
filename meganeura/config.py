"""Settings of the process. Each has a function to read it and one to set it."""

from __future__ import annotations

import importlib
import os
from typing import Any

_settings: dict[str, Any] = {
    "floatx": "float32",
    "epsilon": 1e-7,
    "image_data_format": "channels_last",
    "optimize": os.environ.get("MEGANEURA_OPTIMIZE", "1") != "0",
    "checked": os.environ.get("MEGANEURA_CHECKED", "0") == "1",
    "tuning": os.environ.get("MEGANEURA_TUNE", "0") == "1",
    "adapter": os.environ.get("MEGANEURA_ADAPTER", ""),
    "memory_bytes": int(os.environ.get("MEGANEURA_MEMORY_BYTES", 0)),
    "resident_bytes": int(os.environ.get("MEGANEURA_RESIDENT_BYTES", 1 << 30)),
}


def floatx() -> str:
    return str(_settings["floatx"])


def set_floatx(value: str) -> None:
    """The dtype of inputs, layers, losses and metrics that are not given one: "float32" or "float16"."""
    if value not in ("float32", "float16"):
        raise ValueError(f"floatx {value!r} is not offered; use 'float32' or 'float16'")
    _settings["floatx"] = value


def epsilon() -> float:
    return float(_settings["epsilon"])


def set_epsilon(value: float) -> None:
    _settings["epsilon"] = float(value)


def image_data_format() -> str:
    return str(_settings["image_data_format"])


def set_image_data_format(value: str) -> None:
    if value not in ("channels_last", "channels_first"):
        raise ValueError(
            f"data_format {value!r} is not known; use 'channels_last' or 'channels_first'"
        )
    _settings["image_data_format"] = value


def optimize() -> bool:
    """Whether graphs go through the e-graph before they run."""
    return bool(_settings["optimize"])


def set_optimize(value: bool) -> None:
    _settings["optimize"] = bool(value)


def checked() -> bool:
    """Whether shaders keep the driver's bounds checks (slower; for finding faults)."""
    return bool(_settings["checked"])


def set_checked(value: bool) -> None:
    _settings["checked"] = bool(value)


def tuning() -> bool:
    """Whether products are timed on the device, the first time that one of their size is compiled."""
    return bool(_settings["tuning"])


def set_tuning(value: bool) -> None:
    """Time products of new sizes in several ways and keep the fastest, on disk as well: some seconds for a model.
    Without it what was found before is used, and an estimate for other sizes, so that results do not
    change from one run to the next."""
    _settings["tuning"] = bool(value)


def quiet() -> bool:
    """Whether nothing is printed that was not asked for (MEGANEURA_QUIET=1)."""
    return os.environ.get("MEGANEURA_QUIET", "0") == "1"


def adapter() -> str:
    """Part of the name of the adapter to use; empty: a real GPU before a software one."""
    return str(_settings["adapter"])


def set_adapter(value: str) -> None:
    """Takes effect for the backend made next: call it before anything is computed."""
    _settings["adapter"] = str(value)


def resident_bytes() -> int:
    """Up to how many bytes of training arrays are kept on the device; larger data go batch by batch."""
    return int(_settings["resident_bytes"])


def set_resident_bytes(value: int) -> None:
    _settings["resident_bytes"] = int(value)


def memory_bytes() -> int:
    """Device memory that one compiled step may take; 0: what the adapter is known to have.

    WebGPU does not say how much memory a GPU has, so that without this only software adapters,
    which use the host's memory, are checked before a step is allocated."""
    return int(_settings["memory_bytes"])


def set_memory_bytes(value: int) -> None:
    _settings["memory_bytes"] = int(value)


#: What lives elsewhere and Keras has here: loaded when first asked for, since those modules read this one.
_ELSEWHERE = {
    "backend": "backend",
    "set_backend": "backend",
    "dtype_policy": "dtype_policies",
    "set_dtype_policy": "dtype_policies",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'meganeura.config' has no attribute {name!r}")
    return getattr(importlib.import_module(f"meganeura.{_ELSEWHERE[name]}"), name)
