"""ONNX's recurrent operators, unrolled over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.onnx.registry import Call, handles

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: ops.maximum(x, 0.0),
    "tanh": ops.tanh,
    "sigmoid": ops.sigmoid,
    "softsign": lambda x: x / (1.0 + ops.abs(x)),
    "softplus": ops.softplus,
    "affine": lambda x: x,
}

State = tuple[Any, ...]
Step = Callable[[Any, State], State]


def _activations(call: Call, defaults: list[str], direction: int) -> list[Callable[[Any], Any]]:
    given = [a.decode() if isinstance(a, bytes) else a for a in call.get("activations") or []]
    count = len(defaults)
    names = given[direction * count : (direction + 1) * count] or defaults
    if any(n.lower() not in _ACTIVATIONS for n in names):
        call.refuse(f"the activations {names}")
    return [_ACTIVATIONS[n.lower()] for n in names]


def _clip(call: Call, x: Any) -> Any:
    limit = call.get("clip")
    return x if limit is None else ops.clip(x, -limit, limit)


def _run(call: Call, x: Any, step: Step, state: State, backward: bool) -> tuple[list[Any], State]:
    """Apply `step` along time; sequences shorter than the longest keep their last state."""
    lengths = ops.cast(call.tensor(4), "int32") if call.has(4) else None
    steps = range(x.shape[0])
    outputs: list[Any] = [None] * x.shape[0]
    for t in reversed(steps) if backward else steps:
        new = step(x[t], state)
        out = new[0]
        if lengths is not None:
            alive = ops.expand_dims(ops.less(t, lengths), -1)
            new = tuple(ops.where(alive, n, s) for n, s in zip(new, state, strict=True))
            out = ops.where(alive, out, ops.zeros_like(out))
        outputs[t], state = out, new
    return outputs, state


def _recurrent(
    call: Call, gates: int, states: int, make_step: Callable[[Call, Any, Any, Any, int], Step]
) -> tuple[Any, ...]:
    x, w, r = call.tensor(0), call.tensor(1), call.tensor(2)
    layout = call.get("layout", 0)
    if layout:
        x = ops.transpose(x, (1, 0, 2))
    directions, batch = w.shape[0], x.shape[1]
    hidden = r.shape[-1]
    bias = call.tensor(3) if call.has(3) else np.zeros((directions, 2 * gates * hidden), "float32")
    backward_only = call.get("direction", "forward") == "reverse"
    all_outputs, finals = [], []
    for d in range(directions):
        initial = []
        for s in range(states):
            if call.has(5 + s):
                start = call.tensor(5 + s)
                initial.append(start[:, d] if layout else start[d])
            else:
                initial.append(ops.zeros((batch, hidden), dtype="float32"))
        step = make_step(call, w[d], r[d], bias[d], d)
        outputs, state = _run(call, x, step, tuple(initial), backward_only or d == 1)
        all_outputs.append(ops.stack(outputs, axis=0))
        finals.append(state)
    y = ops.stack(all_outputs, axis=1)  # (time, directions, batch, hidden)
    last = [ops.stack([f[s] for f in finals], axis=0) for s in range(states)]
    if layout:
        y = ops.transpose(y, (2, 0, 1, 3))
        last = [ops.transpose(v, (1, 0, 2)) for v in last]
    return (y, *last)


def _dense(x: Any, w: Any) -> Any:
    return ops.matmul(x, ops.transpose(w))


@handles("RNN")
def _rnn(call: Call) -> Any:
    def make(call: Call, w: Any, r: Any, b: Any, direction: int) -> Step:
        (act,) = _activations(call, ["Tanh"], direction)
        n = r.shape[-1]
        return lambda x, s: (act(_clip(call, _dense(x, w) + _dense(s[0], r) + b[:n] + b[n:])),)

    return _recurrent(call, 1, 1, make)


@handles("GRU")
def _gru(call: Call) -> Any:
    def make(call: Call, w: Any, r: Any, b: Any, direction: int) -> Step:
        gate, act = _activations(call, ["Sigmoid", "Tanh"], direction)
        n = r.shape[-1]
        wb, rb = b[: 3 * n], b[3 * n :]

        def step(x: Any, state: State) -> State:
            (h,) = state
            inner, outer = _dense(x, w) + wb, _dense(h, r[: 2 * n]) + rb[: 2 * n]
            z = gate(_clip(call, inner[:, :n] + outer[:, :n]))
            reset = gate(_clip(call, inner[:, n : 2 * n] + outer[:, n:]))
            if call.get("linear_before_reset", 0):
                mixed = reset * (_dense(h, r[2 * n :]) + rb[2 * n :])
            else:
                mixed = _dense(reset * h, r[2 * n :]) + rb[2 * n :]
            new = act(_clip(call, inner[:, 2 * n :] + mixed))
            return ((1.0 - z) * new + z * h,)

        return step

    return _recurrent(call, 3, 1, make)


@handles("LSTM")
def _lstm(call: Call) -> Any:
    def make(call: Call, w: Any, r: Any, b: Any, direction: int) -> Step:
        gate, act, out_act = _activations(call, ["Sigmoid", "Tanh", "Tanh"], direction)
        n = r.shape[-1]
        peep = call.tensor(7)[direction] if call.has(7) else None

        def step(x: Any, state: State) -> State:
            h, c = state
            z = _dense(x, w) + _dense(h, r) + b[: 4 * n] + b[4 * n :]
            i, o, f, g = (z[:, k * n : (k + 1) * n] for k in range(4))
            if peep is not None:
                i, f = i + peep[:n] * c, f + peep[2 * n :] * c
            i = gate(_clip(call, i))
            f = 1.0 - i if call.get("input_forget", 0) else gate(_clip(call, f))
            c = f * c + i * act(_clip(call, g))
            if peep is not None:
                o = o + peep[n : 2 * n] * c
            return (gate(_clip(call, o)) * out_act(c), c)

        return step

    return _recurrent(call, 4, 2, make)
