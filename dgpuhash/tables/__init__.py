"""Tables HashSet, HashMap and MultiMap, and functions of key columns."""

from __future__ import annotations

import os

from dgpuhash.spec import TableSpec
from dgpuhash.tables.base import Table
from dgpuhash.tables.columns.factorize import factorize, unique, value_counts
from dgpuhash.tables.columns.group_reduce import group_reduce
from dgpuhash.tables.columns.isin import isin
from dgpuhash.tables.columns.join import join_indices
from dgpuhash.tables.hash_map import HashMap
from dgpuhash.tables.hash_set import HashSet
from dgpuhash.tables.multi_map import MultiMap
from dgpuhash.tables.stats import TableStats

__all__ = [
    "HashMap",
    "HashSet",
    "MultiMap",
    "TableStats",
    "factorize",
    "group_reduce",
    "isin",
    "join_indices",
    "load",
    "table_of",
    "unique",
    "value_counts",
]


def load(path: str | os.PathLike[str], device: str | None = None) -> HashSet | HashMap | MultiMap:
    """Load the table saved under `path`, of any kind.

    `dgpuhash.load` opens indexes as well.

    Parameters
    ----------
    path : path or fsspec URL
        File that ``table.save`` wrote.
    device : {"cpu", "cuda"}, optional
        Device of the table; None for the CPU.

    Raises
    ------
    FormatError
        When the file is not dgpuhash's, truncated or damaged.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "seen.dgph"
    >>> HashSet.from_keys([3, 1]).save(path)
    >>> sorted(load(path).items().tolist())
    [1, 3]
    """
    found = Table.load(path, device)
    assert isinstance(found, HashSet | HashMap | MultiMap)
    return found


def table_of(spec: TableSpec, capacity: int, device: str | None) -> HashSet | HashMap | MultiMap:
    """Return an empty table of the kind and with the settings of a spec."""
    kinds: dict[str, type[HashSet | HashMap | MultiMap]] = {
        kind.kind: kind for kind in (HashSet, HashMap, MultiMap)
    }
    return kinds[spec.kind]._of(spec, capacity, device)
