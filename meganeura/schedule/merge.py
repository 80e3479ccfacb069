"""The text of a dispatch: of one kernel, or of several that need nothing of each other.

Kernels of one workgroup size share a dispatch side by side: each has a range of the workgroups, and a
workgroup finds its kernel by its number. What a kernel declares gets a name of its own; memory of a
workgroup is shared, since a workgroup runs one kernel only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from meganeura.schedule.quads import bound_as_quads
from meganeura.schedule.templates.base import fold_workgroups
from meganeura.schedule.writer import helpers_for

_BINDING = re.compile(r"\bb(\d+)(?=\[)")
_DECLARED = re.compile(r"\b(?:fn|struct|alias|const|var<private>)\s+(\w+)")
_SHARED = re.compile(r"^\s*var<workgroup>\s+(\w+)\s*:\s*([^;]+);\s*$", re.MULTILINE)
_ARRAY = re.compile(r"array<(vec4<(?:f32|u32|i32)>|f32|u32|i32), (\d+)>")


@dataclass
class Part:
    """One kernel: `bindings` are (buffer, writes, element type) in the order of its own numbers."""

    group_size: tuple[int, int, int]
    workgroups: tuple[int, int, int]
    functions: str
    body: str
    bindings: list[tuple[int, bool, str]]


def shared_memory(functions: str) -> dict[str, list[str]] | None:
    """Type -> names of the workgroup's variables; None where a type is not understood."""
    found: dict[str, list[str]] = {}
    for name, kind in _SHARED.findall(functions):
        if not _ARRAY.fullmatch(kind.strip()):
            return None
        found.setdefault(kind.strip(), []).append(name)
    return found


def shared_bytes(kinds: dict[str, int]) -> int:
    """Bytes of so many variables of each type."""
    total = 0
    for kind, count in kinds.items():
        found = _ARRAY.fullmatch(kind)
        assert found is not None
        total += count * int(found[2]) * (16 if found[1].startswith("vec4") else 4)
    return total


def dispatch(
    parts: Sequence[Part], most_workgroups: int
) -> tuple[str, tuple[int, int, int], list[tuple[int, bool]]]:
    """(text, workgroups, bindings). A buffer that is read and written has one binding."""
    number: dict[int, int] = {}
    writes: dict[int, bool] = {}
    kinds: dict[int, str] = {}
    for part in parts:
        for buffer, written, kind in part.bindings:
            number.setdefault(buffer, len(number))
            writes[buffer] = writes.get(buffer, False) or written
            kinds[buffer] = kind if kind.startswith("vec4") else kinds.get(buffer, kind)
    parts = [_in_quads(part, kinds) for part in parts]
    own = tuple(
        (
            p.group_size,
            p.workgroups,
            p.functions,
            p.body,
            tuple(number[b] for b, _, _ in p.bindings),
        )
        for p in parts
    )
    bound = tuple((kinds[b], writes[b]) for b in number)
    text, workgroups = _text(own, bound, most_workgroups)
    return text, workgroups, [(buffer, writes[buffer]) for buffer in number]


def _in_quads(part: Part, kinds: dict[int, str]) -> Part:
    """A part that reads elements of what another part, or itself under another name, reads in quads."""
    names = [f"b{i}" for i, (b, _, kind) in enumerate(part.bindings) if kind != kinds[b]]
    if not names:
        return part
    functions, body = (bound_as_quads(text, names) for text in (part.functions, part.body))
    return replace(part, functions=functions, body=body)


#: group size, workgroups, functions, body, the number of each binding
_Numbered = tuple[tuple[int, int, int], tuple[int, int, int], str, str, tuple[int, ...]]


@functools.lru_cache(512)
def _text(
    parts: tuple[_Numbered, ...], bound: tuple[tuple[str, bool], ...], most_workgroups: int
) -> tuple[str, tuple[int, int, int]]:
    """Layers repeat: equal kernels on other buffers have one text."""
    declarations = [
        f"@group(0) @binding({i}) var<storage, {'read_write' if written else 'read'}> b{i}: array<{kind}>;"
        for i, (kind, written) in enumerate(bound)
    ]
    if len(parts) == 1:
        _, workgroups, functions, body, numbers = parts[0]
        functions, body = _renumbered(functions, numbers), _renumbered(body, numbers)
    else:
        functions, body, workgroups = _side_by_side(parts, most_workgroups)
    size = ", ".join(map(str, parts[0][0]))
    inner = "\n".join([*declarations, functions])
    helpers = helpers_for(inner + body)
    enable = "enable f16;\n" if re.search(r"\bf16\b", helpers + inner) else ""
    text = f"""{enable}{helpers}
{inner}
@compute @workgroup_size({size})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {{
{body}
}}
"""
    return text, workgroups


def _renumbered(text: str, numbers: Sequence[int]) -> str:
    if numbers == tuple(range(len(numbers))):
        return text
    return _BINDING.sub(lambda m: f"b{numbers[int(m[1])]}", text)


def _side_by_side(
    parts: Sequence[_Numbered], most_workgroups: int
) -> tuple[str, str, tuple[int, int, int]]:
    memory: dict[str, int] = {}
    functions: list[str] = []
    branches: list[str] = []
    start = 0
    for i, (_, (x, y, z), own_functions, own_body, numbers) in enumerate(parts):
        shared = shared_memory(own_functions) or {}
        names = {n: f"p{i}_{n}" for n in _DECLARED.findall(own_functions)}
        for kind, own in shared.items():
            memory[kind] = max(memory.get(kind, 0), len(own))
            names |= {n: _memory_name(kind, j) for j, n in enumerate(own)}
        text = _SHARED.sub("", _renumbered(own_functions, numbers))
        body = _renumbered(own_body, numbers)
        if names:
            own_names = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
            text = own_names.sub(lambda m: names[m[0]], text)  # noqa: B023
            body = own_names.sub(lambda m: names[m[0]], body)  # noqa: B023
        functions.append(text)
        functions.append(
            f"fn p{i}_main(group: vec3<u32>, local: vec3<u32>, thread: u32) {{\n{body}\n}}"
        )
        count = x * y * z
        place = f"(flat - {start}u)" if start else "flat"
        group = (
            f"vec3<u32>({place}, 0u, 0u)"
            if y == z == 1
            else f"vec3<u32>({place} % {x}u, ({place} / {x}u) % {y}u, {place} / {x * y}u)"
        )
        start += count
        branches.append(f"if (flat < {start}u) {{ p{i}_main({group}, local, thread); }}")
    workgroups, flat = fold_workgroups(start, most_workgroups)
    declared = [
        f"var<workgroup> {_memory_name(kind, j)}: {kind};"
        for kind, count in memory.items()
        for j in range(count)
    ]
    body = f"let flat = {flat};\n" + "\nelse ".join(branches)
    return "\n".join([*declared, *functions]), body, workgroups


def _memory_name(kind: str, number: int) -> str:
    return f"m{number}_" + re.sub(r"\W+", "_", kind).strip("_")
