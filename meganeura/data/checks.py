"""Looking at data before the first step, so that mistakes get a sentence and not a traceback."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.ops.dispatch import map_tree


def as_arrays(tree: Any, what: str) -> Any:
    """A structure of array-likes (NumPy, tensors of any library, pandas) as arrays of the graph's dtypes."""

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if hasattr(value, "to_numpy"):
            value = value.to_numpy()
        elif hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        elif hasattr(value, "numpy"):
            value = value.numpy()
        if not hasattr(value, "__array__"):
            raise ValueError(
                f"{what} holds values of type {type(value).__name__}; give NumPy arrays"
            )
        array = np.asarray(value)
        if array.dtype.kind in "USO" and what == "y":
            raise ValueError(
                f"y holds {array.dtype} values, and targets must be numbers; "
                "numpy.unique(y, return_inverse=True) numbers classes"
            )
        try:
            return dtypes.as_array(array)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from error

    if isinstance(tree, list) and tree and not any(map(_is_structure_of_arrays, tree)):
        raise ValueError(
            f"{what} is a Python list of {type(tree[0]).__name__}; give a NumPy array, such as "
            f"numpy.array({what})"
        )
    return map_tree(convert, tree)


def _is_structure_of_arrays(value: Any) -> bool:
    return value is None or isinstance(value, (dict, tuple)) or any(
        hasattr(value, name) for name in ("shape", "__array__", "to_numpy")
    )  # fmt: skip


def leaves(tree: Any) -> list[Any]:
    """The arrays of a structure, None left out."""
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
        raise ValueError(
            f"the numbers of samples differ ({told}); they must agree along the first dimension"
        )
    if not sizes or sizes[0][1] == 0:
        raise ValueError("there are no samples: the arrays are empty")
    return int(sizes[0][1])


def positive(value: Any, name: str, default: Any = None) -> Any:
    """`value` as a positive integer, or `default` for None."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {value!r}")
    return int(value)


def split(x: Any, y: Any, w: Any, fraction: float) -> tuple[Any, Any]:
    """The first rows to train, the last `fraction` of them to validate, taken before any shuffling."""
    if not isinstance(fraction, (int, float)) or not 0 < fraction < 1:
        raise ValueError(f"validation_split must lie between 0 and 1, and is {fraction!r}")
    count = count_of(x, y, w)
    at = int(np.floor(count * (1.0 - fraction)))
    if at == 0 or at == count:
        raise ValueError(
            f"validation_split {fraction} of {count} samples leaves {at} to train and {count - at} "
            "to validate; both need at least one"
        )

    def part(a: Any, where: slice) -> Any:
        return map_tree(lambda v: None if v is None else v[where], a)

    head, tail = slice(0, at), slice(at, None)
    return tuple(part(t, head) for t in (x, y, w)), tuple(part(t, tail) for t in (x, y, w))


def class_weights(y: Any, weights: dict[int, float]) -> np.ndarray:
    """The weight of each sample's class; 1 for classes that are not named."""
    if not isinstance(weights, dict):
        raise ValueError(
            f"class_weight is a dict from class number to weight, such as {{0: 1.0, 1: 2.5}}, not {weights!r}"
        )
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


#: Built-in losses whose targets have the shape of the output. Others may take anything.
_SAME_SHAPE = frozenset(
    "binary_crossentropy binary_focal_crossentropy categorical_crossentropy "
    "categorical_focal_crossentropy categorical_hinge cosine_similarity hinge huber kl_divergence "
    "log_cosh mean_absolute_error mean_absolute_percentage_error mean_squared_error "
    "mean_squared_logarithmic_error poisson squared_hinge".split()
)


class TargetCheck:
    """Holds targets, as host arrays, against the outputs that they are compared with.

    outputs: (name, loss as it was given to compile, shape of the output) for each output
    """

    def __init__(self, outputs: list[tuple[str, Any, tuple[Any, ...]]]):
        self.outputs = [(name, *_described(loss), shape) for name, loss, shape in outputs]

    def __call__(self, targets: list[Any]) -> None:
        for (name, kind, ignored, shape), target in zip(self.outputs, targets, strict=True):
            if target is None or not shape or not target.size:
                continue
            if kind in ("crossentropy", "ce"):
                kind = _resolved(target.shape, shape)
            if kind == "sparse_categorical_crossentropy":
                _check_labels(name, kind, target, shape, ignored)
            elif kind in _SAME_SHAPE:
                _check_shapes(name, kind, target, shape)


def _described(loss: Any) -> tuple[str, Any]:
    """The name of a built-in loss in snake case, and the class it ignores; an empty name for others."""
    from meganeura import losses
    from meganeura.identifiers import snake_case

    if isinstance(loss, str) and loss in ("crossentropy", "ce"):
        return loss, None
    if isinstance(loss, str):
        loss = losses.get(loss)
    if type(loss) is losses.LossFunctionWrapper:
        loss = loss.fn
    if isinstance(loss, losses.Loss) and type(loss).__module__.startswith("meganeura."):
        config = loss.get_config()
        if config.get("axis", -1) != -1:
            return "", None
        return snake_case(type(loss).__name__), config.get("ignore_class")
    if any(loss is f for f in losses.FUNCTIONS.values()):
        return str(loss.__name__), None
    return "", None


def _resolved(target: tuple[int, ...], output: tuple[Any, ...]) -> str:
    if output[-1] == 1:
        return "binary_crossentropy"
    sparse = len(target) < len(output) or target[-1] == 1
    return "sparse_categorical_crossentropy" if sparse else "categorical_crossentropy"


def _check_shapes(name: str, kind: str, target: np.ndarray, shape: tuple[Any, ...]) -> None:
    told = f"output {name!r} has the shape {shape}, and its targets the shape {target.shape}"
    wanted, found = shape[1:], target.shape[1:]
    if len(wanted) == len(found) + 1 and wanted[-1] == 1:
        wanted = wanted[:-1]
    elif len(found) == len(wanted) + 1 and found[-1] == 1:
        found = found[:-1]
    if len(wanted) == len(found) and all(
        a is None or a == b for a, b in zip(wanted, found, strict=True)
    ):
        return
    if kind.startswith("categorical") and (found == wanted[:-1] or found == (*wanted[:-1], 1)):
        raise ValueError(
            f"{told} of class numbers; use the loss 'sparse_categorical_crossentropy', or "
            "utils.to_categorical(y)"
        )
    raise ValueError(
        f"{told}; for the loss {kind!r} they must agree but for the batch: change the last layer's "
        "units, or the targets"
    )


def _check_labels(
    name: str, kind: str, target: np.ndarray, shape: tuple[Any, ...], ignored: Any
) -> None:
    classes = shape[-1]
    told = f"output {name!r} has the shape {shape}, and its targets the shape {target.shape}"
    if target.ndim == len(shape) and target.shape[-1] == classes and classes != 1:
        raise ValueError(
            f"{told}, which look one-hot; use the loss 'categorical_crossentropy', or class numbers "
            "y.argmax(-1)"
        )
    if target.ndim != len(shape) - 1 and not (target.ndim == len(shape) and target.shape[-1] == 1):
        raise ValueError(f"{told}; {kind} needs class numbers of shape {shape[:-1]}")
    if target.dtype.kind == "f" and not np.all(target == np.floor(target)):
        raise ValueError(
            f"output {name!r}: {kind} needs whole class numbers, and the targets hold fractions or NaN"
        )
    if classes is None:
        return
    bad = (target < 0) | (target >= classes)
    if ignored is not None:
        bad &= target != ignored
    if bad.any():
        label = int(target[bad][0])
        cure = (
            "labels start at 0" if label < 0 else f"the last layer needs {label + 1} units or more"
        )
        raise ValueError(
            f"output {name!r}: label {label} is out of range for {classes} classes "
            f"(0 to {classes - 1}); {cure}"
        )
