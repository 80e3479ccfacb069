"""Models of LLaMA's family from GGUF files (through the `gguf` package, an extra).

The file's keys become a configuration of Hugging Face, its tensors get the names of Hugging Face, and the
rest is what `from_pretrained` does. Blocks of quantised weights stay as they are where that is asked for, and
are expanded otherwise, one tensor at a time.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from meganeura.quantization.formats import FORMATS, Format, Packed, from_parts
from meganeura.quantization.variable import built_packed, refusal
from meganeura.saving.gguf_header import check_gguf
from meganeura.saving.safe_h5 import DamagedFileError
from meganeura.variable import at_most
from meganeura.zoo.pretrained import architecture, built_and_loaded, load_weights

#: The architecture in the file -> Hugging Face's class, and whether rows of queries and keys lie in pairs.
FAMILIES = {"llama": ("LlamaForCausalLM", True), "qwen2": ("Qwen2ForCausalLM", False)}

_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INSIDE = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip

#: Key of a configuration -> key of the file, after the architecture's name.
_SIZES = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count", "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}  # fmt: skip


#: Types of tensors that packed tables hold bit for bit: the format, and how many halves a block begins with.
#: Q4_0's value d (q - 8) is Q4_1's d q + m with m = -8 d.
_PACKED = {"F16": ("f16", 0), "Q8_0": ("q8_0", 1), "Q4_0": ("q4_1", 1), "Q4_1": ("q4_1", 2)}

#: `quantize=AS_STORED` keeps each tensor in the format that it has in the file.
AS_STORED = "stored"


class GgufTensors(Mapping[str, np.ndarray]):
    """The tensors of a file by Hugging Face's names, as float32, each expanded when it is asked for."""

    def __init__(self, reader: Any, heads: Mapping[str, int]):
        self._heads = heads  # "q_proj" and "k_proj", where their rows lie in pairs
        self._tensors = {_renamed(t.name): t for t in reader.tensors}

    def __getitem__(self, name: str) -> np.ndarray:
        from gguf import quants

        tensor = self._tensors[name]
        array = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        return self._rows(name, array.reshape(self.shape(name)))

    def _rows(self, name: str, array: np.ndarray) -> np.ndarray:
        """The rows as Hugging Face orders them: (first, second) of each rotated pair side by side become all
        firsts, then all seconds."""
        heads = self._heads.get(name.split(".")[-2])
        if heads is None:
            return array
        paired = array.reshape(heads, -1, 2, *array.shape[1:])
        return paired.swapaxes(1, 2).reshape(array.shape)

    def format(self, name: str) -> Format | None:
        """The format that holds a tensor bit for bit, if there is one."""
        if name not in self._tensors or len(self.shape(name)) != 2:
            return None
        known = _PACKED.get(self._tensors[name].tensor_type.name)
        kind = FORMATS[known[0]] if known else None
        return None if kind is None or refusal(kind, self.shape(name)[1]) else kind

    def packed(self, name: str, kind: Format) -> Packed | None:
        """A tensor as it is stored, if that is the format's own way."""
        if self.format(name) is not kind:
            return None
        tensor, (rows, columns) = self._tensors[name], self.shape(name)
        _, halves = _PACKED[tensor.tensor_type.name]
        data = np.ascontiguousarray(tensor.data).view(np.uint8)
        blocks = self._rows(name, data.reshape(rows, -1)).reshape(rows, columns // kind.block, -1)
        scales = np.ascontiguousarray(blocks[..., : 2 * halves]).view("<f2")
        if halves < kind.halves:
            scales = np.concatenate([scales, scales * np.float16(-8)], axis=-1)
        return from_parts(kind, blocks[..., 2 * halves :].reshape(rows, -1), scales)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def __contains__(self, name: object) -> bool:  # Mapping's own would expand the tensor
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _renamed(name: str) -> str:
    inside = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if inside and inside[2] in _INSIDE:
        return f"model.layers.{inside[1]}.{_INSIDE[inside[2]]}.{inside[3]}"
    stem, _, kind = name.rpartition(".")
    if stem in _OUTSIDE:
        return f"{_OUTSIDE[stem]}.{kind}"
    raise ValueError(f"the tensor {name!r} of the file has no place in the models that are offered")


def from_gguf(path: str | os.PathLike[str], quantize: str | None = None, **sizes: Any) -> Any:
    """The model in a `.gguf` file of LLaMA or Qwen2.

    quantize: "stored" keeps tensors of Q8_0, Q4_1, Q4_0 and F16 packed, bit for bit; the name of a format
    packs all tables in it; without it, and for tensors of other types, weights are expanded to float32.
    `sizes` are those of the builder, such as `length=128`. Raises ImportError without the package gguf;
    ValueError for other families, for positions that are scaled, and for tensors that are missing or
    misshapen; DamagedFileError for files that are not sound.
    """
    try:
        import gguf
    except ImportError as error:
        raise ImportError(
            f"reading {path} needs the package gguf: pip install meganeura[gguf], or pip install gguf"
        ) from error

    kinds = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    check_gguf(path, kinds, {int(kind): kind.name for kind in gguf.GGML_QUANT_SIZES})
    try:
        reader = gguf.GGUFReader(os.fspath(path))
    except Exception as error:
        raise DamagedFileError(f"{path} is not a sound GGUF file: {error}") from error

    def value(key: str, default: Any = None) -> Any:
        found = reader.get_field(key)
        if found is None and default is None:
            raise DamagedFileError(f"{path} has no key {key!r}")
        return default if found is None else found.contents()

    family = value("general.architecture")
    if family not in FAMILIES:
        raise ValueError(f"{path} is of the architecture {family!r}; offered are {list(FAMILIES)}")
    if value(f"{family}.rope.scaling.type", "none") != "none":
        raise ValueError(f"{path} scales its positions (rope.scaling.type), which is not offered")
    kind, paired = FAMILIES[family]
    config = {name: value(f"{family}.{key}") for name, key in _SIZES.items()}
    heads = config["num_attention_heads"]
    config["num_key_value_heads"] = value(f"{family}.attention.head_count_kv", heads)
    config["rope_theta"] = value(f"{family}.rope.freq_base", 10000.0)
    config["head_dim"] = value(f"{family}.attention.key_length", config["hidden_size"] // heads)
    counts = {"q_proj": heads, "k_proj": config["num_key_value_heads"]}
    tensors = GgufTensors(reader, counts if paired else {})
    for needed in ("model.embed_tokens.weight", "model.norm.weight"):
        if needed not in tensors:
            raise DamagedFileError(f"{path} lacks the tensor of {needed!r}")
    config |= {
        "architectures": [kind], "model_type": family, "hidden_act": "silu",
        "vocab_size": tensors.shape("model.embed_tokens.weight")[0],
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "attention_bias": "model.layers.0.self_attn.q_proj.bias" in tensors,
    }  # fmt: skip
    built = architecture(config)
    held = sum(math.prod(tensors.shape(n)) for n in tensors)

    def stored(layer: Any, columns: int) -> Format | None:
        return tensors.format(f"{layer.name}.weight")

    def build() -> Any:
        choice = stored if quantize == AS_STORED else quantize
        with at_most(2 * held + (1 << 16)), built_packed(choice):
            return built.build(config, tuple(tensors), **sizes)

    return built_and_loaded(
        build, lambda m: load_weights(m, tensors, built.transposed, built.norms_from_zero)
    )
