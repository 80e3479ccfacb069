"""Symbolic calls: what a functional model is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from meganeura import identifiers, symbolic
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.masking import get_mask, set_mask
from meganeura.ops.dispatch import map_tree
from meganeura.symbolic import KerasTensor

#: What stands in for unknown lengths, of the batch and of other axes, while shapes are inferred:
#: two runs, and whatever differs between them is unknown in the result. The lengths have many
#: divisors, for reshape(x, (-1, 6)). The short ones come first, since recurrences unroll over
#: time; the longer ones are for windows that do not fit.
FILLS = (((480, 12), (960, 24)), ((480, 96), (960, 192)), ((480, 960), (960, 1920)))


class CallNode:
    """One symbolic call of a layer or operation."""

    def __init__(self, operation: Any, args: Any, kwargs: Any, outputs: Any):
        self.operation = operation
        self.args = args
        self.kwargs = kwargs
        self.outputs = outputs
        self.inputs: list[KerasTensor] = leaves((args, kwargs))
        index = len(operation._inbound_nodes)
        operation._inbound_nodes.append(self)
        for i, tensor in enumerate(leaves(outputs)):
            tensor.history = (operation, index, i)

    @property
    def input(self) -> Any:
        return self.args[0] if len(self.args) == 1 and not self.kwargs else self.inputs

    @property
    def output(self) -> Any:
        return self.outputs

    def run(self, values: Mapping[int, Any], overrides: Mapping[str, Any] | None = None) -> Any:
        """Call the operation again, on the values that the symbolic inputs stand for."""

        def fill(leaf: Any) -> Any:
            return values[id(leaf)] if isinstance(leaf, KerasTensor) else leaf

        return self.operation(*map_tree(fill, self.args), **map_tree(fill, self.kwargs))


def flatten(tree: Any) -> list[Any]:
    """The leaves of a structure in Keras's order: dicts by sorted keys."""
    if isinstance(tree, (list, tuple)):
        return [leaf for x in tree for leaf in flatten(x)]
    if isinstance(tree, dict):
        return [leaf for k in sorted(tree) for leaf in flatten(tree[k])]
    return [tree]


def leaves(tree: Any) -> list[KerasTensor]:
    """The KerasTensors in a structure, in Keras's order."""
    return [leaf for leaf in flatten(tree) if isinstance(leaf, KerasTensor)]


class FunctionOperation:
    """A function of `meganeura.ops` as a step of a functional model."""

    def __init__(self, function: Callable[..., Any], name: str | None = None):
        self.function = function
        self.name = name or identifiers.auto_name(function.__name__.strip("_"))
        self.config: dict[str, Any] = {}  # arguments that are no tensors, where a file brought them
        self._inbound_nodes: list[CallNode] = []
        self.built = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def connect(self, args: Any, kwargs: Any) -> Any:
        """Wire a call on KerasTensors into a model, with the arguments of `config` added."""
        kwargs = {**self.config, **kwargs}
        if any(p.kind is p.VAR_POSITIONAL for p in signature(self.function).parameters.values()):
            names = [n for n in signature(self.function).parameters if n in self.config]
            args = [*(kwargs.pop(n) for n in names), *args]  # einsum(subscripts, *operands)
        outputs = infer(self.function, tuple(args), kwargs, self.name)
        CallNode(self, tuple(args), kwargs, outputs)
        return outputs

    def __repr__(self) -> str:
        return f"<operation {self.name}>"


def _on_symbols(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if function.__module__ == "meganeura.random":
        raise ValueError(
            f"random.{function.__name__.strip('_')} on a KerasTensor would draw once and for all; use a "
            "layer such as Dropout or GaussianNoise, or a Layer subclass with a SeedGenerator"
        )
    return FunctionOperation(function).connect(args, kwargs)


symbolic.handler = _on_symbols


def call_symbolically(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A layer's call on KerasTensors: builds it, infers the output, and remembers the call."""
    outputs = layer.compute_output_spec(*args, **kwargs)
    made = map_tree(
        lambda t: KerasTensor(t.shape, t.dtype) if isinstance(t, KerasTensor) else t, outputs
    )
    for new, old in zip(leaves(made), leaves(outputs), strict=True):
        if (mask := get_mask(old)) is not None:
            set_mask(new, mask)
            new.mask = mask
    CallNode(layer, args, kwargs, made)
    layer.built = True
    return made


def output_spec(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The KerasTensors that `layer` returns, found by tracing it on stand-in shapes."""
    from meganeura.layers import calling

    signature = calling.Signature.of(layer)
    bound = signature.bind(layer, args, kwargs)
    if signature.positional:
        calling.check_input_spec(layer, bound.get(signature.positional[0]))
    if not layer.built:
        with calling.name_scope(layer):
            layer._ensure_built(calling.tensor_arguments(bound))
    return infer(lambda *a, **k: layer._record(a, k), args, kwargs, layer.name)


def infer(function: Callable[..., Any], args: Any, kwargs: Any, name: str) -> Any:
    """Run `function` on nodes of two stand-in shapes; lengths that differ are unknown."""
    tries = _fills(leaves((args, kwargs)))
    error: ValueError | None = None
    for fills in tries:
        try:
            runs = [_run_on_nodes(function, args, kwargs, *fill) for fill in fills]
            break
        except ValueError as found:
            error = error or found
    else:
        assert error is not None
        raise _speaking_of_none(error, tries[0])

    columns = iter(list(zip(*(_in_order(result) for result in runs), strict=True)))

    def merge(leaf: Any) -> Any:
        nodes = next(columns)
        if not isinstance(leaf, Node):
            return leaf
        tensor = KerasTensor(_merged(nodes), leaf.dtype, name=name)
        masks = [get_mask(n) for n in nodes]
        if isinstance(masks[0], Node):
            set_mask(tensor, KerasTensor(_merged(masks), "bool", name="mask"))
            tensor.mask = get_mask(tensor)
        return tensor

    return map_tree(merge, runs[0])


def _fills(inputs: list[KerasTensor]) -> list[tuple[tuple[int, int], ...]]:
    """The runs to try, one after the other."""
    if not any(None in t.shape for t in inputs):
        return [FILLS[0][:1]]
    if not any(None in t.shape[1:] for t in inputs):
        return [FILLS[0]]
    # at last, an unknown length may have to be one that another input has, as in x + positions
    known = sorted({n for t in inputs for n in t.shape[1:] if n is not None})
    return [*FILLS, *(((480, n), (960, n)) for n in known[:8])]


def _speaking_of_none(error: ValueError, fills: tuple[tuple[int, int], ...]) -> ValueError:
    """The error with None in the place of stand-in lengths, which the user never wrote."""
    pattern = rf"\b({'|'.join(str(n) for fill in fills for n in fill)})\b"
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (re.sub(pattern, "None", error.args[0]),)
    if hasattr(error, "__notes__"):
        error.__notes__[:] = [re.sub(pattern, "None", note) for note in error.__notes__]
    return error


def _in_order(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_tree(found.append, tree)
    return found


def _merged(nodes: Sequence[Any]) -> tuple[int | None, ...]:
    lengths = zip(*(n.shape for n in nodes), strict=True)
    return tuple(n[0] if len(set(n)) == 1 else None for n in lengths)


def _run_on_nodes(
    function: Callable[..., Any], args: Any, kwargs: Any, batch: int, other: int
) -> Any:
    from meganeura.layers import calling

    def filled(shape: Sequence[int | None]) -> list[int]:
        return [n if n is not None else other if axis else batch for axis, n in enumerate(shape)]

    with trace.Trace() as recording, calling.training_phase(calling.Context.training):

        def stand_in(leaf: Any) -> Any:
            if not isinstance(leaf, KerasTensor):
                return leaf
            node = recording.input(filled(leaf.shape), leaf.dtype, leaf.name)
            if (mask := get_mask(leaf)) is not None:
                set_mask(node, recording.input(filled(mask.shape), "bool", "mask"))
            return node

        result = function(*map_tree(stand_in, args), **map_tree(stand_in, kwargs))
    return result
