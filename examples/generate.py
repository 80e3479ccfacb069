"""Talk with a language model: a folder of Hugging Face files, or random weights of SmolLM2's layout.

    python examples/generate.py --model FOLDER [--message "Why is the sky blue?"]
    python examples/generate.py --quantize q8_0  # weights of 8 bits, for a quarter of the memory
    python examples/generate.py                  # no files needed; what it says means nothing

With a folder, config.json, the safetensors and (through the `tokenizers` package) tokenizer.json are read.
Without --message it asks for messages until an empty one comes.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path

import numpy as np

import meganeura as mg
from meganeura.zoo.families import SMOLLM2_135M


class Letters:
    """In place of a tokenizer: one token for each byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(t % 256 for t in tokens).decode("utf-8", "replace")

    def stops(self) -> list[int]:
        return []


class Files:
    """The tokenizer of a folder, with the turns of a chat marked as ChatML marks them."""

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.chat = self.tokenizer.token_to_id("<|im_start|>") is not None

    def encode(self, text: str) -> list[int]:
        if self.chat:
            text = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        return self.tokenizer.encode(text).ids

    def decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens)

    def stops(self) -> list[int]:
        names = ("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<end_of_turn>")
        found = (self.tokenizer.token_to_id(n) for n in names)
        return [t for t in found if t is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a folder with config.json and safetensors")
    parser.add_argument("--quantize", help="keep the weights as f16, q8_0 or q4_1")
    parser.add_argument("--message", help="what to say; asked for without it")
    parser.add_argument("--tokens", type=int, default=128, help="the most that it answers")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--repetition-penalty", type=float, default=1.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2, help="without --model: of SmolLM2's 30")
    arguments = parser.parse_args()

    mg.utils.set_random_seed(arguments.seed)
    if arguments.model:
        model = mg.models.from_pretrained(arguments.model, quantize=arguments.quantize)
        tokenizer = Files(arguments.model)
    else:
        config = dataclasses.replace(SMOLLM2_135M, layers=arguments.layers, vocabulary=4096)
        model, tokenizer = mg.models.llama(config), Letters()
        if arguments.quantize:
            print(model.quantize(arguments.quantize))
    print(f"{model.count_params():,} weights; {mg.backend.describe()}")

    context: list[int] = []
    while True:
        message = arguments.message
        if message is None:
            try:
                message = input("you: ")
            except EOFError:
                message = ""
        if not message:
            break
        context += tokenizer.encode(message)
        answer: list[int] = []
        shown = 0
        start = time.perf_counter()

        def hear(new: np.ndarray) -> None:
            nonlocal shown
            answer.extend(int(t) for t in new[0])
            text = tokenizer.decode([t for t in answer if t not in tokenizer.stops()])
            if not text.endswith("\ufffd"):  # half a letter: wait for the rest
                print(text[shown:], end="", flush=True)
                shown = len(text)

        model.generate(
            context,
            arguments.tokens,
            temperature=arguments.temperature,
            top_k=arguments.top_k,
            top_p=arguments.top_p,
            repetition_penalty=arguments.repetition_penalty,
            seed=arguments.seed,
            stop_tokens=tokenizer.stops(),
            callback=hear,
        )
        seconds = time.perf_counter() - start
        print(f"\n[{len(answer)} tokens, {len(answer) / seconds:.1f} a second]", file=sys.stderr)
        context += answer
        if arguments.message is not None:
            break


if __name__ == "__main__":
    main()
