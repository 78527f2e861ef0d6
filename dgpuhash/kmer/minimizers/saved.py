"""Files of minimizer indexes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SpecError
from dgpuhash.kmer.index_file import read_index, write_index
from dgpuhash.kmer.minimizers.building import empty_table
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashMap

__all__ = ["load_table", "save_table"]

_KEY, _NODE = np.dtype(np.uint64), np.dtype(np.uint32)


def save_table(path: str | os.PathLike[str], backend: Backend, table: HashMap, **told: Any) -> None:
    """Write a map of minimizers to a file, and what else `write_index` takes."""
    keys, nodes = map(backend.to_host, table.items())
    write_index(path, arrays={"minimizers": keys, "nodes": nodes}, **told)


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
    table = empty_table(backend.name, len(keys))
    table._add(backend.from_host(keys), backend.from_host(nodes))
    return settings, taxonomy, saved.targets, table, saved.told
