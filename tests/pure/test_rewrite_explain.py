"""The report as text and as a page."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from rewrite_checks import leaf
from rewrite_models import convnet, mlp

from meganeura.graph.node import Graph
from meganeura.ops.registry import make, scope
from meganeura.rewrite import optimise
from meganeura.rewrite.drawing import svg
from meganeura.rewrite.explain import explain_html, explain_text


def boxes(text: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}g")


def test_text_names_every_rewrite_with_its_count() -> None:
    found, report = optimise(mlp(depth=4))
    text = explain_text({**report, "backend": "wgpu", "device": "a device", "seconds": 1.5})
    assert "computed by wgpu: a device" in text
    assert f"{report['nodes_before']} nodes as written, {len(found.nodes())} after" in text
    assert "saturated" in text and "compiled in 1.500 s (optimiser" in text
    assert "    3  product and relu: the activation is applied before the result is stored" in text
    for name, count in report["rewrites"].items():
        assert f"{count:5d}  {name}" in text


def test_text_lists_kernels() -> None:
    kernel = {
        "name": "matmul",
        "workgroups": (4, 1, 1),
        "bytes": 3 << 20,
        "scopes": ["m/dense", "m/out"],
    }
    report = {
        "nodes_before": 9, "nodes_after": 4, "kernels": [kernel], "moved_bytes": 5 << 30,
        "temporary_bytes": 100, "state_bytes": 2048,
    }  # fmt: skip
    text = explain_text(report)
    assert "kernels: 1 dispatches a step" in text
    assert "4x1x1    3.0 MiB  dense, out" in text
    assert "bytes moved: 5.0 GiB a step; memory: 100 B temporary, 2.0 KiB state" in text
    assert "rewrites used: none" in text


def test_text_of_a_cached_plan() -> None:
    assert "with a plan from the cache" in explain_text({"seconds": 0.1, "plan_from_cache": True})


def test_drawing_has_every_node_in_a_place_of_its_own() -> None:
    found, _ = optimise(convnet())
    drawn = boxes(svg(found))
    assert len(drawn) == len(found.nodes())
    corners = {(r.get("x"), r.get("y")) for g in drawn for r in g if r.tag.endswith("rect")}
    assert len(corners) == len(drawn)


def test_nodes_stand_below_their_inputs() -> None:
    x = leaf((2,), name="first")
    y = make("exp", x)
    z = make("add", make("negative", y), leaf((2,), name="second"))
    drawn = {g[2].text: int(g[1].get("y", "0")) for g in boxes(svg(Graph([x], [z])))}
    assert drawn["first"] < drawn["exp"] < drawn["negative"] < drawn["add"]
    assert drawn["second"] == drawn["negative"], "right above what reads it"


def test_text_is_escaped() -> None:
    x = leaf((2,), name="<script>&")
    with scope("a<b"):
        y = make("exp", x)
    page = explain_html(Graph([x], [y]), {"device": "<i>", "nodes_before": 2, "nodes_after": 2})
    assert "<script>" not in page and "&lt;script&gt;&amp;" in page
    assert "a&lt;b" in page and "&lt;i&gt;" in page
    assert "the graph as it was written" in page


def test_page_draws_what_is_run() -> None:
    graph = mlp()
    found, report = optimise(graph)
    page = explain_html(graph, report)
    assert "the graph after optimisation" in page
    assert page.count("<rect") == len(found.nodes()) < len(graph.nodes())
    assert "fused_matmul relu" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_page_without_a_graph() -> None:
    assert "<svg" not in explain_html(None, {})


def test_an_empty_graph_can_be_drawn() -> None:
    assert boxes(svg(Graph([], []))) == []
