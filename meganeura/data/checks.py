"""Looking at data before the first step, so that mistakes get a sentence and not a traceback."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.ops.dispatch import map_tree


def as_arrays(tree: Any, what: str) -> Any:
    """A structure of array-likes (NumPy, tensors, pandas) as NumPy arrays of the graph's dtypes."""

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if hasattr(value, "to_numpy"):
            value = value.to_numpy()
        elif hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        elif hasattr(value, "numpy"):
            value = value.numpy()
        if isinstance(value, (list, str)) or np.isscalar(value):
            raise ValueError(f"{what} holds {type(value).__name__} values; give NumPy arrays")
        try:
            return dtypes.as_array(value)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from error

    if isinstance(tree, list) and tree and not any(hasattr(v, "shape") or hasattr(v, "__array__") for v in tree):
        raise ValueError(
            f"{what} is a Python list of {type(tree[0]).__name__}; give a NumPy array, such as numpy.array({what})"
        )
    return map_tree(convert, tree)


def leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_tree(lambda v: found.append(v) if v is not None else None, tree)
    return found


def count_of(x: Any, y: Any, w: Any) -> int:
    """The number of samples, on which all arrays must agree."""
    sizes = []
    for name, tree in (("x", x), ("y", y), ("sample_weight", w)):
        for array in leaves(tree):
            if not array.ndim:
                raise ValueError(f"{name} must have a dimension of samples, and is a scalar")
            sizes.append((name, array.shape[0]))
    if len({n for _, n in sizes}) > 1:
        told = ", ".join(f"{name}: {n}" for name, n in sizes)
        raise ValueError(f"the numbers of samples differ ({told}); they must agree along the first dimension")
    if not sizes or sizes[0][1] == 0:
        raise ValueError("there are no samples: the arrays are empty")
    return sizes[0][1]


def check_batch_size(batch_size: Any) -> int:
    if batch_size is None:
        return 32
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
        raise ValueError(f"batch_size must be a positive integer, not {batch_size!r}")
    return int(batch_size)


def split(x: Any, y: Any, w: Any, fraction: float) -> tuple[Any, Any]:
    """The first rows to train, the last `fraction` of them to validate, taken before any shuffling."""
    if not 0 < fraction < 1:
        raise ValueError(f"validation_split must lie between 0 and 1, and is {fraction}")
    count = count_of(x, y, w)
    at = int(np.floor(count * (1.0 - fraction)))
    if at == 0 or at == count:
        raise ValueError(
            f"validation_split {fraction} of {count} samples leaves {at} to train and {count - at} to validate"
        )

    def part(a: Any, where: slice) -> Any:
        return map_tree(lambda v: None if v is None else v[where], a)

    head, tail = slice(0, at), slice(at, None)
    return tuple(part(t, head) for t in (x, y, w)), tuple(part(t, tail) for t in (x, y, w))


def class_weights(y: Any, weights: dict[int, float]) -> np.ndarray:
    """The weight of each sample's class; 1 for classes that are not named."""
    arrays = leaves(y)
    if len(arrays) != 1:
        raise ValueError("class_weight is for models with one output; give sample_weight instead")
    labels = arrays[0]
    if labels.ndim > 1:
        labels = labels.argmax(-1) if labels.shape[-1] != 1 else labels[..., 0]
    labels = labels.astype(np.int64)
    out = np.ones(labels.shape, np.float32)
    for label, weight in weights.items():
        out[labels == int(label)] = weight
    return out


def check_targets(losses: list[tuple[Any, str]], y: list[Any], outputs: list[tuple[Any, ...]]) -> None:
    """Labels and targets against the outputs they are compared with, before the first step."""
    for (loss, name), target, shape in zip(losses, y, outputs, strict=True):
        if loss is None or target is None:
            continue
        kind = _name(loss)
        classes = shape[-1]
        if kind.startswith("sparse"):
            _check_labels(name, kind, target, shape, classes)
        elif kind.startswith("categorical") and target.ndim == len(shape) - 1 and target.dtype.kind in "iu":
            raise ValueError(
                f"output {name!r} has the shape {shape}, and its targets the shape {target.shape} of class "
                "numbers; use the loss 'sparse_categorical_crossentropy', or utils.to_categorical(y)"
            )
        elif target.ndim == len(shape) and shape[-1] == 1 and target.shape[-1] > 1:
            warnings.warn(
                f"output {name!r} has the shape {shape} and its targets {target.shape}: each prediction is "
                "compared with every column, which is seldom meant"
            )
        elif target.ndim == len(shape) and any(
            a is not None and a != b and 1 not in (a, b) for a, b in zip(shape[1:], target.shape[1:], strict=True)
        ):
            raise ValueError(
                f"output {name!r} has the shape {shape}, and its targets the shape {target.shape}; "
                f"for the loss {kind!r} they must agree but for the batch"
            )


def _check_labels(name: str, kind: str, target: np.ndarray, shape: tuple[Any, ...], classes: Any) -> None:
    if target.ndim == len(shape) and target.shape[-1] == classes and classes != 1:
        raise ValueError(
            f"output {name!r} has the shape {shape}, and its targets the shape {target.shape}, which look "
            "one-hot; use the loss 'categorical_crossentropy', or class numbers y.argmax(-1)"
        )
    if target.ndim not in (len(shape), len(shape) - 1):
        raise ValueError(
            f"output {name!r} has the shape {shape}; {kind} needs class numbers of shape "
            f"{shape[:-1]}, and got {target.shape}"
        )
    if target.dtype.kind == "f" and target.size and not np.all(target == np.floor(target)):
        raise ValueError(f"output {name!r}: {kind} needs whole class numbers, and the targets are fractions")
    if target.size and classes is not None:
        low, high = target.min(), target.max()
        if low < 0 or high >= classes:
            bad = low if low < 0 else high
            raise ValueError(
                f"output {name!r}: label {int(bad)} is out of range for {classes} classes "
                f"(0 to {classes - 1}); the last layer needs {int(high) + 1} units, or the labels start at 0"
            )


def _name(loss: Any) -> str:
    if isinstance(loss, str):
        return {"ce": "", "crossentropy": ""}.get(loss, _snake(loss))
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", ""))


def _snake(name: str) -> str:
    from meganeura.identifiers import snake_case

    return snake_case(name)
