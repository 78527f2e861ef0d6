"""The verbs of a table that take keys, for tests that give each of them the same keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dgpuhash.tables import HashMap, HashSet, MultiMap

KINDS = ("set", "map", "multimap")


def table_of(kind: str, keys: Any) -> Any:
    """A table of `keys`, which are the values of a map as well."""
    if kind == "set":
        return HashSet.from_keys(keys)
    return (HashMap if kind == "map" else MultiMap).from_arrays(keys, keys)


def verbs_with_keys(table: Any, values: Any) -> list[Callable[[Any], Any]]:
    """Every verb as a call with keys alone; those that store give `values` besides."""
    verbs = [table.contains, table.count, table.erase]
    if isinstance(table, HashSet):
        return [*verbs, table.insert]
    verbs += [table.find, lambda keys: table.insert(keys, values)]
    if isinstance(table, HashMap):
        verbs += [table.match, lambda keys: table.upsert(keys, values)]
    return verbs


def stored_keys(table: Any) -> list[Any]:
    """The keys of the table, ascending."""
    items = table.items()
    return sorted((items if isinstance(table, HashSet) else items[0]).tolist())
