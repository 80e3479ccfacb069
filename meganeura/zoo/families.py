"""Language models under their own names, with the sizes of a small published one as the default."""

from __future__ import annotations

from typing import Any

from meganeura.zoo.generation import LanguageModel
from meganeura.zoo.llama import LlamaConfig, llama

SMOLLM2_135M = LlamaConfig(theta=100000.0)
TINYLLAMA_1B = LlamaConfig(32000, 2048, 22, 32, 4, 64, 5632, tied_head=False)
LLAMA3_1B = LlamaConfig(
    128256, 2048, 16, 32, 8, 64, 8192, theta=500000.0,
    rope_scaling={
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
)  # fmt: skip
QWEN2_500M = LlamaConfig(
    151936, 896, 24, 14, 2, 64, 4864, epsilon=1e-6, theta=1e6, qkv_bias=True
)  # fmt: skip
QWEN3_600M = LlamaConfig(151936, 1024, 28, 16, 8, 128, 3072, epsilon=1e-6, theta=1e6, qk_norm=True)
MISTRAL_7B = LlamaConfig(32000, 4096, 32, 32, 8, 128, 14336, tied_head=False, window=4096)
PHI3_MINI = LlamaConfig(
    32064, 3072, 32, 32, 32, 96, 8192, tied_head=False, window=2047, joint_projections=True
)
_GEMMA: dict[str, Any] = {"epsilon": 1e-6, "activation": "gelu_pytorch_tanh", "padding_token": 0}
GEMMA_2B = LlamaConfig(256000, 2048, 18, 8, 1, 256, 16384, embedding_scale=2048**0.5, **_GEMMA)
GEMMA2_2B = LlamaConfig(
    256000, 2304, 26, 8, 4, 256, 9216, embedding_scale=2304**0.5, attention_scale=256**-0.5,
    attention_softcap=50.0, logit_softcap=30.0, post_norms=True, windows=(4096, None) * 13, **_GEMMA,
)  # fmt: skip
GEMMA3_1B = LlamaConfig(
    262144, 1152, 26, 4, 1, 256, 6912, embedding_scale=1152**0.5, attention_scale=256**-0.5,
    post_norms=True, qk_norm=True,
    windows=tuple(512 if (i + 1) % 6 else None for i in range(26)),
    rotary=tuple((1e4 if (i + 1) % 6 else 1e6, None) for i in range(26)),
    **_GEMMA,
)  # fmt: skip


def smollm2(config: LlamaConfig = SMOLLM2_135M, **sizes: Any) -> LanguageModel:
    """SmolLM2 (arXiv 2502.02737); `sizes` are those of `llama`."""
    return llama(config, name="smollm2", **sizes)


def tinyllama(config: LlamaConfig = TINYLLAMA_1B, **sizes: Any) -> LanguageModel:
    """TinyLlama (arXiv 2401.02385)."""
    return llama(config, name="tinyllama", **sizes)


def llama3(config: LlamaConfig = LLAMA3_1B, **sizes: Any) -> LanguageModel:
    """LLaMA 3 (arXiv 2407.21783)."""
    return llama(config, name="llama3", **sizes)


def qwen2(config: LlamaConfig = QWEN2_500M, **sizes: Any) -> LanguageModel:
    """Qwen2 and 2.5 (arXiv 2407.10671): biases on queries, keys and values."""
    return llama(config, name="qwen2", **sizes)


def qwen3(config: LlamaConfig = QWEN3_600M, **sizes: Any) -> LanguageModel:
    """Qwen3 (arXiv 2505.09388): norms on queries and keys."""
    return llama(config, name="qwen3", **sizes)


def mistral(config: LlamaConfig = MISTRAL_7B, **sizes: Any) -> LanguageModel:
    """Mistral (arXiv 2310.06825): a sliding window."""
    return llama(config, name="mistral", **sizes)


def phi3(config: LlamaConfig = PHI3_MINI, **sizes: Any) -> LanguageModel:
    """Phi-3 (arXiv 2404.14219): joint projections."""
    return llama(config, name="phi3", **sizes)


def gemma(config: LlamaConfig = GEMMA_2B, **sizes: Any) -> LanguageModel:
    """Gemma (arXiv 2403.08295), and with GEMMA2_2B or GEMMA3_1B the later ones."""
    return llama(config, name="gemma", **sizes)
