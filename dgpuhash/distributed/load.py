"""Load any saved index or table from a folder."""

from __future__ import annotations

import json
import os
from typing import Any

from distributed import Client

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.grouped.group_by import DistributedGroupBy
from dgpuhash.distributed.index.index import DistributedIndex
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import MANIFEST, Manifest, load_with_retry
from dgpuhash.distributed.tables import (
    DistributedBloomFilter,
    DistributedCountMap,
    DistributedMap,
    DistributedMultiMap,
    DistributedSet,
)
from dgpuhash.distributed.tables.saved import SavedTable
from dgpuhash.typing import Device

_TABLES = {
    each.kind: each
    for each in (
        DistributedSet,
        DistributedMap,
        DistributedMultiMap,
        DistributedCountMap,
        DistributedBloomFilter,
    )
}


def load(
    url: str | os.PathLike[str], device: Device | None = None, *, client: Client | None = None
) -> Any:
    """Load the saved index or table in `url`, of whichever class.

    Its rows go to the cluster's current workers. ``load`` of each class has more options.

    Parameters
    ----------
    url : str or path
        Folder that ``save`` of a `DistributedIndex`, `DistributedGroupBy`, `DistributedSet`,
        `DistributedMap`, `DistributedMultiMap`, `DistributedCountMap` or `DistributedBloomFilter`
        wrote.
    device : {"cpu", "cuda"}, optional
        Default: the CPU.
    client : distributed.Client, optional
        Default: the current one.

    Raises
    ------
    FormatError
        When there is no such save, or the save is damaged.
    UnsupportedError
        When there is no client.
    IndexLost, SpecError, DeviceError, OutOfMemoryError, OSError
        As ``load`` of the class that was saved.

    Examples
    --------
    >>> import tempfile
    >>> from distributed import Client
    >>> from dgpuhash.distributed import DistributedSet, load
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> folder = tempfile.mkdtemp()
    >>> with DistributedSet.from_keys([3, 1, 4]) as seen:
    ...     seen.save(folder)
    >>> with load(folder) as again:
    ...     type(again).__name__, len(again)
    ('DistributedSet', 3)
    >>> client.close()
    """
    folder, client = Folder(url), client_of(client)
    if not _is_table(folder):
        groups = load_with_retry(folder, lambda: Manifest.found_in(folder)).groups
        held = DistributedIndex if groups is None else DistributedGroupBy
        return held.load(folder.url, client, device=device)
    kind = load_with_retry(folder, lambda: SavedTable.found_in(folder)).spec.kind
    return _TABLES[kind].load(folder.url, client=client, device=device)


def _is_table(folder: Folder) -> bool:
    if not folder.has(MANIFEST):
        return False
    try:
        return bool(json.loads(folder.read(MANIFEST))["format"] == f"dgpuhash {SavedTable.what}")
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
