"""What layers with a table of weights do to have it packed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from meganeura import constraints, regularizers
from meganeura.layers import budget
from meganeura.layers.calling import Context
from meganeura.quantization.formats import Format, named
from meganeura.quantization.variable import PackedVariable, planned_format, refusal
from meganeura.variable import Variable


class Packable:
    """Mixin for layers with a table of weights, the attribute `_table`, that may lie packed.

    `_table_inputs` are the axes of the table that a product sums over (of an embedding: a vector's).
    """

    name: str
    _table = "kernel"
    _table_inputs: tuple[int, ...] = (0,)

    def _add_table(self, name: str, shape: Sequence[int], **settings: Any) -> Variable:
        """The table as a new weight: packed where `built_packed` says so, float32 otherwise."""
        columns = math.prod(shape[i] for i in self._table_inputs)
        kind = planned_format(self, columns)
        layer: Any = self
        if kind is None:
            made: Variable = layer.add_weight(name=name, shape=shape, **settings)
            return made
        budget.spend(tuple(shape), self.name)
        packed = PackedVariable(
            kind, shape, self._table_inputs, name,
            path=Context.path(name) if Context.owners else f"{self.name}/{name}",
            trainable=layer.trainable,
            regularizer=regularizers.get(settings.get("regularizer")),
            constraint=constraints.get(settings.get("constraint")),
        )  # fmt: skip
        layer._own_variable(packed)
        return packed

    def unpackable(self, kind: Format) -> str:
        """Why the table cannot be packed in a format, by its shape; empty where it can."""
        table = getattr(self, self._table)
        return refusal(kind, math.prod(table.shape[i] for i in self._table_inputs))

    def quantize(self, mode: str, **_: Any) -> None:
        """Pack the table of weights: "f16", "q8_0" or "q4_1". The layer computes with the packed values.

        Raises ValueError before the layer is built, for widths that are no whole number of blocks, and
        for values that the format does not hold; the layer then stays as it was.
        """
        kind, layer = named(mode), self._built_layer()
        old = getattr(layer, self._table)
        if isinstance(old, PackedVariable) and old.format is kind:
            return
        packed = PackedVariable(
            kind, old.shape, self._table_inputs, old.name, old.path, old.trainable,
            old.regularizer, old.constraint,
        )  # fmt: skip
        packed.assign(old.numpy())
        for held in (layer._trainable_variables, layer._non_trainable_variables):
            held[:] = [packed if v is old else v for v in held]
        setattr(layer, self._table, packed)

    def _built_layer(self) -> Any:
        if getattr(self, self._table, None) is None:
            raise ValueError(
                f"layer {self.name!r} is not built yet; call quantize when it has its weights"
            )
        return self
