"""The optimisation report as text, and as a page with a drawing of the graph."""

from __future__ import annotations

import html
from typing import Any

from meganeura.graph.node import Graph


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def explain_text(report: dict[str, Any]) -> str:
    """What the compiler did: nodes, rewrites, kernels, bytes, memory, time."""
    lines = [
        f"computed by {report.get('backend', '?')}: {report.get('device', 'NumPy, node by node')}"
    ]
    lines.append(
        f"graph: {report['nodes_before']} nodes as written, {report['nodes_after']} after optimisation"
    )
    if "egraph_nodes" in report:
        lines.append(
            f"e-graph: {report['egraph_nodes']} e-nodes in {report['egraph_classes']} classes after "
            f"{report['egraph_steps']} steps ({report['egraph_stopped']}); cost "
            f"{report['cost_before']:,.0f} -> {report['cost_after']:,.0f}"
        )
    rewrites = report.get("rewrites") or {}
    if rewrites:
        lines.append("rewrites that matched:")
        lines += [
            f"  {count:5d}  {name}"
            for name, count in sorted(rewrites.items(), key=lambda r: (-r[1], r[0]))
        ]
    kernels = report.get("kernels") or []
    if kernels:
        lines.append(f"kernels: {len(kernels)} dispatches a step")
        for kernel in kernels:
            size = "x".join(map(str, kernel["workgroups"]))
            scopes = ", ".join(s.split("/")[-1] for s in kernel.get("scopes", [])[:4])
            lines.append(
                f"  {kernel['name'][:44]:44s} {size:>12s} {_bytes(kernel['bytes']):>10s}  {scopes}"
            )
        lines.append(
            f"bytes moved: {_bytes(report.get('moved_bytes', 0))} a step; memory: "
            f"{_bytes(report.get('temporary_bytes', 0))} temporary, {_bytes(report.get('state_bytes', 0))} state"
        )
    lines.append(f"compiled in {report.get('seconds', 0.0):.3f} s")
    return "\n".join(lines)


_COLOURS = {
    "leaf": "#dde7f3",
    "template": "#f6d9c4",
    "reduction": "#d9ead3",
    "pointwise": "#ffffff",
}


def explain_html(graph: Graph | None, report: dict[str, Any]) -> str:
    """A page of its own with the report and a drawing of the optimised graph in layers."""
    drawing = "" if graph is None else _svg(graph)
    text = html.escape(explain_text(report))
    return f"""<!doctype html>
<html><head><meta charset="utf-8"><title>meganeura</title></head>
<body style="font-family: sans-serif"><pre>{text}</pre>
{drawing}
</body></html>
"""


def _svg(graph: Graph) -> str:
    from meganeura.ops.registry import REGISTRY

    order = graph.nodes()
    depth: dict[int, int] = {}
    rows: dict[int, int] = {}
    place: dict[int, tuple[int, int]] = {}
    for node in order:
        d = 1 + max((depth[id(x)] for x in node.inputs), default=-1)
        depth[id(node)] = d
        place[id(node)] = (rows.get(d, 0), d)
        rows[d] = rows.get(d, 0) + 1
    width, height = 150, 56
    parts = []
    for node in order:
        x, y = (v * s + 10 for v, s in zip(place[id(node)], (width, height), strict=True))
        for operand in node.inputs:
            ox, oy = (v * s + 10 for v, s in zip(place[id(operand)], (width, height), strict=True))
            parts.append(
                f'<line x1="{ox + 65}" y1="{oy + 34}" x2="{x + 65}" y2="{y}" stroke="#999"/>'
            )
    for node in order:
        x, y = (v * s + 10 for v, s in zip(place[id(node)], (width, height), strict=True))
        colour = _COLOURS.get(REGISTRY[node.op].kind, "#eeeeee")
        label = html.escape(node.op[:20])
        shape = html.escape(f"{node.dtype} {list(node.shape)}"[:24])
        title = html.escape(f"{node.op} {node.scope}")
        parts.append(
            f'<g><title>{title}</title><rect x="{x}" y="{y}" width="130" height="34" fill="{colour}" stroke="#555"/>'
            f'<text x="{x + 65}" y="{y + 14}" font-size="11" text-anchor="middle">{label}</text>'
            f'<text x="{x + 65}" y="{y + 28}" font-size="9" text-anchor="middle" fill="#555">{shape}</text></g>'
        )
    w = max(rows.values(), default=1) * width + 20
    h = (max(rows, default=0) + 1) * height + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}">{"".join(parts)}</svg>'
    )
