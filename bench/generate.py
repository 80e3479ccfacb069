"""Time generation on SmolLM2-135M's layout with random weights, and transformers on the same device.

python bench/generate.py [--layers 30] [--prompt 128] [--tokens 256] [--modes eager,static]
                         [--quantize q8_0] [--json FILE]

Prefill is the time until the first new token is on the host. Decoding is greedy, one text at a time.
The floor is the time in which the weights and the cache could be read, at the bandwidth that a copy of
128 MB reaches on this device.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np  # noqa: E402

import meganeura as mg  # noqa: E402
from meganeura import ops  # noqa: E402
from meganeura.backend import backend_object  # noqa: E402
from meganeura.variable import Variable  # noqa: E402
from meganeura.zoo.families import SMOLLM2_135M  # noqa: E402
from meganeura.zoo.llama import llama  # noqa: E402


def median(run: Callable[[], None], times: int = 5) -> float:
    """Seconds of a call, the first one left out."""
    run()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def bandwidth() -> float:
    """Bytes per second that adding 1 to an array of 128 MB reads and writes."""
    from meganeura.execution import compiled
    from meganeura.graph.trace import Trace

    v = Variable(np.zeros(1 << 25, "float32"))
    with Trace() as trace:
        v.assign(ops.add(v.value, 1.0))
    executable = compiled(trace.graph([]))

    def run() -> None:
        executable.run_many([], [v.handle], 20)
        backend_object().synchronize()

    return 20 * 2 * 4 * v.size / median(run)


def ours(
    config: Any, prompt: list[int], tokens: int, quantize: str | None = None
) -> dict[str, float]:
    model = llama(config)
    if quantize:
        print(str(model.quantize(quantize)).splitlines()[-1])
    rows = [np.asarray(prompt, "int32")]
    model.generate(prompt, tokens)
    session = model._generation[1]

    def prefill() -> None:
        session.start(rows, {}, 0, (), 0)
        session.read(0, 1)

    def decode() -> None:
        session.advance(tokens - 1)
        session.read(0, tokens)

    first = median(prefill)
    session.start(rows, {}, 0, (), 0)
    session.read(0, 1)
    start = time.perf_counter()
    decode()
    each = (time.perf_counter() - start) / (tokens - 1)
    for _ in range(3):
        session.start(rows, {}, 0, (), 0)
        session.read(0, 1)
        start = time.perf_counter()
        decode()
        each = min(each, (time.perf_counter() - start) / (tokens - 1))

    def streamed() -> None:
        model.generate(prompt, 32, callback=lambda new: None)

    report = session._step.executable.report()
    weights = sum(w.nbytes for w in model.weights)
    return {
        "prefill_ms": first * 1e3,
        "decode_ms": each * 1e3,
        "tokens_per_second": 1 / each,
        "streamed_tokens_per_second": 31 / (median(streamed, 3) - first),
        "dispatches": float(report.get("dispatches", 0)),
        "read_bytes": float(weights + session.decoding.bytes),
    }


def theirs(config: Any, prompt: list[int], tokens: int, mode: str) -> dict[str, float]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocabulary, hidden_size=config.width, intermediate_size=config.inner,
            num_hidden_layers=config.layers, num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads, max_position_embeddings=2048,
            tie_word_embeddings=True, rms_norm_eps=config.epsilon, eos_token_id=None,
            bos_token_id=None, pad_token_id=0,
        )
    ).to(device).eval()  # fmt: skip
    ids = torch.tensor([prompt], device=device)
    options: dict[str, Any] = {"do_sample": False, "attention_mask": torch.ones_like(ids)}
    if mode == "static":  # transformers compiles its decoding step for a cache of fixed size
        options["cache_implementation"] = "static"

    def generate(count: int) -> Callable[[], None]:
        def run() -> None:
            out = model.generate(ids, max_new_tokens=count, min_new_tokens=count, **options)
            assert out.cpu().shape[1] == len(prompt) + count

        return run

    first = median(generate(1), 3)
    whole = median(generate(tokens), 2)
    each = (whole - first) / (tokens - 1)
    return {"prefill_ms": first * 1e3, "decode_ms": each * 1e3, "tokens_per_second": 1 / each}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--modes", default="eager,static", help="how transformers decodes")
    parser.add_argument("--no-training", action="store_true", help="leave the training step out")
    parser.add_argument(
        "--calls", type=int, default=20, help="training steps in each of five blocks"
    )
    parser.add_argument(
        "--quantize", help="a second row with weights in this format: f16, q8_0, q4_1"
    )
    parser.add_argument("--json", help="write the figures to this file as well")
    arguments = parser.parse_args()
    config = dataclasses.replace(SMOLLM2_135M, layers=arguments.layers)
    prompt = np.random.default_rng(0).integers(1, config.vocabulary, arguments.prompt).tolist()
    device = mg.backend.describe()
    rate = bandwidth()
    print(f"meganeura {mg.__version__} on {device}; a copy reaches {rate / 1e9:.0f} GB/s")
    figures = {"meganeura": ours(config, prompt, arguments.tokens)}
    if arguments.quantize:
        figures[f"meganeura {arguments.quantize}"] = ours(
            config, prompt, arguments.tokens, arguments.quantize
        )
    for found in figures.values():
        found["floor_ms"] = found["read_bytes"] / rate * 1e3
        found["of_the_floor"] = found["floor_ms"] / found["decode_ms"]
    own = figures["meganeura"]
    torch = importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")
    for mode in arguments.modes.split(",") if torch else ():
        try:
            found = theirs(config, prompt, arguments.tokens, mode)
            figures[f"transformers {mode}"] = found
        except Exception as error:  # one mode that fails must not hide the others
            print(f"transformers {mode}: {str(error)[:200]}")
    if not arguments.no_training and arguments.layers == 30:
        import workloads

        name = "smollm2_s128_adam"
        own["train_ms"] = workloads.measure(name, arguments.calls)["train"]
        for mode in ("eager", "captured") if torch else ():
            import torch_side

            try:
                found = torch_side.measure(name, mode, arguments.calls)
                figures.setdefault(f"transformers {mode}", {})["train_ms"] = found["train"]
            except Exception as error:
                print(f"transformers {mode}, training: {str(error)[:200]}")
    keys = ("prefill_ms", "decode_ms", "tokens_per_second", "train_ms")
    print(f"{'':22s}" + "".join(f"{k:>20s}" for k in keys))
    for who, found in figures.items():
        shown = "".join(f"{found[k]:20.3f}" if k in found else f"{'-':>20s}" for k in keys)
        print(f"{who:22s}{shown}")
    for who, found in figures.items():
        if "dispatches" not in found:
            continue
        print(
            f"{who}, a token: {found['dispatches']:.0f} dispatches, {found['read_bytes'] / 1e6:.0f} MB, floor "
            f"{found['floor_ms']:.3f} ms, of which decoding is at {100 * found['of_the_floor']:.0f} %; "
            f"{found['streamed_tokens_per_second']:.0f} tokens/s where each is looked at"
        )
    if arguments.json:
        command = " ".join(["python", *sys.argv])
        Path(arguments.json).write_text(
            json.dumps({"device": device, "command": command, "figures": figures}, indent=1)
        )


if __name__ == "__main__":
    main()
