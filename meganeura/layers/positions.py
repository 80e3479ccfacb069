"""What tells a transformer where its tokens are: rotations, learnt vectors, sinusoids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meganeura import initializers, ops
from meganeura.layers.decoding import decoding
from meganeura.layers.layer import Layer
from meganeura.layers.settings import Settings, known_channels
from meganeura.symbolic import KerasTensor


def token_positions(length: int) -> Any:
    """(1, length) or, while a text grows, (batch, 1): the positions of the tokens of this call."""
    now = decoding()
    return now.positions(length) if now else ops.reshape(ops.arange(length), (1, length))


def _linear(angles: np.ndarray, scaling: dict[str, Any], theta: float) -> tuple[np.ndarray, float]:
    return angles / float(scaling["factor"]), 1.0


def _llama3(angles: np.ndarray, scaling: dict[str, Any], theta: float) -> tuple[np.ndarray, float]:
    """arXiv 2407.21783: slow pairs are slowed down by the factor, fast ones are not."""
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * angles / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return angles * (blend + (1 - blend) / float(scaling["factor"])), 1.0


def _yarn(angles: np.ndarray, scaling: dict[str, Any], theta: float) -> tuple[np.ndarray, float]:
    """arXiv 2309.00071: interpolate below `beta_slow` turns, keep above `beta_fast`, blend between."""
    factor, length = float(scaling["factor"]), float(scaling["original_max_position_embeddings"])
    width = 2 * len(angles)

    def pair(turns: float) -> float:
        return width * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(scaling.get("beta_fast") or 32.0), pair(scaling.get("beta_slow") or 1.0)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = np.clip((np.arange(len(angles)) - low) / max(high - low, 0.001), 0.0, 1.0)
    larger = scaling.get("attention_factor")
    if larger is None:
        larger = 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0
    return angles * (1 - ramp) + angles / factor * ramp, float(larger)


def _longrope(
    angles: np.ndarray, scaling: dict[str, Any], theta: float
) -> tuple[np.ndarray, float]:
    """arXiv 2402.13753: a factor for each pair, the short ones: for texts of the original length."""
    original = float(scaling["original_max_position_embeddings"])
    longest = float(scaling.get("max_position_embeddings") or original)
    factor = float(scaling.get("factor") or longest / original)
    larger = scaling.get("attention_factor")
    if larger is None:
        larger = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return angles / np.asarray(scaling["short_factor"], np.float64), float(larger)


SCALINGS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}


def rotary_frequencies(
    width: int, theta: float, scaling: dict[str, Any] | None = None
) -> tuple[np.ndarray, float]:
    """The angle per position of each of the width/2 pairs, theta^(-2i/width) before it is scaled,
    and what sines and cosines are multiplied by.

    scaling: the "rope_parameters" (or "rope_scaling") of a Hugging Face configuration, of the types
    default, linear, llama3, yarn and longrope. Raises ValueError for others.
    """
    angles = theta ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if scaling is None or kind == "default":
        return angles, 1.0
    if kind not in SCALINGS:
        raise ValueError(
            f"rotary scaling {kind!r} is not offered; use default, {', '.join(SCALINGS)}"
        )
    return SCALINGS[kind](angles, scaling, theta)


class RotaryEmbedding(Settings, Layer):
    """Rotate pairs of features by their position (RoPE, arXiv 2104.09864).

    out = x cos(p w) + rotate(x) sin(p w), for x of shape (batch, length, heads, width) and positions
    p = offset, offset + 1, ... The pairs are (i, i + width/2), or with `interleaved` (2i, 2i + 1).

    theta:        the base of the angles
    scaling:      how they are stretched for longer texts; see `rotary_frequencies`
    rotary_width: how many of the first features turn; all of them without it
    """

    arguments = ("theta", "interleaved", "scaling", "rotary_width")

    def __init__(
        self,
        theta: float = 10000.0,
        interleaved: bool = False,
        scaling: dict[str, Any] | None = None,
        rotary_width: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.theta = theta
        self.interleaved = interleaved
        self.scaling = dict(scaling) if scaling else None
        self.rotary_width = rotary_width
        self.supports_masking = True

    def call(self, x: Any, offset: Any = 0) -> Any:
        length, width = x.shape[1], self.rotary_width or x.shape[-1]
        if width % 2 or width > x.shape[-1]:
            raise ValueError(
                f"layer {self.name!r} turns pairs of features, and cannot turn {width} of {x.shape[-1]}"
            )
        turning = x[..., :width]
        angles, factor = rotary_frequencies(width, self.theta, self.scaling)
        positions = ops.cast(token_positions(length), "float32") + ops.cast(offset, "float32")
        turn = ops.expand_dims(positions, -1) * ops.convert_to_tensor(angles.astype("float32"))
        cosine, sine = (ops.expand_dims(f(turn) * factor, 2) for f in (ops.cos, ops.sin))
        if self.interleaved:
            first, second = turning[..., 0::2], turning[..., 1::2]
        else:
            first, second = turning[..., : width // 2], turning[..., width // 2 :]
        turned = (first * cosine - second * sine, second * cosine + first * sine)
        if self.interleaved:
            out = ops.reshape(ops.stack(turned, axis=-1), ops.shape(turning))
        else:
            out = ops.concatenate(turned, axis=-1)
        return out if width == x.shape[-1] else ops.concatenate([out, x[..., width:]], axis=-1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return tuple(input_shape)


class PositionEmbedding(Settings, Layer):
    """out[b, t] = table[offset + t]: one learnt vector for each position, to add to x (batch, length, width).

    Raises ValueError where x is longer than `sequence_length`.
    """

    arguments = ("sequence_length", "initializer", "offset")

    def __init__(
        self,
        sequence_length: int,
        initializer: Any = "glorot_uniform",
        offset: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.sequence_length = sequence_length
        self.offset = offset
        self.initializer = initializers.get(initializer)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        self.position_embeddings = self.add_weight(
            shape=(self.sequence_length + self.offset, known_channels(self, input_shape, -1)),
            initializer=self.initializer,
            name="embeddings",
        )

    def call(self, x: Any) -> Any:
        length = x.shape[1]
        now = decoding()
        if now is None or now.first or x.shape[:2] != (now.batch, 1):  # not the text that grows
            if length > self.sequence_length:
                raise ValueError(
                    f"layer {self.name!r} knows {self.sequence_length} positions, got the length {length}"
                )
            rows = self.position_embeddings[self.offset : self.offset + length]
            return ops.broadcast_to(rows, x.shape)
        rows = ops.take(self.position_embeddings, now.positions(length) + self.offset, axis=0)
        return ops.broadcast_to(rows, x.shape)

    def compute_output_spec(self, x: Any) -> Any:
        """Lengths that are not known yet are not compared with the table's."""
        if not self.built:
            self.build(x.shape)
            self.built = True
        return KerasTensor(x.shape, x.dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return tuple(input_shape)


def sinusoids(length: int, width: int, max_wavelength: float = 10000.0) -> np.ndarray:
    """Whisper's and the Transformer's table: sines of all wavelengths, then cosines, (length, width)."""
    if width % 2 or width < 4:
        raise ValueError(f"sinusoids: width must be even and at least 4, got {width}")
    half = width // 2
    rates = np.exp(-math.log(max_wavelength) * np.arange(half) / (half - 1))
    turn = np.arange(length)[:, None] * rates[None]
    return np.concatenate([np.sin(turn), np.cos(turn)], axis=1).astype("float32")


class SinePositionEncoding(Settings, Layer):
    """out[p, 2i] = sin(p / m^(2i/width)), out[p, 2i+1] = cos of the same, to add to x (arXiv 1706.03762).

    m is `max_wavelength`; x has the shape (batch, length, width), and so has the result.
    """

    arguments = ("max_wavelength",)

    def __init__(self, max_wavelength: float = 10000, **kwargs: Any):
        super().__init__(**kwargs)
        self.max_wavelength = max_wavelength
        self.supports_masking = True

    def call(self, x: Any, start_index: int = 0) -> Any:
        length, width = x.shape[1:]
        feature = np.arange(width)
        rates = self.max_wavelength ** (-(2.0 * (feature // 2)) / width)
        positions = ops.cast(token_positions(length) + start_index, "float32")
        turn = ops.expand_dims(positions, -1) * ops.convert_to_tensor(rates.astype("float32"))
        even = ops.convert_to_tensor(feature % 2 == 0)
        return ops.broadcast_to(ops.where(even, ops.sin(turn), ops.cos(turn)), x.shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return tuple(input_shape)
