"""The models of the benchmarks in PyTorch, layer for layer those of bench/workloads.py."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(1600, 10),
    )  # fmt: skip


def _heads(x: torch.Tensor, count: int) -> torch.Tensor:
    """(batch, length, count * width) -> (batch, count, length, width)."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    grouped = q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    return out.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """Pre-norm transformer block: causal attention and a GELU feed-forward layer."""

    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-3), nn.LayerNorm(width, 1e-3)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        q, k, v = (_heads(f(h), self.heads) for f in (self.q, self.k, self.v))
        x = x + self.o(_attend(q, k, v, causal=True))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def transformer() -> nn.Module:
    return nn.Sequential(Block(256, 4, 1024), Block(256, 4, 1024))


def resnet50() -> nn.Module:
    import torchvision

    return torchvision.models.resnet50()


class Residual(nn.Module):
    """skip(x) + conv(act(conv(act(x)))) with group normalization."""

    def __init__(self, inputs: int, outputs: int, groups: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(groups, n) for n in (inputs, outputs))
        self.convs = nn.ModuleList(
            nn.Conv2d(n, outputs, 3, padding=1, bias=False) for n in (inputs, outputs)
        )
        same = inputs == outputs
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            h = conv(F.silu(norm(h)))
        return self.skip(x) + h


class UNet(nn.Module):
    """meganeura.zoo.unet's layout."""

    def __init__(self, base: int, groups: int):
        super().__init__()
        a, b, c = base, 2 * base, 4 * base

        def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
            return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)

        self.enter, self.leave = conv(4, a), conv(a, 4)
        self.down1, self.down2 = conv(a, a, 2), conv(b, b, 2)
        self.e1, self.e2, self.e3 = (Residual(i, o, groups) for i, o in ((a, a), (a, b), (b, c)))
        self.middle = Residual(c, c, groups)
        self.d3, self.d2, self.d1 = (
            Residual(i, o, groups) for i, o in ((c + c, c), (c + b, b), (b + a, a))
        )
        self.norm = nn.GroupNorm(groups, a)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.e1(self.enter(x))
        two = self.e2(self.down1(one))
        three = self.e3(self.down2(two))
        x = self.d3(torch.cat([self.middle(three), three], 1))
        x = self.d2(torch.cat([F.interpolate(x, scale_factor=2), two], 1))
        x = self.d1(torch.cat([F.interpolate(x, scale_factor=2), one], 1))
        return self.leave(F.silu(self.norm(x)))


class Expert(nn.Module):
    """meganeura.zoo.smolvla's action expert."""

    def __init__(self) -> None:
        super().__init__()
        width, kv, heads, groups, inner = 720, 320, 15, 5, 2048
        self.heads, self.groups = heads, groups
        self.enter, self.leave = nn.Linear(32, width), nn.Linear(width, 32)
        self.time = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList()
        for i in range(16):
            source = width if i % 2 == 0 else kv
            sizes = {
                "q": (width, heads * 64), "k": (source, groups * 64), "v": (source, groups * 64),
                "o": (heads * 64, width), "gate": (width, inner), "up": (width, inner), "down": (inner, width),
            }  # fmt: skip
            block = nn.ModuleDict({k: nn.Linear(*s, bias=False) for k, s in sizes.items()})
            block["norm1"], block["norm2"] = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
            self.blocks.append(block)

    def forward(
        self, actions: torch.Tensor, timestep: torch.Tensor, context: torch.Tensor
    ) -> torch.Tensor:
        x = self.enter(actions) + self.time(timestep)
        for i, block in enumerate(self.blocks):
            h = block["norm1"](x)
            source = h if i % 2 == 0 else context
            q = _heads(block["q"](h), self.heads)
            k, v = (_heads(block[part](source), self.groups) for part in "kv")
            x = x + block["o"](_attend(q, k, v, causal=False))
            h = block["norm2"](x)
            x = x + block["down"](F.silu(block["gate"](h)) * block["up"](h))
        return self.leave(x)


def smollm2() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
        tie_word_embeddings=True, rms_norm_eps=1e-5,
    )  # fmt: skip
    return _Taking(LlamaForCausalLM(config), "logits", use_cache=False)


def whisper_encoder() -> nn.Module:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536,
    )  # fmt: skip
    return _Taking(WhisperModel(config).encoder, "last_hidden_state")


class _Taking(nn.Module):
    """A transformers model, of whose output one part is wanted."""

    def __init__(self, inner: nn.Module, part: str, **options: bool):
        super().__init__()
        self.inner, self.part, self.options = inner, part, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(self.inner(x, **self.options), self.part)


MODELS = {
    "mlp_b32_sgd": mlp,
    "convnet_b128_adam": convnet,
    "transformer_b8_adam": transformer,
    "resnet50_b16_sgd": resnet50,
    "unet_tiny_b4_adam": lambda: UNet(32, 8),
    "unet_small_b2_adam": lambda: UNet(64, 16),
    "smolvla_c50_sgd": Expert,
    "smollm2_s128_adam": smollm2,
    "whisper_encoder_adam": whisper_encoder,
}
