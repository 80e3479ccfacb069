"""Packing the weights of a whole model, with a report of what it did to them."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meganeura import identifiers
from meganeura.quantization.formats import named
from meganeura.quantization.layers import Packable

#: Which layers: a pattern found in their names, several of which one is, or a function of the layer.
Filters = str | Sequence[str] | Callable[[Any], bool] | None


@dataclass(frozen=True)
class LayerReport:
    """One layer: bytes of its table before and after, and the relative error of its values.

    error: |packed - exact| / |exact|, in the Euclidean norm; left: why the layer stayed as it was
    """

    name: str
    shape: tuple[int, ...]
    before: int
    after: int
    error: float = 0.0
    left: str = ""


@dataclass
class QuantizationReport:
    """What quantize did: a line for each layer that was asked for, and totals of the model's weights."""

    format: str
    before: int
    after: int = 0
    layers: list[LayerReport] = field(default_factory=list)
    error: float = 0.0

    @property
    def packed(self) -> list[LayerReport]:
        return [r for r in self.layers if not r.left]

    @property
    def left(self) -> list[LayerReport]:
        return [r for r in self.layers if r.left]

    def __str__(self) -> str:
        width = max((len(r.name) for r in self.layers), default=5)
        lines = [f"{'layer':{width}}  {'shape':>16}  {'bytes':>25}  relative error"]
        for r in self.layers:
            sizes = f"{r.before:,} -> {r.after:,}"
            told = f"float32: {r.left}" if r.left else f"{r.error:.2e}"
            lines.append(f"{r.name:{width}}  {r.shape!s:>16}  {sizes:>25}  {told}")
        ratio = self.before / max(self.after, 1)
        lines.append(
            f"{self.format}: {len(self.packed)} of {len(self.layers)} tables, weights {self.before:,} -> "
            f"{self.after:,} bytes ({ratio:.2f} times less), relative error {self.error:.2e}"
        )
        return "\n".join(lines)

    __repr__ = __str__


def quantize(model: Any, mode: str, filters: Filters = None) -> QuantizationReport:
    """Pack the tables of a model's dense, einsum and embedding layers: "f16", "q8_0" or "q4_1".

    Layers whose widths are no whole number of blocks, whose values do not fit, or whose table other
    layers hold as well stay in float32, and the report says so. Raises ValueError where no layer matches `filters`.
    """
    kind = named(mode)
    everything = model._flatten_layers()
    wanted = [x for x in everything if isinstance(x, Packable) and _matches(x, filters)]
    unbuilt = [x.name for x in wanted if getattr(x, x._table, None) is None]
    if unbuilt:
        raise ValueError(
            f"quantize: layer {unbuilt[0]!r} of model {model.name!r} is not built yet; call the model, or "
            "build(), first"
        )
    if not wanted:
        hint = ""
        if isinstance(filters, str):
            names = [x.name for x in everything if isinstance(x, Packable)]
            hint = identifiers.suggestion(filters, names)
        raise ValueError(
            f"quantize: model {model.name!r} has no dense, einsum or embedding layer that matches "
            f"{filters!r}{hint}"
        )
    owners: dict[int, list[str]] = defaultdict(list)
    for layer in everything:
        for v in (*layer._trainable_variables, *layer._non_trainable_variables):
            owners[id(v)].append(layer.name)
    report = QuantizationReport(kind.name, sum(v.nbytes for v in model.weights))
    squares = np.zeros(2)  # of the errors, of the values
    for layer in wanted:
        table = getattr(layer, layer._table)
        others = [n for n in owners[id(table)] if n != layer.name]
        why = f"layer {others[0]!r} holds it as well" if others else layer.unpackable(kind)
        found, own = 0.0, np.zeros(2)
        if not why:
            exact = table.numpy()
            try:
                layer.quantize(mode)
            except ValueError as error:
                why = str(error).rpartition(": ")[2]
            else:
                packed = getattr(layer, layer._table).numpy()
                own = np.array([_square(packed - exact), _square(exact)])
                found = math.sqrt(own[0] / own[1]) if own[1] else 0.0
        squares += own
        after = getattr(layer, layer._table).nbytes
        report.layers.append(LayerReport(layer.name, table.shape, table.nbytes, after, found, why))
    report.after = sum(v.nbytes for v in model.weights)
    report.error = math.sqrt(squares[0] / squares[1]) if squares[1] else 0.0
    for layer in everything:  # what was recorded reads the old tables
        if hasattr(layer, "_let_go"):
            layer._let_go()
    return report


def _square(x: np.ndarray) -> float:
    return float(np.square(x, dtype=np.float64).sum())


def _matches(layer: Any, filters: Filters) -> bool:
    if filters is None:
        return True
    if callable(filters):
        return bool(filters(layer))
    patterns = (filters,) if isinstance(filters, str) else tuple(filters)
    return any(re.search(p, layer.name) for p in patterns)
