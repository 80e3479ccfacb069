"""float16 on the adapter: every primitive, odd lengths, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import registry_checks as checks

from meganeura import backend as backends
from meganeura import ops
from meganeura.graph.node import Graph, Node
from meganeura.ops.registry import Op, make

pytest.importorskip("wgpu")

HALVED = [op for op in checks.registered() if checks.halved_samples(op)]


@pytest.fixture(scope="module", params=["as it is", "as a GPU"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    for found in checks.wgpu_backend_as(request.param):
        if not found.half:
            pytest.skip("the adapter has no shader-f16")
        yield found


@pytest.mark.parametrize("optimize", [False, True], ids=["unoptimised", "optimised"])
@pytest.mark.parametrize("op", HALVED, ids=[op.name for op in HALVED])
def test_every_primitive(backend: Any, op: Op, optimize: bool) -> None:
    checks.check_half(backend, op, optimize)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 127, 1001])
def test_odd_lengths(backend: Any, length: int) -> None:
    """Writes and reads are whole words; halves are not."""
    x = np.arange(length, dtype=np.float16)
    held = backend.upload(x)
    np.testing.assert_array_equal(backend.download(held, x.shape, "float16"), x)
    node = Node("input", (), {"name": "x"}, x.shape, "float16")
    literal = make("literal", data=(x + 1).tobytes(), shape=x.shape, dtype="float16")
    executable = backend.compile(Graph([node], [make("add", node, literal)]))
    (out,) = executable.run([held], [])
    np.testing.assert_array_equal(backend.download(out, x.shape, "float16"), 2 * x + 1)


def test_every_half_survives(backend: Any) -> None:
    """All 65536 of them, subnormal ones and infinities included, through load and store; and from
    float32, ties and overflow as in NumPy."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    node = Node("input", (), {"name": "x"}, x.shape, "float16")
    executable = backend.compile(Graph([node], [make("flip", node, axes=(0,))]))
    (out,) = executable.run([backend.upload(x)], [])
    found = backend.download(out, x.shape, "float16")
    np.testing.assert_array_equal(found, x[::-1])
    with np.errstate(all="ignore"):
        between = np.nextafter(x, np.float16(np.inf)).astype(np.float32)
        between = (between + x.astype(np.float32)) / 2
        between = np.concatenate([between, [65519.9, 65520.0, -70000.0]]).astype(np.float32)
        expected = between.astype(np.float16)
    node = Node("input", (), {"name": "y"}, between.shape, "float32")
    executable = backend.compile(Graph([node], [make("cast", node, dtype="float16")]))
    (out,) = executable.run([backend.upload(between)], [])
    found = backend.download(out, between.shape, "float16")
    if backend.device.software:  # drivers of GPUs may round towards zero; this one is known
        np.testing.assert_array_equal(found, expected)
    finite = np.isfinite(between)
    np.testing.assert_array_equal(np.isinf(found[finite]), np.isinf(expected[finite]))


def test_the_same_bits_twice(backend: Any) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((70, 70)).astype(np.float16) for _ in range(2))
    nodes = checks.input_nodes([a, b])
    product = make("matmul", *nodes, transpose_a=False, transpose_b=True)
    graph = Graph(nodes, [make("tanh", product)])
    executable = backend.compile(graph)
    handles = [backend.upload(a), backend.upload(b)]
    first, second = (
        backend.download(executable.run(handles, [])[0], (70, 70), "float16") for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_without_the_feature(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """float16 data become float32, and asking for float16 is refused with the adapter's name."""
    monkeypatch.setattr(backend, "half", False)
    monkeypatch.setattr(backends, "_current", backend)
    assert ops.convert_to_tensor(np.ones(3, np.float16)).dtype == "float32"
    assert ops.add(np.ones(3, np.float16), 1).dtype == "float32"
    with pytest.raises(ValueError, match=r"does not offer shader-f16.*use float32"):
        ops.cast(np.ones(3, np.float32), "float16")
