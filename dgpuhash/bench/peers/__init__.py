"""Other libraries, measured on the same data in the same run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.util import find_spec

from dgpuhash.backend import Backend
from dgpuhash.bench.peers.base import Peer, Task
from dgpuhash.bench.peers.cudf import CuDF
from dgpuhash.bench.peers.duckdb import DuckDB
from dgpuhash.bench.peers.pandas import Pandas
from dgpuhash.bench.peers.polars import Polars
from dgpuhash.errors import SpecError

__all__ = ["OURS", "Peer", "Task", "measured_libraries"]

OURS = "dgpuhash"

# Peers by device and required package.
_KINDS: dict[str, dict[str, type[Peer]]] = {
    "cuda": {"cudf": CuDF},
    "cpu": {"pandas": Pandas, "polars": Polars, "duckdb": DuckDB},
}


def measured_libraries(backend: Backend, compare: bool) -> Iterator[Peer | None]:
    """Return an iterator over None, for this package, and installed peers.

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
    >>> ourselves is None, pandas.name.split()[0]
    (True, 'pandas')
    """
    if not compare:
        return iter([None])
    kinds = [kind for package, kind in _KINDS[backend.name].items() if find_spec(package)]
    if not kinds:
        raise SpecError(
            "there is nothing to compare with: cuDF is not installed; install it with "
            "\"pip install 'dgpuhash[cudf-cu13]'\", or leave out --compare"
        )
    return itertools.chain([None], (kind() for kind in kinds))
