"""Tables HashSet, HashMap, MultiMap and BloomFilter, and functions of key columns."""

from __future__ import annotations

import os

from dgpuhash.tables.bloom_filter import BloomFilter, BloomStats
from dgpuhash.tables.columns.factorize import factorize, unique, value_counts
from dgpuhash.tables.columns.group_reduce import group_reduce
from dgpuhash.tables.columns.isin import isin
from dgpuhash.tables.columns.join import join_indices
from dgpuhash.tables.hash_map import HashMap
from dgpuhash.tables.hash_set import HashSet
from dgpuhash.tables.keyed import Keyed
from dgpuhash.tables.multi_map import MultiMap
from dgpuhash.tables.stats import TableStats

__all__ = [
    "BloomFilter",
    "BloomStats",
    "HashMap",
    "HashSet",
    "MultiMap",
    "TableStats",
    "factorize",
    "group_reduce",
    "isin",
    "join_indices",
    "load",
    "unique",
    "value_counts",
]


def load(
    path: str | os.PathLike[str], device: str | None = None
) -> BloomFilter | HashSet | HashMap | MultiMap:
    """Load the table or filter saved under `path`, of any kind.

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
    assert isinstance(found, BloomFilter | HashSet | HashMap | MultiMap)
    return found
