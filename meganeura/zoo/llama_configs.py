"""Hugging Face's configurations of the LLaMA family, in the words of `LlamaConfig`."""

from __future__ import annotations

from typing import Any

#: The types of configurations that are understood.
TYPES = (
    "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text", "gemma3",
    "smollm3",
)  # fmt: skip

#: Types whose RMS norms multiply by 1 + weight.
NORMS_FROM_ZERO = ("gemma", "gemma2", "gemma3_text", "gemma3")

#: Type -> what a configuration means where it does not say it (its class's defaults in transformers).
_DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096, "max_window_layers": 28},
    "phi3": {"rms_norm_eps": 1e-5, "pad_token_id": 32000},
    "smollm3": {"num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": True,
                "pad_token_id": 128004},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
               "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
               "final_logit_softcapping": 30.0},
    "gemma3_text": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
                    "query_pre_attn_scalar": 256, "rope_theta": 1e6, "rope_local_base_freq": 1e4},
}  # fmt: skip

#: What the files of Gemma 3 that know pictures leave out of their text's configuration.
_GEMMA3 = {"vocab_size": 262208, "num_attention_heads": 8}


def _rope(config: dict[str, Any], kind: str | None = None) -> tuple[float, dict[str, Any] | None]:
    """Base and scaling of the rotation, from the newer place or from the older ones."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if kind is not None and kind in rope:
        rope = dict(rope[kind] or {})
    default = config.get("rope_theta") or 10000.0
    if kind == "sliding_attention":
        default = config.get("rope_local_base_freq") or default
    theta = float(rope.get("rope_theta", default))
    name = rope.get("rope_type", rope.get("type", "default"))
    if name == "default":
        return theta, None
    if name == "su":  # as the first Phi-3 files called it
        rope["rope_type"] = "longrope"
    longest = config.get("max_position_embeddings")
    original = config.get("original_max_position_embeddings")
    rope.setdefault("max_position_embeddings", longest)
    rope.setdefault("original_max_position_embeddings", original or longest)
    return theta, rope


def _windows(config: dict[str, Any], kind: str, count: int) -> tuple[int | None, ...] | None:
    """How far each layer sees, where that differs; the older files give a pattern instead of a list."""
    window = config.get("sliding_window")
    types = config.get("layer_types")
    if window is None or (
        kind in ("qwen2", "qwen3", "smollm3") and not config.get("use_sliding_window", False)
    ):
        return None
    if types is None:
        if kind == "gemma2":
            types = ["full_attention" if i % 2 else "sliding_attention" for i in range(count)]
        elif kind == "gemma3_text":
            every = config.get("sliding_window_pattern", 6)
            types = [
                "sliding_attention" if (i + 1) % every else "full_attention" for i in range(count)
            ]
        elif kind in ("qwen2", "qwen3"):
            first = config.get("max_window_layers", 0)
            types = ["sliding_attention" if i >= first else "full_attention" for i in range(count)]
        elif kind in ("mistral", "phi3"):
            types = ["sliding_attention"] * count
        else:
            return None
    if kind in ("mistral", "phi3"):
        types = ["sliding_attention"] * count
    return tuple(window if t == "sliding_attention" else None for t in types)


def llama_config(config: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `LlamaConfig`. Raises ValueError for what the family's code does not do."""
    kind = config.get("model_type", "llama")
    if kind == "gemma3":  # its text model; the pictures' is left out
        config = {**_GEMMA3, **config["text_config"]}
        kind = "gemma3_text"
    config = {**_DEFAULTS.get(kind, {}), **config}
    heads, count = config["num_attention_heads"], config["num_hidden_layers"]
    gemma = kind in NORMS_FROM_ZERO
    head_width = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {}
    partial = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    bias = bool(config.get("attention_bias", kind == "qwen2"))
    if kind == "qwen2":
        bias = True
    if config.get("use_bidirectional_attention"):
        raise ValueError(f"{kind}: attention in both directions is not offered for this family")
    theta, scaling = _rope(config, "full_attention")
    windows = _windows(config, kind, count)
    rotary: tuple[Any, ...] | None = None
    if kind == "gemma3_text":
        local = _rope(config, "sliding_attention")
        if not config.get("rope_parameters"):
            local = (float(config["rope_local_base_freq"]), None)
        rotary = tuple((theta, scaling) if w is None else local for w in windows or [None] * count)
    if kind == "smollm3":
        turns = config.get("no_rope_layers")
        every = config.get("no_rope_layer_interval", 4)
        turns = turns or [int((i + 1) % every != 0) for i in range(count)]
        rotary = tuple((theta, scaling) if turn else None for turn in turns)
    scalar = config.get("query_pre_attn_scalar")
    return {
        "vocabulary": config["vocab_size"],
        "width": config["hidden_size"],
        "layers": count,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_width": head_width,
        "inner": config["intermediate_size"],
        "epsilon": config.get("rms_norm_eps", 1e-6),
        "theta": theta,
        "rope_scaling": scaling,
        "rotary_width": int(head_width * partial) if partial != 1.0 else None,
        "tied_head": config.get("tie_word_embeddings", gemma),
        "qkv_bias": bias,
        "output_bias": bias and kind != "qwen2",
        "mlp_bias": bool(config.get("mlp_bias", False)),
        "qk_norm": kind in ("qwen3", "gemma3_text"),
        "activation": config.get("hidden_activation") or config.get("hidden_act") or "silu"
        if not gemma
        else config.get("hidden_activation") or "gelu_pytorch_tanh",
        "joint_projections": kind == "phi3",
        "post_norms": kind in ("gemma2", "gemma3_text"),
        "embedding_scale": config["hidden_size"] ** 0.5 if gemma else None,
        "attention_scale": scalar**-0.5 if scalar and kind != "gemma" else None,
        "attention_softcap": config.get("attn_logit_softcapping"),
        "logit_softcap": config.get("final_logit_softcapping"),
        "padding_token": config.get("pad_token_id", 0 if gemma else None),
        "windows": windows,
        "rotary": rotary,
    }
