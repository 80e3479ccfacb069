"""wgpu's C types, parsed at once."""

from __future__ import annotations

from typing import Any

#: What wgpu makes arrays of.
_ITEMS = (
    "WGPUAdapter",
    "WGPUBindGroupEntry",
    "WGPUCommandBuffer",
    "WGPUFeatureName",
    "char",
    "uint8_t",
)

#: Functions that are called back, as wgpu and the stream write their types, and other types.
_CALLBACKS = (
    "void(WGPULogLevel, WGPUStringView, void *)",
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
)
_OTHERS = ("uint8_t *", "uintptr_t", "WGPUChainedStruct * ")


def parse_at_once(ffi: Any) -> None:
    """Have cffi know all pointer types of wgpu-native.

    It parses each type at its first use, together with the names of all others, which takes 11 ms for each of
    the three dozen that a device and a step need. One function type that mentions all of them takes 27 ms.
    Where this version of cffi keeps its types elsewhere nothing changes.
    """
    from cffi import CDefError, FFIError

    known = getattr(ffi, "_parsed_types", None)
    if not isinstance(known, dict):
        return
    names = [n for n in ffi.list_types()[0] if n.startswith("WGPU")]
    items = [n for n in _ITEMS if n in names or not n.startswith("WGPU")]
    plain = (*(f"{n} *" for n in names), *_OTHERS)
    arguments = (*plain, *_CALLBACKS, *(f"{n}(*)[]" for n in items))
    try:
        found = ffi.typeof(f"void(*)({', '.join(map(_named, arguments))})").args
    except (CDefError, FFIError):  # each by itself, then
        return
    for text, kind in zip(arguments, found, strict=True):
        if not text.endswith("[]"):
            known.setdefault(
                text, (kind, text in _CALLBACKS)
            )  # a function stands for a pointer to it
            continue
        name = text.removesuffix("(*)[]")
        for array in (f"{name}[]", f"{name} []"):
            known.setdefault(array, (kind.item, False))


def _named(text: str) -> str:
    """A parameter of this type: without a name, that of a function would be read as one of `void`."""
    return text.replace("void(", "void f(", 1) if text in _CALLBACKS else text
