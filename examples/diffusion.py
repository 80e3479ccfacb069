"""Train a denoising diffusion model on 8x8 handwritten digits, and let it draw some of its own.

    python examples/diffusion.py [--epochs 60] [--count 8] [--steps 30]

The data are the 1,797 real images that scikit-learn ships, so no network is needed.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import meganeura as mg
from meganeura.zoo.diffusion import DenoiserConfig, Diffusion, denoiser

SHADES = " .:-=+*#%@"


def drawn(images: np.ndarray) -> str:
    """Images (count, 8, 8, 1) in [-1, 1] side by side, as text."""
    levels = np.clip((images[..., 0] + 1) / 2 * len(SHADES), 0, len(SHADES) - 1).astype(int)
    lines = ["   ".join("".join(SHADES[i] * 2 for i in row) for row in rows) for rows in
             levels.transpose(1, 0, 2)]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--count", type=int, default=8, help="how many digits to draw")
    parser.add_argument("--steps", type=int, default=30, help="steps from noise to image")
    parser.add_argument("--base", type=int, default=32, help="channels of the widest images")
    parser.add_argument("--images", type=int, default=1797, help="how many images to learn from")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    mg.utils.set_random_seed(arguments.seed)
    images = load_digits().images[: arguments.images, ..., None].astype("float32") / 8 - 1
    print(f"{len(images)} images; {mg.backend.describe()}")
    print(drawn(images[: arguments.count]))

    model = Diffusion(denoiser(DenoiserConfig(base=arguments.base)))
    steps = arguments.epochs * -(-len(images) // 64)
    rate = mg.optimizers.schedules.CosineDecay(2e-3, steps)
    model.compile(mg.optimizers.AdamW(rate, use_ema=True, ema_momentum=0.99))
    history = model.fit(images, batch_size=64, epochs=arguments.epochs)
    print(drawn(model.sample(arguments.count, arguments.steps, seed=arguments.seed)))
    losses = history.history["loss"]
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
