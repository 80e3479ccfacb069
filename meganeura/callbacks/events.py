"""Event files that TensorBoard shows: records of length, checksum and a protocol buffer each.

The format: https://github.com/tensorflow/tensorboard (event.proto, summary.proto, record_writer).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_CRC = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum of `data`."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The checksum as records carry it: rotated by 15 bits, plus a constant."""
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= 0xFFFFFFFFFFFFFFFF
    while True:
        if value < 0x80:
            out.append(value)
            return bytes(out)
        out.append(value & 0x7F | 0x80)
        value >>= 7


def _bytes_field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _double_field(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _doubles_field(number: int, values: Iterable[float]) -> bytes:
    return _bytes_field(number, b"".join(struct.pack("<d", v) for v in values))


class EventWriter:
    """Appends scalars and histograms to one event file in `folder`."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}.v2"
        self._file = open(folder / name, "wb")  # noqa: SIM115
        self._record(_bytes_field(3, b"brain.Event:2"))

    def _record(self, body: bytes) -> None:
        event = _double_field(1, time.time()) + body
        length = struct.pack("<Q", len(event))
        self._file.write(length + masked(length) + event + masked(event))

    def _value(self, step: int, tag: str, value: bytes) -> None:
        summary = _bytes_field(1, _bytes_field(1, tag.encode()) + value)
        self._record(_varint(2 << 3) + _varint(step) + _bytes_field(5, summary))

    def scalar(self, tag: str, value: float, step: int) -> None:
        self._value(step, tag, _varint(2 << 3 | 5) + struct.pack("<f", value))

    def histogram(self, tag: str, values: np.ndarray, step: int, bins: int = 30) -> None:
        """The distribution of the finite values."""
        flat = np.asarray(values, np.float64).reshape(-1)
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return
        counts, edges = np.histogram(flat, bins)
        body = b"".join(
            _double_field(number, float(value))
            for number, value in enumerate(
                (flat.min(), flat.max(), flat.size, flat.sum(), (flat * flat).sum()), start=1
            )
        )
        body += _doubles_field(6, edges[1:]) + _doubles_field(7, counts)
        self._value(step, tag, _bytes_field(5, body))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
