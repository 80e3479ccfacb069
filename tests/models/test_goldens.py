"""The zoo against other frameworks' answers: outputs, losses, gradients and greedy tokens.

The answers lie beside the checkout (../shared/goldens, in float64); without them nothing is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meganeura as mg
from meganeura import ops
from meganeura.zoo.pretrained import architecture, from_pretrained, read_config

GOLDENS = Path(__file__).resolve().parents[2].parent / "shared" / "goldens"
pytestmark = pytest.mark.skipif(not GOLDENS.is_dir(), reason="no golden files beside the checkout")


def crossentropy(labels: Any, logits: Any) -> Any:
    return ops.mean(ops.sparse_categorical_crossentropy(labels, logits, from_logits=True))


def squared_error(target: Any, out: Any) -> Any:
    return ops.mean(ops.square(out - target))


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 1, -1)


def integers(x: np.ndarray) -> np.ndarray:
    return x.astype("int32")


def bert_inputs(golden: Any) -> dict[str, np.ndarray]:
    ids = integers(golden["input.ids"])
    return {"ids": ids, "mask": integers(golden["input.mask"]), "types": np.zeros_like(ids)}


def expert_inputs(golden: Any) -> dict[str, np.ndarray]:
    return {name: golden[f"input.{name}"] for name in ("actions", "timestep", "context")}


def same(x: np.ndarray) -> np.ndarray:
    return x


#: Folder -> static sizes, its inputs, its answers in our layout, the loss, from the target's name.
CASES: dict[str, tuple[dict[str, Any], Callable[..., Any], Callable[..., Any], Any, str]] = {
    "llama_smollm2_tiny": (
        {}, lambda g: integers(g["input.ids"]), same, crossentropy, "labels"),
    "gpt2_tiny": (
        {}, lambda g: integers(g["input.ids"]), same, crossentropy, "labels"),
    "bert_masked_tiny": ({}, bert_inputs, same, crossentropy, "labels"),
    "resnet_bottleneck_tiny": (
        {"size": (37, 41)}, lambda g: channels_last(g["input.image"]), same, crossentropy, "labels"),
    "unet_tiny16": (
        {"size": 16}, lambda g: channels_last(g["input.x"]), channels_last, squared_error, "target"),
    "whisper_encoder_tiny": (
        {}, lambda g: channels_last(g["input.mel"]), same, squared_error, "target"),
    "smolvla_expert_tiny": (
        {"chunk": 7, "context": 5}, expert_inputs, same, squared_error, "target"),
}  # fmt: skip


def relative(found: Any, expected: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected))


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Any:
    """The model, its inputs, and the file of answers."""
    sizes, inputs, layout, loss, target = CASES[request.param]
    with np.load(GOLDENS / request.param / "golden.npz", allow_pickle=False) as file:
        golden = {name: file[name] for name in file.files}
    golden["config"] = read_config(GOLDENS / request.param)
    given = inputs(golden)
    model = from_pretrained(GOLDENS / request.param, **sizes)
    return model, given, golden, layout, loss, target


def test_every_golden_folder_is_a_case() -> None:
    folders = {p.name for p in GOLDENS.iterdir() if (p / "golden.npz").is_file()}
    assert folders == set(CASES)


def test_output(case: Any) -> None:
    model, given, golden, layout, _, _ = case
    assert relative(model(given, training=False), layout(golden["output"])) < 1e-4


def test_loss_and_gradients(case: Any) -> None:
    model, given, golden, layout, loss_fn, target = case
    stored = architecture(golden["config"]).stored_names(model)
    names = [n for n in golden["grad_norm_names"] if n in stored]
    unknown = set(golden["grad_norm_names"]) - set(names)
    assert unknown <= {"bert.embeddings.position_ids"}, unknown
    variables = [stored[n][0] for n in names]
    wanted = golden[target]
    wanted = integers(wanted) if target == "labels" else layout(wanted).astype("float32")
    loss, found = mg.value_and_grad(
        lambda: loss_fn(wanted, model(given, training=False)), variables
    )()
    expected = float(golden["loss"])
    assert abs(float(np.asarray(loss)) - expected) < 1e-5 * max(1, abs(expected))
    norms = dict(zip(golden["grad_norm_names"], golden["grad_norms"], strict=True))
    largest = max(norms.values())
    for name, gradient in zip(names, found, strict=True):
        gradient = np.asarray(gradient)
        norm = float(np.linalg.norm(gradient))
        # what is zero but for rounding (the bias of a key) has no relative error
        assert abs(norm - norms[name]) < 1e-3 * norms[name] + 1e-6 * largest, name
        if f"grad.{name}" in golden and norms[name] > 1e-5 * largest:
            back = stored[name][1](golden[f"grad.{name}"])
            assert relative(gradient, back) < 1e-3, name


def test_greedy_tokens(case: Any) -> None:
    model, _, golden, _, _, _ = case
    if "greedy" not in golden:
        pytest.skip("no tokens in this folder")
    expected = integers(golden["greedy"])
    found = model.generate(expected[:, :7], 12)
    np.testing.assert_array_equal(found, expected)
