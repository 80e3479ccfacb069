"""The WGSL of every pointwise primitive, run on the adapter, against its NumPy reference.

No scheduler in between: one kernel evaluates `Op.wgsl` for each element. The values cover the
ordinary range densely and the special ones all: zeros, +-1000, infinities, NaN.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from meganeura import ops as ops
from meganeura.graph.node import Node
from meganeura.ops.pointwise import WGSL_TYPES
from meganeura.ops.registry import REGISTRY, make
from meganeura.ops.wgsl_helpers import HELPERS

wgpu = pytest.importorskip("wgpu")

INFINITY, NAN = float("inf"), float("nan")
SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, -2.5, 10, -10, 88, -88, 1000, -1000, 3e38, -3e38, 1e-30,
     INFINITY, -INFINITY, NAN], "float32"
)  # fmt: skip
STORED = {"float32": "f32", "int32": "i32", "uint32": "u32", "uint8": "u32", "bool": "u32"}


def closure(text: str) -> str:
    """The helpers that a text calls, and what these call."""
    found: dict[str, str] = {}
    waiting = re.findall(r"\bmg_\w+", text)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = HELPERS[name]
            waiting += re.findall(r"\bmg_\w+", HELPERS[name])
    return "\n".join(found.values())


def evaluate(name: str, arrays: Sequence[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    """`name` on equally long vectors, by the WGSL of its record."""
    from wgpu.utils.compute import compute_with_buffers

    nodes = [Node("input", (), {"name": ""}, a.shape, str(a.dtype)) for a in arrays]
    node = make(name, *nodes, **attributes)
    operands = [f"v{i}" for i in range(len(nodes))]
    wgsl = REGISTRY[name].wgsl
    text = wgsl(operands, [n.dtype for n in nodes], node) if callable(wgsl) else wgsl
    text = text if callable(wgsl) else text.format(*operands)
    lines = []
    for i, n in enumerate(nodes):
        lines.append(f"@group(0) @binding({i}) var<storage, read> b{i}: array<{STORED[n.dtype]}>;")
    out = STORED[node.dtype]
    lines.append(f"@group(0) @binding(9) var<storage, read_write> out: array<{out}>;")
    lines.append(closure(text))
    lines.append(
        "@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {"
    )
    lines.append(f"if (id.x >= {node.size}u) {{ return; }}")
    for i, n in enumerate(nodes):
        value = f"b{i}[id.x]"
        lines.append(f"let v{i} = {value + ' != 0u' if n.dtype == 'bool' else value};")
    lines.append(f"let r: {WGSL_TYPES[node.dtype]} = {text};")
    lines.append(f"out[id.x] = {'u32(r)' if node.dtype == 'bool' else 'r'};\n}}")
    wide = {"uint8": "uint32", "bool": "uint32"}
    sent = {
        i: np.ascontiguousarray(a, wide.get(str(a.dtype), a.dtype)) for i, a in enumerate(arrays)
    }
    letter = {"f32": "f", "i32": "i", "u32": "I"}[out]
    found = compute_with_buffers(
        sent, {9: (node.size, letter)}, "\n".join(lines), n=-(-node.size // 64)
    )
    return np.array(found[9]).astype(node.dtype)


def expected(name: str, arrays: Sequence[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    """The reference in double precision, rounded to single."""
    wide = [a.astype("float64") if a.dtype == np.float32 else a for a in arrays]
    with np.errstate(all="ignore"):
        value = np.asarray(REGISTRY[name].reference(*wide, **attributes))
        return value.astype("float32") if value.dtype == np.float64 else value


def difference(found: np.ndarray, wanted: np.ndarray, absolute: float, relative: float) -> str:
    """ "" if equal within absolute + relative |wanted|, else the first pair that is not."""
    if found.dtype.kind != "f":
        wrong = found != wanted
    else:
        with np.errstate(invalid="ignore"):
            error = np.abs(found.astype("float64") - wanted)
            close = np.isfinite(wanted) & (error <= absolute + relative * np.abs(wanted))
        tiny = np.abs(wanted) < 1.2e-38  # devices may flush subnormal numbers
        wrong = ~(
            close | (found == wanted) | (np.isnan(found) & np.isnan(wanted)) | tiny & (found == 0)
        )
    if not wrong.any():
        return ""
    at = int(np.argmax(wrong))
    return f"{wrong.sum()} of {wrong.size}, first at {at}: {found[at]!r}, expected {wanted[at]!r}"


#: name: (dense range, absolute, relative tolerance, attributes)
UNARY: dict[str, tuple[tuple[float, float], float, float, dict[str, Any]]] = {
    "negative": ((-9, 9), 0, 0, {}),
    "abs": ((-9, 9), 0, 0, {}),
    "sign": ((-9, 9), 0, 0, {}),
    "sqrt": ((0, 1e6), 0, 1e-6, {}),
    "rsqrt": ((1e-6, 1e6), 0, 1e-6, {}),
    "exp": ((-80, 80), 0, 1e-5, {}),
    "expm1": ((-10, 10), 0, 2e-6, {}),
    "log": ((1e-6, 1e4), 5e-7, 1e-6, {}),
    "log1p": ((-0.99, 9), 0, 1e-6, {}),
    "sin": ((-3e5, 3e5), 1e-7, 5e-7, {}),
    "cos": ((-3e5, 3e5), 1e-7, 5e-7, {}),
    "tan": ((-1e4, 1e4), 1e-7, 2e-6, {}),
    "sinh": ((-50, 50), 0, 1e-5, {}),
    "cosh": ((-50, 50), 0, 1e-5, {}),
    "tanh": ((-20, 20), 0, 1e-6, {}),
    "arcsin": ((-1, 1), 0, 1e-6, {}),
    "arccos": ((-1, 1), 5e-7, 1e-6, {}),
    "arctan": ((-99, 99), 0, 1e-6, {}),
    "sigmoid": ((-60, 60), 0, 1e-5, {}),
    "erf": ((-5, 5), 2e-7, 0, {}),
    "silu": ((-60, 60), 1e-35, 1e-5, {}),
    "softplus": ((-60, 60), 0, 1e-5, {}),
    "floor": ((-99, 99), 0, 0, {}),
    "ceil": ((-99, 99), 0, 0, {}),
    "round": ((-99, 99), 0, 0, {}),
    "relu": ((-9, 9), 0, 0, {}),
    "isnan": ((-9, 9), 0, 0, {}),
    "isfinite": ((-9, 9), 0, 0, {}),
    "stop_gradient": ((-9, 9), 0, 0, {}),
    "gelu": ((-9, 9), 2e-6, 1e-6, {"approximate": False}),
}


@pytest.mark.parametrize("name", UNARY)
def test_one_input(name: str) -> None:
    (low, high), absolute, relative, attributes = UNARY[name]
    random = np.random.default_rng(1)
    x = np.concatenate([
        SPECIAL, np.linspace(low, high, 3000), random.uniform(low, high, 3000),
        random.uniform(-2, 2, 2000) if low < 0 else random.uniform(low, 2, 2000), [0.5, 1.5, 2.5],
    ]).astype("float32")  # fmt: skip
    found = evaluate(name, [x], attributes)
    wrong = difference(found, expected(name, [x], attributes), absolute, relative)
    assert not wrong, f"{name}: {wrong} (x = {x[int(wrong.split('at ')[1].split(':')[0])]!r})"


def test_gelu_by_tanh() -> None:
    x = np.concatenate([SPECIAL, np.linspace(-9, 9, 2000)]).astype("float32")
    how = {"approximate": True}
    assert not difference(evaluate("gelu", [x], how), expected("gelu", [x], how), 2e-6, 1e-6)


def test_sine_of_enormous_angles() -> None:
    """Payne and Hanek's reduction: every exponent, and the float32 nearest a multiple of pi/2."""
    bits = np.random.default_rng(3).integers(0x46000000, 0x7F800000, 20000, dtype=np.uint32)
    x = np.concatenate([bits.view("float32"), np.array([16367173 * 2.0**72], "float32")])
    for name in ("sin", "cos"):
        # NumPy's double sine is exact for these: a float32 is a double
        assert not difference(evaluate(name, [x], {}), expected(name, [x], {}), 1e-7, 5e-7)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


#: name: (absolute, relative tolerance, values the special pairs leave out)
BINARY: dict[str, tuple[float, float]] = {
    "add": (0, 0), "subtract": (0, 0), "multiply": (0, 0), "divide": (0, 5e-7),
    "floor_divide": (0, 5e-7), "mod": (0, 1e-6), "power": (0, 1e-5), "maximum": (0, 0),
    "minimum": (0, 0), "arctan2": (0, 1e-6), "equal": (0, 0), "not_equal": (0, 0), "less": (0, 0),
    "less_equal": (0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_two_inputs(name: str) -> None:
    absolute, relative = BINARY[name]
    random = np.random.default_rng(2)
    # Dividing by what is nearly the largest number is left to the device by WGSL's rules.
    special = (
        SPECIAL[np.abs(SPECIAL) != np.float32(3e38)]
        if name in ("divide", "floor_divide")
        else SPECIAL
    )
    small = np.arange(-12, 13).astype("float32")
    a = [
        pairs(special)[0],
        pairs(small)[0],
        random.uniform(-9, 9, 2000),
        random.uniform(0, 9, 2000),
    ]
    b = [
        pairs(special)[1],
        pairs(small)[1],
        random.uniform(-9, 9, 2000),
        random.uniform(-9, 9, 2000),
    ]
    x, y = (np.concatenate(v).astype("float32") for v in (a, b))
    found, wanted = evaluate(name, [x, y], {}), expected(name, [x, y], {})
    wrong = difference(found, wanted, absolute, relative)
    assert not wrong, f"{name}: {wrong}" + (
        f" for {x[int(wrong.split('at ')[1].split(':')[0])]!r}, "
        f"{y[int(wrong.split('at ')[1].split(':')[0])]!r}"
    )


INTEGERS = (
    "add subtract multiply floor_divide mod power maximum minimum equal not_equal less less_equal "
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift"
).split()


@pytest.mark.parametrize("dtype", ["int32", "uint32", "uint8"])
@pytest.mark.parametrize("name", INTEGERS)
def test_whole_numbers(name: str, dtype: str) -> None:
    """Division by zero gives 0, the sign of a remainder is the divisor's, and all else wraps."""
    info = np.iinfo(dtype)
    edge = [0, 1, 2, 3, 7, 31, info.max, info.max - 1, info.min]
    values = np.array(edge + ([-1, -2, -7] if info.min else [200]), dtype)
    x, y = pairs(values)
    if "shift" in name:
        x, y = pairs(np.array([0, 1, 3, 7], dtype))
        x = x * np.array(5, dtype)
    if name == "floor_divide" or name == "mod":  # the one quotient that does not fit wraps
        keep = ~((x == info.min) & (y == -1)) if info.min else np.ones(x.shape, bool)
        x, y = x[keep], y[keep]
    with np.errstate(all="ignore"):
        wanted = REGISTRY[name].reference(x, y)
    found = evaluate(name, [x, y], {})
    at = int(np.argmax(found != wanted))
    assert (found == wanted).all(), f"{name}({x[at]}, {y[at]}) = {found[at]}, expected {wanted[at]}"


def test_integers_of_one_input() -> None:
    x = np.array([0, 1, -1, 7, -7, 2**31 - 1, -(2**31) + 1], "int32")
    for name in ("negative", "abs", "sign", "relu", "bitwise_not"):
        assert (evaluate(name, [x], {}) == REGISTRY[name].reference(x)).all(), name


@pytest.mark.parametrize("source", ["float32", "int32", "uint32", "uint8", "bool"])
@pytest.mark.parametrize("target", ["float32", "int32", "uint32", "uint8", "bool"])
def test_cast(source: str, target: str) -> None:
    x = np.array([0, 1, 2, 3.7, 100, 255], "float32").astype(source)
    if source == "float32" and target in ("float32", "int32"):
        x = np.concatenate([x, np.array([-1.5, -0.2, -100], "float32")])
    found = evaluate("cast", [x], {"dtype": target})
    assert (found == REGISTRY["cast"].reference(x, dtype=target)).all()


def test_logic_and_choice() -> None:
    x, y = pairs(np.array([True, False]))
    for name in ("logical_and", "logical_or", "equal", "not_equal"):
        assert (evaluate(name, [x, y], {}) == REGISTRY[name].reference(x, y)).all(), name
    assert (evaluate("logical_not", [x], {}) == ~x).all()
    one, other = np.arange(4, dtype="float32"), np.full(4, NAN, "float32")
    chosen = evaluate("where", [x, one, other], {})
    assert not difference(chosen, np.where(x, one, other), 0, 0)


def test_every_pointwise_operation_is_covered() -> None:
    """A new primitive has to be named above, or compose these."""
    here = {*UNARY, *BINARY, *INTEGERS, "cast", "where", "logical_and", "logical_or", "logical_not",
            "bitwise_not", "gelu"}  # fmt: skip
    missing = {n for n, op in REGISTRY.items() if op.kind == "pointwise"} - here
    assert missing <= {"swiglu", "axpy"}, missing
