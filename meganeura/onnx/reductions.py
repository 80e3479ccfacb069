"""ONNX operators that reduce, normalise, or contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import ops
from meganeura.onnx.registry import HANDLERS, Call, dtype_of, floating, handles, normal_axis, rank

_REDUCTIONS: dict[str, Callable[[Any, tuple[int, ...] | None, bool], Any]] = {
    "ReduceSum": lambda x, a, k: ops.sum(x, axis=a, keepdims=k),
    "ReduceMean": lambda x, a, k: ops.mean(x, axis=a, keepdims=k),
    "ReduceMax": lambda x, a, k: ops.max(x, axis=a, keepdims=k),
    "ReduceMin": lambda x, a, k: ops.min(x, axis=a, keepdims=k),
    "ReduceProd": lambda x, a, k: ops.prod(x, axis=a, keepdims=k),
    "ReduceL1": lambda x, a, k: ops.sum(ops.abs(x), axis=a, keepdims=k),
    "ReduceL2": lambda x, a, k: ops.sqrt(ops.sum(x * x, axis=a, keepdims=k)),
    "ReduceLogSum": lambda x, a, k: ops.log(ops.sum(x, axis=a, keepdims=k)),
    "ReduceLogSumExp": lambda x, a, k: ops.logsumexp(x, axis=a, keepdims=k),
    "ReduceSumSquare": lambda x, a, k: ops.sum(x * x, axis=a, keepdims=k),
}


def _install() -> None:
    for kind, reduce in _REDUCTIONS.items():
        HANDLERS[kind] = lambda call, f=reduce: _reduce(call, f)


def _reduce(call: Call, reduce: Callable[..., Any]) -> Any:
    x = call.tensor(0)
    axes = call.ints(1, "axes")
    keep = bool(call.get("keepdims", 1))
    if not axes:
        if call.get("noop_with_empty_axes", 0):
            return _one_element(call.kind, x)
        return ops.cast(reduce(x, None, keep), dtype_of(x))
    chosen = tuple(normal_axis(a, rank(x)) for a in axes)
    return ops.cast(reduce(x, chosen, keep), dtype_of(x))


def _one_element(kind: str, x: Any) -> Any:
    """The reduction of single elements, which `noop_with_empty_axes` asks for."""
    table = {"ReduceL1": ops.abs, "ReduceL2": ops.abs, "ReduceLogSum": ops.log,
             "ReduceSumSquare": lambda v: v * v}  # fmt: skip
    return table.get(kind, lambda v: v)(x)


_install()


@handles("ArgMax", "ArgMin")
def _arg(call: Call) -> Any:
    x = call.tensor(0)
    axis = normal_axis(call.get("axis", 0), rank(x))
    function = ops.argmax if call.kind == "ArgMax" else ops.argmin
    keep = bool(call.get("keepdims", 1))
    if not call.get("select_last_index", 0):
        return function(x, axis=axis, keepdims=keep)
    return x.shape[axis] - 1 - function(ops.flip(x, axis), axis=axis, keepdims=keep)


@handles("CumSum")
def _cumsum(call: Call) -> Any:
    x = call.tensor(0)
    axis = normal_axis(int(np.asarray(call.static(1)).ravel()[0]), rank(x))
    reverse = call.get("reverse", 0)
    if reverse:
        x = ops.flip(x, axis)
    total = ops.cast(ops.cumsum(x, axis=axis), dtype_of(x))
    if call.get("exclusive", 0):
        total = total - x
    return ops.flip(total, axis) if reverse else total


@handles("Softmax", "LogSoftmax", "Hardmax")
def _softmax(call: Call) -> Any:
    x = call.tensor(0)
    axis = normal_axis(call.get("axis", -1 if call.opset >= 13 else 1), rank(x))
    shape = tuple(x.shape)
    if call.opset < 13:  # the older versions flatten from the axis on
        x = ops.reshape(x, (int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))))
        axis = 1
    if call.kind == "Softmax":
        out = ops.softmax(x, axis=axis)
    elif call.kind == "LogSoftmax":
        out = ops.log_softmax(x, axis=axis)
    else:
        out = ops.one_hot(ops.argmax(x, axis=axis), x.shape[axis], axis=axis, dtype="float32")
    return ops.reshape(out, shape)


@handles("MatMul")
def _matmul(call: Call) -> Any:
    return ops.matmul(call.tensor(0), call.tensor(1))


@handles("Gemm")
def _gemm(call: Call) -> Any:
    a, b = call.tensor(0), call.tensor(1)
    a = ops.transpose(a) if call.get("transA", 0) else a
    b = ops.transpose(b) if call.get("transB", 0) else b
    out = ops.matmul(a, b)
    if (alpha := call.get("alpha", 1.0)) != 1.0:
        out = out * alpha
    if call.has(2):
        beta = call.get("beta", 1.0)
        out = out + (call.tensor(2) if beta == 1.0 else call.tensor(2) * beta)
    return out


@handles("Einsum")
def _einsum(call: Call) -> Any:
    return ops.einsum(call.get("equation").replace(" ", ""), *call.tensors())


@handles("LpNormalization")
def _lp_normalization(call: Call) -> Any:
    x, axis = call.tensor(0), call.get("axis", -1)
    if call.get("p", 2) == 1:
        size = ops.sum(ops.abs(x), axis=axis, keepdims=True)
    else:
        size = ops.sqrt(ops.sum(x * x, axis=axis, keepdims=True))
    return ops.where(size == 0.0, ops.zeros_like(x), x / ops.where(size == 0.0, 1.0, size))


@handles("MeanVarianceNormalization")
def _mean_variance(call: Call) -> Any:
    x, axes = call.tensor(0), tuple(call.get("axes") or (0, 2, 3))
    centred = x - ops.mean(x, axis=axes, keepdims=True)
    return centred / ops.sqrt(ops.mean(centred * centred, axis=axes, keepdims=True) + 1e-9)


@handles("LayerNormalization", "RMSNormalization")
def _layer_normalization(call: Call) -> Any:
    x = floating(call.tensor(0))
    axes = tuple(range(normal_axis(call.get("axis", -1), rank(x)), rank(x)))
    epsilon = call.get("epsilon", 1e-5)
    mean = None
    if call.kind == "LayerNormalization":
        mean = ops.mean(x, axis=axes, keepdims=True)
        x = x - mean
    inverse = ops.rsqrt(ops.mean(x * x, axis=axes, keepdims=True) + epsilon)
    out = x * inverse * call.tensor(1)
    if call.has(2):
        out = out + call.tensor(2)
    return (out, mean, inverse)[: call.outputs] if call.outputs > 1 else out


@handles("BatchNormalization")
def _batch_normalization(call: Call) -> Any:
    x = call.tensor(0)
    if call.get("training_mode", 0):
        call.refuse("batch normalization in training mode; export the model for inference")
    shape = (1, -1, *([1] * (rank(x) - 2)))
    scale, shift, mean, variance = (ops.reshape(call.tensor(i), shape) for i in range(1, 5))
    return (x - mean) * ops.rsqrt(variance + call.get("epsilon", 1e-5)) * scale + shift


@handles("InstanceNormalization", "GroupNormalization")
def _group_normalization(call: Call) -> Any:
    x = call.tensor(0)
    shape, channels = tuple(x.shape), x.shape[1]
    groups = channels if call.kind == "InstanceNormalization" else call.get("num_groups")
    grouped = ops.reshape(x, (shape[0], groups, -1))
    centred = grouped - ops.mean(grouped, axis=-1, keepdims=True)
    variance = ops.mean(centred * centred, axis=-1, keepdims=True)
    out = ops.reshape(centred * ops.rsqrt(variance + call.get("epsilon", 1e-5)), shape)
    scale, shift = call.tensor(1), call.tensor(2)
    if scale.shape[0] != channels:  # one value per group before version 21
        scale, shift = (ops.repeat(v, channels // groups, axis=0) for v in (scale, shift))
    wide = (1, -1, *([1] * (len(shape) - 2)))
    return out * ops.reshape(scale, wide) + ops.reshape(shift, wide)


@handles("LRN")
def _lrn(call: Call) -> Any:
    x, size = call.tensor(0), call.get("size")
    before = (size - 1) // 2
    widths = [(0, 0)] * rank(x)
    widths[1] = (before, size - 1 - before)
    squares = ops.pad(x * x, widths)
    total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
    base = call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * total
    return x / ops.power(base, call.get("beta", 0.75))


@handles("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _cross_entropy(call: Call) -> Any:
    x, target = call.tensor(0), ops.cast(call.tensor(1), "int32")
    log_probability = x
    if call.kind == "SoftmaxCrossEntropyLoss":
        log_probability = ops.log_softmax(x, axis=1)
    ignored = call.attributes.get("ignore_index")
    valid = ops.ones_like(floating(target))
    if ignored is not None:
        valid = floating(ops.not_equal(target, ignored))
        target = ops.where(ops.equal(target, ignored), ops.zeros_like(target), target)
    weight = valid * (ops.take(call.tensor(2), target, axis=0) if call.has(2) else 1.0)
    picked = ops.take_along_axis(log_probability, ops.expand_dims(target, 1), axis=1)
    loss = -ops.squeeze(picked, 1) * weight
    reduction = call.get("reduction", "mean")
    if reduction == "sum":
        loss = ops.sum(loss)
    elif reduction == "mean":
        loss = ops.sum(loss) / ops.sum(weight)
    return (loss, log_probability)[: call.outputs] if call.outputs > 1 else loss
