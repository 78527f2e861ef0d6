"""Stream compaction: select the found rows of a batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.constants import TAKE_SHARES

_SEGMENT_ROWS = {"cpu": 4096, "cuda": 1024}
# Counts that one block of a GPU adds up before CuPy's cumsum begins.
_BLOCK_COUNTS = {"cpu": 0, "cuda": 2**14}


def row_numbers(backend: Backend, rows: int) -> Any:
    """Return the row numbers 0, 1, … as int64.

    CuPy's arange takes 0.4 ms longer for 2^27 rows on an H200.
    """
    made = backend.empty(rows, np.int64)
    backend.run(kernel_named("all_rows"), rows, rows=made)
    return made


def ends_of(backend: Backend, counts: Any, number: int) -> Any:
    """Return the cumulative sums (int64) of the first `number` counts (uint64).

    On a GPU the counts have room for one more, and are overwritten.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> ends_of(backend.get("cpu"), np.array([2, 0, 3], np.uint64), 3)
    array([2, 2, 5])
    """
    if number >= _BLOCK_COUNTS[backend.name]:
        return backend.xp.cumsum(counts[:number], dtype=np.int64)
    backend.run(
        kernel_named("deal_places"), 1,
        places=counts, starts=counts, parts=number, segments=1, segment_rows=len(counts),
    )  # fmt: skip
    return counts[1:].view(np.int64)


def select_found(
    backend: Backend, found: Any, words: Any = None, *, named: bool = True
) -> tuple[Any, Any]:
    """Return the rows (int64) where `found` (uint8) is 1, and their words, if there are any.

    The rows are in order.

    If all rows were found, the words are `words` itself, and the rows are None unless `named`.
    """
    rows, segment_rows = len(found), _SEGMENT_ROWS[backend.name]
    segments = math.ceil(rows / segment_rows)
    counts = backend.empty(segments + 1, np.uint64)
    backend.run(
        kernel_named("found_count"), segments,
        found=found, counts=counts, rows=rows, segment_rows=segment_rows,
    )  # fmt: skip
    ends = ends_of(backend, counts, segments)
    chosen = int(ends[-1]) if rows else 0
    if chosen == rows:
        return row_numbers(backend, rows) if named else None, words
    dtype: Any = np.uint64 if words is None else words.dtype
    rows_to = backend.empty(chosen, np.int64)
    words_to = None if words is None else backend.empty(chosen, dtype)
    if chosen:
        backend.run(
            kernel_named("found_select", dtype), segments,
            found=found, words=words, ends=ends, rows_to=rows_to, words_to=words_to,
            rows=rows, segment_rows=segment_rows,
        )  # fmt: skip
    return rows_to, words_to


def rows_where(backend: Backend, mask: Any) -> Any:
    """Return the rows (int64) of a mask's True elements, in order.

    CuPy's flatnonzero takes three to ten times as long.
    """
    return np.flatnonzero(mask) if backend.name == "cpu" else select_found(backend, mask)[0]


def gather_rows(words: Any, rows: Any) -> Any:
    """Return ``words[rows]`` for non-negative rows.

    CuPy's own indexing divides every row number by the number of words.

    Examples
    --------
    >>> gather_rows(np.array([0.5, 1.5, 2.5]), np.array([2, 0, 2]))
    array([2.5, 0.5, 2.5])
    """
    if not (_plain(words) and _plain(rows) and rows.dtype.kind in "iu"):
        return words[rows]
    backend = backends.get(None, words)
    to = backend.empty(len(rows), words.dtype)
    kernel = kernel_named("take_words", f"u{words.itemsize}", f"u{rows.itemsize}")
    backend.run(
        kernel, math.ceil(len(rows) / TAKE_SHARES),
        words=words, rows=rows, to=to, count=len(rows),
    )  # fmt: skip
    return to


def spread(backend: Backend, items: Any, offsets: Any, total: int) -> Any:
    """Return the list index of each of `total` values; lists may be empty.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> spread(backend.get("cpu"), np.array([7, 8, 9]), np.array([0, 2, 2, 3]), 3)
    array([7, 7, 9])
    """
    if backend.name == "cpu":
        return np.repeat(items, offsets[1:] - offsets[:-1])
    # CuPy takes no numbers of repeats that lie on the device.
    xp = backend.xp
    return items[xp.searchsorted(offsets[1:], xp.arange(total), side="right")]


def _plain(array: Any) -> bool:
    """Return whether kernels can use the elements in place as words."""
    flags = array.flags
    lies = array.ndim == 1 and flags.c_contiguous and getattr(flags, "aligned", True)
    return bool(lies and array.itemsize in (4, 8) and not array.dtype.hasobject)
