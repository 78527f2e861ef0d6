"""Files of minimizer indexes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SpecError
from dgpuhash.kmer.index_file import read_index, write_index
from dgpuhash.kmer.minimizers.building import refilled, seed_of
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashMap

__all__ = ["load_table", "save_table"]

_SEED = "seed"
_KEY, _NODE = np.dtype(np.uint64), np.dtype(np.uint32)


def save_table(
    path: str | os.PathLike[str],
    backend: Backend,
    table: HashMap,
    *,
    told: Mapping[str, Any],
    **others: Any,
) -> None:
    """Write a map of minimizers to a file, and what else `write_index` takes."""
    keys, nodes = map(backend.to_host, table.items())
    arrays = {"minimizers": keys, "nodes": nodes}
    write_index(path, arrays=arrays, told={**told, _SEED: seed_of(table)}, **others)


def load_table(
    path: str | os.PathLike[str], backend: Backend, rule: str
) -> tuple[MinimizerSettings, Taxonomy, Targets, HashMap, dict[str, Any]]:
    """Return settings, taxonomy, targets, map and what else is told in a file.

    Raises
    ------
    FormatError
        When the file is another one, or damaged.
    """
    saved = read_index(path, rule)
    keys = saved.arrays.get("minimizers", _KEY)
    nodes = saved.arrays.get("nodes", _NODE, len(keys))
    taxonomy = saved.taxonomy
    saved.arrays.check(taxonomy is not None, "it has no taxonomy")
    assert taxonomy is not None
    n = len(taxonomy.taxids)
    saved.arrays.check(not len(nodes) or int(nodes.max()) < n, "it has unknown taxa")
    try:
        settings = MinimizerSettings.of(**saved.settings)
    except SpecError as error:
        saved.arrays.check(False, f"its settings are impossible ({error})")
        raise
    seed = saved.told.pop(_SEED, None)
    saved.arrays.check(type(seed) is int and 0 <= seed < 2**64, "its map has no seed")
    table = refilled(backend, backend.from_host(keys), backend.from_host(nodes), seed)
    saved.arrays.check(len(table) == len(keys), "its minimizers are not distinct")
    return settings, taxonomy, saved.targets, table, saved.told
