"""A hash index that lives on GPUs and CPUs: build it once, look up and join against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgpuhash import errors
from dgpuhash.spec import TableSpec
from dgpuhash.tables import (
    HashMap,
    HashSet,
    MultiMap,
    TableStats,
    factorize,
    group_reduce,
    isin,
    join_indices,
    load,
    unique,
    value_counts,
)

if TYPE_CHECKING:
    from dgpuhash.distributed import DistributedIndex
    from dgpuhash.frames import FrameIndex

__all__ = [
    "DistributedIndex",
    "FrameIndex",
    "HashMap",
    "HashSet",
    "MultiMap",
    "TableSpec",
    "TableStats",
    "errors",
    "factorize",
    "group_reduce",
    "isin",
    "join_indices",
    "load",
    "unique",
    "value_counts",
]

# Imported at first use, since they need pandas or Dask, which take long to load.
_LATER = {"DistributedIndex": "dgpuhash.distributed", "FrameIndex": "dgpuhash.frames"}


def __getattr__(name: str) -> object:
    import importlib.metadata

    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name == "__version__":
        return importlib.metadata.version(__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
