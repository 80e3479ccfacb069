"""How a call of a layer is understood: arguments, masks, the training flag, shapes, names."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from meganeura import identifiers
from meganeura.dtypes import FLOATS
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.masking import get_mask, set_mask
from meganeura.ops.dispatch import any_of, convert_to_node, map_tree
from meganeura.ops.elementwise import cast
from meganeura.symbolic import KerasTensor
from meganeura.tensor import Tensor, to_tensor
from meganeura.variable import Variable

TENSORS = (Node, Tensor, KerasTensor, Variable, np.ndarray)


class _Context(threading.local):
    """What nested calls inherit, in each thread: whether the model trains, and the layers around them."""

    def __init__(self) -> None:
        self.training: bool | None = None
        self.owners: list[Any] = []

    def path(self, *more: str) -> str:
        """The names of the layers around, outermost first, and `more` behind them."""
        return "/".join([*(owner.name for owner in self.owners), *more])


Context = _Context()


class training_phase:
    """Inside, layers whose call did not say otherwise train, or do not."""

    def __init__(self, training: bool | None):
        self.training = training

    def __enter__(self) -> None:
        self._before = Context.training
        Context.training = self.training

    def __exit__(self, *_: object) -> None:
        Context.training = self._before


class name_scope:
    """Variables made inside have the name of `owner` in their path, once if it is entered twice in a row."""

    def __init__(self, owner: Any):
        self.owner = owner

    def __enter__(self) -> None:
        self._entered = not Context.owners or Context.owners[-1] is not self.owner
        if self._entered:
            Context.owners.append(self.owner)

    def __exit__(self, *_: object) -> None:
        if self._entered:
            Context.owners.pop()


def method_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a method without the first, the object."""
    return list(inspect.signature(function).parameters.values())[1:]


class Signature:
    """The parameters of a layer's `call`, worked out once per class."""

    _cache: dict[Any, Signature] = {}

    def __init__(self, function: Callable[..., Any]):
        parameters = method_parameters(function)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.positional = [p.name for p in parameters if p.kind in kinds]
        self.names = {p.name for p in parameters}
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.open = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        self.many = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)

    @classmethod
    def of(cls, layer: Any) -> Signature:
        function = type(layer).call
        if function not in cls._cache:
            cls._cache[function] = cls(function)
        return cls._cache[function]

    def bind(self, layer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name; extra positional ones under "*"."""
        bound: dict[str, Any] = dict(zip(self.positional, args, strict=False))
        extra = args[len(self.positional) :]
        if extra and not self.many:
            raise TypeError(
                f"layer {layer.name!r} ({type(layer).__name__}) takes {len(self.positional)} arguments "
                f"({', '.join(self.positional)}), and {len(args)} were given"
            )
        for name, value in kwargs.items():
            if name in bound:
                raise TypeError(f"layer {layer.name!r}: the argument {name!r} was given twice")
            if name not in self.names and not self.open and name not in ("training", "mask"):
                hint = identifiers.suggestion(name, self.names)
                raise TypeError(
                    f"layer {layer.name!r} ({type(layer).__name__}) has no argument {name!r} in its "
                    f"call{hint}"
                )
            bound[name] = value
        missing = [n for n in self.positional if n not in bound and n not in self.defaults]
        if missing:
            raise TypeError(
                f"layer {layer.name!r} ({type(layer).__name__}) is called without {missing[0]!r}"
            )
        if extra:
            bound["*"] = extra
        return bound


def tensor_arguments(bound: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments that hold tensors, masks left out."""
    return {
        name: value
        for name, value in bound.items()
        if any_of(TENSORS, value)
        and name not in ("mask", "training")
        and not name.endswith("_mask")
    }


def as_array(value: Any) -> Any:
    """Arrays of other libraries (data frames, tensors) as NumPy's; everything else as it is."""
    if isinstance(value, (*TENSORS, np.generic, type)) or not hasattr(value, "__array__"):
        return value
    return np.asarray(value)


def as_input(value: Any) -> Any:
    """Arrays among the arguments as tensors; everything else as it is."""
    if isinstance(value, np.ndarray):
        now = trace.current()
        return convert_to_node(value) if now is not None else to_tensor(value)
    return value


def as_tensor(value: Any) -> Any:
    """Arrays as tensors of the device; everything else as it is."""
    return to_tensor(value) if isinstance(value, np.ndarray) else value


def in_dtype(value: Any, dtype: str) -> Any:
    """A tensor of real numbers in this dtype, with its mask; everything else as it is."""
    if not isinstance(value, (Node, Tensor)) or value.dtype not in FLOATS or value.dtype == dtype:
        return value
    made = cast(value, dtype)
    mask = get_mask(value)
    if mask is not None:
        set_mask(made, mask)
    return made


def refuse_plain_inputs(layer: Any, signature: Signature, bound: Mapping[str, Any]) -> None:
    """Numbers and lists of them are no tensors: a nested list would be taken for several inputs."""
    if not signature.positional:
        return
    given = bound.get(signature.positional[0])
    if given is not None:
        raise ValueError(
            f"layer {layer.name!r} ({type(layer).__name__}) takes arrays or tensors, and got "
            f"{type(given).__name__}; use numpy.array(...)"
        )


def shapes_of(value: Any) -> Any:
    """The shapes of a tensor, or of a structure of tensors."""
    return map_tree(lambda x: tuple(x.shape) if hasattr(x, "shape") else None, value)


def mask_of(value: Any) -> Any:
    """The mask that rides on a tensor, or a list of masks for several; None where there is none."""
    if isinstance(value, (list, tuple)):
        masks = [mask_of(x) for x in value]
        return None if all(m is None for m in masks) else masks
    if isinstance(value, dict):
        named = {k: mask_of(x) for k, x in value.items()}
        return None if all(m is None for m in named.values()) else named
    return get_mask(value) if isinstance(value, TENSORS) else None


def build_arguments(layer: Any, tensors: Mapping[str, Any]) -> dict[str, Any] | None:
    """The shapes that the layer's `build` takes, by the names of its parameters."""
    shapes = {name: shapes_of(value) for name, value in tensors.items()}
    parameters = {
        p.name: p
        for p in method_parameters(type(layer).build)
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }
    names = list(parameters)
    if not shapes:
        return None
    first = next(iter(shapes.values()))
    if len(names) <= 1:
        return {names[0]: first} if names else {}
    found: dict[str, Any] = {}
    for name in names:
        argument = name.removesuffix("_shape")
        if argument in shapes:
            found[name] = shapes[argument]
        elif parameters[name].default is inspect.Parameter.empty:
            if name != names[0]:
                raise ValueError(
                    f"layer {layer.name!r}: build asks for {name!r}, and no argument {argument!r} was given"
                )
            found[name] = first
    return found


def check_input_spec(layer: Any, inputs: Any) -> None:
    """Hold the inputs against the layer's `input_spec`."""
    spec = layer.input_spec
    if spec is None:
        return
    specs = list(spec) if isinstance(spec, (list, tuple)) else [spec]
    flat: list[Any] = []
    map_tree(lambda x: flat.append(x) if hasattr(x, "shape") else None, inputs)
    if isinstance(spec, (list, tuple)) and len(specs) != len(flat):
        raise ValueError(f"layer {layer.name!r} expects {len(specs)} input(s), and got {len(flat)}")
    for wanted, x in zip(specs, flat, strict=False):
        if wanted is not None:
            wanted.check(layer.name, tuple(x.shape), x.dtype)


class InputSpec:
    """What a layer expects of an input: rank, shape, lengths of some axes, dtype.

    (https://keras.io/api/layers/base_layer)
    """

    def __init__(
        self,
        dtype: str | None = None,
        shape: Any = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: Mapping[int, int] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ):
        self.dtype = dtype
        self.shape = None if shape is None else tuple(shape)
        self.ndim = len(self.shape) if self.shape is not None else ndim
        self.max_ndim, self.min_ndim = max_ndim, min_ndim
        self.axes = {int(k): v for k, v in (axes or {}).items()}
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        self.name = name
        self.optional = optional

    def check(self, layer: str, shape: tuple[Any, ...], dtype: Any) -> None:
        """Raise ValueError, naming the layer, where an input of this shape does not fit."""
        rank = len(shape)
        wanted = None
        if self.ndim is not None and rank != self.ndim and not self.allow_last_axis_squeeze:
            wanted = f"{self.ndim} dimensions"
        elif self.max_ndim is not None and rank > self.max_ndim:
            wanted = f"at most {self.max_ndim} dimensions"
        elif self.min_ndim is not None and rank < self.min_ndim:
            wanted = f"at least {self.min_ndim} dimensions"
        if wanted:
            raise ValueError(
                f"layer {layer!r} expects an input of {wanted} (the batch included), and got the shape "
                f"{shape} with {rank}"
            )
        for axis, length in self.axes.items():
            if length is not None and shape[axis] not in (length, None):
                raise ValueError(
                    f"layer {layer!r} expects length {length} at axis {axis} of its input, and got the "
                    f"shape {shape}"
                )
        if self.shape is not None:
            for a, b in zip(self.shape, shape, strict=False):
                if a is not None and b is not None and a != b:
                    raise ValueError(
                        f"layer {layer!r} expects an input of shape {self.shape}, and got {shape}"
                    )

    def get_config(self) -> dict[str, Any]:
        names = ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes")
        return {n: getattr(self, n) for n in names}
