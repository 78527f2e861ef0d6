"""Verbs of a table that take keys, for tests of each with the same keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dgpuhash.tables import HashMap, HashSet, MultiMap

KINDS = ("set", "map", "multimap")


def table_of(kind: str, keys: Any) -> Any:
    """Return a table of `keys`, which are the values of a map as well."""
    if kind == "set":
        return HashSet.from_keys(keys)
    return (HashMap if kind == "map" else MultiMap).from_arrays(keys, keys)


def questions(table: Any) -> list[Callable[[Any], Any]]:
    """Return every verb that looks keys up, as a call with keys."""
    asking = [table.contains, table.count, table.erase]
    if not isinstance(table, HashSet):
        asking.append(table.find)
    return [*asking, table.match] if isinstance(table, HashMap) else asking


def stores(table: Any, values: Any) -> list[Callable[[Any], Any]]:
    """Return every verb that stores keys, as a call with keys.

    The call adds `values`.
    """
    if isinstance(table, HashSet):
        return [table.insert]
    storing: list[Callable[[Any], Any]] = [lambda keys: table.insert(keys, values)]
    if isinstance(table, HashMap):
        storing.append(lambda keys: table.upsert(keys, values))
    return storing


def verbs_with_keys(table: Any, values: Any) -> list[Callable[[Any], Any]]:
    """Return every verb as a call with keys alone.

    Calls that store add `values`.
    """
    return [*questions(table), *stores(table, values)]


def stored_keys(table: Any) -> list[Any]:
    """Return the keys of the table, ascending."""
    items = table.items()
    return sorted((items if isinstance(table, HashSet) else items[0]).tolist())
