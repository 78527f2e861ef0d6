"""How fast can this machine touch random memory? The floors that every table is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, Kernel
from dgpuhash.backend.args import LIMIT
from dgpuhash.bench.keys import unique_keys
from dgpuhash.bench.timing import median_time

__all__ = [
    "FOOTPRINTS",
    "cas_rate",
    "copy_rate",
    "gather_rate",
    "insert_floor",
    "lookup_floor",
    "run",
]

FOOTPRINTS = {"cuda": (2**25, 2**28, 2**31), "cpu": (2**20, 2**25, 2**28)}
OPERATIONS = {"cuda": 2**26, "cpu": 2**21}
_FILE = "launch/limits.cuh"
_WORDS = {4: "dg::u32", 8: "dg::u64"}


def copy_rate(backend: Backend, nbytes: int, repeats: int) -> float:
    """Bytes read and written each second by a streaming copy of `nbytes`."""
    source, target = backend.zeros(nbytes, np.uint8), backend.zeros(nbytes, np.uint8)
    kernel = Kernel("dg::limit_copy<1>", _FILE)
    rows = nbytes // 16
    seconds = _time(backend, kernel, rows, repeats, values=target, slots=source, slot_count=rows)
    return 2 * nbytes / seconds


def gather_rate(backend: Backend, width: int, nbytes: int, n: int, repeats: int) -> float:
    """Random aligned reads of `width` bytes (32, 64, 128) each second within `nbytes`."""
    lines = backend.zeros(nbytes, np.uint8)
    sink = backend.zeros(1, np.uint64)
    kernel = Kernel(f"dg::limit_gather<{width // 16}>", _FILE, width // 16)
    return n / _time(
        backend, kernel, n, repeats, values=sink, slots=lines, slot_count=nbytes // width
    )


def cas_rate(backend: Backend, nbytes: int, n: int, repeats: int) -> float:
    """Uncontended random 64-bit compare-and-swaps each second within `nbytes`."""
    words = backend.zeros(nbytes // 8, np.uint64)
    kernel = Kernel("dg::limit_cas<1>", _FILE)
    return n / _time(backend, kernel, n, repeats, slots=words, slot_count=nbytes // 8)


def lookup_floor(backend: Backend, keys: Any, nbytes: int, repeats: int) -> float:
    """Keys each second when a lookup is: read the key, gather its slot, write its value."""
    word, slots = _slots(backend, keys, nbytes)
    values = backend.empty(len(keys), keys.dtype)
    kernel = Kernel(f"dg::limit_lookup<{word},1>", _FILE)
    return len(keys) / _time(
        backend, kernel, len(keys), repeats, keys=keys, values=values, slots=slots,
        slot_count=len(slots) // 2,
    )  # fmt: skip


def insert_floor(backend: Backend, keys: Any, nbytes: int, repeats: int) -> float:
    """Pairs each second when an insert is: read the pair, read a sector, swap the pair in there."""
    word, slots = _slots(backend, keys, nbytes)
    return len(keys) / _time(
        backend, insert_kernel(word), len(keys), repeats, keys=keys, values=keys, slots=slots,
        slot_count=len(slots) // 2,
    )  # fmt: skip


def insert_kernel(word: str) -> Kernel:
    """The insert floor for keys and values of the C++ type `word`."""
    return Kernel(f"dg::limit_insert<{word},1>", _FILE)


def run(
    backend: Backend,
    *,
    footprints: Sequence[int] | None = None,
    n: int | None = None,
    repeats: int = 5,
) -> Iterator[dict[str, Any]]:
    """One row for each limit and footprint.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    footprints : sequence of int, optional
        Bytes that the random accesses are spread over.
    n : int, optional
        Random accesses in one launch.
    repeats : int
        Launches whose median counts.
    """
    operations = OPERATIONS[backend.name] if n is None else n
    keys = {
        bits: unique_keys(backend, 0, operations, np.dtype(f"u{bits // 8}")) for bits in (32, 64)
    }
    for nbytes in FOOTPRINTS[backend.name] if footprints is None else footprints:
        rates = {"streaming copy": copy_rate(backend, nbytes, repeats)}
        for width in (32, 64, 128):
            rates[f"gather {width} B"] = gather_rate(backend, width, nbytes, operations, repeats)
        rates["CAS 64 bit"] = cas_rate(backend, nbytes, operations, repeats)
        for bits, made in keys.items():
            rates[f"lookup floor {bits}/{bits}"] = lookup_floor(backend, made, nbytes, repeats)
            rates[f"insert floor {bits}/{bits}"] = insert_floor(backend, made, nbytes, repeats)
        for what, rate in rates.items():
            unit = "TB/s" if what == "streaming copy" else "G/s"
            scale = 1e12 if unit == "TB/s" else 1e9
            yield {
                "limit": what,
                "footprint": nbytes,
                "n": operations,
                "rate": round(rate / scale, 4),
                "unit": unit,
            }


def _slots(backend: Backend, keys: Any, nbytes: int) -> tuple[str, Any]:
    width = keys.dtype.itemsize
    return _WORDS[width], backend.full(
        nbytes // width, keys.dtype.type(-1 % 2 ** (8 * width)), keys.dtype
    )


def _time(
    backend: Backend, kernel: Kernel, n: int, repeats: int, *, slot_count: int, **arrays: Any
) -> float:
    work = partial(backend.run, kernel, LIMIT, n, slot_count=slot_count, **arrays)
    return median_time(backend, work, repeats=repeats)[0]
