"""Whether a plan fits into the device's memory, asked before anything is allocated."""

from __future__ import annotations

from collections import Counter

from meganeura.schedule.plan import Buffer, Plan


def check_budget(plan: Plan, available: int) -> None:
    """Raise MemoryError where the plan's buffers take more than `available` bytes (0: not known).

    The message names the largest tensors, and the largest batch that would fit if all that is not
    a state or a constant shrinks with it.
    """
    needed = sum(b.bytes for b in plan.buffers)
    if not available or needed <= available:
        return
    fixed = sum(b.bytes for b in plan.buffers if b.role in ("state", "constant"))
    lines = [
        f"a step needs {_size(needed)} of device memory ({_size(fixed)} for weights and other state, "
        f"{_size(needed - fixed)} for data and what is computed), and there are {_size(available)}"
    ]
    largest = plan.statistics.get("largest", ())
    if largest:
        lines.append("the largest tensors:")
        lines += [
            f"  {_size(size)}  {dtype}{list(shape)}  {made}" for size, dtype, shape, made in largest
        ]
    batch = _batch([b for b in plan.buffers if b.role == "input"])
    fitting = (available - fixed) * batch // (needed - fixed) if needed > fixed else 0
    if fitting >= 1:
        lines.append(f"a batch of {fitting} would fit, instead of {batch}")
    else:
        lines.append("no batch would fit: use a smaller model, or an optimizer with less state")
    lines.append("mg.checkpoint computes activations again instead of keeping them")
    raise MemoryError("\n".join(lines))


def _batch(inputs: list[Buffer]) -> int:
    """The length that most inputs begin with."""
    counts = Counter(b.shape[0] for b in inputs if b.shape)
    return max(counts, key=lambda n: (counts[n], n)) if counts else 1


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
