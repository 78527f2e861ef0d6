"""A hash index on GPUs and CPUs: build once, look up and join against it.

On CPUs a process uses one thread per CPU that it may use; a process with Dask workers uses as many
threads as its workers have in total. The environment variable ``DGPUHASH_NUM_THREADS``, set before
the first use, overrides both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgpuhash import errors, tables
from dgpuhash.accessors import register as _register_accessors
from dgpuhash.spec import TableSpec
from dgpuhash.tables import (
    BloomFilter,
    BloomStats,
    CountMap,
    HashMap,
    HashSet,
    KeyIds,
    MultiMap,
    TableStats,
    factorize,
    group_reduce,
    isin,
    join_indices,
    lca,
    unique,
    value_counts,
)
from dgpuhash.tables.stores.method import methods
from dgpuhash.tables.stores.mixed import Op
from dgpuhash.tables.user_kernels.options import get_include, kernel_options

if TYPE_CHECKING:
    import os
    from typing import Any

    from distributed import Client

    from dgpuhash.distributed import DistributedGroupBy, DistributedIndex
    from dgpuhash.frames import FrameIndex
    from dgpuhash.frames.groupby import groupby
    from dgpuhash.frames.grouped.group_by import FrameGroupBy
    from dgpuhash.frames.merge import merge
    from dgpuhash.typing import Device

__all__ = [
    "BloomFilter",
    "BloomStats",
    "CountMap",
    "DistributedGroupBy",
    "DistributedIndex",
    "FrameGroupBy",
    "FrameIndex",
    "HashMap",
    "HashSet",
    "KeyIds",
    "MultiMap",
    "Op",
    "TableSpec",
    "TableStats",
    "errors",
    "factorize",
    "get_include",
    "group_reduce",
    "groupby",
    "isin",
    "join_indices",
    "kernel_options",
    "lca",
    "load",
    "merge",
    "methods",
    "unique",
    "value_counts",
]

# Imported at first use, because pandas and Dask take long to import.
_LATER = {
    "DistributedGroupBy": "dgpuhash.distributed",
    "DistributedIndex": "dgpuhash.distributed",
    "FrameGroupBy": "dgpuhash.frames.grouped.group_by",
    "FrameIndex": "dgpuhash.frames",
    "groupby": "dgpuhash.frames.groupby",
    "merge": "dgpuhash.frames.merge",
}


_register_accessors()


def load(
    path: str | os.PathLike[str], device: Device | None = None, *, client: Client | None = None
) -> Any:
    """Load the table or index saved under `path`, as an object of its class.

    Parameters
    ----------
    path : path or fsspec URL
        A file that ``save`` of a `HashSet`, `HashMap`, `MultiMap`, `CountMap`, `KeyIds`,
        `BloomFilter` or `FrameIndex` wrote; or a folder that ``save`` of a `DistributedIndex`,
        `DistributedGroupBy`, `DistributedSet`, `DistributedMap`, `DistributedMultiMap` or
        `DistributedCountMap` wrote, which is loaded onto the workers of a cluster.
    device : {"cpu", "cuda"}, optional
        Device of the object; None for the CPU.
    client : distributed.Client, optional
        Client for folders; default: the current client.

    Raises
    ------
    FormatError
        When the file or folder is not dgpuhash's, truncated or damaged.
    UnsupportedError
        When `path` is a distributed object's folder, and there is no client.
    OSError
        When `path` does not exist, or cannot be read.
    DeviceError
        When the device does not exist.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import dgpuhash, pandas as pd
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> HashSet.from_keys([3, 1]).save(folder / "seen.dgph")
    >>> len(load(folder / "seen.dgph"))
    2
    >>> rows = pd.DataFrame({"k": [1, 2]})
    >>> dgpuhash.FrameIndex.build(rows, on="k").save(folder / "rows.dgph")
    >>> type(load(folder / "rows.dgph")).__name__, len(load(folder / "rows.dgph"))
    ('FrameIndex', 2)
    """
    import os

    from dgpuhash.tables import serialization

    name = os.fspath(path)
    if serialization.file_exists(f"{name.rstrip('/')}/manifest.json"):
        from dgpuhash import distributed

        return distributed.load(name, device, client=client)
    if serialization.header_of(name).get("kind") == "frame_index":
        from dgpuhash.frames import FrameIndex

        return FrameIndex.load(name, device=device)
    return tables.load(name, device)


def __getattr__(name: str) -> object:
    import importlib.metadata

    if name == "dask":
        # Not in `__all__`: an import of all names would hide Dask itself.
        return importlib.import_module("dgpuhash.dask")
    if name in _LATER:
        found = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
        return found
    if name == "__version__":
        return importlib.metadata.version(__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "dask", "__version__"})
