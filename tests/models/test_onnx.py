"""ONNX: the node tests that the onnx package makes, models that PyTorch exported, and what is done with a model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg

onnx = pytest.importorskip("onnx")
ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT.parent / "shared" / "goldens" / "onnx"


def suite() -> Any:
    spec = importlib.util.spec_from_file_location("onnx_suite", ROOT / "scripts" / "onnx_suite.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # the package warns while it makes its cases
def test_no_node_test_of_an_offered_operator_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["onnx_suite.py", "--least", "1000"])
    code = suite().main()
    assert code == 0, capsys.readouterr().out[-4000:]


@pytest.mark.skipif(not GOLDENS.is_dir(), reason="no golden files beside the checkout")
@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*.onnx")), ids=lambda p: p.stem)
def test_models_that_pytorch_exported(path: Path) -> None:
    golden = np.load(path.with_suffix(".npz"))
    model = mg.onnx.load(path)
    names = sorted(k for k in golden if k.startswith("input"))
    found = model(
        [golden[k].astype("float32") if golden[k].dtype.kind == "f" else golden[k] for k in names]
    )
    expected = golden["output"]
    scale = np.abs(expected).max()
    assert np.abs(np.asarray(found) - expected).max() <= 1e-4 * scale


def linear(path: Path, **changes: Any) -> Path:
    """y = relu(x w + b), written as an ONNX file."""
    helper = onnx.helper
    random = np.random.default_rng(0)
    w = onnx.numpy_helper.from_array(random.standard_normal((4, 3)).astype("float32"), "w")
    b = onnx.numpy_helper.from_array(np.zeros(3, "float32"), "b")
    nodes = [
        helper.make_node(changes.get("op", "Gemm"), ["x", "w", "b"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes, "linear",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 3])], [w, b],
    )  # fmt: skip
    opset = [helper.make_opsetid("", changes.get("opset", 17))]
    onnx.save(helper.make_model(graph, opset_imports=opset), path)
    return path


def test_a_model_is_trained_further_and_its_weights_are_saved(tmp_path: Path) -> None:
    model = mg.onnx.load(linear(tmp_path / "m.onnx"))
    x = np.random.default_rng(1).standard_normal((32, 4)).astype("float32")
    y = np.maximum(x[:, :3] * 2, 0)
    model.compile(mg.optimizers.Adam(0.05), "mse")
    history = model.fit(x, y, epochs=30, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]
    model.save_weights(tmp_path / "m.weights.h5")
    again = mg.onnx.load(tmp_path / "m.onnx")
    assert not np.allclose(again.predict(x, verbose=0), model.predict(x, verbose=0))
    again.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"op": "If"}, "control flow"), ({"op": "Nonsense"}, "Nonsense"), ({"opset": 3}, "oldest")],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.onnx.load(linear(tmp_path / "m.onnx", **changes))


@pytest.mark.parametrize("size", [0, 10, 60])
def test_truncated_files_are_refused(tmp_path: Path, size: int) -> None:
    path = linear(tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError):
        mg.onnx.load(path)
