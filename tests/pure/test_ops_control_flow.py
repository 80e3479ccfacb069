"""Choice and repetition, by values outside of a trace and by data inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meganeura import ops
from meganeura.execution import run_traced
from meganeura.graph.trace import ConcretizationError
from meganeura.symbolic import KerasTensor
from meganeura.tensor import to_tensor
from meganeura.variable import Variable


def run(function: Any, *arrays: Any) -> list[np.ndarray]:
    return [t.numpy() for t in run_traced(function, [to_tensor(np.asarray(a)) for a in arrays])]


def test_cond_outside_runs_one_branch() -> None:
    ran = []
    result = ops.cond(
        to_tensor(np.float32(1)) > 0.0, lambda: ran.append("yes") or 1, lambda: ran.append("no")
    )
    assert result == 1 and ran == ["yes"]


def test_cond_inside_selects_results_and_assignments() -> None:
    a, b, c = (Variable(np.float32(v), name=n) for n, v in (("a", 1), ("b", 2), ("c", 3)))

    def function(x: Any) -> Any:
        def positive() -> Any:
            a.assign(x * 10.0)
            c.assign_add(1.0)
            return {"y": x + a, "pair": (x, 0)}

        def negative() -> Any:
            b.assign(x * 100.0)
            c.assign_add(10.0)
            return {"y": x - a, "pair": (x, 1)}

        out = ops.cond(x > 0.0, positive, negative)
        return [out["y"], out["pair"][1]]

    assert [float(v) for v in run(function, np.float32(2))] == [22, 0]
    assert [float(v.numpy()) for v in (a, b, c)] == [20, 2, 4]
    assert [float(v) for v in run(function, np.float32(-2))] == [-22, 1]
    assert [float(v.numpy()) for v in (a, b, c)] == [20, -200, 14]


def test_switch() -> None:
    branches = [lambda v: v + 1.0, lambda v: v * 10.0, lambda v: -v]
    for index, expected in ((-5, 4), (0, 4), (1, 30), (2, -3), (99, -3)):
        assert ops.switch(index, branches, 3.0) == expected
        (found,) = run(
            lambda i: [ops.switch(i, branches, ops.convert_to_tensor(3.0))], np.int32(index)
        )
        assert found == expected


def test_loops() -> None:
    assert run(lambda x: [ops.fori_loop(1, 5, lambda i, v: v * i, x)], np.float32(2))[0] == 48
    assert ops.while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, v + i), (0, 0)) == (4, 6)
    assert ops.while_loop(lambda v: v < 100, lambda v: v * 3, 1, maximum_iterations=3) == 27

    def halve(x: Any) -> Any:
        return list(
            ops.while_loop(
                lambda v, n: v > 1.0, lambda v, n: (v / 2.0, n + 1), (x, ops.zeros(())), 10
            )
        )

    assert [float(v) for v in run(halve, np.float32(20))] == [0.625, 5]
    assert [float(v) for v in run(halve, np.float32(0.5))] == [0.5, 0]


def test_scan_and_map() -> None:
    x = np.arange(12, dtype="float32").reshape(4, 3)
    for reverse in (False, True):
        rows = x[::-1] if reverse else x
        sums = rows.cumsum(0)
        carry, found = ops.scan(
            lambda c, r: (c + r, c + r), np.zeros(3, "float32"), x, reverse=reverse
        )
        np.testing.assert_array_equal(carry.numpy(), sums[-1])
        np.testing.assert_array_equal(found.numpy(), sums[::-1] if reverse else sums)
    carry, found = ops.scan(lambda c, _: (c * 2.0, None), 1.0, length=5)
    assert carry == 32 and found is None
    pairs = ops.map(lambda p: {"sum": p[0] + p[1]}, (x, 2 * x))
    np.testing.assert_array_equal(pairs["sum"].numpy(), 3 * x)


def test_what_cannot_be_known_is_refused() -> None:
    with pytest.raises(ValueError, match="run time"):
        run(lambda n: [ops.fori_loop(0, n, lambda i, v: v + 1.0, ops.zeros(()))], np.int32(3))
    with pytest.raises(ValueError, match="maximum_iterations"):
        run(lambda x: [ops.while_loop(lambda v: v > 0.0, lambda v: v - 1.0, x)], np.float32(3))
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\)"):
        run(
            lambda x: [ops.cond(x > 0.0, lambda: ops.zeros(2), lambda: ops.zeros(3))], np.float32(3)
        )
    with pytest.raises(ValueError, match="one truth value"):
        run(lambda x: [ops.cond(x > 0.0, lambda: x, lambda: x)], np.zeros(3, "float32"))
    with pytest.raises(ValueError, match="agree on one number of steps"):
        ops.scan(lambda c, x: (c, x), 0, (np.zeros(3), np.zeros(4)))
    with pytest.raises(ValueError, match="symbolic"):
        ops.cond(KerasTensor(()), lambda: 1, lambda: 2)
    for concrete in (bool, float, int, np.asarray, lambda x: x.numpy()):
        with pytest.raises(ConcretizationError, match=r"shape \(\).*no value yet"):
            run(lambda x, f=concrete: [f(x)], np.float32(3))
