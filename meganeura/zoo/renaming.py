"""Names of stored tensors as older files have them, in today's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meganeura.zoo.llama_configs import TYPES

#: Ends of names of normalisations in the first files of BERT.
_OLDER_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

#: Type of a model -> the prefix of its body, and how a file's names begin that lacks it.
_BODIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "gpt2": ("transformer.", ("wte.", "wpe.", "h.", "ln_f.")),
    **dict.fromkeys(TYPES, ("model.", ("embed_tokens.", "layers.", "norm."))),
}


def today(name: str, kind: str) -> str:
    """The name that a stored tensor has in today's files of this type of model."""
    for old, new in _OLDER_ENDS.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    prefix, starts = _BODIES.get(kind, ("", ()))
    return prefix + name if starts and name.startswith(starts) else name


class Renamed(Mapping[str, Any]):
    """The tensors of a file, under today's names."""

    def __init__(self, tensors: Any, kind: str):
        self._tensors = tensors
        self._stored = {today(name, kind): name for name in tensors}

    def __getitem__(self, name: str) -> Any:
        return self._tensors[self._stored[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        found: tuple[int, ...] = self._tensors.shape(self._stored[name])
        return found
