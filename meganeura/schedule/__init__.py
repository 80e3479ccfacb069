"""From a graph to a plan: kernels, their order, and their memory."""

from __future__ import annotations

import time

from meganeura.graph.node import Graph
from meganeura.schedule.attention import with_attention
from meganeura.schedule.grouping import Grouping
from meganeura.schedule.memory import assemble
from meganeura.schedule.order import ordered
from meganeura.schedule.plan import Buffer as Buffer
from meganeura.schedule.plan import Kernel as Kernel
from meganeura.schedule.plan import Limits as Limits
from meganeura.schedule.plan import Plan as Plan
from meganeura.schedule.prepare import prepared


def schedule(graph: Graph, limits: Limits) -> Plan:
    """The plan that computes `graph` on a device of these limits."""
    from meganeura.schedule import templates

    templates.load()
    start = time.perf_counter()
    ready = with_attention(prepared(graph, limits), limits)
    drafts = Grouping(ready, limits).finished()
    plan = assemble(ready, ordered(ready, drafts, limits), limits)
    plan.statistics["schedule_seconds"] = time.perf_counter() - start
    return plan
