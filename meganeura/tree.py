"""Nested lists, tuples and dicts of anything (https://keras.io/api/tree). Dicts count in sorted order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def is_nested(structure: Any) -> bool:
    """Whether `structure` is a list, tuple or dict."""
    return isinstance(structure, (list, tuple, dict))


def flatten(structure: Any) -> list[Any]:
    """The leaves, from left to right, dicts by sorted keys."""
    return [leaf for _, leaf in flatten_with_path(structure)]


def flatten_with_path(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """`(path, leaf)` pairs; a path holds the indices and keys that lead to its leaf."""
    return list(_walk(structure, ()))


def _walk(structure: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(structure, dict):
        for key in sorted(structure):
            yield from _walk(structure[key], (*path, key))
    elif isinstance(structure, (list, tuple)):
        for index, item in enumerate(structure):
            yield from _walk(item, (*path, index))
    else:
        yield path, structure


def map_structure(function: Callable[..., Any], *structures: Any, none_is_leaf: bool = True) -> Any:
    """`function` of the leaves of equal structures, in the structure of the first."""
    first, *others = structures
    for other in others:
        assert_same_structure(first, other)
    return _map(function, structures, none_is_leaf)


def _map(function: Callable[..., Any], structures: tuple[Any, ...], none_is_leaf: bool) -> Any:
    first = structures[0]
    if isinstance(first, dict):
        found = {k: _map(function, tuple(s[k] for s in structures), none_is_leaf) for k in first}
        return type(first)(found)
    if isinstance(first, (list, tuple)):
        items = [_map(function, c, none_is_leaf) for c in zip(*structures, strict=True)]
        return _like(first, items)
    return None if first is None and not none_is_leaf else function(*structures)


def _like(sequence: Any, items: list[Any]) -> Any:
    return type(sequence)(*items) if hasattr(sequence, "_fields") else type(sequence)(items)


def pack_sequence_as(structure: Any, flat_sequence: Iterable[Any]) -> Any:
    """The leaves of `flat_sequence` in the structure of `structure`; undoes `flatten`."""
    leaves = list(flat_sequence)
    wanted = len(flatten(structure))
    if len(leaves) != wanted:
        raise ValueError(
            f"pack_sequence_as: the structure has {wanted} leaves, and {len(leaves)} were given"
        )
    return _pack(structure, iter(leaves))


def _pack(structure: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(structure, dict):
        found = {key: _pack(structure[key], leaves) for key in sorted(structure)}
        return type(structure)((key, found[key]) for key in structure)
    if isinstance(structure, (list, tuple)):
        return _like(structure, [_pack(item, leaves) for item in structure])
    return next(leaves)


def assert_same_structure(a: Any, b: Any) -> None:
    """Raise ValueError unless both are nested alike: same kinds, lengths and keys."""
    if is_nested(a) != is_nested(b) or (is_nested(a) and type(a) is not type(b)):
        raise ValueError(f"the structures differ: {_kind(a)} and {_kind(b)}")
    if isinstance(a, dict):
        if set(a) != set(b):
            raise ValueError(f"the structures differ: keys {sorted(a)} and {sorted(b)}")
        for key in a:
            assert_same_structure(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            raise ValueError(f"the structures differ: {len(a)} and {len(b)} entries")
        for x, y in zip(a, b, strict=True):
            assert_same_structure(x, y)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" if is_nested(value) else "a leaf"


def traverse(function: Callable[[Any], Any], structure: Any, top_down: bool = True) -> Any:
    """Replace structures and leaves by what `function` returns, where it does not return None."""
    if top_down:
        replaced = function(structure)
        if replaced is not None:
            return replaced
    if isinstance(structure, dict):
        structure = type(structure)(
            {k: traverse(function, v, top_down) for k, v in structure.items()}
        )
    elif isinstance(structure, (list, tuple)):
        structure = _like(structure, [traverse(function, item, top_down) for item in structure])
    if top_down:
        return structure
    replaced = function(structure)
    return structure if replaced is None else replaced
