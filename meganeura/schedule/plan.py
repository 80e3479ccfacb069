"""Plan: what a backend runs, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What a device offers, as far as kernels depend on it."""

    storage_buffers: int = 8
    binding_bytes: int = 128 << 20
    workgroup_bytes: int = 16 << 10
    invocations: int = 256
    workgroups: int = 65535
    software: bool = False
    #: the name of choices that were measured there (choices.py)
    measured: str = ""
    #: from so many elements on, an invocation computes four neighbours: every processor has work even so
    quads_from: int = 1 << 18


@dataclass
class Buffer:
    """role: input, state, constant, output or temporary; `position` counts within inputs, states, outputs."""

    id: int
    bytes: int
    role: str
    position: int
    dtype: str
    shape: tuple[int, ...]
    data: Any = None  # bytes, of constants


@dataclass
class Kernel:
    """One dispatch: its text, its size, and which buffers it reads and writes."""

    name: str
    wgsl: str
    workgroups: tuple[int, int, int]
    bindings: list[tuple[int, bool]]
    scopes: tuple[str, ...] = ()
    bytes: int = 0
    flops: int = 0
    #: (layer and operation that made what is read, layer and operation that reads it, why two kernels)
    apart: tuple[tuple[str, str, str], ...] = ()


@dataclass
class Plan:
    """Kernels in order over buffers. `outputs` and `states` name the buffer of each position."""

    buffers: list[Buffer]
    kernels: list[Kernel]
    inputs: list[int]
    states: list[int]
    outputs: list[int]
    statistics: dict[str, Any] = field(default_factory=dict)


#: Bytes of an element on the device where they are not 4.
BYTES = {"uint8": 1, "float16": 2}


def storage_bytes(count: int, dtype: str) -> int:
    """Bytes that a tensor takes on the device: bool as u32, all in multiples of 16."""
    size = count * BYTES.get(dtype, 4)
    return max(16, -(-size // 16) * 16)
