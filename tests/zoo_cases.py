"""Tiny models of every architecture of the zoo, with weights that only NumPy is needed to make.

tests/data/zoo_goldens.json has their configurations and the names and shapes of their tensors, and
tests/data/zoo_goldens.npz what transformers answers. `python tests/zoo_cases.py` writes both anew.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from meganeura.zoo.vit import NEWER, PUBLISHED

DATA = Path(__file__).parent / "data"

_TEXT: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
_YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
_LONG = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.3],
    "long_factor": [1.0, 2.0, 4.0], "partial_rotary_factor": 0.75,
}  # fmt: skip

_ENCODER: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 24, "pad_token_id": 0,
}  # fmt: skip
_DISTILLED: dict[str, Any] = {
    "vocab_size": 61, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
    "max_position_embeddings": 24, "pad_token_id": 0,
}  # fmt: skip

#: Case -> the class of the configuration, of the model, and the configuration's arguments.
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM",
              {**_TEXT, "rope_parameters": _LLAMA3, "mlp_bias": True, "attention_bias": True}),
    "llama_yarn": ("LlamaConfig", "LlamaForCausalLM",
                   {**_TEXT, "rope_parameters": _YARN, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_TEXT, "sliding_window": 4}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {**_TEXT, "tie_word_embeddings": True}),
    "qwen2_window": ("Qwen2Config", "Qwen2ForCausalLM",
                     {**_TEXT, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**_TEXT, "head_dim": 12}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", {**_TEXT, "no_rope_layers": [1, 0]}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {**_TEXT, "sliding_window": 5}),
    "phi3_longrope": ("Phi3Config", "Phi3ForCausalLM",
                      {**_TEXT, "rope_parameters": _LONG, "original_max_position_embeddings": 32}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {**_TEXT, "head_dim": 12, "pad_token_id": 0}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM",
               {**_TEXT, "head_dim": 12, "sliding_window": 4, "query_pre_attn_scalar": 10,
                "pad_token_id": 0}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM",
               {**_TEXT, "head_dim": 12, "sliding_window": 4, "query_pre_attn_scalar": 10,
                "pad_token_id": 0, "layer_types": ["sliding_attention", "full_attention"]}),
    "gemma3_pictures": (
        "Gemma3Config", "Gemma3ForConditionalGeneration",
        {"text_config": {**_TEXT, "head_dim": 12, "sliding_window": 4, "query_pre_attn_scalar": 10,
                         "pad_token_id": 0, "layer_types": ["sliding_attention", "full_attention"]},
         "vision_config": {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                           "num_attention_heads": 1, "image_size": 8, "patch_size": 4},
         "mm_tokens_per_image": 4, "image_token_index": 60, "boi_token_index": 1,
         "eoi_token_index": 2}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel",
             {"vocab_size": 61, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "vit": ("ViTConfig", "ViTForImageClassification",
            {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
             "intermediate_size": 48, "image_size": 12, "patch_size": 4,
             "id2label": {0: "a", 1: "b", 2: "c"}}),
    "resnet18": ("ResNetConfig", "ResNetForImageClassification",
                 {"embedding_size": 8, "hidden_sizes": [8, 12, 16], "depths": [2, 2, 2],
                  "layer_type": "basic", "id2label": {0: "a", 1: "b", 2: "c"}}),
    "resnet_first": ("ResNetConfig", "ResNetForImageClassification",
                     {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2],
                      "layer_type": "bottleneck", "downsample_in_bottleneck": True,
                      "downsample_in_first_stage": True}),
    "bert": ("BertConfig", "BertModel", _ENCODER),
    "bert_tokens": ("BertConfig", "BertForTokenClassification", _ENCODER),
    "bert_masked": ("BertConfig", "BertForMaskedLM", _ENCODER),
    "roberta": ("RobertaConfig", "RobertaForSequenceClassification",
                {**_ENCODER, "pad_token_id": 1, "type_vocab_size": 1}),
    "roberta_masked": ("RobertaConfig", "RobertaForMaskedLM",
                       {**_ENCODER, "pad_token_id": 1, "type_vocab_size": 1}),
    "distilbert": ("DistilBertConfig", "DistilBertForSequenceClassification", _DISTILLED),
    "distilbert_masked": ("DistilBertConfig", "DistilBertForMaskedLM", _DISTILLED),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration",
                {"vocab_size": 61, "num_mel_bins": 6, "d_model": 32, "encoder_layers": 1,
                 "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
                 "encoder_ffn_dim": 48, "decoder_ffn_dim": 40, "max_source_positions": 10,
                 "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1,
                 "eos_token_id": 2, "decoder_start_token_id": 1}),
    "smolvlm": ("SmolVLMConfig", "SmolVLMForConditionalGeneration",
                {"scale_factor": 2, "image_token_id": 60, "tie_word_embeddings": False,
                 "text_config": {**_TEXT, "model_type": "llama"},
                 "vision_config": {"hidden_size": 24, "intermediate_size": 40, "image_size": 16,
                                   "num_hidden_layers": 2, "num_attention_heads": 2,
                                   "patch_size": 4, "model_type": "smolvlm_vision"}}),
}  # fmt: skip


def weights(shapes: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Weights from the names alone: products keep the size of what goes in, norms are near 1."""
    made = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        drawn = rng.normal(size=shape)
        if name.endswith("running_var"):
            value = 1 + 0.2 * np.abs(drawn)
        elif len(shape) < 2:
            value = 0.2 * drawn + ("norm" in name and name.endswith("weight"))
        elif "embed" in name and "patch" not in name or "wte" in name or "wpe" in name:
            value = drawn
        else:
            value = drawn * 1.4 / np.sqrt(np.prod(shape[1:]))
        made[name] = np.asarray(value, "float32")
    return made


def inputs(case: str) -> dict[str, np.ndarray]:
    """What is asked, in our layout: channels last."""
    rng = np.random.default_rng(7)
    text = rng.integers(3, 60, (2, 9)).astype("int32")
    if case == "vit":
        return {"image": rng.normal(size=(2, 12, 12, 3)).astype("float32")}
    if case.startswith("resnet"):
        return {"image": rng.normal(size=(2, 33, 30, 3)).astype("float32")}
    if case.startswith(("bert", "roberta", "distilbert")):
        mask = (np.arange(9) < np.array([[9], [6]])).astype("int32")
        text = np.where(mask, text, case.startswith("roberta")).astype("int32")
        types = {} if case.startswith("distil") else {"types": np.zeros_like(text)}
        if case.startswith("bert"):
            types["types"] = rng.integers(0, 2, text.shape).astype("int32")
        return {"ids": text, "mask": mask, **types}
    if case == "whisper":
        return {"ids": text, "mel": rng.normal(size=(2, 20, 6)).astype("float32")}
    if case == "smolvlm":
        text[:, 1:5] = text[:, 5:] = 60
        text[:, [0, 5]] = (3, 9)
        text = np.concatenate([text, rng.integers(3, 60, (2, 4)).astype("int32")], axis=1)
        text[:, 6:10] = 60
        return {"ids": text, "images": rng.normal(size=(2, 2, 16, 16, 3)).astype("float32")}
    return {"ids": text}


def reference(case: str) -> Any:
    """transformers' model of a case, with weights of its own."""
    import torch
    import transformers

    config_class, model_class, arguments = CASES[case]
    config = getattr(transformers, config_class)(**arguments)
    torch.manual_seed(0)
    return getattr(transformers, model_class)(config)


def stored(model: Any, folder: Path) -> dict[str, list[int]]:
    """Names and shapes of the tensors as transformers stores them."""
    from safetensors import safe_open

    model.save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "np") as file:
        return {n: list(file.get_slice(n).get_shape()) for n in sorted(file.keys())}


def answers(case: str, shapes: dict[str, list[int]], folder: Path) -> dict[str, np.ndarray]:
    """Output, mean of its square, norms of that loss's gradients in the order of the sorted names (NaN
    where the stored name is not the parameter's), and greedy tokens, by transformers in float64."""
    import torch
    import transformers
    from safetensors.numpy import save_file

    save_file(weights(shapes), folder / "model.safetensors", {"format": "pt"})
    kind = getattr(transformers, CASES[case][1])
    model = kind.from_pretrained(folder, attn_implementation="eager").double().eval()
    given = inputs(case)
    asked: dict[str, Any] = {}
    if "image" in given:
        asked["pixel_values"] = torch.tensor(np.moveaxis(given["image"], -1, 1)).double()
    if "images" in given:
        asked["pixel_values"] = torch.tensor(np.moveaxis(given["images"], -1, 2)).double()
    if "ids" in given:
        name = "decoder_input_ids" if case == "whisper" else "input_ids"
        asked[name] = torch.tensor(given["ids"].astype("int64"))
    if "mask" in given:
        asked["attention_mask"] = torch.tensor(given["mask"].astype("int64"))
    if "types" in given:
        asked["token_type_ids"] = torch.tensor(given["types"].astype("int64"))
    if "mel" in given:
        asked["input_features"] = torch.tensor(np.swapaxes(given["mel"], 1, 2)).double()
    out = model(**asked)
    logits = out.logits if hasattr(out, "logits") else out.last_hidden_state
    loss = (logits**2).mean()
    loss.backward()
    own = dict(model.named_parameters())
    graded = {n: float(p.grad.norm()) for n, p in own.items() if p.grad is not None}
    norms = [graded.get(_newer(n), np.nan) for n in sorted(shapes)]
    found = {
        "output": logits.detach().numpy(), "loss": loss.detach().numpy(), "norms": np.array(norms)
    }  # fmt: skip
    if "ids" in given and "mask" not in given:
        text = asked[name]
        if case == "smolvlm":  # a token like the pictures' may come: with a cache it is text
            text = model.generate(**asked, max_new_tokens=8, do_sample=False)
            return {**found, "greedy": text.numpy()}
        with torch.no_grad():
            for _ in range(8):
                asked[name] = text
                text = torch.cat([text, model(**asked).logits[:, -1:].argmax(-1)], 1)
        found["greedy"] = text.numpy()
    return found


def _newer(name: str) -> str:
    """What transformers 5 calls a parameter that it stores under the published name."""
    if name.startswith("language_model.model."):
        return "model.language_model." + name.removeprefix("language_model.model.")
    found = re.match(r"vit\.encoder\.layer\.(\d+)\.(.*)\.(\w+)$", name)
    if not found:
        return name
    part = next(k for k, v in PUBLISHED.items() if v == found[2])
    return f"vit.layers.{found[1]}.{NEWER[part]}.{found[3]}"


def write() -> None:
    import tempfile

    table: dict[str, Any] = {}
    arrays = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            shapes = stored(reference(case), Path(folder))
            config = json.loads((Path(folder) / "config.json").read_text())
            table[case] = {"config": config, "tensors": shapes}
            for name, value in answers(case, shapes, Path(folder)).items():
                arrays[f"{case}.{name}"] = value.astype("int32" if name == "greedy" else "float32")
        print(case, {k: v.shape for k, v in arrays.items() if k.startswith(f"{case}.")})
    DATA.mkdir(exist_ok=True)
    (DATA / "zoo_goldens.json").write_text(json.dumps(table, indent=None, sort_keys=True) + "\n")
    np.savez_compressed(DATA / "zoo_goldens.npz", **arrays)


if __name__ == "__main__":
    write()
