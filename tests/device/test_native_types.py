"""What is put into cffi's table of types is what cffi would have parsed."""

from __future__ import annotations

import pytest

pytest.importorskip("wgpu")

from wgpu.backends.wgpu_native import ffi  # noqa: E402

from meganeura.backend.wgpu import native_types as module  # noqa: E402


def test_types_are_those_that_cffi_parses(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = ffi._parsed_types
    made: dict[str, tuple[object, bool]] = {}
    monkeypatch.setattr(ffi, "_parsed_types", made)
    module.parse_at_once(ffi)
    some = [
        "WGPUBufferDescriptor *", "WGPUStringView *", "WGPUBindGroupEntry[]", "WGPUFeatureName[]",
        "char []", "uint8_t []", *module._CALLBACKS, *module._OTHERS,
    ]  # fmt: skip
    found = {text: made.pop(text) for text in some}
    for text, kind in found.items():
        ffi._typeof(text, consider_function_as_funcptr=True)
        assert made[text] == kind, text
    assert len(made) > 400
    monkeypatch.setattr(ffi, "_parsed_types", parsed)


def test_another_cffi_parses_for_itself() -> None:
    class Other:
        def list_types(self) -> None:
            raise AssertionError("nothing is asked of it")

    module.parse_at_once(Other())
