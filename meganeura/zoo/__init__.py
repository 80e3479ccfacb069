"""The zoo: models written with the public API, which load the weights that people have.

Each is a function with a configuration, also to be found as `meganeura.models.<name>`.
"""

from __future__ import annotations

import importlib
from typing import Any

from meganeura import identifiers

#: Module -> the names in it; loaded when first asked for.
_MODULES: dict[str, str] = {
    "bert": "BertConfig bert bert_classifier",
    "audio": "log_mel",
    "diffusion": "DenoiserConfig Diffusion denoiser",
    "families": "gemma llama3 mistral phi3 qwen2 qwen3 smollm2 tinyllama",
    "generation": "LanguageModel",
    "gpt2": "GPT2Config gpt2",
    "llama": "LlamaConfig llama",
    "mnist": "mnist_convnet mnist_mlp",
    "pretrained": "from_pretrained save_pretrained",
    "resnet": "ResNetConfig resnet resnet18 resnet50",
    "smolvla": "SmolVLAConfig action_expert",
    "smolvlm": "SmolVLMConfig smolvlm",
    "unet": "UNetConfig unet",
    "vit": "ViTConfig siglip_tower vit",
    "whisper": "WhisperConfig whisper whisper_encoder",
}
WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}


def find(name: str) -> Any:
    """What `meganeura.models.<name>` is. Raises AttributeError with near names."""
    if name not in WHERE:
        raise AttributeError(f"the zoo has no {name!r}{identifiers.suggestion(name, list(WHERE))}")
    return getattr(importlib.import_module(f"meganeura.zoo.{WHERE[name]}"), name)


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # `zoo.llama` is the module, and `models.llama` the function in it
        return importlib.import_module(f"meganeura.zoo.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    return find(name)


def __dir__() -> list[str]:
    return sorted({*WHERE, *_MODULES})
