"""Peer libraries: one set of adapters for all benchmarks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.util import find_spec

from dgpuhash.backend import Backend
from dgpuhash.bench.peers.base import (
    OURS,
    Grouping,
    Join,
    Library,
    Task,
    Work,
    rows_by_key,
    same_words,
)
from dgpuhash.bench.peers.cudf import CuDF, SharedCuDF
from dgpuhash.bench.peers.duckdb import DuckDB
from dgpuhash.bench.peers.ours import NumPy, Ours, Standing
from dgpuhash.bench.peers.pandas import Pandas
from dgpuhash.bench.peers.polars import Polars
from dgpuhash.errors import SpecError, install_command

__all__ = [
    "COMPARED",
    "OURS",
    "CuDF",
    "DuckDB",
    "Grouping",
    "Join",
    "Library",
    "NumPy",
    "Ours",
    "Pandas",
    "Polars",
    "SharedCuDF",
    "Standing",
    "Task",
    "Work",
    "available_libraries",
    "measured_libraries",
    "rows_by_key",
    "same_words",
]

# Libraries beside ours, by device.
_PEERS: dict[str, tuple[type[Library], ...]] = {"cuda": (CuDF,), "cpu": (Pandas, Polars, DuckDB)}
#: Libraries of frames by device; the first one is the library of the frames themselves.
COMPARED: dict[str, tuple[type[Library], ...]] = {
    "cuda": (SharedCuDF, Ours, Standing),
    "cpu": (Pandas, Polars, Ours, Standing),
}


def available_libraries(kinds: tuple[type[Library], ...]) -> list[type[Library]]:
    """Return those libraries whose packages are installed."""
    return [kind for kind in kinds if find_spec(kind.package)]


def measured_libraries(backend: Backend, compare: bool) -> Iterator[Library]:
    """Return an iterator over this package and installed peers.

    A peer is loaded when the iterator reaches it.

    Parameters
    ----------
    backend : Backend
        The backend whose device the peers use.
    compare : bool
        Whether to include peers.

    Raises
    ------
    SpecError
        When no peer is installed.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> ourselves, pandas, *_ = measured_libraries(backend.get("cpu"), True)
    >>> ourselves.name, pandas.name.split()[0]
    ('dgpuhash', 'pandas')
    """
    kinds = available_libraries(_PEERS[backend.name]) if compare else []
    if compare and not kinds:
        raise SpecError(
            "there is nothing to compare with: cuDF is not installed; "
            f"{install_command('cudf-cu13')}; or leave out --compare"
        )
    return itertools.chain([Ours()], (kind() for kind in kinds))
