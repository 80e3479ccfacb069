"""Buffers for a list of kernels: who lives how long, who may take whose place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meganeura.graph.node import Graph, Node
from meganeura.schedule.kernels import Draft, MapDraft
from meganeura.schedule.plan import Buffer, Kernel, Limits, Plan, storage_bytes
from meganeura.schedule.row_kernels import RowDraft


@dataclass
class _Copy:
    """A tensor copied into the place of a state or an output, after everything else."""

    source: Node
    target: int


def assemble(graph: Graph, drafts: list[Draft], limits: Limits) -> Plan:
    """Give every stored node a buffer, reuse temporaries, update states in place where that is safe."""
    drafts = _updates_last(graph, drafts)
    plan = Plan([], [], [], [], [])
    of: dict[int, int] = {}

    def new(node: Node, role: str, position: int = -1, data: bytes | None = None) -> int:
        size = storage_bytes(node.size, node.dtype)
        if size > limits.binding_bytes:
            where = f" in layer {node.scope!r}" if node.scope else ""
            raise ValueError(
                f"a tensor of shape {node.shape} and dtype {node.dtype}{where} (operation {node.op}) takes {size} "
                f"bytes, and the device binds at most {limits.binding_bytes}; use a smaller batch or layer"
            )
        plan.buffers.append(
            Buffer(len(plan.buffers), size, role, position, node.dtype, node.shape, data)
        )
        return len(plan.buffers) - 1

    for i, node in enumerate(graph.inputs):
        plan.inputs.append(new(node, "input", i))
        of[id(node)] = plan.inputs[-1]
    for i, node in enumerate(graph.states):
        plan.states.append(new(node, "state", i))
        of[id(node)] = plan.states[-1]
    copies: list[_Copy] = []
    for i, node in sorted(graph.updates.items()):
        if node.size:
            kept = any(n is graph.states[i] for n in (*graph.outputs, *graph.updates.values()))
            if id(node) not in of and not kept and _in_place(node, graph.states[i], drafts):
                of[id(node)] = plan.states[i]
            else:
                copies.append(_Copy(node, plan.states[i]))
    for i, node in enumerate(graph.outputs):
        if id(node) in of or node.op == "literal":
            plan.outputs.append(new(node, "output", i))
            if node.size:
                copies.insert(0, _Copy(node, plan.outputs[-1]))  # before states change
        else:
            plan.outputs.append(new(node, "output", i))
            of[id(node)] = plan.outputs[-1]
    _temporaries(drafts, of, new, plan, copies)
    for draft in drafts:
        bindings = [(of[id(n)], id(n) in draft.bindings.written) for n in draft.bindings.nodes]
        plan.kernels.append(_kernel(draft, *_merged(draft.text, bindings)))
    for copy in copies:
        plan.kernels.append(_copy_kernel(copy, of, limits))
    temporary = [b for b in plan.buffers if b.role == "temporary"]
    plan.statistics = {
        "dispatches": len(plan.kernels),
        "temporary_bytes": sum(b.bytes for b in temporary),
        "state_bytes": sum(plan.buffers[i].bytes for i in plan.states),
        "moved_bytes": sum(k.bytes for k in plan.kernels),
    }
    return plan


def _merged(text: str, bindings: list[tuple[int, bool]]) -> tuple[str, list[tuple[int, bool]]]:
    """One binding for a state that is read and written: WebGPU refuses a buffer bound as both."""
    import re

    first: dict[int, int] = {}
    kept: list[tuple[int, bool]] = []
    rename: dict[int, int] = {}
    for i, (buffer, writes) in enumerate(bindings):
        if buffer in first:
            at = first[buffer]
            kept[at] = (buffer, kept[at][1] or writes)
            rename[i] = at
        else:
            first[buffer] = rename[i] = len(kept)
            kept.append((buffer, writes))
    if len(kept) == len(bindings):
        return text, bindings
    lines = []
    declared: set[int] = set()
    for line in text.split("\n"):
        found = re.match(r"@group\(0\) @binding\((\d+)\) var<storage, \w+> b\d+: (.*)$", line)
        if not found:
            lines.append(re.sub(r"\bb(\d+)\b(?=\[)", lambda m: f"b{rename[int(m.group(1))]}", line))
            continue
        at = rename[int(found.group(1))]
        if at not in declared:
            declared.add(at)
            access = "read_write" if kept[at][1] else "read"
            lines.append(f"@group(0) @binding({at}) var<storage, {access}> b{at}: {found.group(2)}")
    return "\n".join(lines), kept


def _updates_last(graph: Graph, drafts: list[Draft]) -> list[Draft]:
    """Kernels that only write new states go to the end, so that all readers of the old ones precede them."""
    updated = {id(n) for n in graph.updates.values()}
    read = {id(n) for d in drafts for n in d.bindings.nodes if id(n) not in d.bindings.written}
    outputs = {id(n) for n in graph.outputs}

    def only_updates(draft: Draft) -> bool:
        written = draft.bindings.written
        return bool(written) and all(
            w in updated and w not in read and w not in outputs for w in written
        )

    early = [d for d in drafts if not only_updates(d)]
    late = [d for d in drafts if only_updates(d)]
    # Scalars such as step counters are read by other updates: they change last.
    late.sort(key=lambda d: -max(n.size for n in d.outputs))
    return early + late


def _in_place(node: Node, state: Node, drafts: list[Draft]) -> bool:
    """Whether the new value may be written straight over the old one: it is made by one kernel that
    reads the old value at the very same element, and no later kernel reads it."""
    writer = next((i for i, d in enumerate(drafts) if id(node) in d.bindings.written), None)
    if writer is None or node.size != state.size or node.dtype == "uint8":
        return False
    draft = drafts[writer]
    if any(id(state) in d.bindings.reads for d in drafts[writer + 1 :]):
        return False
    reads = draft.bindings.reads.get(id(state), set())
    if not reads:
        return True
    if reads != {draft.positions[id(node)]}:
        return isinstance(draft, MapDraft) and node.size == 1
    if isinstance(draft, RowDraft):  # a row's values are written after all that the row reads
        return node.size == draft.rows and node.shape != draft.full
    return True


def _temporaries(
    drafts: list[Draft], of: dict[int, int], new, plan: Plan, copies: list[_Copy]
) -> None:  # type: ignore[no-untyped-def]
    last: dict[int, int] = {}
    for i, draft in enumerate(drafts):
        for node in draft.bindings.nodes:
            last[id(node)] = i
    for copy in copies:
        last[id(copy.source)] = len(drafts)
    free: dict[int, list[int]] = {}
    for i, draft in enumerate(drafts):
        for node in draft.bindings.nodes:
            if id(node) in of:
                continue
            if node.op == "literal":
                of[id(node)] = new(node, "constant", data=_literal_bytes(node))
                continue
            size = _size_class(storage_bytes(node.size, node.dtype))
            if free.get(size):
                of[id(node)] = free[size].pop()
            else:
                of[id(node)] = new(node, "temporary")
                plan.buffers[of[id(node)]].bytes = size
        for node in draft.bindings.nodes:
            buffer = plan.buffers[of[id(node)]]
            if last[id(node)] == i and buffer.role == "temporary":
                if buffer.id not in free.setdefault(buffer.bytes, []):
                    free[buffer.bytes].append(buffer.id)
    for copy in copies:  # roots that no kernel touches, such as a literal
        node = copy.source
        if id(node) not in of and node.op == "literal":
            of[id(node)] = new(node, "constant", data=_literal_bytes(node))


def _literal_bytes(node: Node) -> bytes:
    """A literal's values as they are stored: bool as words."""
    data: bytes = node.attributes["data"]
    return (
        np.frombuffer(data, np.bool_).astype(np.uint32).tobytes() if node.dtype == "bool" else data
    )


def _size_class(size: int) -> int:
    """Sizes are rounded up a little, so that neighbours can take each other's place."""
    if size <= 4096:
        return max(256, 1 << (size - 1).bit_length())
    step = 1 << max((size - 1).bit_length() - 4, 8)
    return -(-size // step) * step


def _kernel(draft: Draft, text: str, bindings: list[tuple[int, bool]]) -> Kernel:
    nodes = draft.bindings.nodes
    moved = sum(storage_bytes(n.size, n.dtype) for n in nodes)
    name = {"map": "map", "row": "row"}.get(draft.kind) or draft.outputs[0].op
    ops = "+".join(dict.fromkeys(n.op for n in draft.outputs))
    scopes = tuple(dict.fromkeys(n.scope for n in draft.outputs if n.scope))
    return Kernel(f"{name}:{ops}"[:80], text, draft.workgroups, bindings, scopes, moved)


def _copy_kernel(copy: _Copy, of: dict[int, int], limits: Limits) -> Kernel:
    from meganeura.schedule.templates.base import ceil_div, fold_workgroups

    words = storage_bytes(copy.source.size, copy.source.dtype) // 4
    workgroups, flat = fold_workgroups(ceil_div(words, 64), limits.workgroups)
    text = f"""@group(0) @binding(0) var<storage, read> b0: array<u32>;
@group(0) @binding(1) var<storage, read_write> b1: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {{
let i = {flat} * 64u + thread;
if (i < {words}u) {{ b1[i] = b0[i]; }}
}}
"""
    bindings = [(of[id(copy.source)], False), (copy.target, True)]
    return Kernel("copy", text, workgroups, bindings, (copy.source.scope,), 8 * words)
