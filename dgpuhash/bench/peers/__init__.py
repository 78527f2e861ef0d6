"""Other libraries, run on the same data in the same run."""

from __future__ import annotations

from collections.abc import Callable

from dgpuhash.backend import Backend
from dgpuhash.bench.peers.base import Peer, Task
from dgpuhash.bench.peers.cudf import CuDF
from dgpuhash.bench.peers.duckdb import DuckDB
from dgpuhash.bench.peers.pandas import Pandas
from dgpuhash.bench.peers.polars import Polars
from dgpuhash.errors import SpecError

__all__ = ["OURS", "Peer", "Task", "peers"]

OURS = "dgpuhash"

_KINDS: dict[str, tuple[Callable[[], Peer], ...]] = {
    "cuda": (CuDF,),
    "cpu": (Pandas, Polars, DuckDB),
}


def peers(backend: Backend) -> list[Peer]:
    """Those that are installed, on the device of `backend`.

    Raises
    ------
    SpecError
        When there is none.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> peers(backend.get("cpu"))[0].name.split()[0]
    'pandas'
    """
    found = []
    for kind in _KINDS[backend.name]:
        try:
            found.append(kind())
        except ImportError:
            continue
    if not found:
        raise SpecError(
            "there is nothing to compare with: cuDF cannot be imported; install it with "
            "\"pip install 'dgpuhash[cudf-cu13]'\", or leave out --compare"
        )
    return found
