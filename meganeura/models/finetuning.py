"""Training a part of a model: freezing by pattern, and LoRA beside frozen weights."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from meganeura import identifiers
from meganeura.layers.lora import Adaptable, LowRank


def _found(pattern: str | Iterable[str], path: str) -> bool:
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    return any(re.search(p, path) for p in patterns)


def _set(model: Any, pattern: str | Iterable[str], value: bool) -> list[str]:
    paths = [w.path for w in model.weights]
    matched = [w for w in model.weights if _found(pattern, w.path)]
    if not matched:
        hint = identifiers.suggestion(str(pattern), paths)
        raise ValueError(f"model {model.name!r} has no weight whose path matches {pattern!r}{hint}")
    fixed = {
        id(v) for layer in model._flatten_layers() for v in layer._non_trainable_variables
    }  # moving averages and the like were never trained
    for w in matched:
        if id(w) not in fixed:
            w.trainable = value
    for layer in model._flatten_layers(include_self=False):
        # as files tell of it: a layer of which nothing is trained
        if layer._trainable_variables and not layer._layers:
            layer._trainable = any(w.trainable for w in layer._trainable_variables)
    return [w.path for w in matched]


def freeze(model: Any, pattern: str | Iterable[str] = "") -> list[str]:
    """Train no weight in whose path the pattern, or one of several, is found; returns their paths.

    `freeze(model)` freezes all of them. Compile the model anew afterwards. Raises ValueError where
    nothing matches.
    """
    return _set(model, pattern, False)


def unfreeze(model: Any, pattern: str | Iterable[str] = "") -> list[str]:
    """Train these weights again; returns their paths."""
    return _set(model, pattern, True)


def _adapted(model: Any) -> list[Any]:
    return [x for x in model._flatten_layers() if isinstance(x, Adaptable) and x.lora_enabled]


def add_lora(
    model: Any,
    rank: int = 8,
    alpha: float | None = None,
    pattern: str | Iterable[str] = "",
    freeze_others: bool = True,
) -> list[str]:
    """Put LoRA beside the dense, einsum and embedding layers in whose names the pattern is found; returns the names.

    alpha is the rank where it is not given. With freeze_others, nothing but the thin factors is trained.
    Raises ValueError where no layer matches.
    """
    layers = [
        x for x in model._flatten_layers(include_self=False)
        if isinstance(x, Adaptable) and _found(pattern, x.name) and not isinstance(x, LowRank)
    ]  # fmt: skip
    if not layers:
        raise ValueError(
            f"model {model.name!r} has no dense, einsum or embedding layer whose name matches {pattern!r}"
        )
    for layer in layers:
        layer.enable_lora(rank, alpha, train_bias=not freeze_others)
    if freeze_others:
        freeze(model)
        for layer in _adapted(model):
            layer.lora.trainable = not layer.lora.merged
    return [layer.name for layer in layers]


def merge_lora(model: Any) -> None:
    """Add what LoRA has learnt to the weights it stands beside."""
    for layer in _adapted(model):
        layer.merge_lora()


def unmerge_lora(model: Any) -> None:
    """Take it out again, so that training can go on."""
    for layer in _adapted(model):
        layer.unmerge_lora()
