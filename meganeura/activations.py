"""Activation functions by name, with Keras's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meganeura import ops
from meganeura.identifiers import Family
from meganeura.ops.dispatch import convert_to_node, operation


def linear(x: Any) -> Any:
    """x."""
    return x


def relu(
    x: Any, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Any:
    """max(x, 0); in general min(x, max_value) for x >= threshold, else slope * (x - threshold)."""
    if negative_slope == 0.0 and threshold == 0.0:
        if max_value is None:
            return ops.relu(x)
        if max_value == 6:
            return ops.relu6(x)
    return _general_relu(x, negative_slope, max_value, threshold)


@operation
def _general_relu(x: Any, negative_slope: float, max_value: float | None, threshold: float) -> Any:
    x = convert_to_node(x)
    low = ops.multiply(ops.subtract(x, threshold), negative_slope) if negative_slope else 0.0
    high = x if max_value is None else ops.minimum(x, max_value)
    # At the threshold itself the gradient is that of the lower branch, as for relu at 0.
    return ops.where(ops.less_equal(x, threshold), low, high)


def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """x for x >= 0, negative_slope * x below."""
    return ops.leaky_relu(x, negative_slope=negative_slope)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6)."""
    return ops.relu6(x)


def softmax(x: Any, axis: Any = -1) -> Any:
    """exp(x) / sum(exp(x)) along `axis`."""
    return ops.softmax(x, axis=axis)


def log_softmax(x: Any, axis: Any = -1) -> Any:
    """x - log(sum(exp(x))) along `axis`."""
    return ops.log_softmax(x, axis=axis)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """x for x > 0, alpha * (exp(x) - 1) below."""
    return ops.elu(x, alpha=alpha)


def selu(x: Any) -> Any:
    """1.0507 * elu(x, 1.67326)."""
    return ops.selu(x)


def celu(x: Any, alpha: float = 1.0) -> Any:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    return ops.celu(x, alpha=alpha)


def glu(x: Any, axis: int = -1) -> Any:
    """a * sigmoid(b), where a and b are the halves of x along `axis`."""
    return ops.glu(x, axis=axis)


def gelu(x: Any, approximate: bool = False) -> Any:
    """x * Phi(x) with the normal distribution function; `approximate` uses tanh."""
    return ops.gelu(x, approximate=approximate)


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return ops.softplus(x)


def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return ops.softsign(x)


def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x moved towards 0 by `threshold`, 0 within it."""
    return ops.soft_shrink(x, threshold=threshold)


def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x where |x| > threshold, else 0."""
    return ops.hard_shrink(x, threshold=threshold)


def tanh_shrink(x: Any) -> Any:
    """x - tanh(x)."""
    return ops.tanh_shrink(x)


def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """x where x > threshold, else `default_value`."""
    return ops.threshold(x, threshold, default_value)


def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    return ops.silu(x)


swish = silu


def squareplus(x: Any, b: float = 4) -> Any:
    """(x + sqrt(x^2 + b)) / 2."""
    return ops.squareplus(x, b=b)


def sparse_plus(x: Any) -> Any:
    """0 up to -1, (x + 1)^2 / 4 between, x from 1 on."""
    return ops.sparse_plus(x)


def sparse_sigmoid(x: Any) -> Any:
    """0 up to -1, (x + 1) / 2 between, 1 from 1 on."""
    return ops.sparse_sigmoid(x)


@operation
def sparsemax(x: Any, axis: int = -1) -> Any:
    """The nearest point to x of the probability simplex along `axis`: max(x - tau, 0).

    An element belongs to the support when 1 + k x > s, where k counts the elements that are at
    least as large and s is their sum; tau = (sum of the support - 1) / size of the support.
    Compares all pairs along the axis, so it is meant for up to some thousand classes.
    """
    x = ops.moveaxis(convert_to_node(x), axis, -1)
    mine, other = ops.expand_dims(x, -1), ops.expand_dims(x, -2)
    at_least = ops.greater_equal(other, mine)
    count = ops.sum(ops.cast(at_least, x.dtype), axis=-1)
    total = ops.sum(ops.where(at_least, other, 0.0), axis=-1)
    support = ops.greater(ops.add(ops.multiply(x, count), 1.0), total)
    size = ops.sum(ops.cast(support, x.dtype), axis=-1, keepdims=True)
    kept = ops.sum(ops.where(support, x, 0.0), axis=-1, keepdims=True)
    tau = ops.divide(ops.subtract(kept, 1.0), size)
    return ops.moveaxis(ops.relu(ops.subtract(x, tau)), -1, axis)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return ops.tanh(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return ops.sigmoid(x)


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), exact for large |x| too."""
    return ops.log_sigmoid(x)


def exponential(x: Any) -> Any:
    """exp(x)."""
    return ops.exp(x)


def hard_sigmoid(x: Any) -> Any:
    """clip(x / 6 + 1/2, 0, 1)."""
    return ops.hard_sigmoid(x)


def keras2_hard_sigmoid(x: Any) -> Any:
    """clip(x / 5 + 1/2, 0, 1): what `hard_sigmoid` was before Keras 3. Models from older files use it."""
    return ops.clip(ops.add(ops.multiply(x, 0.2), 0.5), 0.0, 1.0)


def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x)."""
    return ops.hard_silu(x)


hard_swish = hard_silu


def hard_tanh(x: Any) -> Any:
    """clip(x, -1, 1)."""
    return ops.hard_tanh(x)


def mish(x: Any) -> Any:
    """x * tanh(softplus(x))."""
    return ops.mish(x)


_TABLE: dict[str, Any] = {
    function.__name__: function
    for function in (
        celu, elu, exponential, gelu, glu, hard_shrink, hard_sigmoid, hard_silu, hard_tanh,
        keras2_hard_sigmoid, leaky_relu, linear, log_sigmoid, log_softmax, mish, relu, relu6, selu, sigmoid, silu,
        soft_shrink, softmax, softplus, softsign, sparse_plus, sparse_sigmoid, sparsemax,
        squareplus, tanh, tanh_shrink, threshold,
    )
} | {"swish": silu, "hard_swish": hard_silu}  # fmt: skip

_family = Family("activation", "keras.activations", _TABLE)


def get(identifier: Any) -> Callable[..., Any]:
    """The activation for a name, config dict or callable; None is `linear`.

    Raises ValueError where it is none of these, naming near names for an unknown string.
    """
    if identifier is None:
        return linear
    if isinstance(identifier, Mapping) and identifier.get("class_name") != "function":
        return deserialize(identifier)
    return _family.get(identifier)


def serialize(activation: Any) -> Any:
    """The name of a built-in activation; a config dict for a layer or a function of your own."""
    if hasattr(activation, "get_config"):
        from meganeura import layers

        return layers.serialize(activation)
    return _family.serialize(activation)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The activation that `serialize` described."""
    if isinstance(config, Mapping) and config.get("class_name") not in ("function", *_TABLE):
        from meganeura import layers

        return layers.deserialize(config, custom_objects)
    return _family.deserialize(config, custom_objects)
