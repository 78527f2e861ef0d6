"""Hash tables on one device: sets, maps, multimaps, counts, ids, filters; column functions."""

from __future__ import annotations

import os

from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.lca import lca
from dgpuhash.tables.base import Keyed
from dgpuhash.tables.bloom.filter import BloomFilter, BloomStats
from dgpuhash.tables.columns.factorize import factorize, unique, value_counts
from dgpuhash.tables.columns.group_reduce import group_reduce
from dgpuhash.tables.columns.isin import isin
from dgpuhash.tables.columns.join import join_indices
from dgpuhash.tables.count_map import CountMap
from dgpuhash.tables.hash_map import HashMap
from dgpuhash.tables.hash_set import HashSet
from dgpuhash.tables.ids.key_ids import KeyIds
from dgpuhash.tables.multi_map import MultiMap
from dgpuhash.tables.stats import TableStats
from dgpuhash.typing import Device

__all__ = [
    "BloomFilter",
    "BloomStats",
    "CountMap",
    "HashMap",
    "HashSet",
    "KeyIds",
    "MultiMap",
    "TableStats",
    "factorize",
    "group_reduce",
    "isin",
    "join_indices",
    "lca",
    "load",
    "table_of",
    "unique",
    "value_counts",
]

AnyTable = BloomFilter | HashSet | HashMap | MultiMap | CountMap | KeyIds
_KINDS: dict[str, type[AnyTable]] = {
    kind.kind: kind for kind in (BloomFilter, HashSet, HashMap, MultiMap, CountMap, KeyIds)
}


def load(path: str | os.PathLike[str], device: Device | None = None) -> AnyTable:
    """Load a saved table or filter of any kind from `path`.

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
    found = Keyed.load(path, device)
    assert isinstance(found, AnyTable)
    return found


def table_of(spec: TableSpec, capacity: int, device: Device | None) -> AnyTable:
    """Return an empty table or filter for a spec."""
    return _KINDS[spec.kind]._of(spec, capacity, device)


def checked_spec(spec: TableSpec) -> TableSpec:
    """Return a saved spec with all settings; raise SpecError if it is invalid."""
    return _KINDS[spec.kind]._check_spec(spec)
