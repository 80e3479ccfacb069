"""Data sets, downloaded once with a checksum."""

from meganeura.datasets import mnist as mnist
from meganeura.datasets.idx import read_idx as read_idx
