"""Loading a model takes host memory for its largest tensor alone, beside the copy on the device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import layers
from meganeura.variable import unfilled
from meganeura.zoo.pretrained import built_and_loaded

BENCH = Path(__file__).parents[2] / "bench" / "load_memory.py"


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK),
    reason="peaks of memory are read from Linux's /proc",
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_peak(dtype: str) -> None:
    """Of 64 MB: 1.2 of the largest tensor (16 or 32 MB), and 4 MB for the interpreter's own growth. One copy
    more of anything would be 16 MB more."""
    environment = {**os.environ, "MEGANEURA_BACKEND": "numpy"}
    environment["PYTHONPATH"] = str(BENCH.parents[1])
    command = [sys.executable, str(BENCH), "--bytes", "6.4e7", "--dtype", dtype]
    out = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout
    figures = {k: float(v) for k, v in re.findall(r"(\w+) ([0-9.]+) MB", out)}
    assert figures["device"] > 45, out
    assert figures["beyond"] < 1.2 * figures["largest"] + 4, out


def test_nothing_is_drawn_for_weights_that_come_from_a_file(monkeypatch: Any) -> None:
    def build() -> Any:
        return mg.Sequential([mg.Input((3,)), layers.Dense(4, name="a"), layers.Dense(2, name="b")])

    with unfilled() as waiting:
        model = build()
    assert len(waiting) == 4 and all(not np.any(v.numpy()) for v in model.weights)

    def load(model: Any) -> list[Any]:
        model.layers[0].kernel.assign(np.full((3, 4), 7.0))
        return [model.layers[0].kernel]

    model = built_and_loaded(build, load)
    assert np.all(model.layers[0].kernel.numpy() == 7)
    assert np.all(model.layers[1].kernel.numpy() != 0)  # the file had nothing for it
    assert np.all(build().layers[0].kernel.numpy() != 0)
