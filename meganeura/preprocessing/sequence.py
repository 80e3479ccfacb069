"""Sequences of different lengths."""

from meganeura.utils import pad_sequences as pad_sequences
