"""ONNX operators that move, select and assemble elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura import ops
from meganeura.onnx.registry import Call, dtype_of, handles, normal_axis, rank


@handles("Reshape")
def _reshape(call: Call) -> Any:
    x = call.tensor(0)
    wanted = call.ints(1, "shape") or []
    if not call.get("allowzero", 0):
        wanted = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    return ops.reshape(x, tuple(wanted))


@handles("Transpose")
def _transpose(call: Call) -> Any:
    x = call.tensor(0)
    return ops.transpose(x, tuple(call.get("perm") or reversed(range(rank(x)))))


@handles("Squeeze")
def _squeeze(call: Call) -> Any:
    x = call.tensor(0)
    axes = call.ints(1, "axes")
    gone = {i for i, n in enumerate(x.shape) if n == 1} if axes is None else {
        normal_axis(a, rank(x)) for a in axes
    }  # fmt: skip
    return ops.reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in gone))


@handles("Unsqueeze")
def _unsqueeze(call: Call) -> Any:
    x = call.tensor(0)
    axes = call.ints(1, "axes") or []
    total = rank(x) + len(axes)
    added = {normal_axis(a, total) for a in axes}
    old = iter(x.shape)
    return ops.reshape(x, tuple(1 if i in added else next(old) for i in range(total)))


@handles("Flatten")
def _flatten(call: Call) -> Any:
    x = call.tensor(0)
    axis = normal_axis(call.get("axis", 1), rank(x))
    return ops.reshape(x, (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))))


@handles("Expand")
def _expand(call: Call) -> Any:
    x = call.tensor(0)
    return ops.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), tuple(call.ints(1) or ())))


@handles("Concat")
def _concat(call: Call) -> Any:
    return ops.concatenate(call.tensors(), axis=call.get("axis", 1))


@handles("Split")
def _split(call: Call) -> Any:
    x = call.tensor(0)
    axis = normal_axis(call.get("axis", 0), rank(x))
    sizes = call.ints(1, "split")
    if sizes is None:
        parts = call.get("num_outputs", call.outputs)
        each = -(-x.shape[axis] // parts)
        sizes = [min(each, x.shape[axis] - each * i) for i in range(parts)]
    stops = np.cumsum([0, *sizes])
    return tuple(_cut(x, axis, int(a), int(b)) for a, b in zip(stops[:-1], stops[1:], strict=True))


def _cut(x: Any, axis: int, start: int, stop: int) -> Any:
    index = [slice(None)] * rank(x)
    index[axis] = slice(start, stop)
    return x[tuple(index)]


@handles("Slice")
def _slice(call: Call) -> Any:
    x = call.tensor(0)
    starts, ends = call.ints(1, "starts") or [], call.ints(2, "ends") or []
    axes = call.ints(3, "axes") or list(range(len(starts)))
    steps = call.ints(4) or [1] * len(starts)
    index: list[slice] = [slice(None)] * rank(x)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        length = x.shape[axis]
        # An end beyond the front of a backward slice means "through the first element".
        stop = None if step < 0 and end < -length else end
        index[axis] = slice(*slice(start, stop, step).indices(length)) if step > 0 else slice(
            min(start, length - 1) if start >= 0 else start, stop, step
        )  # fmt: skip
    return x[tuple(index)]


@handles("Pad")
def _pad(call: Call) -> Any:
    x = call.tensor(0)
    pads = call.ints(1, "pads" if call.opset > 1 else "paddings") or []
    axes = call.ints(3) or list(range(rank(x)))
    value = float(np.asarray(call.static(2)).ravel()[0]) if call.has(2) else call.get("value", 0.0)
    mode = call.get("mode", "constant")
    widths = [[0, 0] for _ in range(rank(x))]
    for i, axis in enumerate(axes):
        widths[axis] = [pads[i], pads[i + len(axes)]]
    if any(n < 0 for pair in widths for n in pair):
        index = tuple(
            slice(max(-low, 0), length - max(-high, 0))
            for (low, high), length in zip(widths, x.shape, strict=True)
        )
        x = x[index]
        widths = [[max(n, 0) for n in pair] for pair in widths]
    if mode == "constant":
        if "float" not in dtype_of(x):
            value = int(value)
        return ops.pad(x, widths, mode="constant", constant_values=value)
    for axis, (low, high) in enumerate(widths):
        length = x.shape[axis]
        position = np.arange(-low, length + high)
        if mode == "edge":
            place = np.clip(position, 0, length - 1)
        elif mode == "reflect":
            period = max(2 * (length - 1), 1)
            folded = np.mod(position, period)
            place = np.minimum(folded, period - folded) if length > 1 else np.zeros_like(position)
        elif mode == "wrap":
            place = np.mod(position, length)
        else:
            call.refuse(f"the padding mode {mode!r} is not known")
        if low or high:
            x = ops.take(x, place.astype("int32"), axis=axis)
    return x


@handles("Tile")
def _tile(call: Call) -> Any:
    return ops.tile(call.tensor(0), tuple(call.ints(1) or ()))


@handles("Gather")
def _gather(call: Call) -> Any:
    x, index = call.tensor(0), call.tensor(1)
    axis = normal_axis(call.get("axis", 0), rank(x))
    return ops.take(x, ops.cast(index, "int32"), axis=axis)


@handles("GatherElements")
def _gather_elements(call: Call) -> Any:
    x, index = call.tensor(0), ops.cast(call.tensor(1), "int32")
    axis = normal_axis(call.get("axis", 0), rank(x))
    for other in range(rank(x)):
        if other != axis and x.shape[other] != index.shape[other]:
            x = _cut(x, other, 0, index.shape[other])
    index = ops.where(index < 0, index + x.shape[axis], index)
    return ops.take_along_axis(x, index, axis=axis)


@handles("GatherND")
def _gather_nd(call: Call) -> Any:
    x, index = call.tensor(0), ops.cast(call.tensor(1), "int32")
    batch, depth = call.get("batch_dims", 0), index.shape[-1]
    leading, indexed = tuple(x.shape[:batch]), tuple(x.shape[batch : batch + depth])
    rest = tuple(x.shape[batch + depth :])
    flat = _linear(index, indexed)
    rows = int(np.prod(leading))
    if batch:
        offsets = np.arange(rows, dtype="int32").reshape(*leading, *([1] * (rank(flat) - batch)))
        flat = flat + offsets * int(np.prod(indexed))
    values = ops.reshape(x, (rows * int(np.prod(indexed)), *rest))
    taken = ops.take(values, ops.reshape(flat, (-1,)), axis=0)
    return ops.reshape(taken, (*flat.shape, *rest))


def _linear(index: Any, lengths: tuple[int, ...]) -> Any:
    """The last axis of coordinates as one row-major index, negative ones wrapped."""
    strides = np.cumprod([1, *lengths[::-1]])[:-1][::-1].astype("int32")
    bounds = np.asarray(lengths, "int32")
    index = ops.where(index < 0, index + bounds, index)
    return ops.sum(index * strides, axis=-1)


@handles("OneHot")
def _one_hot(call: Call) -> Any:
    index, values = call.tensor(0), call.tensor(2)
    depth = int(np.asarray(call.static(1)).ravel()[0])
    axis = normal_axis(call.get("axis", -1), rank(index) + 1)
    index = ops.cast(index, "int32")
    index = ops.expand_dims(ops.where(index < 0, index + depth, index), axis)
    shape = [1] * rank(index)
    shape[axis] = depth
    hit = ops.equal(index, np.arange(depth, dtype="int32").reshape(shape))
    return ops.where(hit, values[1], values[0])


@handles("DepthToSpace")
def _depth_to_space(call: Call) -> Any:
    x, size = call.tensor(0), call.get("blocksize")
    n, c, h, w = x.shape
    if call.get("mode", "DCR") == "DCR":
        x = ops.transpose(ops.reshape(x, (n, size, size, c // size**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = ops.transpose(ops.reshape(x, (n, c // size**2, size, size, h, w)), (0, 1, 4, 2, 5, 3))
    return ops.reshape(x, (n, c // size**2, h * size, w * size))


@handles("SpaceToDepth")
def _space_to_depth(call: Call) -> Any:
    x, size = call.tensor(0), call.get("blocksize")
    n, c, h, w = x.shape
    x = ops.reshape(x, (n, c, h // size, size, w // size, size))
    first = call.get("mode", "DCR") == "DCR"
    x = ops.transpose(x, (0, 3, 5, 1, 2, 4) if first else (0, 1, 3, 5, 2, 4))
    return ops.reshape(x, (n, c * size**2, h // size, w // size))


@handles("Trilu")
def _trilu(call: Call) -> Any:
    x = call.tensor(0)
    k = int(np.asarray(call.static(1)).ravel()[0]) if call.has(1) else 0
    rows, columns = x.shape[-2:]
    mask = np.tri(rows, columns, k - 1 if call.get("upper", 1) else k, dtype=bool)
    mask = ~mask if call.get("upper", 1) else mask
    return ops.where(mask, x, ops.zeros_like(x))


@handles("ReverseSequence")
def _reverse_sequence(call: Call) -> Any:
    x, lengths = call.tensor(0), ops.cast(call.tensor(1), "int32")
    time = call.get("time_axis", 0)
    if time:
        x = ops.transpose(x, (1, 0, *range(2, rank(x))))
    steps = np.arange(x.shape[0], dtype="int32")[:, None]
    lengths = ops.expand_dims(lengths, 0)
    index = ops.where(ops.less(steps, lengths), lengths - 1 - steps, steps)
    index = ops.reshape(index, (*index.shape, *([1] * (rank(x) - 2))))
    out = ops.take_along_axis(x, ops.broadcast_to(index, tuple(x.shape)), axis=0)
    return ops.transpose(out, (1, 0, *range(2, rank(x)))) if time else out


@handles("CenterCropPad")
def _center_crop_pad(call: Call) -> Any:
    x, wanted = call.tensor(0), call.ints(1) or []
    axes = call.get("axes") or list(range(rank(x)))
    for axis, length in zip(axes, wanted, strict=True):
        axis = normal_axis(axis, rank(x))
        now = x.shape[axis]
        if length < now:
            start = (now - length) // 2
            x = _cut(x, axis, start, start + length)
        elif length > now:
            before = (length - now) // 2
            widths = [(0, 0)] * rank(x)
            widths[axis] = (before, length - now - before)
            x = ops.pad(x, widths)
    return x


@handles("Shape")
def _shape(call: Call) -> Any:
    shape = np.asarray(call.tensor(0).shape, np.int64)
    return shape[call.get("start", 0) : call.get("end")]


@handles("Size")
def _size(call: Call) -> Any:
    return np.asarray(int(np.prod(call.tensor(0).shape)), np.int64)


@handles("EyeLike")
def _eye_like(call: Call) -> Any:
    from meganeura.onnx.elementwise import cast_to

    x = call.tensor(0)
    rows, columns = (int(n) for n in x.shape)
    eye = np.eye(rows, columns, k=call.get("k", 0), dtype="float32")
    code = call.attributes.get("dtype")
    return ops.cast(eye, dtype_of(x)) if code is None else cast_to(call, eye, code)


@handles("Compress")
def _compress(call: Call) -> Any:
    x, keep = call.tensor(0), np.flatnonzero(call.static(1)).astype("int32")
    axis = call.attributes.get("axis")
    if axis is None:
        return ops.take(ops.reshape(x, (-1,)), keep, axis=0)
    return ops.take(x, keep, axis=normal_axis(axis, rank(x)))
