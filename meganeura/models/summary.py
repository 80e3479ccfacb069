"""The table that `model.summary()` prints: layers, output shapes, weights, connections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from meganeura.layers.layer import Layer
from meganeura.models.operation import leaves
from meganeura.ops.dispatch import map_tree

_WIDTH, _WIDTH_CONNECTED = 88, 108


def summary_text(
    model: Any,
    line_length: int | None = None,
    positions: Sequence[float] | None = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Sequence[str] | None = None,
) -> str:
    """The whole summary.

    line_length:  width of the table in characters
    positions:    where each column ends, as fractions of the width
    layer_range:  two names or regular expressions: the first and the last layer to list
    """
    places = _connections(model)
    header = ["Layer (type)", "Output Shape", "Param #"]
    shares = [0.45, 0.32, 0.23]
    if places is not None:
        header.append("Connected to")
        shares = [0.28, 0.25, 0.17, 0.30]
    if show_trainable:
        header.append("Trainable")
        shares = [s * 0.88 for s in shares] + [0.12]
    rows = _rows(model, places, expand_nested, show_trainable, "", layer_range)
    width = line_length or (_WIDTH if places is None else _WIDTH_CONNECTED)
    widths = _widths(width, shares, positions, len(header))
    lines = [f'Model: "{model.name}"', *_table(header, rows, widths)]
    return "\n".join([*lines, *_totals(model), ""])


# --- what the rows say -------------------------------------------------------------------------


def _rows(
    model: Any,
    places: dict[int, list[str]] | None,
    expand: bool,
    trainable: bool,
    indent: str,
    layer_range: Sequence[str] | None = None,
) -> list[list[str]]:
    rows = []
    operations = getattr(model, "operations", None) or model.layers
    for operation in _within(list(operations), layer_range):
        row = [f"{indent}{operation.name} ({_type_name(operation)})", _shape(operation, model)]
        row.append(_parameters(operation))
        if places is not None:
            row.append(", ".join(places.get(id(operation), ())) or "-")
        if trainable:
            own = getattr(operation, "weights", ())
            row.append("-" if not own else "Y" if operation.trainable else "N")
        rows.append(row)
        if expand and hasattr(operation, "layers"):
            inner: dict[int, list[str]] | None = None if places is None else {}
            rows += _rows(operation, inner, expand, trainable, indent + "   └ ")
    return rows


def _within(operations: list[Any], layer_range: Sequence[str] | None) -> list[Any]:
    if layer_range is None:
        return operations
    if len(layer_range) != 2 or not all(isinstance(n, str) for n in layer_range):
        raise ValueError(f"summary: layer_range is two names of layers, not {layer_range!r}")
    at = []
    for pattern in layer_range:
        found = [i for i, o in enumerate(operations) if re.fullmatch(pattern, o.name)]
        if not found:
            raise ValueError(f"summary: no layer is named {pattern!r}, as layer_range says")
        at += [found[0], found[-1]]
    return operations[min(at) : max(at) + 1]


def _type_name(operation: Any) -> str:
    if isinstance(operation, Layer):
        return type(operation).__name__
    name = operation.function.__name__
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _shape(operation: Any, model: Any) -> str:
    nodes = operation._inbound_nodes
    if nodes:
        return _shape_text(map_tree(lambda t: t.shape, nodes[-1].outputs))
    if not operation.built or operation._build_shapes is None:
        return "?"
    try:  # a layer of a subclassed model: what it makes of the shapes that it was built with
        return _shape_text(operation.compute_output_shape(*operation._build_shapes.values()))
    except (ValueError, TypeError, AttributeError, IndexError, NotImplementedError):
        return "?"


def _shape_text(shape: Any) -> str:
    if isinstance(shape, dict):
        return ", ".join(f"{k}: {_shape_text(v)}" for k, v in shape.items())
    if isinstance(shape, (list, tuple)) and any(isinstance(s, (list, tuple, dict)) for s in shape):
        return "[" + ", ".join(_shape_text(s) for s in shape) + "]"
    return str(tuple(shape))


def _parameters(operation: Any) -> str:
    if not isinstance(operation, Layer):
        return "0"
    if not operation.built:
        return "0 (unbuilt)"
    return f"{sum(w.size for w in operation.weights):,}"


def _connections(model: Any) -> dict[int, list[str]] | None:
    """Where each operation's inputs come from; None for a chain, where the order says it."""
    calls = getattr(model, "_calls", None)
    if calls is None:
        return None
    from meganeura.models.functional_config import _node_of, _places

    places = _places(model)
    found: dict[int, list[str]] = {}
    users: dict[int, int] = {}
    called: dict[int, int] = {}
    for node in calls:
        called[id(node.operation)] = called.get(id(node.operation), 0) + 1
        for tensor in node.inputs:
            source, _, index = tensor.history
            place = f"{source.name}[{places[id(_node_of(tensor))]}][{index}]"
            found.setdefault(id(node.operation), []).append(place)
            users[id(tensor)] = users.get(id(tensor), 0) + 1
    chain = (
        len(model.inputs) == 1
        and all(n == 1 for n in (*users.values(), *called.values()))
        and all(len(node.inputs) == 1 for node in calls)
        and all(len(leaves(node.outputs)) == 1 for node in calls[:-1])
    )
    return None if chain else found


def _totals(model: Any) -> list[str]:
    weights = model.weights
    trainable = model.trainable_weights
    kept = {id(w) for w in trainable}
    frozen = [w for w in weights if id(w) not in kept]
    optimizer = getattr(model, "optimizer", None)
    slots = list(optimizer.variables) if optimizer is not None and optimizer.built else []
    lines = [
        _total("Total", [*weights, *slots]),
        _total("Trainable", trainable),
        _total("Non-trainable", frozen),
    ]
    return [*lines, _total("Optimizer", slots)] if slots else lines


def _total(what: str, variables: Sequence[Any]) -> str:
    count = sum(v.size for v in variables)
    size = sum(v.size if v.dtype == "bool" else v.nbytes for v in variables)
    return f" {what} params: {count:,} ({readable_bytes(size)})"


def readable_bytes(count: float) -> str:
    """1536 -> "1.50 KB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} TB"


# --- how the table is drawn --------------------------------------------------------------------


def _widths(
    total: int, shares: list[float], positions: Sequence[float] | None, columns: int
) -> list[int]:
    """Width of the text of each column; a column has a border and two blanks besides."""
    if positions is not None:
        if len(positions) < columns or any(
            a >= b for a, b in zip(positions, positions[1:], strict=False)
        ):
            raise ValueError(
                f"summary: positions must be {columns} rising numbers, not {positions}"
            )
        ends = [float(p) / float(positions[columns - 1]) for p in positions[:columns]]
        shares = [b - a for a, b in zip([0.0, *ends], ends, strict=False)]
    room = total - 3 * columns - 1
    if room < 6 * columns:
        raise ValueError(f"summary: line_length {total} is too short for {columns} columns")
    widths = [max(4, int(room * s)) for s in shares]
    widths[0] += max(0, room - sum(widths))
    return widths


def _table(header: list[str], rows: list[list[str]], widths: list[int]) -> list[str]:
    def border(left: str, between: str, right: str, stroke: str) -> str:
        return left + between.join(stroke * (w + 2) for w in widths) + right

    def row(cells: list[str], bar: str) -> list[str]:
        wrapped = [_wrapped(c, w) for c, w in zip(cells, widths, strict=True)]
        lines = []
        for i in range(max(len(w) for w in wrapped)):
            parts = []
            for column, (lines_of_cell, width) in enumerate(zip(wrapped, widths, strict=True)):
                text = lines_of_cell[i] if i < len(lines_of_cell) else ""
                parts.append(text.rjust(width) if column == 2 else text.ljust(width))
            lines.append(f"{bar} " + f" {bar} ".join(parts) + f" {bar}")
        return lines

    out = [border("┏", "┳", "┓", "━"), *row(header, "┃"), border("┡", "╇", "┩", "━")]
    for i, cells in enumerate(rows):
        if i:
            out.append(border("├", "┼", "┤", "─"))
        out += row(cells, "│")
    return [*out, border("└", "┴", "┘", "─")]


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width`, broken between words, and inside a word only if it is longer."""
    words = text.lstrip(" └")
    indent = min(len(text) - len(words), width // 2)
    lines, line = [], text[:indent]
    for word in words.split(" "):
        if len(line) > indent and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = " " * indent
        line += (" " if len(line) > indent else "") + word
        while len(line) > width:
            lines.append(line[:width])
            line = " " * indent + line[width:]
    return [*lines, line]
