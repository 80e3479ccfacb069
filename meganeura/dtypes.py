"""The data types of the graph and how NumPy's and Python's map to them."""

from __future__ import annotations

from typing import Any

import numpy as np

DTYPES = ("float32", "float16", "int32", "uint32", "uint8", "bool")

#: Those of real numbers. float16 is kept in memory; what is computed from it is computed in float32.
FLOATS = ("float32", "float16")

#: Those of whole numbers; bool is not one of them.
INTEGERS = ("int32", "uint32", "uint8")

# Promotion order: the type further right wins. int64 and float64 have no WGSL type.
_RANK = {"bool": 0, "uint8": 1, "uint32": 2, "int32": 3, "float16": 4, "float32": 5}


def standardize(dtype: Any) -> str:
    """The graph's name for a NumPy, Python or string dtype; wider types map to their 32-bit kin."""
    if isinstance(dtype, str) and dtype in _RANK:
        return dtype
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise ValueError(f"dtype {dtype!r} is not known; use one of {', '.join(DTYPES)}") from error
    if kind in (np.uint8, np.float16):
        return str(kind)
    table = {"f": "float32", "i": "int32", "u": "uint32", "b": "bool"}
    if kind.kind not in table:
        raise ValueError(f"dtype {kind} cannot be computed with; use one of {', '.join(DTYPES)}")
    return table[kind.kind]


def result_type(*dtypes: str) -> str:
    """The dtype of an operation on tensors of these dtypes."""
    return max(dtypes, key=_RANK.__getitem__)


def common_dtype(*dtypes: Any) -> str:
    """The dtype of an operation on dtypes given in any form; a Python type counts as its 32-bit kin."""
    if not dtypes:
        raise ValueError("result_type needs at least one dtype")
    return result_type(*(standardize(dtype) for dtype in dtypes))


def is_float_dtype(dtype: Any) -> bool:
    """Whether values of this dtype are real numbers."""
    return standardize(dtype) in FLOATS


def is_int_dtype(dtype: Any) -> bool:
    """Whether values of this dtype are whole numbers; bool is not one of them."""
    return standardize(dtype) in INTEGERS


def floating(dtype: str | None) -> str:
    """The dtype in which functions of real numbers (exp, a quotient, a mean) have their result."""
    return dtype if dtype in FLOATS else "float32"


def python_dtype(value: bool | int | float, beside: str | None) -> str:
    """The dtype a Python scalar takes beside a tensor of dtype `beside`: the tensor's where it can hold it."""
    own = "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"
    if own == "float32" and beside in FLOATS:
        return beside
    if beside is None or _RANK[own] > _RANK[beside]:
        if own == "int32" and beside in ("uint8", "uint32"):
            return beside
        return own
    return beside


def as_array(value: Any) -> np.ndarray:
    """`value` as an array of one of the graph's dtypes, refusing what would silently change value.

    float16 becomes float32 where the device cannot keep it.
    """
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "USMmV":
        raise ValueError(
            f"values of type {array.dtype} cannot become a tensor; give numbers in a rectangular array"
        )
    if array.dtype.kind == "c":
        raise ValueError("complex values cannot become a tensor; give real and imaginary parts")
    dtype = standardize(array.dtype)
    if dtype == "float16":
        from meganeura.backend import backend_object

        dtype = dtype if backend_object().half else "float32"
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4 and array.size:
        limits = np.iinfo(dtype)
        low, high = array.min(), array.max()
        if low < limits.min or high > limits.max:
            raise ValueError(
                f"integer values from {low} to {high} do not fit {dtype}, the widest integer type here"
            )
    return np.ascontiguousarray(array, dtype=dtype) if array.ndim else array.astype(dtype)
