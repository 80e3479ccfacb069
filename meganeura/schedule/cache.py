"""Plans as files (disk_cache.py): found by the graph with its attributes and constants, the device's
limits, and whether it was optimised."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

from meganeura import disk_cache
from meganeura.graph.node import Graph
from meganeura.schedule.plan import Buffer, Kernel, Limits, Plan


def name_of(graph: Graph, limits: Limits, optimize: bool) -> str | None:
    """The name of a graph's plan; None where none are kept."""
    if disk_cache.folder() is None:
        return None
    return disk_cache.key("plan", dataclasses.astuple(limits), optimize, graph.key())


def load(name: str) -> tuple[Plan, dict[str, Any]] | None:
    """The plan of this name and its report, or None."""
    content = disk_cache.load(name)
    try:
        return None if content is None else (from_json(content["plan"]), dict(content["report"]))
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def save(name: str, plan: Plan, report: dict[str, Any]) -> None:
    """Keep a plan; failing to is no error."""
    disk_cache.save(name, {"plan": to_json(plan), "report": report})


def to_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON values. Layers repeat: each text is written once."""
    texts: dict[str, int] = {}
    buffers = [dict(vars(b)) for b in plan.buffers]
    for buffer in buffers:
        if buffer["data"] is not None:
            buffer["data"] = base64.b64encode(bytes(buffer["data"])).decode()
    kernels = [{**vars(k), "wgsl": texts.setdefault(k.wgsl, len(texts))} for k in plan.kernels]
    rest = {n: getattr(plan, n) for n in ("inputs", "states", "outputs", "statistics")}
    return {"texts": list(texts), "buffers": buffers, "kernels": kernels, **rest}


def from_json(content: dict[str, Any]) -> Plan:
    """The plan that `to_json` described. Raises where it is incomplete."""
    texts = content["texts"]
    buffers = []
    for b in content["buffers"]:
        data = None if b["data"] is None else base64.b64decode(b["data"], validate=True)
        buffers.append(Buffer(**{**b, "shape": tuple(b["shape"]), "data": data}))
    kernels = []
    for k in content["kernels"]:
        workgroups = tuple(int(n) for n in k["workgroups"])
        bindings = [(int(b), bool(w)) for b, w in k["bindings"]]
        if len(workgroups) != 3 or any(not 0 <= b < len(buffers) for b, _ in bindings):
            raise ValueError("a damaged plan")
        kernels.append(
            Kernel(
                **{
                    **k,
                    "wgsl": texts[k["wgsl"]],
                    "workgroups": workgroups,
                    "bindings": bindings,
                    "scopes": tuple(k["scopes"]),
                    "apart": tuple(tuple(map(str, a)) for a in k["apart"]),
                }
            )
        )
    lists = {n: [int(i) for i in content[n]] for n in ("inputs", "states", "outputs")}
    return Plan(buffers, kernels, **lists, statistics=dict(content["statistics"]))
