"""Configurations of Keras 2 in the words of Keras 3, before anything is made of them.

What differs: names with slashes, an activation of the same name and other numbers, arguments that
were written and never used, TensorFlow's functions as layers, and wrappers around losses and metrics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: Arguments that a class of Keras 2 inherited and wrote without using them.
_INHERITED = frozenset({"kernel_initializer", "kernel_regularizer", "kernel_constraint"})
_HAVE_NO_KERNEL = {"SeparableConv1D", "SeparableConv2D", "DepthwiseConv1D", "DepthwiseConv2D"}

_UNARY: tuple[str, ...] = ()
_AXIS = {"axis": "axis", "keepdims": "keepdims"}

#: TensorFlow's function -> our operation, its arguments after the first that are positional here, and
#: those that go by another name.
_FUNCTIONS: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    **{
        f"{module}.{name}": (ours, ("y",), {})
        for module, name, ours in (
            ("__operators__", "add", "add"),
            ("math", "add", "add"),
            ("math", "subtract", "subtract"),
            ("math", "multiply", "multiply"),
            ("math", "truediv", "divide"),
            ("math", "divide", "divide"),
            ("math", "floordiv", "floor_divide"),
            ("math", "floormod", "mod"),
            ("math", "pow", "power"),
            ("math", "maximum", "maximum"),
            ("math", "minimum", "minimum"),
            ("math", "greater", "greater"),
            ("math", "less", "less"),
            ("math", "equal", "equal"),
            ("math", "not_equal", "not_equal"),
        )
    },
    **{
        f"math.{name}": (ours, _UNARY, {})
        for name, ours in (
            *((n, n) for n in "abs exp log log1p sqrt rsqrt square sin cos tanh sigmoid sign".split()),
            ("negative", "negative"), ("floor", "floor"), ("ceil", "ceil"), ("round", "round"),
            ("erf", "erf"), ("softplus", "softplus"),
        )
    },
    **{
        f"nn.{name}": (ours, _UNARY, {})
        for name, ours in (
            *((n, n) for n in "relu relu6 elu selu sigmoid tanh softplus softsign silu".split()),
            ("swish", "silu"),
        )
    },
    "nn.gelu": ("gelu", _UNARY, {"approximate": "approximate"}),
    "nn.leaky_relu": ("leaky_relu", _UNARY, {"alpha": "negative_slope"}),
    "nn.softmax": ("softmax", _UNARY, {"axis": "axis"}),
    "nn.log_softmax": ("log_softmax", _UNARY, {"axis": "axis"}),
    **{f"math.reduce_{n}": (n, _UNARY, _AXIS) for n in "mean sum max min prod std".split()},
    "math.reduce_variance": ("var", _UNARY, _AXIS),
    "math.argmax": ("argmax", _UNARY, {"axis": "axis"}),
    "reshape": ("reshape", _UNARY, {"shape": "newshape"}),
    "transpose": ("transpose", _UNARY, {"perm": "axes"}),
    "expand_dims": ("expand_dims", _UNARY, {"axis": "axis"}),
    "squeeze": ("squeeze", _UNARY, {"axis": "axis"}),
    "concat": ("concatenate", _UNARY, {"axis": "axis"}),
    "stack": ("stack", _UNARY, {"axis": "axis"}),
    "tile": ("tile", _UNARY, {"multiples": "repeats"}),
    "clip_by_value": ("clip", _UNARY, {"clip_value_min": "x_min", "clip_value_max": "x_max"}),
    "cast": ("cast", _UNARY, {"dtype": "dtype"}),
    "linalg.matmul": ("matmul", ("b",), {}),
    "identity": ("copy", _UNARY, {}),
    "stop_gradient": ("stop_gradient", _UNARY, {}),
}  # fmt: skip


def is_keras2(config: Any, version: str | None = None) -> bool:
    """Whether a configuration was written before Keras 3, by its version or by how it looks."""
    stated = version or (config.get("keras_version") if isinstance(config, Mapping) else None)
    if stated:
        major = str(stated).split(".")[0]
        if major in ("0", "1"):
            raise ValueError(
                f"this model was written by Keras {stated}, whose configurations are not read: rebuild the "
                "model in Python, and load the file's weights with model.load_weights()"
            )
        return major == "2"
    return _any(config, lambda d: "batch_input_shape" in d or ".engine." in str(d.get("module")))


def _any(tree: Any, test: Any) -> bool:
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            if test(item):
                return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def modernise(config: Any) -> Any:
    """The configuration of a model of Keras 2 as Keras 3 would have written it."""
    return _layer(config)


def _tree(value: Any) -> Any:
    """A part of a configuration: layers in it are rewritten, the rest is kept."""
    if isinstance(value, list):
        return [_tree(v) for v in value]
    if isinstance(value, Mapping):
        return _layer(value) if "class_name" in value else {k: _tree(v) for k, v in value.items()}
    return value


def _layer(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    entry = dict(entry)
    kind, inner = str(entry.get("class_name")), entry.get("config")
    if not isinstance(inner, Mapping):
        if kind == "Sequential" and isinstance(inner, list):  # before Keras 2.2
            entry["config"] = {"layers": [_layer(layer) for layer in inner]}
        return entry
    inner = dict(inner)
    is_graph = "input_layers" in inner and "output_layers" in inner
    for key, value in list(inner.items()):
        if kind in _HAVE_NO_KERNEL and key in _INHERITED:
            del inner[key]
        elif key.endswith("activation") and value == "hard_sigmoid":
            inner[key] = "keras2_hard_sigmoid"  # the slope is 0.2, and 1/6 in Keras 3
        elif key == "name" and isinstance(value, str):
            inner[key] = plain_name(value)
        elif key in ("input_layers", "output_layers"):
            inner[key] = _references(value)
        else:
            inner[key] = _tree(value)
    entry["config"] = inner
    if is_graph and kind == "Model":
        entry["class_name"] = "Functional"
    if isinstance(entry.get("name"), str):
        entry["name"] = plain_name(entry["name"])
    if "inbound_nodes" in entry:
        entry["inbound_nodes"] = _references(entry["inbound_nodes"])
        if kind in ("TFOpLambda", "SlicingOpLambda"):
            return _function_layer(entry)
    return entry


def plain_name(name: str) -> str:
    """A layer's name as Keras 3 allows it: without slashes."""
    return name.replace("/", "_")


def _references(tree: Any) -> Any:
    """References to layers, `["name", call, output, ...]`, by their plain names."""
    if isinstance(tree, list):
        if len(tree) >= 3 and isinstance(tree[0], str):
            return [plain_name(tree[0]), *(_references(t) for t in tree[1:])]
        return [_references(t) for t in tree]
    if isinstance(tree, Mapping):
        return {k: _references(v) for k, v in tree.items()}
    return tree


# --- TensorFlow's functions --------------------------------------------------------------------


def _function_layer(entry: dict[str, Any]) -> dict[str, Any]:
    """`tf.nn.relu(x)` in a functional model of Keras 2, as the operation that Keras 3 would write."""
    function, name = str(entry["config"].get("function")), entry["config"].get("name")
    if function == "__operators__.getitem":
        calls = [_slice_call(call) for call in entry["inbound_nodes"]]
        return _operation("get_item", name, {}, calls)
    if function not in _FUNCTIONS:
        raise ValueError(
            f"layer {name!r} of this Keras 2 model calls tf.{function}, which has no counterpart here; "
            "rebuild the model in Python and load its weights with load_weights()"
        )
    ours, positional, keywords = _FUNCTIONS[function]
    config: dict[str, Any] = {}
    calls = []
    for call in entry["inbound_nodes"]:
        first, given = _arguments(call)
        args = [first]
        for key in positional:
            if key in given:
                args.append(_tensor(given.pop(key)))
        for key, value in given.items():
            if key in keywords:
                config[keywords[key]] = value
            elif key != "name" and value not in (None, False):
                raise ValueError(
                    f"layer {name!r} of this Keras 2 model calls tf.{function} with {key}={value!r}, "
                    "which is not understood; rebuild the model in Python and load its weights"
                )
        calls.append({"args": args, "kwargs": {}})
    return _operation(ours, name, config, calls)


def _operation(ours: str, name: Any, config: dict[str, Any], calls: list[Any]) -> dict[str, Any]:
    return {
        "module": "keras.src.ops.numpy",
        "class_name": "".join(part.capitalize() for part in ours.split("_")),
        "config": {"name": name, **config},
        "name": name,
        "inbound_nodes": calls,
    }


def _arguments(call: Any) -> tuple[Any, dict[str, Any]]:
    """The first argument of a call (a list of tensors where there are several) and its keywords."""
    references = [call] if call and isinstance(call[0], str) else list(call)
    tensors = [_tensor(reference[:3]) for reference in references]
    keywords = dict(references[0][3]) if len(references[0]) > 3 else {}
    return (tensors[0] if len(tensors) == 1 else tensors), keywords


def _tensor(value: Any) -> Any:
    """A reference as Keras 3 writes tensors; constants stay what they are."""
    if isinstance(value, list) and len(value) >= 3 and isinstance(value[0], str):
        if value[0] == "_CONSTANT_VALUE":
            return value[2]
        return {"class_name": "__keras_tensor__", "config": {"keras_history": list(value[:3])}}
    return value


def _slice_call(call: Any) -> dict[str, Any]:
    first, given = _arguments(call)
    spec = given.get("slice_spec")
    parts = spec if isinstance(spec, list) else [spec]
    return {"args": [first, [_slice(part) for part in parts]], "kwargs": {}}


def _slice(part: Any) -> Any:
    if isinstance(part, Mapping) and {"start", "stop", "step"} & set(part):
        ends = {k: part.get(k) for k in ("start", "stop", "step")}
        return {"class_name": "__slice__", "config": ends}
    if isinstance(part, Mapping) or part == "...":
        return {"class_name": "__ellipsis__", "config": {}}
    return part


# --- what a model was compiled with ------------------------------------------------------------


def compile_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`training_config` of a legacy file, or `compile_config` of Keras 2, as Keras 3 writes it."""
    config = dict(config)
    old = config.pop("optimizer_config", None)
    if old is not None and "optimizer" not in config:
        config["optimizer"] = old
    if isinstance(config.get("optimizer"), Mapping):
        config["optimizer"] = _optimizer(config["optimizer"])
    config["loss"] = _loss(config.get("loss"))
    for name in ("metrics", "weighted_metrics"):
        config[name] = _metrics(config.get(name))
    config.pop("sample_weight_mode", None)
    return {k: v for k, v in config.items() if v is not None}


def _optimizer(entry: Mapping[str, Any]) -> dict[str, Any]:
    inner = dict(entry.get("config") or {})
    for name in ("jit_compile", "is_legacy_optimizer"):
        inner.pop(name, None)
    if "lr" in inner:
        inner["learning_rate"] = inner.pop("lr")
    decay = inner.pop("decay", 0.0)
    if decay and not isinstance(inner.get("learning_rate"), Mapping):
        # the rate that Keras 2 computed from it at every step
        inner["learning_rate"] = {
            "module": "keras.optimizers.schedules",
            "class_name": "InverseTimeDecay",
            "config": {
                "initial_learning_rate": inner["learning_rate"],
                "decay_steps": 1,
                "decay_rate": decay,
            },
            "registered_name": None,
        }
    name = re.sub(r"^Custom>", "", str(entry["class_name"]))
    module = entry.get("module") or ""
    module = "" if module.startswith("keras.") else module
    return {**entry, "module": module, "class_name": name, "config": inner, "registered_name": None}


def _loss(loss: Any) -> Any:
    """Keras 2's losses: `reduction` was "auto", and functions were wrapped."""
    if isinstance(loss, list):
        return [_loss(one) for one in loss]
    if not isinstance(loss, Mapping):
        return loss
    if "class_name" not in loss:
        return {k: _loss(v) for k, v in loss.items()}
    inner = dict(loss.get("config") or {}) if isinstance(loss.get("config"), Mapping) else None
    if inner is None:
        return loss
    function = inner.pop("fn", None)
    if loss["class_name"] in ("LossFunctionWrapper", "MeanMetricWrapper"):
        return function or inner.get("name")
    if inner.get("reduction") in ("auto", None):
        inner.pop("reduction", None)
    return {**loss, "config": inner}


def _metrics(metrics: Any) -> Any:
    """Keras 2 writes metrics as nested lists of wrappers; the functions' names are enough."""
    if isinstance(metrics, list):
        return [one for one in (_metrics(m) for m in metrics) if one is not None]
    if not isinstance(metrics, Mapping):
        return metrics
    if "class_name" not in metrics:
        return {k: _metrics(v) for k, v in metrics.items()}
    if metrics["class_name"] == "MeanMetricWrapper":
        inner = metrics.get("config") or {}
        return inner.get("name") or inner.get("fn")
    if isinstance(metrics.get("config"), Mapping):
        return {**metrics, "config": {k: v for k, v in metrics["config"].items() if k != "fn"}}
    return metrics
