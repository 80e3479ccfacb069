"""Models as pictures, through pydot and Graphviz (https://keras.io/api/utils/model_plotting_utils)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meganeura.ops.dispatch import map_tree

_FORMATS = ("dot", "jpg", "jpeg", "pdf", "png", "ps", "svg")


def _pydot() -> Any:
    try:
        import pydot
    except ImportError as error:
        raise ImportError(
            "pictures of models need pydot and Graphviz: pip install pydot, and install graphviz "
            "(https://graphviz.org/download); model.summary() needs neither"
        ) from error
    return pydot


def model_to_dot(
    model: Any,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    subgraph: bool = False,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
) -> Any:
    """A `pydot.Dot` of a model: a box for each layer, an arrow for each tensor.

    With subgraph a `pydot.Cluster` is made. A subclassed model is one box, for its calls are Python.
    Raises ValueError for a model that is not built.
    """
    pydot = _pydot()
    if rankdir not in ("TB", "BT", "LR", "RL"):
        raise ValueError(f"model_to_dot: rankdir must be TB, BT, LR or RL, got {rankdir!r}")
    if not getattr(model, "built", True):
        raise ValueError(
            f"model_to_dot: model {model.name!r} is not built; call build(input_shape), or it on data"
        )
    if subgraph:
        graph = pydot.Cluster(graph_name=str(id(model)), style="dashed", label=model.name)
    else:
        graph = pydot.Dot("model", graph_type="digraph", rankdir=rankdir, dpi=dpi, splines=splines)
    graph.set_node_defaults(shape="record", fontname="Helvetica")
    show: dict[str, Any] = {
        "show_shapes": show_shapes,
        "show_dtype": show_dtype,
        "show_layer_names": show_layer_names,
        "show_layer_activations": show_layer_activations,
        "show_trainable": show_trainable,
    }
    for operation in _operations(model):
        if expand_nested and _operations(operation) != [operation]:
            inner = model_to_dot(
                operation, rankdir=rankdir, subgraph=True, expand_nested=True, **show
            )
            graph.add_subgraph(inner)
        else:
            graph.add_node(pydot.Node(str(id(operation)), label=_label(operation, **show)))
    for source, target in _arrows(model):
        first, last = source, target
        if expand_nested:
            first, last = _end(source, last=True), _end(target, last=False)
        graph.add_edge(pydot.Edge(str(id(first)), str(id(last))))
    return graph


def plot_model(
    model: Any,
    to_file: str | Path | None = "model.png",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = False,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
) -> Any:
    """Write `model_to_dot` to a file, whose ending says the format; in a notebook the picture is shown."""
    dot = model_to_dot(
        model, show_shapes, show_dtype, show_layer_names, rankdir, expand_nested, dpi,
        False, show_layer_activations, show_trainable, splines,
    )  # fmt: skip
    path = Path(to_file if to_file is not None else "model.png")
    ending = path.suffix.lstrip(".").lower() or "png"
    if ending not in _FORMATS:
        raise ValueError(
            f"plot_model: a picture ends in {', '.join(_FORMATS)}, not {path.suffix!r}"
        )
    if ending == "dot":
        path.write_text(dot.to_string())
        return None
    try:
        data = dot.create(format=ending)
    except OSError as error:  # pydot says so where `dot` is not on the path
        raise ImportError(
            f"plot_model: Graphviz is not installed ({error}); see https://graphviz.org/download, or "
            "write to a '.dot' file, which needs pydot alone"
        ) from error
    path.write_bytes(data)
    return _displayed(path)


def _displayed(path: Path) -> Any:
    try:
        from IPython import display
        from IPython.core.getipython import get_ipython
    except ImportError:
        return None
    if get_ipython() is None or path.suffix == ".pdf":
        return None
    return display.SVG(str(path)) if path.suffix == ".svg" else display.Image(filename=str(path))


def _operations(model: Any) -> list[Any]:
    """The boxes of a model; a layer is its own."""
    if hasattr(model, "operations"):
        return list(model.operations)
    from meganeura.models.sequential import Sequential

    return list(model.layers) if isinstance(model, Sequential) else [model]


def _arrows(model: Any) -> list[tuple[Any, Any]]:
    calls = getattr(model, "_calls", None)
    if calls is None:
        boxes = _operations(model)
        return list(zip(boxes, boxes[1:], strict=False))
    found = []
    for node in calls:
        for tensor in node.inputs:
            arrow = (tensor.history[0], node.operation)
            if arrow not in found:
                found.append(arrow)
    return found


def _end(operation: Any, last: bool) -> Any:
    """The first or last box inside of a nested model."""
    boxes = _operations(operation)
    return operation if boxes == [operation] else _end(boxes[-1 if last else 0], last)


def _label(
    operation: Any,
    show_shapes: bool,
    show_dtype: bool,
    show_layer_names: bool,
    show_layer_activations: bool,
    show_trainable: bool,
) -> str:
    from meganeura.models.summary import _shape, _type_name

    kind = _type_name(operation)
    activation = getattr(operation, "activation", None)
    if show_layer_activations and activation is not None:
        kind += f" ({getattr(activation, '__name__', type(activation).__name__)})"
    rows = [f"{operation.name} : {kind}" if show_layer_names else kind]
    nodes = operation._inbound_nodes
    if show_shapes:
        given = "-"
        if nodes and nodes[-1].inputs:
            given = ", ".join(str(tuple(t.shape)) for t in nodes[-1].inputs)
        rows.append(f"in: {given}|out: {_shape(operation, None)}")
    if show_dtype:
        found: list[str] = []
        if nodes:
            map_tree(lambda t: found.append(t.dtype), nodes[-1].outputs)
        rows.append("dtype: " + ", ".join(found or ["float32"]))
    if show_trainable and getattr(operation, "weights", None):
        rows.append("trainable" if operation.trainable else "frozen")
    text = "|".join(f"{{{row}}}" if "|" in row else row for row in rows)
    return '"{' + text.replace("<", "\\<").replace(">", "\\>") + '}"'
