"""The base class, and the initializers without chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from meganeura import dtypes
from meganeura.graph import trace
from meganeura.tensor import Tensor, to_tensor


class Initializer:
    """Gives the first value of a weight: `initializer(shape, dtype)` returns a tensor.

    A subclass of your own defines `__call__(shape, dtype=None)`. The built-in ones define
    `draw(shape, dtype)`, which returns a NumPy array, so that a new weight is uploaded once.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__call__" in cls.__dict__ and "draw" not in cls.__dict__:
            cls.draw = Initializer.draw  # type: ignore[method-assign]

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        if type(self).draw is Initializer.draw:
            raise NotImplementedError(
                f"initializer {type(self).__name__} must define __call__(self, shape, dtype=None)"
            )
        with trace.outside():
            return to_tensor(self.draw(shape, dtype))

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """The values as a NumPy array."""
        with trace.outside():
            value = self(shape, dtype=dtype)
        return value.numpy() if isinstance(value, Tensor) else np.asarray(value)

    def get_config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Initializer:
        return cls(**config)

    def clone(self) -> Initializer:
        return type(self).from_config(self.get_config())


def checked_shape(initializer: Initializer, shape: Sequence[int]) -> tuple[int, ...]:
    """`shape` as a tuple of non-negative integers. Raises ValueError otherwise."""
    name = type(initializer).__name__
    try:
        result = tuple(int(length) for length in shape)
    except TypeError as error:
        raise ValueError(
            f"initializer {name}: the shape must be known numbers, got {shape!r}"
        ) from error
    if any(length < 0 for length in result):
        raise ValueError(f"initializer {name}: the shape {result} has a negative length")
    return result


class Zeros(Initializer):
    """All zeros."""

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        return np.zeros(checked_shape(self, shape), dtypes.standardize(dtype or "float32"))


class Ones(Initializer):
    """All ones."""

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        return np.ones(checked_shape(self, shape), dtypes.standardize(dtype or "float32"))


class Constant(Initializer):
    """One value everywhere, or an array that broadcasts to the weight's shape."""

    def __init__(self, value: Any = 0.0):
        self.value = value

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        shape = checked_shape(self, shape)
        value = np.asarray(self.value)
        try:
            broadcast = np.broadcast_to(value, shape)
        except ValueError as error:
            raise ValueError(
                f"initializer Constant: a value of shape {value.shape} does not fit a weight of "
                f"shape {shape}"
            ) from error
        return np.array(broadcast, dtype=dtypes.standardize(dtype or "float32"))

    def get_config(self) -> dict[str, Any]:
        value = self.value
        return {"value": value if isinstance(value, (int, float)) else np.asarray(value).tolist()}


class Identity(Initializer):
    """`gain` on the diagonal, zeros elsewhere; for 2-D weights only."""

    def __init__(self, gain: float = 1.0):
        self.gain = gain

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        shape = checked_shape(self, shape)
        if len(shape) != 2:
            raise ValueError(f"initializer Identity works on 2-D weights only, got shape {shape}")
        return self.gain * np.eye(*shape, dtype=dtypes.standardize(dtype or "float32"))

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain}


#: Cosine-sum windows: coefficients a_k of sum_k (-1)^k a_k cos(2 pi k n / N).
_WINDOWS: dict[str, tuple[float, ...]] = {
    "boxcar": (1.0,),
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
    "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
}


class STFT(Initializer):
    """The kernel of a short-time Fourier transform as a 1-D convolution.

    kernel[t, 0, f] = window[t] * cos(2 pi f t / N) / scale (`side` "real"), or -sin ("imag"),
    with N = 2 (F - 1), for shape (T, 1, F).
    """

    def __init__(
        self,
        side: str = "real",
        window: Any = "hann",
        scaling: str | None = "density",
        periodic: bool = False,
    ):
        if side not in ("real", "imag"):
            raise ValueError(f"initializer STFT: side is {side!r}; use 'real' or 'imag'")
        named = ("tukey", *_WINDOWS)
        if isinstance(window, str) and window not in named:
            raise ValueError(
                f"initializer STFT: window {window!r} is not known; use one of "
                f"{', '.join(sorted(named))}, an array, or None"
            )
        if scaling not in (None, "density", "spectrum"):
            raise ValueError(
                f"initializer STFT: scaling is {scaling!r}; use 'density', 'spectrum' or None"
            )
        self.side = side
        self.window = window
        self.scaling = scaling
        self.periodic = periodic

    def _window(self, length: int) -> np.ndarray:
        if not isinstance(self.window, str):
            values = np.asarray(self.window, dtype=np.float64)
            if values.shape != (length,):
                raise ValueError(
                    f"initializer STFT: the window has the shape {values.shape}, expected ({length},)"
                )
            return values
        period = length if self.periodic else max(length - 1, 1)
        if self.window == "tukey":  # half a cosine at either end, over a quarter of the length each
            from_end = np.minimum(np.arange(length), period - np.arange(length)) / period
            return 0.5 - 0.5 * np.cos(np.pi * np.clip(4 * from_end, 0, 1))
        angle = 2 * np.pi * np.arange(length) / period
        coefficients = _WINDOWS[self.window]
        return np.sum(
            [(-1) ** k * a * np.cos(k * angle) for k, a in enumerate(coefficients)], axis=0
        )

    def draw(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        shape = checked_shape(self, shape)
        if len(shape) != 3 or shape[1] != 1:
            raise ValueError(
                f"initializer STFT needs the shape (frame length, 1, frequencies), got {shape}"
            )
        frames, _, frequencies = shape
        angle = 2 * np.pi * np.outer(np.arange(frames), np.arange(frequencies))
        angle /= max(2 * (frequencies - 1), 1)
        kernel = np.cos(angle) if self.side == "real" else -np.sin(angle)
        if self.window is not None:
            window = self._window(frames)
            kernel *= window[:, None]
            if self.scaling == "density":
                kernel /= np.sqrt(np.sum(window**2))
            elif self.scaling == "spectrum":
                kernel /= np.sum(np.abs(window))
        return kernel[:, None, :].astype(dtypes.standardize(dtype or "float32"))

    def get_config(self) -> dict[str, Any]:
        window = self.window
        return {
            "side": self.side,
            "window": window if window is None or isinstance(window, str) else list(window),
            "periodic": self.periodic,
            "scaling": self.scaling,
        }
