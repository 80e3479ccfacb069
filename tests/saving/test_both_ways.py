"""Files from Keras to meganeura and back, where Keras is installed; hashes of its layouts where not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import meganeura as mg

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))
import keras_models  # noqa: E402

LAYOUTS = json.loads(keras_models.LAYOUTS.read_text())

with_keras = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("keras", "torch")),
    reason="Keras and PyTorch are not installed",
)


def keras_side(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "keras_models.py"), *arguments],
        env={**os.environ, "KERAS_BACKEND": "torch"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_layout(name: str, tmp_path: Path) -> None:
    model, x = keras_models.prepared(mg, name)
    keras_models.losses(model, x, 1)
    model.save_weights(tmp_path / "m.weights.h5")
    assert keras_models.layout(tmp_path / "m.weights.h5") == LAYOUTS[name]


def test_every_model_has_a_layout() -> None:
    assert sorted(LAYOUTS) == sorted(keras_models.MODELS)


@with_keras
def test_from_keras(tmp_path: Path) -> None:
    keras_side("write", str(tmp_path))
    keras_models.read(mg, tmp_path, "keras_", legacy_trains=False)


@with_keras
def test_to_keras(tmp_path: Path) -> None:
    keras_models.write(mg, tmp_path, "ours_")
    keras_side("read", str(tmp_path))


def test_to_ourselves(tmp_path: Any) -> None:
    keras_models.write(mg, tmp_path, "ours_")
    keras_models.read(mg, tmp_path, "ours_", legacy_trains=True)
