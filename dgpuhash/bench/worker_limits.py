"""What the workers' machine allows, measured on all of them at once."""

from __future__ import annotations

from dgpuhash import backend
from dgpuhash.bench.floors import Floors, partition_rate
from dgpuhash.bench.workers import Workers

__all__ = ["LIMITS", "limits"]

_BITS = 64
_LOAD = 0.8
_PAIR_NBYTES = 2 * _BITS // 8
# With their units: bytes or rows each second.
LIMITS = {"copy": "TB/s", "partition": "G/s", "insert": "G/s", "lookup": "G/s"}


def limits(workers: Workers, rows: int, repeats: int) -> dict[str, float]:
    """Rates of the slowest worker while each works on `rows` pairs of 8 + 8 bytes.

    ``copy``: bytes read and written; ``partition``: pairs of one pass; ``insert`` and ``lookup``:
    the floors of a table that these pairs fill to 0.8.
    """
    found = workers.of_each(_limits, rows, repeats)
    return {name: min(each[name] for each in found) for name in LIMITS}


def _limits(device: str, rank: int, rows: int, repeats: int) -> dict[str, float]:
    used = backend.get(device)
    floors = Floors(used, repeats)
    nbytes = _PAIR_NBYTES * rows
    slots = int(nbytes / _LOAD)
    return {
        "copy": floors.copy(nbytes),
        "partition": partition_rate(used, _BITS, nbytes, repeats),
        "insert": floors.insert(_BITS, rows, slots),
        "lookup": floors.lookup(_BITS, rows, slots),
    }
