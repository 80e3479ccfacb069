"""The weights of legacy `.h5` files, as Keras 1, 2 and 3 write them.

`layer_names` lists the layers in model order; each layer's group lists its `weight_names`. In a
whole-model file all that lies under `model_weights`, in a weights-only file at the root.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura.saving.keras2 import plain_name
from meganeura.saving.safe_h5 import SafeGroup

TOP_LEVEL = "top_level_model_weights"

Pairs = list[tuple[Any, np.ndarray]]


def is_legacy(root: SafeGroup) -> bool:
    return any(
        group.attribute("layer_names") is not None
        for group in (root, *([root.group("model_weights")] if "model_weights" in root else []))
    )


def load_legacy_weights(
    model: Any, root: SafeGroup, by_name: bool = False, skip_mismatch: bool = False
) -> None:
    """Set a built model's weights from a legacy file; nothing changes unless everything fits.

    Layers are matched by position among those that have weights, or with `by_name` by their
    names, layers that the file does not know keeping their weights. Raises ValueError that names
    the layer and both shapes; with `skip_mismatch` such layers are skipped with a warning.
    """
    group = root.group("model_weights") if "model_weights" in root else root
    stored = [(name, *_read_layer(group, name)) for name in group.strings("layer_names")]
    layers = [layer for layer in model.layers if layer.weights]
    if by_name:
        known = {plain_name(name): (name, names, arrays) for name, names, arrays in stored}
        matches = [(layer, *known[layer.name]) for layer in layers if layer.name in known]
    else:
        stored = [entry for entry in stored if entry[2]]
        if len(stored) != len(layers):
            raise ValueError(
                f"the file holds weights for {len(stored)} layers "
                f"({', '.join(name for name, *_ in stored[:10])}), and model {model.name!r} has "
                f"{len(layers)} layers with weights "
                f"({', '.join(layer.name for layer in layers[:10])}); "
                "build the model as it was saved, or pass by_name=True"
            )
        matches = [(layer, *entry) for layer, entry in zip(layers, stored, strict=True)]
    pairs: Pairs = []
    problems: list[str] = []
    for layer, name, names, arrays in matches:
        try:
            pairs += _match(legacy_order(layer), names, arrays, f"layer {layer.name!r} ({name!r})")
        except ValueError as error:
            problems.append(str(error))
    if TOP_LEVEL in group and group.group(TOP_LEVEL).strings("weight_names"):
        own = [*model._trainable_variables, *model._non_trainable_variables]
        names, arrays = _read_layer(group, TOP_LEVEL)
        if own:
            pairs += _match(own, names, arrays, f"model {model.name!r}")
    if problems and not skip_mismatch:
        raise ValueError(
            f"the file does not fit model {model.name!r}, which keeps its weights:\n  "
            + "\n  ".join(problems[:20])
        )
    if problems:
        warnings.warn(f"weights that did not fit were skipped: {'; '.join(problems[:20])}")
    for variable, array in pairs:
        variable.assign(array)


def legacy_order(layer: Any) -> list[Any]:
    """A layer's weights as these files order them: trainable ones first, as they were created."""
    trainable: list[Any] = []
    other: list[Any] = []
    for variable in layer.weights:
        (trainable if _created_trainable(variable) else other).append(variable)
    return trainable + other


def _created_trainable(variable: Any) -> bool:
    """Whether a weight is one that training may change, whatever is frozen at present."""
    return bool(getattr(variable, "created_trainable", variable.trainable))


def _read_layer(group: SafeGroup, name: str) -> tuple[list[str], list[np.ndarray]]:
    layer = group.walk(name)
    names = layer.strings("weight_names")
    arrays = []
    for weight in names:
        *folders, leaf = weight.split("/")
        arrays.append(layer.walk("/".join(folders)).read(leaf))
    return names, arrays


def _match(
    variables: Sequence[Any], names: Sequence[str], arrays: Sequence[np.ndarray], label: str
) -> Pairs:
    if len(variables) != len(arrays):
        raise ValueError(f"{label} has {len(variables)} weights, the file {len(arrays)}")
    if all(tuple(v.shape) == a.shape for v, a in zip(variables, arrays, strict=True)):
        by_leaf = _by_names(variables, names, arrays)
        return by_leaf or list(zip(variables, arrays, strict=True))
    by_leaf = _by_names(variables, names, arrays)
    if by_leaf:
        return by_leaf
    shapes = [tuple(v.shape) for v in variables], [a.shape for a in arrays]
    raise ValueError(f"{label} has weights of shapes {shapes[0]}, the file {shapes[1]}")


def _leaf(path: str) -> str:
    """`block/conv2d_3/depthwise_kernel:0` -> `conv2d/kernel`: what survives renaming."""
    parts = re.sub(r":\d+$", "", path).split("/")[-2:]
    parts[0] = re.sub(r"_\d+$", "", parts[0]) if len(parts) > 1 else parts[0]
    parts[-1] = parts[-1].replace("depthwise_kernel", "kernel")
    return "/".join(parts)


def _by_names(
    variables: Sequence[Any], names: Sequence[str], arrays: Sequence[np.ndarray]
) -> Pairs | None:
    """Pairs found by name where every name is unique and every shape fits, else None.

    A frozen layer inside a nested model changes the order of the file, not the names.
    """
    wanted, found = [_leaf(v.path) for v in variables], [_leaf(n) for n in names]
    if len(set(wanted)) != len(wanted) or set(wanted) != set(found) or len(found) != len(wanted):
        return None
    table = dict(zip(found, arrays, strict=True))
    pairs = [(v, table[w]) for v, w in zip(variables, wanted, strict=True)]
    return pairs if all(tuple(v.shape) == a.shape for v, a in pairs) else None
