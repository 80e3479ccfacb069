"""Every architecture of the zoo against what transformers answered, from stored names to greedy tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zoo_cases

import meganeura as mg
from meganeura import ops
from meganeura.zoo import llama_configs
from meganeura.zoo.pretrained import architecture, load_weights
from meganeura.zoo.renaming import Renamed, today

TABLE = json.loads((zoo_cases.DATA / "zoo_goldens.json").read_text("utf-8"))
ANSWERS = np.load(zoo_cases.DATA / "zoo_goldens.npz", allow_pickle=False)
SIZES: dict[str, dict[str, Any]] = {
    "resnet18": {"size": (33, 30)}, "resnet_first": {"size": (33, 30)}, "smolvlm": {"pictures": 2},
}  # fmt: skip


def relative(found: Any, expected: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected))


@pytest.fixture(scope="module", params=sorted(TABLE))
def case(request: pytest.FixtureRequest) -> tuple[str, Any, Any]:
    """The name, the model with its weights, and what is put into it."""
    name = request.param
    entry = TABLE[name]
    kind = architecture(entry["config"])
    given = zoo_cases.weights(entry["tensors"])
    tensors = Renamed(given, entry["config"]["model_type"])
    model = kind.build(entry["config"], tuple(tensors), **SIZES.get(name, {}))
    load_weights(model, tensors, kind.transposed, kind.norms_from_zero)
    given = zoo_cases.inputs(name)
    return name, model, given if len(given) > 1 else next(iter(given.values()))


def test_output(case: tuple[str, Any, Any]) -> None:
    name, model, given = case
    assert relative(model(given, training=False), ANSWERS[f"{name}.output"]) < 1e-4


def test_gradients(case: tuple[str, Any, Any]) -> None:
    name, model, given = case
    table = architecture(TABLE[name]["config"]).stored_names(model)
    kind = TABLE[name]["config"]["model_type"]
    names = [today(n, kind) for n in sorted(TABLE[name]["tensors"])]
    norms = {n: x for n, x in zip(names, ANSWERS[f"{name}.norms"], strict=True) if x == x}
    wanted = [n for n in norms if n in table]
    assert len(wanted) > 0.6 * len(table)
    loss, found = mg.value_and_grad(
        lambda: ops.mean(ops.square(model(given, training=False))), [table[n][0] for n in wanted]
    )()
    assert abs(float(loss) - float(ANSWERS[f"{name}.loss"])) < 1e-4 * abs(float(loss))
    largest = max(norms.values())
    for n, gradient in zip(wanted, found, strict=True):
        norm = float(np.linalg.norm(np.asarray(gradient)))
        assert abs(norm - norms[n]) < 1e-3 * norms[n] + 1e-6 * largest, n


def test_greedy_tokens(case: tuple[str, Any, Any]) -> None:
    name, model, given = case
    if f"{name}.greedy" not in ANSWERS:
        return  # no language model
    others = {k: v for k, v in given.items() if k != "ids"} if isinstance(given, dict) else {}
    ids = given["ids"] if isinstance(given, dict) else given
    found = model.generate(ids, 8, inputs=others)
    np.testing.assert_array_equal(found, ANSWERS[f"{name}.greedy"])


def test_transformers_still_answers_that(tmp_path: Path) -> None:
    """Where it is installed: the stored answers are its answers."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    found = zoo_cases.answers("qwen3", _prepared("qwen3", tmp_path), tmp_path)
    assert relative(found["output"], ANSWERS["qwen3.output"]) < 1e-5


def test_a_folder_is_loaded_by_its_configuration(tmp_path: Path) -> None:
    from meganeura.saving.safetensors import save_safetensors
    from meganeura.zoo.pretrained import from_pretrained

    shapes = _prepared("gemma2", tmp_path)
    save_safetensors(tmp_path / "model.safetensors", zoo_cases.weights(shapes))
    model = from_pretrained(tmp_path)
    given = zoo_cases.inputs("gemma2")["ids"]
    assert relative(model(given), ANSWERS["gemma2.output"]) < 1e-4
    wrong = {**zoo_cases.weights(shapes), "model.norm.weight": np.zeros(3, "float32")}
    wrong["model.extra"] = wrong.pop("model.embed_tokens.weight")
    save_safetensors(tmp_path / "model.safetensors", wrong)
    with pytest.raises(ValueError, match=r"missing: model.embed_tokens.weight; unexpected: model.extra; "
                       r"mis-shaped: model.norm.weight: \(3,\) for a weight of shape \(32,\)"):  # fmt: skip
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"), [("num_hidden_layers", 10**9), ("vocab_size", 10**12), ("hidden_size", None)]
)
def test_descriptions_cannot_ask_for_more_than_the_file_holds(
    key: str, value: Any, tmp_path: Path
) -> None:
    from meganeura.saving.safe_h5 import DamagedFileError
    from meganeura.saving.safetensors import save_safetensors
    from meganeura.zoo.pretrained import from_pretrained

    save_safetensors(
        tmp_path / "model.safetensors", zoo_cases.weights(_prepared("qwen2", tmp_path))
    )
    config = {**TABLE["qwen2"]["config"], key: value}
    if value is None:
        del config[key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    kind, message = (ValueError, "more than its file holds") if value else (DamagedFileError, key)
    with pytest.raises(kind, match=message):
        from_pretrained(tmp_path)


def test_unknown_architectures_are_told_of(tmp_path: Path) -> None:
    from meganeura.zoo.pretrained import from_pretrained

    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(ValueError, match="'mamba'; those known are llama"):
        from_pretrained(tmp_path)


def test_models_are_found_by_name() -> None:
    from meganeura import zoo

    assert mg.models.llama is zoo.llama.llama
    assert mg.models.from_pretrained is zoo.from_pretrained
    for name in zoo.WHERE:
        assert callable(getattr(mg.models, name)), name
    with pytest.raises(AttributeError, match="mistral"):
        _ = mg.models.mistrall


def test_classifiers_of_digits_compute() -> None:
    images = np.ones((2, 28, 28, 1), "float32")
    for build in (mg.models.mnist_mlp, mg.models.mnist_convnet):
        assert np.asarray(build()(images)).shape == (2, 10)
    assert np.asarray(mg.models.resnet18(size=(40, 32))(np.ones((1, 40, 32, 3)))).shape == (1, 1000)


def _prepared(name: str, folder: Path) -> dict[str, list[int]]:
    entry = TABLE[name]
    (folder / "config.json").write_text(json.dumps(entry["config"]))
    shapes: dict[str, list[int]] = entry["tensors"]
    return shapes


def test_sound_is_heard_as_whisper_hears_it() -> None:
    from meganeura.zoo.audio import log_mel

    time = np.arange(16000) / 16000
    sound = np.sin(2 * np.pi * 1000 * time) * (time > 0.25)
    found = log_mel(sound, seconds=1.5)
    assert found.shape == (150, 80) and found.dtype == np.float32
    assert np.argmax(found[50]) == 26  # the band around 1000 Hz
    assert found.max() - found.min() <= 2.0 + 1e-6  # eight powers of ten, over four
    assert np.allclose(found[:20], found.min())
    with pytest.raises(ValueError, match="not empty"):
        log_mel(np.zeros((2, 0)))
    pytest.importorskip("transformers")
    from transformers import WhisperFeatureExtractor

    theirs = WhisperFeatureExtractor(feature_size=80)(sound, sampling_rate=16000)
    np.testing.assert_allclose(log_mel(sound), theirs["input_features"][0].T, atol=1e-4)


def test_texts_are_read_and_written_by_the_folders_tokenizer(tmp_path: Path) -> None:
    from meganeura.saving.safetensors import save_safetensors
    from meganeura.zoo.pretrained import from_pretrained

    tokenizers = pytest.importorskip("tokenizers")
    shapes = _prepared("qwen3", tmp_path)
    save_safetensors(tmp_path / "model.safetensors", zoo_cases.weights(shapes))
    words = {f"w{i}": i for i in range(61)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model = from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no tokenizer\.json"):
        model.generate("w3 w9")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    free = model.generate([3, 9], 6)
    assert model.generate("w3 w9", 6) == " ".join(f"w{t}" for t in free)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [int(free[3])]}))
    again = from_pretrained(tmp_path)
    end = 2 + free[2:].tolist().index(free[3])
    assert again.generate("w3 w9", 6) == " ".join(f"w{t}" for t in free[: end + 1])
    with pytest.raises(ValueError, match="came from no folder"):
        mg.models.gpt2(mg.models.GPT2Config(61, 16, 8, 1, 2, 16)).generate("w3")


def test_names_that_are_no_folders_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import types

    from meganeura.zoo.texts import local_folder

    hub = types.ModuleType("huggingface_hub")
    asked: list[str] = []
    hub.snapshot_download = lambda name, allow_patterns: asked.append(name) or str(tmp_path)  # type: ignore[attr-defined, func-returns-value]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert local_folder("owner/model") == tmp_path and asked == ["owner/model"]
    for name in ("nowhere", "a/b/c", "../model", "/owner"):
        with pytest.raises(FileNotFoundError, match="owner/model"):
            local_folder(name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"meganeura\[hub\]"):
        local_folder("owner/model")


@pytest.mark.parametrize("name", ["gpt2", "bert_masked", "qwen2"])
def test_names_of_older_files_are_understood(name: str, tmp_path: Path) -> None:
    from meganeura.saving.safetensors import save_safetensors
    from meganeura.zoo.pretrained import from_pretrained

    tensors = zoo_cases.weights(_prepared(name, tmp_path))
    older = {
        n.removeprefix("transformer.").removeprefix("model.")
        .replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
        for n, x in tensors.items()
    }  # fmt: skip
    if name.startswith("bert"):
        older["cls.seq_relationship.weight"] = np.zeros((2, 32), "float32")
    assert set(older) != set(tensors)
    save_safetensors(tmp_path / "model.safetensors", older)
    given = zoo_cases.inputs(name)
    found = from_pretrained(tmp_path)(given if len(given) > 1 else given["ids"])
    assert relative(found, ANSWERS[f"{name}.output"]) < 1e-4


@pytest.mark.parametrize("name", ["gemma3", "gpt2", "resnet18"])
def test_what_was_read_is_written_again(name: str, tmp_path: Path) -> None:
    from meganeura.saving.safetensors import load_safetensors, save_safetensors
    from meganeura.zoo.pretrained import from_pretrained, save_pretrained

    tensors = zoo_cases.weights(_prepared(name, tmp_path))
    save_safetensors(tmp_path / "model.safetensors", tensors)
    model = from_pretrained(tmp_path, **SIZES.get(name, {}))
    save_pretrained(model, tmp_path / "again")
    with load_safetensors(tmp_path / "again") as written:
        assert set(written) == {n for n in tensors if "num_batches" not in n}
        for n in written:
            np.testing.assert_allclose(written[n], tensors[n], atol=1e-6)
    given = next(iter(zoo_cases.inputs(name).values()))
    again = from_pretrained(tmp_path / "again", **SIZES.get(name, {}))
    np.testing.assert_allclose(np.asarray(again(given)), np.asarray(model(given)), atol=1e-5)
    if name == "gpt2":
        mg.models.add_lora(model, 2, pattern="c_fc")
        with pytest.raises(ValueError, match="merge_lora"):
            save_pretrained(model, tmp_path / "again")
    with pytest.raises(ValueError, match="came from no folder"):
        save_pretrained(mg.models.mnist_mlp(), tmp_path / "again")


#: Keys that every configuration has; the rest may be left out where it is the default of the type.
_ALWAYS = (
    "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "max_position_embeddings",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["llama", *llama_configs._DEFAULTS])
def test_short_configurations_mean_what_transformers_makes_of_them(kind: str) -> None:
    auto = pytest.importorskip("transformers").AutoConfig
    whole = auto.for_model(kind).to_dict()
    short = {key: whole[key] for key in _ALWAYS}
    assert llama_configs.llama_config(short) == llama_configs.llama_config(whole)


def test_short_configurations_have_the_defaults_of_their_type() -> None:
    short = {
        "model_type": "gemma2", "vocab_size": 10, "hidden_size": 2304, "intermediate_size": 8,
        "num_hidden_layers": 2, "num_attention_heads": 8,
    }  # fmt: skip
    found = llama_configs.llama_config(short)
    assert (found["kv_heads"], found["head_width"], found["windows"]) == (4, 256, (4096, None))
    assert (found["attention_softcap"], found["logit_softcap"]) == (50.0, 30.0)
