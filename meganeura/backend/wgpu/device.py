"""The adapter and the device: which GPU, with which limits, and what to say of it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from meganeura import config
from meganeura.backend.wgpu.native_types import parse_at_once
from meganeura.schedule.plan import Limits


class NoAdapterError(RuntimeError):
    """wgpu finds no adapter that can compute."""


class DeviceError(RuntimeError):
    """The device refused work or was lost."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Loaders print about displays that computing does not need; keep that from the user."""
    if "XDG_RUNTIME_DIR" in os.environ or sys.platform != "linux":
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = "/tmp"
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


def choose_adapter(name: str = "") -> Any:
    """A real GPU before a software one, never OpenGL; `name` (part of it) overrides."""
    try:
        import wgpu
        from wgpu.backends.wgpu_native import ffi

        parse_at_once(ffi)
    except Exception as error:  # a missing or broken native library
        raise NoAdapterError(f"wgpu cannot be loaded ({error}).") from error
    with quiet():
        try:
            found = wgpu.gpu.enumerate_adapters_sync()
        except Exception as error:
            raise NoAdapterError(f"wgpu cannot list the adapters ({error}).") from error
    usable = [a for a in found if a.info["backend_type"] not in ("OpenGL", "OpenGLES")]
    if name:
        usable = [
            a
            for a in usable
            if name.lower() in f"{a.info['device']} {a.info['vendor']} {a.summary}".lower()
        ]
        if not usable:
            known = "; ".join(a.summary for a in found) or "none"
            raise ValueError(
                f"no adapter's name contains {name!r} (MEGANEURA_ADAPTER); there are: {known}"
            )
    if not usable:
        raise NoAdapterError(
            "no GPU driver was found for Vulkan, Metal or DirectX 12 (on Debian: apt install libvulkan1 "
            "mesa-vulkan-drivers)."
        )
    rank = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, "Unknown": 3, "CPU": 4}
    return min(usable, key=lambda a: rank.get(a.info["adapter_type"], 3))


#: What to ask for: the adapter's own limit under each of these names.
_WANTED = (
    "max-buffer-size", "max-storage-buffer-binding-size", "max-storage-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x", "max-compute-workgroup-size-y",
    "max-compute-workgroup-storage-size", "max-compute-workgroups-per-dimension", "max-bindings-per-bind-group",
)  # fmt: skip


def _host_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return 0


class Device:
    """One device, opened with all that its adapter offers."""

    def __init__(self) -> None:
        self.adapter = choose_adapter(config.adapter())
        limits = self.adapter.limits
        # Some drivers report "no limit" as a number that overflows when asked for.
        wanted = {
            n: min(int(limits[n]), 2**32 - 1 if "size" in n else 2**31 - 1)
            for n in _WANTED
            if n in limits
        }
        features = [f for f in ("timestamp-query", "shader-f16") if f in self.adapter.features]
        with quiet():
            self.handle = self.adapter.request_device_sync(
                required_limits=wanted, required_features=features
            )
        #: Whether kernels may read and write half precision.
        self.half = "shader-f16" in features
        self.software = self.adapter.info["adapter_type"] == "CPU"
        #: What there is for buffers; 0 where nobody says.
        self.memory_bytes = _host_memory() if self.software else 0
        offered = self.handle.limits
        self.limits = Limits(
            storage_buffers=min(int(offered["max-storage-buffers-per-shader-stage"]), 16),
            binding_bytes=min(int(offered["max-storage-buffer-binding-size"]), 2**31 - 4),
            workgroup_bytes=int(offered["max-compute-workgroup-storage-size"]),
            invocations=int(offered["max-compute-invocations-per-workgroup"]),
            workgroups=int(offered["max-compute-workgroups-per-dimension"]),
            software=self.software,
        )

    def describe(self) -> str:
        info = self.adapter.info
        kind = "a software adapter, not a GPU" if self.software else "GPU"
        return f"{info['device']} through {info['backend_type']} ({kind})"
