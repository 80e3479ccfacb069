"""From a folder with a configuration and safetensors weights to a model, with strict names.

Layers of the zoo carry the names of the modules in Hugging Face files, so that one table by layer
class says how each stored tensor becomes a variable.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meganeura import layers
from meganeura.layers.lora import Adaptable
from meganeura.quantization.variable import PackedVariable, built_packed
from meganeura.saving.atomic import atomic_path
from meganeura.saving.safe_h5 import DamagedFileError
from meganeura.saving.safetensors import load_safetensors, save_safetensors
from meganeura.variable import Variable, at_most, unfilled
from meganeura.zoo.bert import OutputBias, bert_of_files
from meganeura.zoo.gpt2 import STORED_TRANSPOSED, GPT2Config, gpt2
from meganeura.zoo.llama import LlamaConfig, llama
from meganeura.zoo.llama_configs import NORMS_FROM_ZERO, TYPES
from meganeura.zoo.renaming import Renamed
from meganeura.zoo.resnet import ResNetConfig, resnet
from meganeura.zoo.smolvla import SmolVLAConfig, action_expert
from meganeura.zoo.smolvlm import SmolVLMConfig, smolvlm
from meganeura.zoo.texts import local_folder
from meganeura.zoo.unet import UNetConfig, unet
from meganeura.zoo.vit import ClassToken, ViTConfig, siglip_tower, vit
from meganeura.zoo.whisper import WhisperConfig, whisper, whisper_encoder


@dataclass(frozen=True)
class Transform:
    """How a stored tensor becomes a variable: `axes` gives a view of it, `offset` is added to what it holds."""

    axes: Callable[[np.ndarray], np.ndarray] = lambda array: array
    back: Callable[[np.ndarray], np.ndarray] = lambda array: array
    offset: float = 0.0

    def __call__(self, stored: np.ndarray) -> np.ndarray:
        ours = self.axes(stored)
        return ours + np.float32(self.offset) if self.offset else ours

    def stored(self, ours: np.ndarray) -> np.ndarray:
        """From the variable's values to those of the file."""
        stored = self.back(ours)
        return stored - np.float32(self.offset) if self.offset else stored


_same = Transform()
_transposed = Transform(np.transpose, np.transpose)
_from_zero = Transform(offset=1.0)  # a scale that is stored as its difference from 1
_kernel = Transform(  # (out, in, *window) -> (*window, in, out)
    lambda array: np.moveaxis(array, (0, 1), (-1, -2)),
    lambda array: np.moveaxis(array, (-1, -2), (0, 1)),
)


#: Layer class -> {attribute of the layer: (suffix of the stored name, transform)}.
_STORED: dict[type, dict[str, tuple[str, Transform]]] = {
    layers.Dense: {"kernel": ("weight", _transposed), "bias": ("bias", _same)},
    layers.Embedding: {"embeddings": ("weight", _same)},
    layers.ReversibleEmbedding: {"embeddings": ("weight", _same)},
    layers.PositionEmbedding: {"position_embeddings": ("weight", _same)},
    OutputBias: {"bias": ("bias", _same)},
    ClassToken: {
        "cls_token": ("cls_token", _same),
        "position_embeddings": ("position_embeddings", _same),
    },
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

#: Heads, stored a second time where they are tied to an embedding.
_TIED = (
    "lm_head.weight", "proj_out.weight", "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias", "lm_head.decoder.weight", "lm_head.decoder.bias",
    "vocab_projector.weight",
)  # fmt: skip

#: Layers at whose end some models have more than what they are used for here.
_UNUSED = (
    "pooler.dense.weight", "pooler.dense.bias", "cls.seq_relationship.weight",
    "cls.seq_relationship.bias",
)  # fmt: skip

#: Stored tensors that carry no weight of the model.
_IGNORED = (
    "num_batches_tracked",
    "rotary_emb.inv_freq",
    "attn.bias",
    "attn.masked_bias",
    "position_ids",
)


def stored_names(
    model: Any, transposed: Iterable[str] = (), norms_from_zero: bool = False
) -> dict[str, tuple[Any, Transform]]:
    """Stored name -> (variable, transform) for every weight of a zoo model.

    `transposed` lists last parts of layer names whose dense kernels are stored as (in, out); with
    `norms_from_zero` RMS norms are stored as scale - 1.
    """
    table: dict[str, tuple[Any, Transform]] = {}
    for path, layer in _named(model.layers, ""):
        for attribute, (suffix, transform) in _STORED.get(type(layer), {}).items():
            variable = getattr(layer, attribute, None)
            if variable is None:
                continue
            if transform is _transposed and path.split(".")[-1] in transposed:
                transform = _same
            if norms_from_zero and attribute == "scale":
                transform = _from_zero
            table[f"{path}.{suffix}"] = (variable, transform)
    return table


def _named(below: Iterable[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The layers with their names, and those inside them with names behind a dot."""
    for layer in below:
        path = f"{prefix}{layer.name}"
        yield path, layer
        if isinstance(layer, layers.PatchEmbedding) and "patch_embeddings" not in path:
            yield path, layer.projection  # files of SigLIP have no name for it
            continue
        if not isinstance(layer, layers.Wrapper):
            yield from _named(layer._layers, f"{path}.")
            continue
        inner = layer.layer  # what wraps a layer does not change its name
        yield from ((n, x) for n, x in _named([inner], prefix))


def load_weights(
    model: Any,
    tensors: Mapping[str, np.ndarray],
    transposed: Iterable[str] = (),
    norms_from_zero: bool = False,
) -> list[Variable]:
    """Copy stored tensors into a zoo model, one at a time, after checking every name and shape.

    Returns the variables that were filled. Raises ValueError that lists the missing, the unexpected and the
    mis-shaped ones.
    """
    table = stored_names(model, transposed, norms_from_zero)
    missing = sorted(set(table) - set(tensors))
    unexpected = sorted(n for n in set(tensors) - set(table) if not n.endswith(_IGNORED))
    unexpected = [n for n in unexpected if n not in _TIED and not n.endswith(_UNUSED)]
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
    # files whose tensors are packed give them as they are
    packed = getattr(tensors, "packed", None)
    read = _Reader(tensors, max((v.size for v, _ in table.values()), default=0))
    for name, (variable, transform) in table.items():
        if packed is not None and isinstance(variable, PackedVariable):
            stored = packed(name, variable.format)
            if stored is not None:
                variable.assign_packed(stored)
                continue
        variable.assign(read(name, transform, tuple(variable.shape)))
    return [variable for variable, _ in table.values()]


def built_and_loaded(build: Callable[[], Any], load: Callable[[Any], list[Variable]]) -> Any:
    """The model that `build` makes, its weights only from `load`; what that leaves out is drawn after all."""
    with unfilled() as waiting:
        model = build()
    filled = {id(variable) for variable in load(model)}
    for variable, draw in waiting:
        if id(variable) not in filled:
            variable.assign(draw())
    return model


class _Reader:
    """Reads stored tensors as variables want them, one after the other into the same memory: what the
    allocator would keep of one array after the other would add up."""

    def __init__(self, tensors: Any, largest: int):
        self._tensors = tensors
        self._read_into = getattr(tensors, "read_into", None)
        self._memory = np.empty(largest if self._read_into else 0, "float32")

    def __call__(self, name: str, transform: Transform, shape: tuple[int, ...]) -> np.ndarray:
        """The values, until the next call."""
        if self._read_into is None:
            return np.ascontiguousarray(transform(self._tensors[name]))
        ours = self._memory[: math.prod(shape)].reshape(shape)
        self._read_into(name, transform.back(ours))
        if transform.offset:
            ours += np.float32(transform.offset)
        return ours


@dataclass(frozen=True)
class Architecture:
    """How to build the model of a configuration: build(config, names of the stored tensors, **sizes)."""

    build: Callable[..., Any]
    transposed: tuple[str, ...] = ()
    norms_from_zero: bool = False

    def stored_names(self, model: Any) -> dict[str, tuple[Any, Transform]]:
        return stored_names(model, self.transposed, self.norms_from_zero)


def _sized(build: Callable[..., Any], config: Any) -> Callable[..., Any]:
    return lambda source, names, **sizes: build(config(source), **sizes)


def _whisper(source: dict[str, Any], names: Iterable[str], **sizes: Any) -> Any:
    """The whole, or the encoder alone where no more is stored."""
    config = WhisperConfig.from_huggingface(source)
    whole = any(".decoder." in n for n in names)
    return whisper(config, **sizes) if whole else whisper_encoder(config, **sizes)


def _vit(source: dict[str, Any], names: Iterable[str], **sizes: Any) -> Any:
    newer = any(n.startswith("vit.layers.") for n in names)
    return vit(ViTConfig.from_huggingface(source), newer=newer, **sizes)


#: "model_type" (or "kind") of a configuration -> how to build it.
ARCHITECTURES: dict[str, Architecture] = {
    **{
        kind: Architecture(
            _sized(llama, LlamaConfig.from_huggingface), norms_from_zero=kind in NORMS_FROM_ZERO
        )
        for kind in TYPES
    },
    "gpt2": Architecture(_sized(gpt2, GPT2Config.from_huggingface), STORED_TRANSPOSED),
    **{kind: Architecture(bert_of_files) for kind in ("bert", "roberta", "distilbert")},
    "resnet": Architecture(_sized(resnet, ResNetConfig.from_huggingface)),
    "vit": Architecture(_vit),
    "smolvlm": Architecture(_sized(smolvlm, SmolVLMConfig.from_huggingface)),
    "smolvlm_vision": Architecture(_sized(siglip_tower, ViTConfig.from_huggingface)),
    "whisper": Architecture(_whisper),
    "unet": Architecture(_sized(unet, UNetConfig.from_dictionary)),
    "smolvla_expert": Architecture(_sized(action_expert, SmolVLAConfig.from_dictionary)),
}


def architecture(config: Mapping[str, Any]) -> Architecture:
    """The architecture of a `config.json`. Raises ValueError with those that are known."""
    kind = config.get("model_type") or config.get("kind")
    if kind not in ARCHITECTURES:
        raise ValueError(
            f"the configuration is of a model of type {kind!r}; those known are {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[kind]


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The dictionary in a folder's `config.json`. Raises FileNotFoundError, or DamagedFileError."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no config.json")
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DamagedFileError(f"{path} describes no model: {error!r}") from error
    if not isinstance(config, dict):
        raise DamagedFileError(f"{path} describes no model: it holds no table")
    return config


def from_pretrained(
    folder: str | os.PathLike[str], quantize: str | None = None, **sizes: Any
) -> Any:
    """The model that a folder's `config.json` describes, with the weights of its safetensors files.

    A name such as "HuggingFaceTB/SmolLM2-135M" that is no folder is fetched through `huggingface_hub`; a
    `.gguf` file of LLaMA's family is read through the package gguf. quantize: "f16", "q8_0" or "q4_1" packs
    each table as it is read, so that its float32 values are never on the device; "stored" keeps what a
    `.gguf` file holds. `sizes` are the static sizes of the architecture's builder, such as `length=128` or
    `size=(224, 224)`. Raises ValueError for an architecture that is not known, with those that are,
    and where names or shapes of the stored tensors do not fit, with lists of them.
    """
    if os.fspath(folder).endswith(".gguf"):
        from meganeura.zoo.gguf_files import from_gguf

        return from_gguf(folder, quantize, **sizes)
    folder = local_folder(folder)
    config = read_config(folder)
    try:
        kind = architecture(config)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    with load_safetensors(folder) as file:
        tensors = Renamed(file, str(config.get("model_type", "")))
        held = sum(math.prod(tensors.shape(n)) for n in tensors)

        def build() -> Any:
            try:
                # what is missing is told of by name
                with at_most(2 * held + (1 << 16)), built_packed(quantize):
                    return kind.build(config, tuple(tensors), **sizes)
            except KeyError as error:
                raise DamagedFileError(
                    f"{folder / 'config.json'} describes no model: it lacks {error}"
                ) from error

        model = built_and_loaded(
            build, lambda m: load_weights(m, tensors, kind.transposed, kind.norms_from_zero)
        )
    model.folder = folder
    return model


class _Late:
    """A weight in its stored layout, which comes from the device when it is written."""

    def __init__(self, variable: Any, transform: Transform):
        self._variable, self._transform = variable, transform
        self.dtype = variable.dtype
        self.shape = transform.back(np.broadcast_to(np.float32(0), variable.shape)).shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._transform.stored(self._variable.numpy())


def save_pretrained(
    model: Any,
    folder: str | os.PathLike[str],
    config: Any = None,
    dtype: str = "float32",
    max_shard_size: int | str | None = "5GB",
) -> None:
    """Write a model's weights as model.safetensors, under the names and in the layout of Hugging Face.

    config: the dictionary of its `config.json`, which is written as well; without it that of the
    folder that the model came from. dtype: "float32", "float16" or "bfloat16". Weights of more than
    `max_shard_size` go to several files with an index. Raises ValueError where there is no configuration,
    and where LoRA is not merged.
    """
    origin = getattr(model, "folder", None)
    if config is None:
        if origin is None:
            raise ValueError(
                f"save_pretrained: model {model.name!r} came from no folder; give the dictionary of its "
                "config.json as config"
            )
        config = read_config(origin)
    apart = [
        x.name for x in model._flatten_layers() if isinstance(x, Adaptable) and x.lora is not None
        and not x.lora.merged
    ]  # fmt: skip
    if apart:
        raise ValueError(
            f"save_pretrained: layer {apart[0]!r} has LoRA beside its weights, which these files cannot "
            "hold; call models.merge_lora(model) first"
        )
    table = architecture(config).stored_names(model)
    Path(folder).mkdir(parents=True, exist_ok=True)
    tensors = {name: _Late(variable, transform) for name, (variable, transform) in table.items()}
    target = Path(folder) / "model.safetensors"
    save_safetensors(target, tensors, {"format": "pt"}, True, dtype, max_shard_size)
    with atomic_path(Path(folder) / "config.json") as path:
        path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
