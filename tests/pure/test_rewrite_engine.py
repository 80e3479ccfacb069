"""The engine around the rules: loading, limits, threads, forks, determinism, and what goes wrong."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from rewrite_checks import evaluate, leaf
from rewrite_models import convnet, mlp, normalized_inference, residual

from meganeura.graph.node import Graph
from meganeura.ops.registry import make
from meganeura.rewrite import Limits, optimise
from meganeura.rewrite.decode import UnsoundRule
from meganeura.rewrite.encode import Encoded, Interner
from meganeura.rewrite.engine import Engine, current_engine
from meganeura.rewrite.rules import ALL
from meganeura.rewrite.rules.rule import p, rule, terms

ROOT = Path(__file__).parents[2]


def run(code: str, **environment: str) -> str:
    """Python code in a process of its own; what it printed."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "MEGANEURA_BACKEND": "numpy", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


# --- one engine for many graphs ----------------------------------------------------------------


def test_an_engine_forgets_each_graph() -> None:
    """The same results whatever came before, from a fresh engine and a used one."""
    graphs = [mlp(), convnet(), residual(), normalized_inference(), mlp(depth=5)]
    used = Engine()
    first = [optimise(g, using=used) for g in graphs]
    for graph, (found, report) in list(zip(graphs, first, strict=True))[::-1]:
        again, other = optimise(graph, using=used)
        fresh, third = optimise(graph, using=Engine())
        assert again.key() == found.key() == fresh.key()
        assert other["egraph_nodes"] == report["egraph_nodes"] == third["egraph_nodes"]
        assert other["rewrites"] == report["rewrites"] == third["rewrites"]


def test_results_do_not_depend_on_hashing() -> None:
    code = (
        "import rewrite_models as m, hashlib\n"
        "from meganeura.rewrite import optimise\n"
        "for name in sorted(m.MODELS):\n"
        "    graph, report = optimise(m.MODELS[name]())\n"
        "    text = repr((graph.key(), report['rewrites'], report['egraph_nodes']))\n"
        "    print(name, hashlib.sha256(text.encode()).hexdigest())\n"
    )
    found = {run(code, PYTHONHASHSEED=seed) for seed in ("0", "1", "12345")}
    assert len(found) == 1


def test_optimising_again_changes_nothing_more() -> None:
    for graph in (mlp(), convnet(), normalized_inference(batch=64)):
        once, report = optimise(graph)
        twice, second = optimise(once)
        assert second["cost_after"] == second["cost_before"] == report["cost_after"]
        assert twice.key() == once.key()


@pytest.mark.parametrize(
    "limits", [Limits(steps=1), Limits(steps=2), Limits(nodes=10), Limits(seconds=0.0)]
)
def test_limits(limits: Limits) -> None:
    """A search that was cut short still gives a graph that is right."""
    graph = residual()
    found, report = optimise(graph, limits)
    assert report["egraph_stopped"].startswith("limit")
    assert report["egraph_steps"] <= max(limits.steps, 1)
    assert report["cost_after"] <= report["cost_before"]
    random = np.random.default_rng(0)
    inputs = [random.uniform(0, 1, n.shape) for n in graph.inputs]
    states = [random.uniform(0, 1, n.shape) for n in graph.states]
    for a, b in zip(evaluate(found, inputs, states), evaluate(graph, inputs, states), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_steps_are_few_and_time_is_short() -> None:
    """A bound far above what it takes, so that a rule that grows without end is noticed."""
    graph = mlp(depth=130)
    optimise(graph)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        _, report = optimise(graph)
        times.append(time.perf_counter() - start)
    assert report["egraph_steps"] < 12
    assert report["egraph_nodes"] < 2 * report["nodes_before"]
    assert min(times) / report["nodes_before"] < 300e-6


# --- tables ------------------------------------------------------------------------------------


def test_interning_tells_equal_values_of_different_kinds_apart() -> None:
    interner = Interner()
    values = [1, 1.0, True, "1", (1,), (1.0,), b"1", None, 0.0, -0.0, float("nan"), ()]
    numbers = [interner[v] for v in values]
    assert len(set(numbers)) == len(values)
    assert numbers == [interner[v] for v in values]
    assert interner[()] == 0
    assert [repr(interner.values[n]) for n in numbers] == [repr(v) for v in values]


def test_strings_with_tabs_do_not_break_rows() -> None:
    """Names of inputs and states are not loaded; whatever else is text is interned."""
    x = leaf((2,), name="a\tb\nc")
    found, _ = optimise(Graph([x], [make("exp", make("negative", x))]))
    assert found.inputs[0] is x


def test_tables_in_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mlp()
    in_memory, _ = optimise(graph)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    on_disk, _ = optimise(graph)
    assert on_disk.key() == in_memory.key()


def test_terms_of_a_pattern() -> None:
    text = p("add", p("exp", "x"), p("matmul", p("exp", "x"), "y", columns=("ta", "(- 1 tb)")))
    assert terms(text)[0] == p("exp", "x")
    assert terms(text)[-1] == text
    assert len(terms(text)) == 3


def test_opaque_nodes_are_leaves() -> None:
    x = leaf((2,))
    inner = make("exp", make("negative", x))
    encoded = Encoded(Graph([x], [make("log", inner)]), opaque=[inner])
    assert [n.op for n in encoded.order] == ["exp", "log"]
    assert encoded.rows[0] is None


# --- what goes wrong ---------------------------------------------------------------------------


def planted(rhs: str, **changes: object) -> Engine:
    bad = rule("planted", "is wrong", p("exp", "x"), rhs, **changes)  # type: ignore[arg-type]
    return Engine([*ALL, bad])


def test_a_rule_that_changes_a_shape_is_an_error() -> None:
    x = leaf((2, 3))
    graph = Graph([x], [make("negative", make("exp", make("sum", x, axes=(0,), keepdims=False)))])
    bad = rule("planted", "is wrong", p("exp", p("sum", "x", rest="a")), "x")
    engine = Engine([bad])
    with pytest.raises(RuntimeError, match="merge"):
        optimise(graph, using=engine)
    # The engine is as good as before.
    x = leaf((2, 3))
    assert optimise(Graph([x], [make("tanh", make("exp", x))]), using=engine)[1]["nodes_after"] == 3


def test_a_rule_that_makes_nonsense_is_an_error() -> None:
    x = leaf((2, 3))
    graph = Graph([x], [make("negative", make("exp", x))])
    product = p("matmul", "x", "x", columns=("0", "0"))
    with pytest.raises(UnsoundRule, match="matmul"):
        optimise(graph, using=planted(product))


def test_a_rule_that_changes_a_dtype_is_an_error() -> None:
    x = leaf((2, 3))
    graph = Graph([x], [make("logical_not", make("isnan", x))])
    bad = rule("planted", "is wrong", p("isnan", "x"), "x")
    with pytest.raises(RuntimeError):
        optimise(graph, using=Engine([bad]))


def test_errors_of_the_engine_are_ordinary_ones() -> None:
    with pytest.raises(RuntimeError, match="egglog"):
        Engine([dataclasses.replace(ALL[0], lhs=("(Op_exp_1 x",))])


# --- threads and processes ---------------------------------------------------------------------


def test_threads_have_engines_of_their_own() -> None:
    graph = mlp()
    expected = optimise(graph)[0].key()
    found: list[object] = []
    engines: list[object] = []

    def work() -> None:
        for _ in range(3):
            found.append(optimise(graph)[0].key())
        engines.append(id(current_engine()))

    for _ in range(2):  # the second round after the first one's engines are gone
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(found) == 18 and all(key == expected for key in found)
    assert id(current_engine()) not in engines


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_can_optimise() -> None:
    code = (
        "import os, sys, rewrite_models as m\n"
        "from meganeura.rewrite import optimise\n"
        "graph = m.mlp()\n"
        "expected = optimise(graph)[0].key()\n"
        "child = os.fork()\n"
        "same = all(optimise(graph)[0].key() == expected for _ in range(2))\n"
        "if child == 0:\n"
        "    sys.exit(0 if same else 1)\n"
        "print(same, os.waitpid(child, 0)[1])\n"
    )
    assert run(code).split() == ["True", "0"]


def test_the_plain_import_serves_where_the_direct_one_fails() -> None:
    code = (
        "import importlib.machinery as m, sys\n"
        "original = m.PathFinder.find_spec\n"
        "m.PathFinder.find_spec = classmethod(lambda c, name, *a:"
        " None if name == 'egglog.bindings' and 'egglog' not in sys.modules else original(name, *a))\n"
        "import rewrite_models\n"
        "from meganeura.rewrite import optimise\n"
        "optimise(rewrite_models.mlp())\n"
        "print('egglog' in sys.modules)\n"
    )
    assert run(code).strip() == "True"


def test_the_engine_is_loaded_without_the_rest_of_its_package() -> None:
    code = (
        "import sys, meganeura\n"
        "print('egglog.bindings' in sys.modules)\n"
        "import rewrite_models\n"
        "from meganeura.rewrite import optimise\n"
        "optimise(rewrite_models.mlp())\n"
        "print('egglog.bindings' in sys.modules, 'egglog' in sys.modules)\n"
        "import egglog\n"
        "print(egglog.i64(1) is not None)\n"
    )
    assert run(code).split() == ["False", "True", "False", "True"]
