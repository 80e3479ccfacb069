"""Pictures from files and folders, through Pillow (https://keras.io/api/data_loading/image)."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meganeura.data.batches import Batches

_MODES = {"grayscale": "L", "rgb": "RGB", "rgba": "RGBA"}
_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
_INTERPOLATIONS = {
    "nearest": "NEAREST", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "area": "BOX",
    "box": "BOX", "hamming": "HAMMING", "lanczos": "LANCZOS", "lanczos3": "LANCZOS",
}  # fmt: skip


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures need the package Pillow: pip install pillow") from error
    return Image


def _one_of(what: str, value: Any, known: Any) -> Any:
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, known))}, got {value!r}")
    return known[value] if isinstance(known, dict) else value


def load_img(
    path: Any,
    color_mode: str = "rgb",
    target_size: tuple[int, int] | None = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Any:
    """The Pillow image in a file (a path or a BytesIO), resized to target_size, (height, width).

    With keep_aspect_ratio the middle of the picture that has the wanted proportions is resized.
    """
    image_module = _pillow()
    mode = _one_of("load_img: color_mode", color_mode, _MODES)
    source = path if isinstance(path, io.BytesIO) else Path(path)
    if isinstance(source, Path) and not source.is_file():
        raise FileNotFoundError(f"load_img: {source} does not exist")
    try:
        with image_module.open(source) as opened:
            opened.load()
            deep = color_mode == "grayscale" and opened.mode in ("I;16", "I", "F", "L")
            image = opened.copy() if deep or opened.mode == mode else opened.convert(mode)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"load_img: {path} cannot be read as a picture: {error}") from error
    if target_size is None or image.size == (target_size[1], target_size[0]):
        return image
    method = _one_of("load_img: interpolation", interpolation, _INTERPOLATIONS)
    height, width = target_size
    box = None
    if keep_aspect_ratio:
        own_width, own_height = image.size
        crop_width = min(own_width, int(own_height * width / height)) or 1
        crop_height = min(own_height, int(own_width * height / width)) or 1
        left, top = (own_width - crop_width) // 2, (own_height - crop_height) // 2
        box = (left, top, left + crop_width, top + crop_height)
    return image.resize((width, height), getattr(image_module.Resampling, method), box)


def img_to_array(img: Any, data_format: str | None = None, dtype: Any = None) -> np.ndarray:
    """A Pillow image as an array (height, width, channels), float32."""
    layout = _one_of(
        "img_to_array: data_format",
        data_format or "channels_last",
        ("channels_last", "channels_first"),
    )
    array = np.asarray(img, dtype=dtype or "float32")
    if array.ndim not in (2, 3):
        raise ValueError(f"img_to_array: a picture has 2 or 3 axes, got the shape {array.shape}")
    array = array[..., None] if array.ndim == 2 else array
    return array.transpose(2, 0, 1) if layout == "channels_first" else array


def array_to_img(
    x: Any, data_format: str | None = None, scale: bool = True, dtype: Any = None
) -> Any:
    """An array (height, width, 1, 3 or 4) as a Pillow image; `scale` stretches it over 0 to 255."""
    image_module = _pillow()
    layout = _one_of(
        "array_to_img: data_format",
        data_format or "channels_last",
        ("channels_last", "channels_first"),
    )
    array = np.asarray(x, dtype=dtype or "float32")
    if array.ndim != 3:
        raise ValueError(f"array_to_img: a picture has 3 axes, got the shape {array.shape}")
    if layout == "channels_first":
        array = array.transpose(1, 2, 0)
    if scale:
        array = array - array.min()
        largest = array.max()
        array = array / largest * 255 if largest else array
    channels = array.shape[2]
    if channels not in (1, 3, 4):
        raise ValueError(f"array_to_img: pictures have 1, 3 or 4 channels, got {channels}")
    if channels == 1:
        if array.max() > 255:  # 32 bits of grey
            return image_module.fromarray(array[:, :, 0].astype("int32"))
        return image_module.fromarray(array[:, :, 0].astype("uint8"))
    return image_module.fromarray(array.astype("uint8"))


def save_img(
    path: Any,
    x: Any,
    data_format: str | None = None,
    file_format: str | None = None,
    scale: bool = True,
    **kwargs: Any,
) -> None:
    """Write an array (height, width, channels) to a picture file."""
    img = array_to_img(x, data_format=data_format, scale=scale)
    if img.mode == "RGBA" and str(file_format or path).lower().endswith(("jpg", "jpeg")):
        img = img.convert("RGB")
    img.save(path, format=file_format, **kwargs)


def image_dataset_from_directory(
    directory: str | os.PathLike[str],
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: tuple[int, int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str | None = None,
    verbose: bool = True,
) -> Any:
    """Batches `(images, labels)` of the pictures in a folder, whose sub-folders are the classes.

    labels:      "inferred" from the sub-folders, None, or a list, one for each file in sorted order
    label_mode:  "int" (int32), "categorical" (one-hot), "binary" ((batch, 1) of 0 or 1) or None
    images:      float32 (batch, height, width, channels), 0 to 255

    With subset="both" the training and the validation part are returned. Raises ValueError where there
    are no pictures or where the labels do not fit them.
    """
    where = "image_dataset_from_directory"
    if format not in (None, "tf", "grain"):
        raise ValueError(f"{where}: format must be None, got {format!r}")
    if pad_to_aspect_ratio:
        raise ValueError(f"{where}: pad_to_aspect_ratio is not offered; use crop_to_aspect_ratio")
    channels = _one_of(f"{where}: color_mode", color_mode, _CHANNELS)
    _one_of(f"{where}: interpolation", interpolation, _INTERPOLATIONS)
    _one_of(f"{where}: label_mode", label_mode, ("int", "categorical", "binary", None))
    check_split(where, validation_split, subset, shuffle, seed)
    root = Path(directory)
    if not root.is_dir():
        raise ValueError(f"{where}: the folder {root} does not exist")
    inferred = isinstance(labels, str)
    if inferred and labels != "inferred":
        raise ValueError(f"{where}: labels must be 'inferred', a list or None, got {labels!r}")
    names = _classes(where, root, class_names) if inferred else list(class_names or ())
    files = _files(root, names if inferred else None, follow_links)
    if not files:
        raise ValueError(f"{where}: {root} holds no pictures ({', '.join(_ENDINGS)})")
    if inferred:
        numbers = [names.index(f.relative_to(root).parts[0]) for f in files]
    else:
        numbers = list(labels) if labels is not None else [0] * len(files)
    if len(numbers) != len(files):
        raise ValueError(f"{where}: {len(numbers)} labels were given for {len(files)} pictures")
    mode = None if labels is None else label_mode
    if mode == "binary" and len(names or set(numbers)) != 2:
        raise ValueError(f"{where}: label_mode='binary' needs two classes, found {len(names)}")
    if verbose:
        print(f"Found {len(files)} files" + (f" of {len(names)} classes." if names else "."))
    targets = np.asarray(numbers)
    order = np.arange(len(files))
    if shuffle:
        seed = int(np.random.default_rng().integers(1 << 31)) if seed is None else seed
        order = np.random.default_rng(seed).permutation(order)
    count = len(names) or int(targets.max()) + 1

    def read(chosen: np.ndarray) -> Any:
        images = np.empty((len(chosen), *image_size, channels), "float32")
        for row, i in zip(images, chosen, strict=True):
            image = load_img(files[i], color_mode, image_size, interpolation, crop_to_aspect_ratio)
            row[...] = img_to_array(image)
        if data_format == "channels_first":
            images = images.transpose(0, 3, 1, 2)
        if mode is None:
            return images
        wanted = targets[chosen]
        if mode == "categorical":
            return images, np.eye(count, dtype="float32")[wanted]
        if mode == "binary":
            return images, wanted.astype("float32")[:, None]
        return images, wanted.astype("int32")

    def part(chosen: np.ndarray, shuffled: bool) -> Batches:
        made = Batches(lambda rows: read(chosen[rows]), len(chosen), batch_size, shuffled, seed)
        made.class_names = list(names)
        made.file_paths = [str(files[i]) for i in chosen]
        return made

    if not validation_split:
        return part(order, shuffle)
    held_out = int(validation_split * len(order))
    training, validation = order[: len(order) - held_out], order[len(order) - held_out :]
    chosen = {"training": training, "validation": validation}
    if subset == "both":
        return part(training, shuffle), part(validation, False)
    return part(chosen[str(subset)], shuffle)


def check_split(
    where: str, split: float | None, subset: str | None, shuffle: bool, seed: int | None
) -> None:
    """Whether `validation_split` and `subset` go together."""
    if split is None and subset is None:
        return
    if split is None or not 0 < split < 1:
        raise ValueError(f"{where}: validation_split must lie between 0 and 1, got {split!r}")
    _one_of(f"{where}: subset", subset, ("training", "validation", "both"))
    if shuffle and seed is None and subset != "both":
        raise ValueError(
            f"{where}: give a seed, or shuffle=False, with validation_split; else the two parts overlap"
        )


def _classes(where: str, root: Path, given: Sequence[str] | None) -> list[str]:
    found = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    if given is None:
        return found
    if set(given) - set(found):
        missing = sorted(set(given) - set(found))
        raise ValueError(f"{where}: {root} has no folders {missing}; it has {found}")
    return list(given)


def _files(root: Path, classes: list[str] | None, follow_links: bool) -> list[Path]:
    starts = [root] if classes is None else [root / name for name in classes]
    found: list[Path] = []
    for start in starts:
        below = []
        for folder, _, files in os.walk(start, followlinks=follow_links):
            below += [Path(folder) / f for f in files if f.lower().endswith(_ENDINGS)]
        found += sorted(below)
    return found
