"""PyTorch's side of the benchmarks: the same models, run eagerly, compiled, and as one CUDA graph.

`captured` replays the whole step (forward, loss, backward, update) as one CUDA graph: the nearest
thing to the limit that PyTorch offers, and the bar that matters.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torch_models
import workloads


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

    def block(count: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        return time.perf_counter() - start

    for _ in range(3):
        step()
    count = workloads.block_length(calls, block(calls))
    return statistics.median(block(count) / count * 1e3 for _ in range(blocks))


def _tensors(arrays: tuple[np.ndarray, ...], device: str) -> list[torch.Tensor]:
    """Channels go first where there is an image; class numbers and tokens are 64 bits wide here."""
    found = []
    for array in arrays:
        tensor = torch.from_numpy(array)
        tensor = tensor.long() if array.dtype == np.int32 else tensor
        found.append((tensor.permute(0, 3, 1, 2) if array.ndim == 4 else tensor).to(device))
    return found


def measure(
    name: str, mode: str, calls: int = 20, blocks: int = 5, half: bool = False
) -> dict[str, float]:
    """Medians in milliseconds of a training step and an inference, float32 with TF32 off.

    mode: "eager", "compile" or "captured" (CUDA only); half: under autocast, without a scale for the loss.
    """
    workload = workloads.WORKLOADS[name]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = torch_models.MODELS[name]().to(device).train()
    inputs, targets = workload.data(np.random.default_rng(0))
    x = _tensors(inputs, device)
    if name == "whisper_encoder_adam":
        x = [t.transpose(1, 2) for t in x]  # (batch, mels, frames)
    (y,) = _tensors((targets,), device)
    loss = F.mse_loss if workload.loss == "mse" else F.cross_entropy
    kind = {"sgd": "SGD", "adam": "Adam"}[name.rsplit("_", 1)[1]]
    options = {"capturable": True} if mode == "captured" and kind == "Adam" else {}
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-4, **options)
    forward = torch.compile(model) if mode == "compile" else model

    def mixed() -> Any:
        return torch.autocast(device, torch.float16, enabled=half, cache_enabled=False)

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        with mixed():
            out = forward(*x)
            if out.ndim == 3 and y.ndim == 2:  # tokens: one class for each
                value = loss(out.flatten(0, 1), y.flatten())
            else:
                value = loss(out, y)
        value.backward()
        optimizer.step()

    @torch.no_grad()
    def infer() -> None:
        with mixed():
            forward(*x)

    wrap = captured if mode == "captured" else (lambda step: step)
    result = {"train": median_ms(wrap(train), calls, blocks, device)}
    if device == "cuda":
        result["peak_bytes"] = float(torch.cuda.max_memory_allocated())
    model.eval()
    result["infer"] = median_ms(wrap(infer), calls, blocks, device)
    return result
