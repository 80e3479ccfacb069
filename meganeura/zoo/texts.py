"""Tokenizers, and folders of models that are fetched: both through packages that need not be there."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from meganeura.saving.safe_h5 import DamagedFileError


def _package(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{what} needs the package {name}: pip install meganeura[hub], or pip install {name}"
        ) from error


def local_folder(name: Any) -> Path:
    """The folder of this name, or, of a name such as "owner/model", the one that the Hugging Face hub gives.

    Raises FileNotFoundError for what is neither, and ImportError without `huggingface_hub`.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    parts = str(name).split("/")
    if len(parts) != 2 or not all(parts) or any(p in (".", "..", "~") for p in parts):
        raise FileNotFoundError(
            f"{name} is no folder, and no name on the hub, which is of the form owner/model"
        )
    hub = _package("huggingface_hub", f"fetching {name!r} from the hub")
    wanted = ["*.json", "*.safetensors", "tokenizer.model"]
    return Path(hub.snapshot_download(str(name), allow_patterns=wanted))


class Tokenizer:
    """A folder's tokenizer.json, and the tokens that end its texts."""

    def __init__(self, folder: Path):
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} holds no tokenizer.json; give generate whole numbers instead of text"
            )
        tokenizers = _package("tokenizers", f"reading {path}")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self.stop_tokens = _stops(folder)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that the model wants at its beginning."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Any) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode([int(t) for t in tokens]))

    def token(self, text: str) -> int | None:
        """The number of one token, None where there is none such."""
        found: int | None = self._tokenizer.token_to_id(text)
        return found


def _stops(folder: Path) -> tuple[int, ...]:
    """The tokens that end a text, by generation_config.json or else config.json."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            found = json.loads(path.read_text("utf-8")).get("eos_token_id")
        except (ValueError, AttributeError) as error:
            raise DamagedFileError(f"{path} is no table of JSON: {error!r}") from error
        if found is not None:
            return (found,) if isinstance(found, int) else tuple(int(t) for t in found)
    return ()
