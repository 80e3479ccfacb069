"""Constructor arguments as attributes and back: what layers with many of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from meganeura import activations, config, constraints, initializers, regularizers

#: What an argument is, by the end of its name: how to read it, and how to write it into a config.
_KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "initializer": (initializers.get, initializers.serialize),
    "regularizer": (regularizers.get, regularizers.serialize),
    "constraint": (constraints.get, constraints.serialize),
    "activation": (activations.get, activations.serialize),
}


class Settings:
    """Mixin for layers: `arguments` names the constructor's own arguments, in the config's order."""

    arguments: tuple[str, ...] = ()

    if TYPE_CHECKING:  # attributes are set by `settle`, under the names of the arguments

        def __getattr__(self, name: str) -> Any: ...

    def settle(self, **values: Any) -> None:
        """Set the arguments as attributes, turning names of initializers and the like into objects."""
        for name, value in values.items():
            kind = _KINDS.get(name.rpartition("_")[2])
            setattr(self, name, kind[0](value) if kind else value)

    def get_config(self) -> dict[str, Any]:
        own = {}
        for name in self.arguments:
            kind = _KINDS.get(name.rpartition("_")[2])
            value = getattr(self, name)
            own[name] = kind[1](value) if kind else value
        return {**super().get_config(), **own}  # type: ignore[misc]


def as_tuple(layer: str, name: str, value: Any, rank: int, low: int = 1) -> tuple[int, ...]:
    """An integer, or `rank` of them, as a tuple. Raises ValueError below `low`."""
    values = (value,) * rank if isinstance(value, int) else value
    try:
        result = tuple(int(v) for v in values)
        whole = all(int(v) == v for v in values)
    except (TypeError, ValueError):
        result, whole = (), False
    if len(result) != rank or not whole or any(v < low for v in result):
        wanted = f"an integer of at least {low}" + (f", or {rank} of them" if rank > 1 else "")
        raise ValueError(f"layer {layer}: {name} must be {wanted}, got {value!r}")
    return result


def check_strides_and_dilation(
    layer: str, strides: Sequence[int], dilation_rate: Sequence[int]
) -> None:
    """Raises ValueError where both are greater than 1: Keras opens no file with such a layer."""
    if max(strides) > 1 and max(dilation_rate) > 1:
        raise ValueError(
            f"layer {layer}: strides {tuple(strides)} and dilation_rate {tuple(dilation_rate)} cannot "
            "both be greater than 1; use ops.conv for both"
        )


def checked_data_format(layer: str, value: str | None) -> str:
    """The data format: "channels_last", "channels_first", or for None the configured one."""
    value = config.image_data_format() if value is None else value
    if value not in ("channels_last", "channels_first"):
        raise ValueError(
            f"layer {layer}: data_format is {value!r}; use 'channels_last' or 'channels_first'"
        )
    return value


def one_of(layer: str, name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """`value` (strings in lower case) if it is allowed. Raises ValueError otherwise."""
    value = value.lower() if isinstance(value, str) else value
    if value not in allowed:
        raise ValueError(f"layer {layer}: {name} is {value!r}; use {', '.join(map(repr, allowed))}")
    return value


def check_rank(layer: Any, shape: Sequence[int | None], rank: int) -> None:
    """Raises ValueError where an input has not this many dimensions."""
    if len(shape) != rank:
        raise ValueError(
            f"layer {layer.name!r} expects inputs of {rank} dimensions (with the batch), got the "
            f"shape {tuple(shape)}"
        )


def known_channels(layer: Any, shape: Sequence[int | None], axis: int) -> int:
    """The length of the channel axis. Raises ValueError where it is not known."""
    channels = shape[axis]
    if channels is None:
        raise ValueError(
            f"layer {layer.name!r}: axis {axis} of its input, the channels, must have a known "
            f"length, got the shape {tuple(shape)}"
        )
    return channels


def window_length(
    length: int | None, window: int, stride: int, padding: str, dilation: int = 1
) -> int | None:
    """How many windows fit along a dimension: ceil(n / s) for "same", else those inside."""
    if length is None:
        return None
    if padding in ("same", "causal"):
        return -(-length // stride)
    return (length - (window - 1) * dilation - 1) // stride + 1


def checked_output(layer: Any, shape: tuple[int | None, ...], source: Any) -> tuple[Any, ...]:
    """`shape` if every length is positive. Raises ValueError where a window does not fit."""
    if any(length is not None and length <= 0 for length in shape[1:]):
        raise ValueError(
            f"layer {layer.name!r}: an input of shape {tuple(source)} is smaller than the window, "
            "so nothing would be left; use padding='same' or a larger input"
        )
    return shape
