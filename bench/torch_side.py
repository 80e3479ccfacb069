"""PyTorch's side of the benchmarks: the same models, run eagerly, compiled, and as one CUDA graph.

`captured` replays the whole step (forward, loss, backward, update) as one CUDA graph: the nearest
thing to the limit that PyTorch offers, and the bar that matters.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Pre-norm transformer block: causal attention and a GELU feed-forward layer."""

    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-3), nn.LayerNorm(width, 1e-3)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        h = self.norm1(x)
        q, k, v = (
            f(h).view(batch, length, self.heads, -1).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(1600, 10),
    )  # fmt: skip


def transformer() -> nn.Module:
    return nn.Sequential(Block(256, 4, 1024), Block(256, 4, 1024))


WORKLOADS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, str]] = {
    # name: (model, input shape, loss, optimizer)
    "mlp_b32_sgd": (mlp, (32, 784), "cross_entropy", "SGD"),
    "convnet_b128_adam": (convnet, (128, 1, 28, 28), "cross_entropy", "Adam"),
    "transformer_b8_adam": (transformer, (8, 128, 256), "mse", "Adam"),
}


def captured(step: Callable[[], Any]) -> Callable[[], Any]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def median_ms(step: Callable[[], Any], calls: int, blocks: int, device: str) -> float:
    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        step()
    times = []
    for _ in range(blocks):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            step()
        wait()
        times.append((time.perf_counter() - start) / calls * 1e3)
    return statistics.median(times)


def measure(name: str, mode: str, calls: int = 20, blocks: int = 5) -> dict[str, float]:
    """Medians in milliseconds of a training step and an inference, float32 with TF32 off.

    mode: "eager", "compile" or "captured" (CUDA only).
    """
    build, shape, loss_name, optimizer_name = WORKLOADS[name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    model = build().to(device).train()
    x = torch.randn(*shape, device=device)
    if loss_name == "mse":
        target, loss = torch.randn(*shape, device=device), F.mse_loss
    else:
        target, loss = torch.randint(0, 10, (shape[0],), device=device), F.cross_entropy
    options = {"capturable": True} if mode == "captured" and optimizer_name == "Adam" else {}
    optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), lr=1e-4, **options)
    forward = torch.compile(model) if mode == "compile" else model

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(forward(x), target).backward()
        optimizer.step()

    @torch.no_grad()
    def infer() -> None:
        forward(x)

    wrap = captured if mode == "captured" else (lambda step: step)
    result = {"train": median_ms(wrap(train), calls, blocks, device)}
    model.eval()
    result["infer"] = median_ms(wrap(infer), calls, blocks, device)
    if device == "cuda":
        result["peak_bytes"] = float(torch.cuda.max_memory_allocated())
    return result
