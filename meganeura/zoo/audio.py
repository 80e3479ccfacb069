"""Sound as Whisper hears it: the logarithms of the energies in bands of pitch, computed with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

RATE, WINDOW, HOP = 16000, 400, 160


def mel_filters(mels: int, rate: int = RATE, window: int = WINDOW) -> np.ndarray:
    """Triangles over the frequencies of a spectrum, (window // 2 + 1, mels), each of area 2 / its width.

    Bands are evenly spaced on Slaney's scale: linear up to 1000 Hz, 15 mels, and logarithmic beyond.
    """
    step = np.log(6.4) / 27.0

    def hertz(mel: np.ndarray) -> np.ndarray:
        return np.where(mel < 15, 200.0 / 3 * mel, 1000.0 * np.exp(step * (mel - 15)))

    top = 15 + np.log(rate / 2 / 1000.0) / step
    edges = hertz(np.linspace(0, top, mels + 2))
    frequencies = np.linspace(0, rate / 2, window // 2 + 1)
    slopes = (frequencies[:, None] - edges[None]) / np.concatenate([np.diff(edges), [1.0]])
    rising = slopes[:, :mels]
    falling = (edges[2:] - frequencies[:, None]) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:mels]))


def log_mel(sound: Any, mels: int = 80, seconds: float | None = 30.0) -> np.ndarray:
    """Frames (100 * seconds, mels), or (batch, ...) of them, from sound at 16 kHz in [-1, 1].

    (max(log10 energy, loudest - 8) + 4) / 4 of windows of 25 ms every 10 ms. The sound is cut, or filled up
    with silence, to `seconds` (None: as it is). Raises ValueError unless it is (samples,) or (batch, samples).
    """
    x = np.asarray(sound, "float64")
    if x.ndim not in (1, 2) or not x.shape[-1]:
        raise ValueError(
            f"log_mel: sound is (samples,) or (batch, samples) and not empty, got {x.shape}"
        )
    if x.ndim == 2:
        return np.stack([log_mel(row, mels, seconds) for row in x])
    if seconds is not None:
        wanted = round(seconds * RATE)
        x = np.pad(x[:wanted], (0, max(0, wanted - len(x))))
    padded = np.pad(x, WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:-1]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    energy = np.abs(np.fft.rfft(frames * hann)) ** 2
    logs = np.log10(np.maximum(energy @ mel_filters(mels), 1e-10))
    return ((np.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0).astype("float32")
