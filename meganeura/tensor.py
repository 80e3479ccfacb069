"""Tensor: a concrete array that lives on the backend's device."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.backend import backend_object
from meganeura.graph.operand import Operand

#: NumPy's functions behind Python's operators -> ours.
_OPERATORS = {
    **{name: name for name in (
        "add subtract multiply floor_divide power matmul equal not_equal less less_equal greater "
        "greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift"
    ).split()},
    "divide": "divide",
    "true_divide": "divide",
    "remainder": "mod",
}  # fmt: skip


def _on_host(value: Any) -> Any:
    """Tensors in lists, tuples and dicts as arrays."""
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_on_host(x) for x in value)
    return {k: _on_host(v) for k, v in value.items()} if isinstance(value, dict) else value


class Tensor(Operand):
    """An immutable device array. `numpy()` copies it to the host; the operators compute on the device."""

    __slots__ = ("__weakref__", "backend", "dtype", "handle", "shape")

    def __init__(self, handle: Any, shape: tuple[int, ...], dtype: str, backend: Any):
        self.handle = handle
        self.shape = tuple(shape)
        self.dtype = dtype
        self.backend = backend

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def numpy(self) -> np.ndarray:
        """A copy of the values on the host."""
        return self.backend.download(self.handle, self.shape, self.dtype)

    def item(self) -> float | int | bool:
        return self.numpy().item()

    def __reduce__(self) -> tuple[Any, ...]:
        return to_tensor, (self.numpy(),)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """`array + tensor` is ours and a Tensor; other functions of NumPy compute on the host."""
        name = _OPERATORS.get(ufunc.__name__)
        if name is not None and method == "__call__" and not kwargs:
            from meganeura import ops

            return getattr(ops, name)(*inputs)
        return getattr(ufunc, method)(*(_on_host(x) for x in inputs), **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """`np.mean(tensor)`: a copy of the values goes to NumPy."""
        return function(*_on_host(args), **_on_host(kwargs))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a device tensor cannot be viewed without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.numpy().__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU: what is handed over is a host copy

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype in dtypes.FLOATS or self.shape:
            raise TypeError("only scalar integer tensors can be used as an index")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth value of a tensor of shape {self.shape} is ambiguous; use any() or all()"
            )
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __repr__(self) -> str:
        body = np.array2string(self.numpy(), separator=", ", threshold=20)
        return f"<Tensor shape={self.shape} dtype={self.dtype}\n{body}>"


def to_tensor(value: Any, dtype: str | None = None) -> Tensor:
    """`value` (array, nested list, number, Tensor, Variable) as a Tensor on the current backend."""
    from meganeura.variable import Variable

    if isinstance(value, Variable):
        value = value.value
    if isinstance(value, Tensor):
        if dtype is None or dtypes.standardize(dtype) == value.dtype:
            return value
        value = value.numpy()
    array = dtypes.as_array(value)
    if dtype is not None:
        array = array.astype(dtypes.standardize(dtype))
    backend = backend_object()
    name = dtypes.standardize(array.dtype)
    return Tensor(backend.upload(array), array.shape, name, backend)
