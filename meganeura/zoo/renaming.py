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

#: Type of a model -> beginnings of names that stand for others, and of names that are left out.
_STANDS_FOR: dict[str, dict[str, str]] = {
    "gemma3": {"language_model.model.": "model.", "language_model.lm_head.": "lm_head.",
               "model.language_model.": "model."},
}  # fmt: skip
_LEFT_OUT: dict[str, tuple[str, ...]] = {
    "gemma3": ("vision_tower.", "multi_modal_projector.", "model.vision_tower.",
               "model.multi_modal_projector."),
}  # fmt: skip


def today(name: str, kind: str) -> str:
    """The name that a stored tensor has in today's files of this type of model."""
    for old, new in _OLDER_ENDS.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    for old, new in _STANDS_FOR.get(kind, {}).items():
        if name.startswith(old):
            name = new + name.removeprefix(old)
    prefix, starts = _BODIES.get(kind, ("", ()))
    return prefix + name if starts and name.startswith(starts) else name


class Renamed(Mapping[str, Any]):
    """The tensors of a file, under today's names."""

    def __init__(self, tensors: Any, kind: str):
        self._tensors = tensors
        left_out = _LEFT_OUT.get(kind, ())
        kept = (name for name in tensors if not (left_out and name.startswith(left_out)))
        self._stored = {today(name, kind): name for name in kept}
        if hasattr(tensors, "read_into"):
            self.read_into = lambda name, out: tensors.read_into(self._stored[name], out)

    def __getitem__(self, name: str) -> Any:
        return self._tensors[self._stored[name]]

    def __contains__(self, name: object) -> bool:  # Mapping's own would read the tensor
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        stored = self._stored[name]
        found = getattr(self._tensors, "shape", lambda n: self._tensors[n].shape)
        return tuple(found(stored))
