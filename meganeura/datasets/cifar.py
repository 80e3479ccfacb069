"""CIFAR's archives: batches of pickled pictures in a tar file (A. Krizhevsky, 2009)."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

from meganeura.datasets import pickles

FOLDER = "https://www.cs.toronto.edu/~kriz/"


def read_batches(path: Path, members: list[str], labels: str) -> tuple[np.ndarray, np.ndarray]:
    """Pictures uint8 (N, 32, 32, 3) and labels uint8 (N, 1) of some members of an archive.

    Nothing is unpacked to disk. Raises ValueError where the archive is not CIFAR's.
    """
    images, numbers = [], []
    try:
        with tarfile.open(path) as archive:
            for name in members:
                member = archive.extractfile(name)
                if member is None:
                    raise ValueError(f"{path}: {name} is no file")
                batch = pickles.loads(member.read(), f"{path}: {name}")
                images.append(np.asarray(batch["data"], "uint8").reshape(-1, 3, 32, 32))
                numbers += list(batch[labels])
    except (KeyError, TypeError, tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"{path} is not the CIFAR archive: {error}") from error
    pictures = np.concatenate(images).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pictures), np.asarray(numbers, "uint8")[:, None]
