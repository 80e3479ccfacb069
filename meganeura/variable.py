"""Variable: state that outlives a run, such as a weight, a moving average or a step counter."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.autocast import as_read, autocast
from meganeura.backend import backend_object
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.graph.operand import Operand
from meganeura.tensor import Tensor


class _Allowance(threading.local):
    left: int | None = None  # of this thread, in elements
    unfilled: list[tuple[Variable, Callable[[], Any]]] | None = None

    def take(self, shape: tuple[int, ...], name: str) -> None:
        if self.left is None:
            return
        self.left -= math.prod(shape)
        if self.left < 0:
            raise ValueError(
                f"the weights of this model, such as {name!r} of shape {tuple(shape)}, are far more "
                "than its file holds"
            )


_allowance = _Allowance()


def take_allowance(shape: tuple[int, ...], name: str) -> None:
    """Count a variable that is initialised. Raises ValueError where `at_most` is exceeded."""
    _allowance.take(shape, name)


@contextlib.contextmanager
def at_most(elements: int) -> Iterator[None]:
    """Inside, variables that are initialised may have so many elements together, so that a file's
    description of a model cannot ask for more memory than the file's weights need."""
    before, _allowance.left = _allowance.left, elements
    try:
        yield
    finally:
        _allowance.left = before


@contextlib.contextmanager
def unfilled() -> Iterator[list[tuple[Variable, Callable[[], Any]]]]:
    """Inside, variables that an initializer would fill are left as zeros, for a file is to fill them.

    Yields a list of these variables, each with a function that draws its first value after all.
    """
    before, _allowance.unfilled = _allowance.unfilled, []
    try:
        yield _allowance.unfilled
    finally:
        _allowance.unfilled = before


class Variable(Operand):
    """A named array on the device that graphs read and update in place.

    Inside a trace it stands for the node of its current value, and `assign` records an update;
    outside it is a concrete array. With `autocast` a layer that computes in half precision reads it
    so. `path` is unique within a model, as in Keras.
    """

    autocast = True
    shape: tuple[int, ...]
    dtype: str

    def __init__(
        self,
        initializer: Any,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
        trainable: bool = True,
        name: str = "variable",
        path: str | None = None,
        regularizer: Callable[[Any], Any] | None = None,
        constraint: Callable[[Any], Any] | None = None,
        autocast: bool = True,
    ):
        self.backend = backend_object()
        if callable(initializer):
            if shape is None:
                raise ValueError(f"variable {name!r}: a callable initializer needs a shape")
            _allowance.take(shape, name)
            # built-in initializers draw on the host; a tensor would go to the device and back
            function = getattr(initializer, "draw", initializer)

            def draw() -> Any:
                with trace.outside():
                    return function(shape, dtype=dtype or "float32")

            if _allowance.unfilled is None:
                self._take(draw(), shape, dtype, name)
            else:
                self.shape, self.dtype = tuple(shape), dtypes.standardize(dtype or "float32")
                self.handle = self.backend.allocate(self.shape, self.dtype)
                _allowance.unfilled.append((self, draw))
        else:
            self._take(initializer, shape, dtype, name)
        self.trainable = trainable
        self.name = name
        self.path = path or name
        self.regularizer = regularizer
        self.constraint = constraint
        self.overwrite_with_gradient = False
        self.autocast = autocast  # whether layers that compute in another dtype read it in that

    def _take(self, value: Any, shape: tuple[int, ...] | None, dtype: Any, name: str) -> None:
        array = dtypes.as_array(value)
        if dtype is not None:
            array = array.astype(dtypes.standardize(dtype), copy=False)
        if shape is not None and tuple(shape) != array.shape:
            raise ValueError(
                f"variable {name!r}: the initial value has the shape {array.shape}, expected {tuple(shape)}"
            )
        self.shape = array.shape
        self.dtype = dtypes.standardize(array.dtype)
        self.handle = self.backend.upload(array)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.size * (4 if self.dtype == "bool" else np.dtype(self.dtype).itemsize)

    @property
    def value(self) -> Node | Tensor:
        """The node of the current value inside a trace, a Tensor (a copy) outside."""
        now = trace.current()
        if now is not None:
            return as_read(self, now.read(self))
        return Tensor(self.backend.upload(self.numpy()), self.shape, self.dtype, self.backend)

    def numpy(self) -> np.ndarray:
        return self.backend.download(self.handle, self.shape, self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: the value comes along, the device does not."""
        own = {k: v for k, v in self.__dict__.items() if k not in ("handle", "backend")}
        return {**own, "value": self.numpy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        value = state.pop("value")
        self.__dict__.update(state)
        self.backend = backend_object()
        self.handle = self.backend.upload(value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def assign(self, value: Any) -> Any:
        """Replace the value. Shapes must agree; values are cast to the variable's dtype."""
        now = trace.current()
        if now is not None:
            from meganeura import ops

            node = ops.cast(ops.convert_to_node(value), self.dtype)
            if node.shape != self.shape:
                node = (
                    self._refuse(node.shape) if node.shape else ops.broadcast_to(node, self.shape)
                )
            now.assign(self, node)
            return node
        array = dtypes.as_array(value.numpy() if hasattr(value, "numpy") else value)
        if array.shape != self.shape:
            self._refuse(array.shape)
        self.backend.write(self.handle, array.astype(self.dtype, copy=False))
        return self

    def _refuse(self, shape: tuple[int, ...]) -> Any:
        raise ValueError(
            f"variable {self.path!r} has the shape {self.shape}; a value of shape {shape} cannot be assigned"
        )

    def assign_add(self, value: Any) -> Any:
        from meganeura import ops

        with autocast(None):
            return self.assign(ops.add(self, value))

    def assign_sub(self, value: Any) -> Any:
        from meganeura import ops

        with autocast(None):
            return self.assign(ops.subtract(self, value))

    def __repr__(self) -> str:
        return f"<Variable path={self.path} shape={self.shape} dtype={self.dtype}>"
