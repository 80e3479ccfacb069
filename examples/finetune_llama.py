"""Train a tiny language model of LLaMA's layout on this repository's text, then fine-tune it with LoRA.

    python examples/finetune_llama.py [--epochs 6] [--lora-epochs 4]

First all weights learn the documentation, letter by letter. Then everything is frozen, thin factors beside
the attention's and the feed-forward's weights learn the program text, and what the model writes changes.
"""

import argparse
from pathlib import Path

import numpy as np

import meganeura as mg
from meganeura.zoo.llama import LlamaConfig, llama

ROOT = Path(__file__).resolve().parents[1]


def encode(text: str) -> list[int]:
    """One token for each byte that is plain text."""
    return [b for b in text.encode("ascii", "ignore") if b < 128]


def decode(tokens: np.ndarray) -> str:
    return bytes(int(t) for t in tokens).decode("ascii")


def texts(pattern: str, limit: int) -> list[list[int]]:
    """The paragraphs of these files, up to `limit` letters."""
    pieces, total = [], 0
    for path in sorted(ROOT.glob(pattern)):
        for piece in path.read_text("utf-8").split("\n\n"):
            tokens = encode(piece + "\n\n")
            if 20 < len(tokens) and total < limit:
                pieces.append(tokens)
                total += len(tokens)
    return pieces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6, help="of all weights, on documentation")
    parser.add_argument("--lora-epochs", type=int, default=4, help="of LoRA, on program text")
    parser.add_argument("--length", type=int, default=128, help="letters in a row")
    parser.add_argument("--letters", type=int, default=60000, help="of each kind of text")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    mg.utils.set_random_seed(arguments.seed)
    config = LlamaConfig(
        vocabulary=128, width=arguments.width, layers=arguments.layers, heads=4, kv_heads=2,
        head_width=arguments.width // 4, inner=3 * arguments.width,
    )  # fmt: skip
    model = llama(config, packed=True)
    writer = llama(config)  # the same without segments, to write with
    print(f"{model.count_params():,} weights; {mg.backend.describe()}")
    prompt = encode("The ")

    def train(kind: str, pattern: str, epochs: int, rate: float) -> None:
        packed = mg.utils.pack_sequences(texts(pattern, arguments.letters), arguments.length)
        loss = mg.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(
            mg.optimizers.AdamW(rate, learning_rate_multipliers={"embed_tokens": 0.5}),
            loss,
            weighted_metrics=[mg.metrics.Perplexity(from_logits=True)],
        )
        history = model.fit(
            {"ids": packed.ids, "segments": packed.segments},
            packed.labels,
            sample_weight=packed.sample_weight,
            batch_size=16,
            epochs=epochs,
        ).history
        print(
            f"{kind}: perplexity {history['perplexity'][0]:.2f} -> {history['perplexity'][-1]:.2f}"
        )

    def write() -> str:
        mg.models.merge_lora(model)
        writer.set_weights([w.numpy() for w in model.weights if "/lora/" not in w.path])
        mg.models.unmerge_lora(model)
        text = writer.generate(prompt, 120, temperature=0.7, top_p=0.9, seed=1)
        return decode(text)

    print(f"untrained: {write()!r}")
    train("documentation", "docs/*.md", arguments.epochs, 3e-3)
    before = write()
    print(f"after the documentation: {before!r}")
    adapted = mg.models.add_lora(model, arguments.rank, 2 * arguments.rank, pattern=r"_proj$")
    trained = sum(w.size for w in model.trainable_weights)
    print(f"LoRA beside {len(adapted)} layers: {trained:,} weights are trained")
    train("program text", "meganeura/layers/*.py", arguments.lora_epochs, 5e-3)
    after = write()
    print(f"after the program text: {after!r}")
    if before == after:
        raise SystemExit("the text did not change")


if __name__ == "__main__":
    main()
