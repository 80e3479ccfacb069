"""What earlier processes found is found again, and whatever is wrong with a file is as if there were none."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meganeura import disk_cache, ops
from meganeura.graph.autodiff import gradients
from meganeura.graph.node import Graph, Node
from meganeura.graph.trace import Trace
from meganeura.ops.registry import make
from meganeura.recomputation import checkpoint
from meganeura.rewrite import remembered, stable
from meganeura.schedule import Limits, cache, schedule


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setenv("MEGANEURA_CACHE", str(tmp_path))
    return tmp_path


def softmax_loss(rows: int = 3) -> tuple[Node, Node]:
    """A loss that is not stable as written, and its input."""
    with Trace() as trace:
        x = trace.input((rows, 4), "float32", "x")
        e = ops.exp(x)
        return -ops.sum(ops.log(e / ops.sum(e, axis=-1, keepdims=True))), x


def searched(monkeypatch: Any) -> list[int]:
    """Counts the searches of the e-graph from here on."""
    found: list[int] = []
    search = stable._found
    monkeypatch.setattr(stable, "_found", lambda *a: (found.append(1), search(*a))[1])
    return found


def key_of(loss: Node, x: Node) -> Any:
    return Graph([x], [loss, *gradients(loss, [x])]).key()


def test_a_stable_form_is_searched_for_once(folder: Path, monkeypatch: Any) -> None:
    searches = searched(monkeypatch)
    keys = []
    for _ in range(2):
        loss, x = softmax_loss()
        (made,) = stable.stable([loss], keep=[x])
        assert made is not loss
        keys.append(key_of(made, x))
    assert keys[0] == keys[1]
    assert len(searches) == 1
    loss, x = softmax_loss(5)
    stable.stable([loss], keep=[x])
    assert len(searches) == 2  # another shape is another graph


def test_what_stays_as_it_was_is_the_same_node(folder: Path, monkeypatch: Any) -> None:
    searches = searched(monkeypatch)
    for _ in range(2):
        with Trace() as trace:
            x = trace.input((3,), "float32")
            y = ops.sum(ops.exp(x) * 2.0)
        assert stable.stable([y], keep=[x])[0] is y
    assert len(searches) == 1


@pytest.mark.parametrize("damage", ["byte", "cut", "empty", "text", "folder"])
def test_damage_is_as_if_there_were_no_file(folder: Path, monkeypatch: Any, damage: str) -> None:
    loss, x = softmax_loss()
    wanted = key_of(stable.stable([loss], keep=[x])[0], x)
    (path,) = folder.glob("*.json")
    data = path.read_bytes()
    if damage == "byte":  # what is still JSON, and another graph
        assert b'"sum"' in data
        path.write_bytes(data.replace(b'"sum"', b'"max"'))
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes({"cut": data[:90], "empty": b"", "text": b"\xff\n[]"}[damage])
    searches = searched(monkeypatch)
    loss, x = softmax_loss()
    assert key_of(stable.stable([loss], keep=[x])[0], x) == wanted
    assert len(searches) == 1


def test_a_description_that_does_not_fit_is_refused() -> None:
    loss, x = softmax_loss()
    for nodes, roots in (
        ([["no_such_operation", [0], {}, 0, -1]], [1]),
        ([["exp", [99], {}, 0, -1]], [1]),
        ([["exp", [0], {"wrong": 1}, 0, -1]], [1]),
        ([["exp", [0], {}, 0, -1]], [1]),  # a root of another shape
        ([], [7]),
        ([], []),
    ):
        assert remembered._restored({"nodes": nodes, "roots": roots}, [x], [loss]) is None
    assert remembered._restored({}, [x], [loss]) is None


def test_every_kind_of_attribute_comes_back() -> None:
    values = (1, 1.0, True, "text", None, b"\x00\xff", (2, (3.5, ()), "x"), math.inf, -0.0)
    for value in values:
        again = remembered._value(json.loads(json.dumps(remembered._plain(value))))
        assert repr(again) == repr(value)
    assert math.isnan(remembered._value(json.loads(json.dumps(math.nan))))


def test_regions_are_those_of_the_graph_at_hand(folder: Path) -> None:
    """The same formula inside and outside of checkpoint: gradients compute again what is inside."""

    def loss_of(x: Any) -> Any:
        e = ops.exp(x)
        return -ops.sum(ops.log(e / ops.sum(e, axis=-1, keepdims=True)))

    def recomputed(function: Any) -> int:
        with Trace() as trace:
            x = trace.input((3, 4), "float32")
            (made,) = stable.stable([function(x) * 2.0], keep=[x])
            (slope,) = gradients(made, [x])
        return sum(n.op == "recompute" for n in Graph([x], [slope]).nodes())

    plain, marked = recomputed(loss_of), recomputed(checkpoint(loss_of))
    assert plain == 0 < marked
    assert (recomputed(loss_of), recomputed(checkpoint(loss_of))) == (plain, marked)


def test_another_version_of_the_compiler_finds_nothing(folder: Path, monkeypatch: Any) -> None:
    name = disk_cache.key("graph")
    disk_cache.save(name, [1])
    assert disk_cache.load(disk_cache.key("graph")) == [1]
    monkeypatch.setattr(disk_cache, "source_digest", lambda: "another")
    assert disk_cache.load(disk_cache.key("graph")) is None


def test_the_digest_sees_rules_kernels_and_shaders(monkeypatch: Any) -> None:
    read: list[str] = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda p: (read.append(p.as_posix()), original(p))[1])
    disk_cache.source_digest.__wrapped__()
    for part in ("rewrite/rules/losses.py", "schedule/merge.py", "ops/matmul.py", "graph/node.py",
                 "shaders/product_block.wgsl"):  # fmt: skip
        assert any(p.endswith(part) for p in read), part


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MEGANEURA_CACHE", str(tmp_path / "file"))
    disk_cache.save("name", [1])
    assert disk_cache.load("name") is None


def test_a_plan_comes_back_as_it_was(folder: Path) -> None:
    with Trace() as trace:
        x = trace.input((8, 4), "float32")
        table = make("literal", data=np.ones(4, "float32").tobytes(), shape=(4,), dtype="float32")
        graph = trace.graph([ops.softmax(x * table), ops.sum(x)])
    plan = schedule(graph, Limits())
    name = cache.name_of(graph, Limits(), True)
    assert name is not None
    cache.save(name, plan, {"nodes_before": 3})
    again = cache.load(name)
    assert again is not None
    assert again[1] == {"nodes_before": 3}
    for part in ("buffers", "kernels", "inputs", "states", "outputs"):
        assert getattr(again[0], part) == getattr(plan, part)
    assert any(b.data for b in again[0].buffers)
    assert cache.name_of(graph, Limits(software=True), True) != name


def test_the_folder_stays_within_its_size(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(disk_cache, "LARGEST_FOLDER", 600)
    for i in range(5):
        disk_cache.save(f"n{i}", ["x" * 100])
        os.utime(folder / f"n{i}.json", (i, i))
    disk_cache._trim(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["n2.json", "n3.json", "n4.json"]


def test_a_second_process_needs_no_egglog(tmp_path: Path) -> None:
    """The whole first step of training, from layers to plan, and the same plan."""
    bench = Path(__file__).parents[2] / "bench"
    environment = {**os.environ, "MEGANEURA_CACHE": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(bench.parent), str(bench)])
    found = []
    for _ in range(2):
        command = [sys.executable, str(bench / "compile_time.py"), "--first-step", "mlp_b32_sgd"]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert [f["cached"] for f in found] == [False, True]
    assert [f["egglog"] for f in found] == [True, False]
