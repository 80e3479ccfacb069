"""How much host memory loading a model takes beyond the copy on the device.

    python bench/load_memory.py [--bytes 1e9] [--dtype bfloat16]

With a file of 1 GB on NumPy: 1.01 of the largest tensor, in float32 and in bfloat16.

Writes a folder with a LLaMA of so many bytes, its largest tensor a quarter of them, loads it with
`from_pretrained` in a new process, and prints the peak of the resident set (VmHWM of /proc/self/status,
so on Linux alone) less what it was before, less the weights on the device, over the largest tensor's
bytes in float32. On NumPy the model's own arrays are the device.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def write(folder: Path, size: float, dtype: str, blocks: int = 8) -> None:
    """A model whose embedding takes a quarter of `size`, and the blocks the rest, in files of `dtype`."""
    from meganeura.saving.safetensors import save_safetensors

    elements = size / (4 if dtype == "float32" else 2)
    width = max(64, int((0.75 * elements / blocks / 16) ** 0.5) // 64 * 64)  # 16 width^2 in a block
    words = int(0.25 * elements / width)
    config = {
        "model_type": "llama", "vocab_size": words, "hidden_size": width, "intermediate_size": 4 * width,
        "num_hidden_layers": blocks, "num_attention_heads": width // 64, "tie_word_embeddings": True,
        "max_position_embeddings": 64,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (words, width), "model.norm.weight": (width,)}
    for i in range(blocks):
        path = f"model.layers.{i}"
        for part in "qkvo":
            shapes[f"{path}.self_attn.{part}_proj.weight"] = (width, width)
        for part, shape in {"gate": (4, 1), "up": (4, 1), "down": (1, 4)}.items():
            shapes[f"{path}.mlp.{part}_proj.weight"] = (shape[0] * width, shape[1] * width)
        for part in ("input", "post_attention"):
            shapes[f"{path}.{part}_layernorm.weight"] = (width,)
    tensors = {name: _Drawn(shape, rng) for name, shape in shapes.items()}
    save_safetensors(folder / "model.safetensors", tensors, dtype=dtype, max_shard_size="400MB")


class _Drawn:
    """A tensor that is drawn when it is written."""

    dtype = "float32"

    def __init__(self, shape: tuple[int, ...], rng: np.random.Generator):
        self.shape, self._rng = shape, rng

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._rng.standard_normal(self.shape, "float32")


def measure(folder: Path) -> dict[str, float]:
    """Load the folder in this process. The peak is counted from the moment before."""
    import meganeura as mg
    from meganeura.backend import backend_object

    backend_object()
    mg.models.llama(mg.models.LlamaConfig(64, 64, 1, 1, 1, 64, 64))  # what is imported late
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    model = mg.models.from_pretrained(folder)
    backend_object().synchronize()
    pool = getattr(backend_object(), "pool", None)
    device = pool.live_bytes if pool is not None else sum(v.nbytes for v in model.weights)
    largest = max(v.nbytes for v in model.weights)
    peak = _status("VmHWM")
    return {
        "device": device, "largest": largest, "peak": peak - before,
        "beyond": peak - before - device, "ratio": (peak - before - device) / largest,
    }  # fmt: skip


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bytes", type=float, default=1e9)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder is not None:
        print(json.dumps(measure(given.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), given.bytes, given.dtype)
        stored = sum(p.stat().st_size for p in Path(name).glob("*.safetensors"))
        command = [sys.executable, __file__, "--folder", name]
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found = json.loads(out.splitlines()[-1])
        text = ", ".join(f"{k} {v / 1e6:.1f} MB" for k, v in found.items() if k != "ratio")
        print(f"{stored / 1e6:.1f} MB of {given.dtype}: {text}")
        print(f"beyond the device's copy: {found['ratio']:.3f} of the largest tensor")


if __name__ == "__main__":
    main()
