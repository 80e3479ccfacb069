"""From a folder with a configuration and safetensors weights to a model, with strict names.

Layers of the zoo carry the names of the modules in Hugging Face files, so that one table by layer
class says how each stored tensor becomes a variable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meganeura import layers
from meganeura.saving.safe_h5 import DamagedFileError
from meganeura.saving.safetensors import load_safetensors
from meganeura.zoo.bert import BertConfig, bert_classifier
from meganeura.zoo.gpt2 import STORED_TRANSPOSED, GPT2Config, LearntPositions, gpt2
from meganeura.zoo.llama import LlamaConfig, llama
from meganeura.zoo.resnet import ResNetConfig, resnet
from meganeura.zoo.smolvla import SmolVLAConfig, action_expert
from meganeura.zoo.unet import UNetConfig, unet
from meganeura.zoo.whisper import WhisperConfig, whisper_encoder

Transform = Callable[[np.ndarray], np.ndarray]


def _same(array: np.ndarray) -> np.ndarray:
    return array


def _transposed(array: np.ndarray) -> np.ndarray:
    return array.T


def _kernel(array: np.ndarray) -> np.ndarray:
    """(out, in, *window) -> (*window, in, out)."""
    return np.moveaxis(array, (0, 1), (-1, -2))


#: Layer class -> {attribute of the layer: (suffix of the stored name, transform)}.
_STORED: dict[type, dict[str, tuple[str, Transform]]] = {
    layers.Dense: {"kernel": ("weight", _transposed), "bias": ("bias", _same)},
    layers.Embedding: {"embeddings": ("weight", _same)},
    LearntPositions: {"embeddings": ("weight", _same)},
    layers.LayerNormalization: {"gamma": ("weight", _same), "beta": ("bias", _same)},
    layers.GroupNormalization: {"gamma": ("weight", _same), "beta": ("bias", _same)},
    layers.RMSNormalization: {"scale": ("weight", _same)},
    layers.BatchNormalization: {
        "gamma": ("weight", _same),
        "beta": ("bias", _same),
        "moving_mean": ("running_mean", _same),
        "moving_variance": ("running_var", _same),
    },
    layers.Conv1D: {"kernel": ("weight", _kernel), "bias": ("bias", _same)},
    layers.Conv2D: {"kernel": ("weight", _kernel), "bias": ("bias", _same)},
}

#: Stored tensors that carry no weight of the model.
_IGNORED = (
    "num_batches_tracked",
    "rotary_emb.inv_freq",
    "attn.bias",
    "attn.masked_bias",
    "position_ids",
)


def stored_names(model: Any, transposed: Iterable[str] = ()) -> dict[str, tuple[Any, Transform]]:
    """Stored name -> (variable, transform) for every weight of a zoo model.

    `transposed` lists last parts of layer names whose dense kernels are stored as (in, out).
    """
    table: dict[str, tuple[Any, Transform]] = {}
    for layer in model.layers:
        entries = next((v for k, v in _STORED.items() if type(layer) is k), None)
        if entries is None:
            continue
        for attribute, (suffix, transform) in entries.items():
            variable = getattr(layer, attribute, None)
            if variable is None:
                continue
            if transform is _transposed and layer.name.split(".")[-1] in transposed:
                transform = _same
            table[f"{layer.name}.{suffix}"] = (variable, transform)
    return table


def load_weights(
    model: Any, tensors: Mapping[str, np.ndarray], transposed: Iterable[str] = ()
) -> None:
    """Copy stored tensors into a zoo model, one at a time, after checking every name and shape.

    Raises ValueError that lists the missing, the unexpected and the mis-shaped ones.
    """
    table = stored_names(model, transposed)
    missing = sorted(set(table) - set(tensors))
    unexpected = sorted(n for n in set(tensors) - set(table) if not n.endswith(_IGNORED))
    if "lm_head.weight" in unexpected and "lm_head.weight" not in table:
        unexpected.remove("lm_head.weight")  # a tied head, stored twice
    shape_of = getattr(tensors, "shape", lambda name: tensors[name].shape)
    wrong = []
    for name in sorted(set(table) & set(tensors)):
        variable, transform = table[name]
        shape = transform(np.broadcast_to(np.float32(0), shape_of(name))).shape
        if shape != tuple(variable.shape):
            wrong.append(f"{name}: {shape} for a weight of shape {tuple(variable.shape)}")
    lists = {"missing": missing, "unexpected": unexpected, "mis-shaped": wrong}
    if any(lists.values()):
        told = "; ".join(f"{k}: {', '.join(v[:10])}" for k, v in lists.items() if v)
        raise ValueError(
            f"the file does not fit model {model.name!r}, which keeps its weights. {told}"
        )
    for name, (variable, transform) in table.items():
        variable.assign(np.ascontiguousarray(transform(tensors[name])))


def _sized(build: Callable[..., Any], config: Any) -> Callable[..., Any]:
    return lambda source, **sizes: build(config(source), **sizes)


#: "model_type" (or "kind") of a configuration -> (builder, names stored as (in, out)).
ARCHITECTURES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3"), (_sized(llama, LlamaConfig.from_huggingface), ())
    ),
    "gpt2": (_sized(gpt2, GPT2Config.from_huggingface), STORED_TRANSPOSED),
    "bert": (_sized(bert_classifier, BertConfig.from_huggingface), ()),
    "resnet": (_sized(resnet, ResNetConfig.from_huggingface), ()),
    "whisper": (_sized(whisper_encoder, WhisperConfig.from_huggingface), ()),
    "unet": (_sized(unet, UNetConfig.from_dictionary), ()),
    "smolvla_expert": (_sized(action_expert, SmolVLAConfig.from_dictionary), ()),
}


def from_pretrained(folder: str | os.PathLike[str], **sizes: Any) -> Any:
    """The model that a folder's `config.json` describes, with the weights of its safetensors files.

    `sizes` are the static sizes of the architecture's builder, such as `length=128` or
    `size=(224, 224)`. Raises ValueError for an architecture that is not known, with those that are.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no config.json")
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        kind = config.get("model_type") or config["kind"]
    except (ValueError, AttributeError, KeyError) as error:
        raise DamagedFileError(f"{folder / 'config.json'} describes no model: {error!r}") from error
    if kind not in ARCHITECTURES:
        raise ValueError(
            f"{folder} holds a model of type {kind!r}; those known are {', '.join(ARCHITECTURES)}"
        )
    build, transposed = ARCHITECTURES[kind]
    model = build(config, **sizes)
    with load_safetensors(folder) as tensors:
        load_weights(model, tensors, transposed)
    return model
