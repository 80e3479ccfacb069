"""Data that an ONNX file keeps in other files: plain ones of its folder, and within their length."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meganeura.onnx.registry import OnnxError


def tensors(message: Any, kind: type) -> Iterator[Any]:
    """Every tensor in a message, wherever it lies: initializers, attributes, subgraphs, functions."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for inner in (
            value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]
        ):
            if isinstance(inner, kind):
                yield inner
            else:
                yield from tensors(inner, kind)


def load_external(proto: Any, folder: Path, onnx: Any) -> None:
    """Put the data of external tensors into the model. Raises OnnxError for what is refused."""
    for tensor in tensors(proto, onnx.TensorProto):
        _check_size(tensor, onnx)
        if tensor.data_location != onnx.TensorProto.EXTERNAL and not tensor.external_data:
            continue
        path, offset, length = _place(tensor, folder, onnx)
        with path.open("rb") as file:
            file.seek(offset)
            tensor.raw_data = file.read(length)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _wanted(tensor: Any, onnx: Any) -> int | None:
    """Bytes that the shape asks for, None for texts."""
    if any(n < 0 for n in tensor.dims):
        raise OnnxError(f"tensor {tensor.name!r} has the shape {tuple(tensor.dims)}")
    kinds = onnx.TensorProto
    if tensor.data_type in (kinds.UNDEFINED, kinds.STRING):
        return None
    try:
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError as error:
        raise OnnxError(
            f"tensor {tensor.name!r} has elements of type {tensor.data_type}, which is not known"
        ) from error
    packed = {4: ("UINT4", "INT4", "FLOAT4E2M1"), 2: ("UINT2", "INT2")}
    bits = next(
        (n for n, types in packed.items() if kinds.DataType.Name(tensor.data_type) in types),
        8 * kind.itemsize,
    )
    return -(-math.prod(tensor.dims) * bits // 8)


def _check_size(tensor: Any, onnx: Any) -> None:
    wanted = _wanted(tensor, onnx)
    if tensor.HasField("raw_data") and wanted is not None and len(tensor.raw_data) != wanted:
        raise OnnxError(
            f"tensor {tensor.name!r} of shape {tuple(tensor.dims)} needs {wanted} bytes, and the file holds "
            f"{len(tensor.raw_data)}"
        )


def _place(tensor: Any, folder: Path, onnx: Any) -> tuple[Path, int, int]:
    """The file, and where in it the data of a tensor lie."""
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries:
            raise OnnxError(f"tensor {tensor.name!r} says its {entry.key!r} twice")
        entries[entry.key] = entry.value
    name = entries.get("location", "")
    path = _inside(tensor.name, name, folder)
    try:
        offset, given = int(entries.get("offset", "0")), int(entries.get("length", "-1"))
    except ValueError as error:
        raise OnnxError(
            f"tensor {tensor.name!r} has an offset or length in {name!r} that is no number"
        ) from error
    wanted = _wanted(tensor, onnx)
    if wanted is None:
        raise OnnxError(f"tensor {tensor.name!r} keeps texts in {name!r}, which is refused")
    if "length" in entries and given != wanted:
        raise OnnxError(
            f"tensor {tensor.name!r} of shape {tuple(tensor.dims)} needs {wanted} bytes, and is given {given} "
            f"in {name!r}"
        )
    size = path.stat().st_size
    if offset < 0 or offset + wanted > size:
        raise OnnxError(
            f"tensor {tensor.name!r} needs the bytes {offset} to {offset + wanted} of {name!r}, which has {size}"
        )
    return path, offset, wanted


def _inside(tensor: str, name: str, folder: Path) -> Path:
    """A plain file of the folder. Links, of whichever kind, are refused."""
    if not name or "\0" in name:
        raise OnnxError(f"tensor {tensor!r} does not say in which file its data lie")
    path = folder / name
    inside = not Path(name).is_absolute() and "\\" not in name and ".." not in Path(name).parts
    inside = inside and path.resolve() == folder.resolve() / name
    if not inside:
        raise OnnxError(
            f"tensor {tensor!r} keeps its data in {name!r}, outside the model's folder, which is refused"
        )
    if not path.is_file() or os.stat(path).st_nlink > 1:
        raise OnnxError(
            f"tensor {tensor!r} keeps its data in {name!r}, which is no plain file of the model's folder"
        )
    return path
