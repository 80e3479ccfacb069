"""egglog's compiled module, and how tables get into it."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any


def bindings() -> Any:
    """`egglog.bindings` without the rest of its package: 10 ms, not 200.

    Where the module cannot be loaded by itself it is imported in the plain way.
    """
    known = sys.modules.get("egglog.bindings")
    if known is not None:
        return known
    try:
        package = importlib.util.find_spec("egglog")
        locations = package.submodule_search_locations if package is not None else None
        spec = importlib.machinery.PathFinder.find_spec("egglog.bindings", locations)
        if spec is None or spec.loader is None:
            raise ImportError("egglog.bindings was not found beside the package egglog")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:
        return importlib.import_module("egglog.bindings")
    # Under its own name, so that a later `import egglog` does not load the library a second time.
    sys.modules["egglog.bindings"] = module
    return module


class TableFiles:
    """Tables as files that egglog reads: in memory on Linux, else temporary ones.

    As a context manager it gives the (table, path) pairs.
    """

    def __init__(self, tables: Mapping[str, Sequence[tuple[Any, ...]]]):
        self.tables = {name: rows for name, rows in tables.items() if rows}
        self._open: list[int] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> list[tuple[str, str]]:
        try:
            return [(name, self._file(name, rows)) for name, rows in self.tables.items()]
        except BaseException:
            self.__exit__()
            raise

    def _file(self, name: str, rows: Sequence[tuple[Any, ...]]) -> str:
        data = "".join("\t".join(map(_text, row)) + "\n" for row in rows).encode()
        if hasattr(os, "memfd_create"):
            handle = os.memfd_create(name)
            self._open.append(handle)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            return f"/proc/self/fd/{handle}"
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="meganeura-")
        path = os.path.join(self._folder.name, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def __exit__(self, *_: object) -> None:
        while self._open:
            os.close(self._open.pop())
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _text(value: Any) -> str:
    """A cell. Numbers in full precision; strings are names, which hold neither tabs nor newlines."""
    return repr(value) if isinstance(value, float) else str(value)
