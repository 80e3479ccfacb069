"""What the compiler did with a graph, as text and as a page with a drawing."""

from __future__ import annotations

import html
from typing import Any

from meganeura.graph.node import Graph
from meganeura.rewrite.drawing import svg


def explain_text(report: dict[str, Any]) -> str:
    """Nodes before and after, each rewrite that was used with its count and its reason, the
    kernels, bytes moved, memory, and the time it took."""
    lines = [
        f"computed by {report.get('backend', '?')}: {report.get('device', 'NumPy, node by node')}"
    ]
    lines += _graph_lines(report)
    lines += _rewrite_lines(report.get("rewrites") or {})
    lines += _kernel_lines(report)
    lines.append(_time_line(report))
    return "\n".join(lines)


def _graph_lines(report: dict[str, Any]) -> list[str]:
    before, after = report.get("nodes_before", 0), report.get("nodes_after", 0)
    lines = [f"graph: {before} nodes as written, {after} after optimisation"]
    if "egraph_nodes" in report:
        lines.append(
            f"e-graph: {report['egraph_nodes']} forms of {report['egraph_classes']} values after "
            f"{report['egraph_steps']} steps ({report['egraph_stopped']}); estimated cost "
            f"{report['cost_before']:,} as written, {report['cost_after']:,} as selected"
        )
    return lines


def _rewrite_lines(rewrites: dict[str, int]) -> list[str]:
    if not rewrites:
        return ["rewrites used: none"]
    reasons = _reasons()
    lines = ["rewrites used:"]
    for name, count in sorted(rewrites.items(), key=lambda r: (-r[1], r[0])):
        reason = reasons.get(name, "")
        lines.append(f"  {count:5d}  {name}" + (f": {reason}" if reason else ""))
    return lines


def _reasons() -> dict[str, str]:
    from meganeura.rewrite.rules import ALL

    return {r.name: r.reason for r in ALL} | {"constants computed": "known at compile time"}


def _kernel_lines(report: dict[str, Any]) -> list[str]:
    kernels = report.get("kernels") or []
    if not kernels:
        return []
    lines = [f"kernels: {len(kernels)} dispatches a step"]
    for kernel in kernels:
        size = "x".join(map(str, kernel["workgroups"]))
        scopes = [s.split("/")[-1] for s in kernel.get("scopes", [])]
        where = ", ".join(scopes[:4]) + (", ..." if len(scopes) > 4 else "")
        moved = _bytes(kernel["bytes"])
        lines.append(f"  {kernel['name'][:44]:44s} {size:>12s} {moved:>10s}  {where}".rstrip())
    lines.append(
        f"bytes moved: {_bytes(report.get('moved_bytes', 0))} a step; memory: "
        f"{_bytes(report.get('temporary_bytes', 0))} temporary"
        + (f" (at least {_bytes(report['least_bytes'])})" if "least_bytes" in report else "")
        + f", {_bytes(report.get('state_bytes', 0))} state"
    )
    return lines + _apart_lines(kernels)


def _apart_lines(kernels: list[dict[str, Any]]) -> list[str]:
    """Why kernels that read each other's results are not one: each reason, and where."""
    where: dict[str, list[str]] = {}
    for kernel in kernels:
        for made, read, why in kernel.get("apart", ()):
            where.setdefault(why, []).append(f"{made} > {read}")
    if not where:
        return []
    lines = ["why results go through memory:"]
    for why, pairs in sorted(where.items(), key=lambda item: (-len(item[1]), item[0])):
        examples = ", ".join(list(dict.fromkeys(pairs))[:2])
        lines.append(f"  {len(pairs):5d}  {why}: {examples}" + (", ..." if len(pairs) > 2 else ""))
    return lines


def _time_line(report: dict[str, Any]) -> str:
    line = f"compiled in {report.get('seconds', 0.0):.3f} s"
    if report.get("plan_from_cache"):
        return f"{line}, with a plan from the cache"
    stages = [("optimise_seconds", "optimiser"), ("schedule_seconds", "scheduler"),
              ("pipeline_seconds", "pipelines")]  # fmt: skip
    parts = [f"{what} {report[key]:.3f}" for key, what in stages if key in report]
    return f"{line} ({', '.join(parts)})" if parts else line


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def explain_html(graph: Graph | None, report: dict[str, Any]) -> str:
    """A page of its own: the report, and a drawing of the graph that `report` is about.

    `graph` is the graph as it was written. Where the optimiser has seen it, what it made of it is
    drawn.
    """
    drawing = ""
    if graph is not None:
        heading = "the graph as it was written"
        if "egraph_nodes" in report:
            from meganeura.rewrite import optimise

            graph, heading = optimise(graph)[0], "the graph after optimisation"
        drawing = f"<h2>{heading}</h2>\n{svg(graph)}"
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>meganeura</title></head>
<body style="font-family: sans-serif">
<pre>{html.escape(explain_text(report))}</pre>
{drawing}
</body>
</html>
"""
