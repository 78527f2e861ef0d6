"""Benchmark of bare memory accesses, the floors of all table benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import rate
from dgpuhash.bench.floors import (
    cas_rate,
    copy_rate,
    gather_rate,
    insert_floor,
    lookup_floor,
    partition_rate,
)
from dgpuhash.bench.keys import unique_keys
from dgpuhash.bench.timing import REPEATS
from dgpuhash.errors import SpecError

FOOTPRINTS = {
    "cuda": (2**22, 2**25, 2**28, 2**31, 2**34),
    "cpu": (2**18, 2**20, 2**22, 2**25, 2**28),
}
_OPERATIONS = {"cuda": 2**26, "cpu": 2**21}
_LEAST, _MOST = 2**10, 2**40


def run(
    backend: Backend,
    *,
    footprints: Sequence[int] | None = None,
    n: int | None = None,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield one row for each kind of access and footprint.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    footprints : sequence of int, optional
        Bytes that the accesses are spread over, powers of two. By default five sizes that fit the
        caches and the memory of this kind of device, without those that exceed a quarter of its
        free memory.
    n : int, optional
        Random accesses in one launch.
    repeats : int, optional
        Runs whose median counts.

    Raises
    ------
    SpecError
        When a footprint is no power of two or out of bounds.
    DgpuhashError
        When the check of an access fails: `dgpuhash.bench.floors` describes each check.
    """
    repeats = repeats or REPEATS[backend.name]
    operations = _OPERATIONS[backend.name] if n is None else n
    if footprints is None:
        # The partition pass takes most: its input, the outputs of two runs, and the check.
        footprints = [each for each in FOOTPRINTS[backend.name] if 4 * each < backend.memory()[0]]
    for nbytes in footprints:
        if nbytes & (nbytes - 1) or not _LEAST <= nbytes <= _MOST:
            raise SpecError(
                f"a footprint of {nbytes:,} bytes; use a power of two from {_LEAST:,} to "
                f"{_MOST:,}, such as {2**28:,}"
            )
    keys = {
        bits: unique_keys(backend, 1, operations, np.dtype(f"u{bits // 8}")) for bits in (32, 64)
    }
    for nbytes in footprints:
        found = copy_rate(backend, nbytes, repeats)
        yield rate(found, None, unit="TB/s", limit="streaming copy", footprint=nbytes, n=nbytes)
        what: dict[str, Any] = {"footprint": nbytes, "n": operations}
        for width in (32, 64, 128):
            found = gather_rate(backend, width, nbytes, operations, repeats)
            yield rate(found, None, limit=f"gather {width} B", **what)
        found = cas_rate(backend, nbytes, operations, repeats)
        yield rate(found, None, limit="CAS 64 bit", **what)
        for bits, made in keys.items():
            found = lookup_floor(backend, made, nbytes, repeats)
            yield rate(found, None, limit=f"lookup floor {bits}/{bits}", **what)
            found = insert_floor(backend, made, nbytes, repeats)
            yield rate(found, None, limit=f"insert floor {bits}/{bits}", **what)
        for bits in keys:
            found = partition_rate(backend, bits, nbytes, repeats)
            what["n"] = nbytes * 4 // bits
            yield rate(found, None, limit=f"partition pass {bits}/{bits}", **what)
