"""Plans on disk, so that a second process neither optimises nor schedules again.

A plan is found by everything that it depends on: the graph with its attributes and constants, the
device's limits, and the versions. Files are written aside and renamed; one that is missing,
damaged or of another version is never an error.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from meganeura.schedule.plan import Buffer, Kernel, Limits, Plan
from meganeura.version import __version__

#: Change this when the meaning of a plan or the text of a kernel changes between releases.
SCHEMA = 1
LARGEST_FILE = 64 << 20
LARGEST_FOLDER = 512 << 20


def folder() -> Path | None:
    """Where plans are kept; None where MEGANEURA_CACHE is 0."""
    chosen = os.environ.get("MEGANEURA_CACHE", "")
    if chosen == "0":
        return None
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "meganeura" / "plans"


def source_digest() -> str:
    """A digest of the compiler's own text: while it is developed, an old plan must not survive."""
    global _source
    if _source is None:
        digest = hashlib.sha256()
        package = Path(__file__).parents[1]
        rooms = ("rewrite", "schedule", "ops", "graph")
        for path in sorted(p for room in rooms for p in (package / room).rglob("*.py")):
            digest.update(path.read_bytes())
        _source = digest.hexdigest()
    return _source


_source: str | None = None


#: Looking through the folder takes a while when it is full: at the first save, and now and then.
_SAVES_A_TRIM = 256
_saves = itertools.count()


def key(graph_key: Any, limits: Limits, optimize: bool) -> str:
    """The name of a plan: a digest of all that it depends on."""
    parts = (SCHEMA, __version__, source_digest(), dataclasses.astuple(limits), optimize, graph_key)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def load(name: str) -> tuple[Plan, dict[str, Any]] | None:
    """The plan of this name and its report, or None."""
    place = folder()
    if place is None:
        return None
    path = place / f"{name}.json"
    try:
        if path.stat().st_size > LARGEST_FILE:
            return None
        content = json.loads(path.read_text("utf-8"))
        plan = from_json(content["plan"])
        os.utime(path)
        return plan, dict(content["report"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(name: str, plan: Plan, report: dict[str, Any]) -> None:
    """Keep a plan; failing to is no error."""
    place = folder()
    if place is None:
        return
    with contextlib.suppress(OSError, ValueError, TypeError):
        text = json.dumps({"plan": to_json(plan), "report": report})
        if len(text) > LARGEST_FILE:
            return
        place.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place, suffix=".partial")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, place / f"{name}.json")
        except BaseException:
            os.unlink(temporary)
            raise
        if next(_saves) % _SAVES_A_TRIM == 0:
            _trim(place)


def _trim(place: Path) -> None:
    """Drop the plans that were not used for longest while the folder is too large."""
    with os.scandir(place) as entries:
        found = [(e.stat(), e.path) for e in entries if e.name.endswith(".json")]
    total = sum(stat.st_size for stat, _ in found)
    for stat, path in sorted(found, key=lambda item: item[0].st_mtime):
        if total <= LARGEST_FOLDER:
            return
        total -= stat.st_size
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def to_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON values."""
    content = dataclasses.asdict(plan)
    for buffer in content["buffers"]:
        if buffer["data"] is not None:
            buffer["data"] = base64.b64encode(bytes(buffer["data"])).decode()
    return content


def from_json(content: dict[str, Any]) -> Plan:
    """The plan that `to_json` described. Raises where it is incomplete."""
    buffers = []
    for b in content["buffers"]:
        data = None if b["data"] is None else base64.b64decode(b["data"], validate=True)
        buffers.append(Buffer(**{**b, "shape": tuple(b["shape"]), "data": data}))
    kernels = []
    for k in content["kernels"]:
        workgroups = tuple(int(n) for n in k["workgroups"])
        bindings = [(int(b), bool(w)) for b, w in k["bindings"]]
        if len(workgroups) != 3 or any(not 0 <= b < len(buffers) for b, _ in bindings):
            raise ValueError("a damaged plan")
        kernels.append(
            Kernel(
                **{
                    **k,
                    "workgroups": workgroups,
                    "bindings": bindings,
                    "scopes": tuple(k["scopes"]),
                    "apart": tuple(tuple(map(str, a)) for a in k["apart"]),
                }
            )
        )
    lists = {n: [int(i) for i in content[n]] for n in ("inputs", "states", "outputs")}
    return Plan(buffers, kernels, **lists, statistics=dict(content["statistics"]))
