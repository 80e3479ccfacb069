"""SmolVLA's action expert (arXiv 2506.01844): self-attention on even layers, cross-attention on odd ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import meganeura as mg
from meganeura import layers, ops


@dataclass(frozen=True)
class SmolVLAConfig:
    """Sizes; the defaults are the published expert's (99.8 million weights)."""

    hidden: int = 720
    layers: int = 16
    heads: int = 15
    kv_heads: int = 5
    head_dim: int = 64
    kv_width: int = 320
    inner: int = 2048
    action: int = 32
    epsilon: float = 1e-5

    @classmethod
    def from_dictionary(cls, config: dict[str, Any]) -> SmolVLAConfig:
        names = ("hidden", "layers", "heads", "kv_heads", "head_dim", "kv_width", "inner", "action")
        return cls(**{k: config[k] for k in names}, epsilon=config.get("eps", 1e-5))


def action_expert(
    config: SmolVLAConfig | None = None,
    chunk: int | None = 50,
    context: int | None = None,
    name: str = "smolvla",
) -> Any:
    """A model from {actions (batch, chunk, action), timestep (batch, 1, 2 hidden), context
    (batch, context, kv_width)} to the predicted actions (batch, chunk, action)."""
    config = config or SmolVLAConfig()

    def dense(path: str, units: int, x: Any, bias: bool = False) -> Any:
        return layers.Dense(units, use_bias=bias, name=path)(x)

    def norm(path: str, x: Any) -> Any:
        return layers.RMSNormalization(epsilon=config.epsilon, name=path)(x)

    actions = mg.Input((chunk, config.action), name="actions")
    timestep = mg.Input((1, 2 * config.hidden), name="timestep")
    memory = mg.Input((context, config.kv_width), name="context")
    time = ops.silu(dense("time_in", config.hidden, timestep, bias=True))
    x = dense("action_in", config.hidden, actions, bias=True)
    x = x + dense("time_out", config.hidden, time, bias=True)
    for i in range(config.layers):
        block = f"layers.{i}"
        h = norm(f"{block}.norm1", x)
        source = h if i % 2 == 0 else memory
        split = (
            (h, "q", config.heads), (source, "k", config.kv_heads), (source, "v", config.kv_heads)
        )  # fmt: skip
        q, k, v = (
            layers.SplitHeads(count, name=f"{block}.{part}_heads")(
                dense(f"{block}.{part}", count * config.head_dim, origin)
            )
            for origin, part, count in split
        )
        attended = layers.ScaledDotProduct(name=f"{block}.core")(q, k, v)
        x = x + dense(f"{block}.o", config.hidden, attended)
        h = norm(f"{block}.norm2", x)
        gated = ops.silu(dense(f"{block}.gate", config.inner, h))
        x = x + dense(f"{block}.down", config.hidden, gated * dense(f"{block}.up", config.inner, h))
    out = dense("action_out", config.action, x, bias=True)
    return mg.Model({"actions": actions, "timestep": timestep, "context": memory}, out, name=name)
