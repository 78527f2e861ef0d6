"""Join two key columns to pairs of row numbers."""

from __future__ import annotations

import functools
import math
from typing import Any, get_args

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.batch.partition import sort_by_word
from dgpuhash.errors import SpecError
from dgpuhash.tables.arguments.lookup_keys import CommonKeys, to_common_dtype
from dgpuhash.tables.columns.aggregates import group_counts
from dgpuhash.tables.columns.direct import DirectTable
from dgpuhash.tables.columns.distinct import (
    DistinctEstimate,
    build_group_table,
    distinct_keys,
)
from dgpuhash.tables.columns.group_table import GroupTable
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.select import ends_of, row_numbers
from dgpuhash.typing import Array, KeysLike, RowsHow

# Up to this size one call sorts the rows by the fewest bytes that hold a group. On a CPU passes by
# digits take less time for more rows; a GPU waits longer for their launches.
_FEW_ROWS = {"cpu": 2**12, "cuda": 2**63}


class RowsByGroup:
    """Row numbers by group in CSR form, in row order within a group.

    Parameters
    ----------
    backend : Backend
        Where the codes are.
    codes : array of int64
        The group of each row; -1 for none.
    groups : int
        Number of groups.
    partial : bool
        Whether some rows may have no group.

    Attributes
    ----------
    rows : array of int64
        Row numbers, group by group; rows without one follow, or are left out.
    starts, ends : array of int64
        Offsets in `rows` at which each group begins and ends.
    """

    def __init__(self, backend: Backend, codes: Any, groups: int, *, partial: bool = False) -> None:
        if len(codes) <= _FEW_ROWS[backend.name] or groups > 2**32:
            # -1 becomes the greatest number, which no group has.
            self.rows: Any = backend.stable_order(codes.astype(np.min_scalar_type(groups)))
            self.starts: Any = backend.zeros(groups, np.int64)
            self.ends: Any = backend.zeros(groups, np.int64)
            backend.run(
                kernel_named("join_bounds"), len(codes),
                codes=codes, order=self.rows, starts=self.starts, ends=self.ends,
            )  # fmt: skip
            return
        rows = backend.xp.flatnonzero(codes >= 0) if partial else row_numbers(backend, len(codes))
        codes = codes[rows] if partial else codes
        bits, counts = max(1, (groups - 1).bit_length()), group_counts(backend, codes, groups)
        words = codes.astype(np.uint32), rows.view(np.uint64)
        self.rows = sort_by_word(backend, *words, bits=bits)[1].view(np.int64)
        self.ends = backend.xp.cumsum(counts)
        self.starts = self.ends - counts


_HOWS = get_args(RowsHow)
_SEGMENT_PAIRS = {"cpu": 4096, "cuda": 256}


@function_translates_memory_errors
def join_indices(left: KeysLike, right: KeysLike, how: RowsHow = "inner") -> tuple[Array, Array]:
    """Return the pairs of rows of two columns with equal keys.

    Parameters
    ----------
    left, right : array
        Arrays of any kind on one device, of dtypes that tables accept as keys; both sides may have
        duplicates. Different dtypes are compared by exact value. -0.0 equals 0.0, all NaNs are one
        key, and so are all NaTs, as in pandas' merges.
    how : {"inner", "left", "semi", "anti", "outer"}
        ``inner``: all pairs. ``left``: also the left rows without a partner. ``outer``: also the
        left and the right rows without a partner. ``semi``: each left row that has partners once,
        with its first partner. ``anti``: the left rows without a partner.

    Returns
    -------
    left_rows, right_rows : array of int64
        Row numbers, -1 where a row has no partner; NumPy or CuPy arrays. Pairs are in the order of
        the left rows, those of one left row in the order of the right rows. Right rows without a
        partner come last, in their order.

    Raises
    ------
    SpecError
        When `how` is unknown.
    KeyTypeError
        When values of the two dtypes are never equal, e.g. numbers and dates.
    OutOfMemoryError
        When the device has no room for a table of the right keys, or for the pairs.

    Notes
    -----
    The right keys are the build side: make the smaller column the right one where possible. On a
    CPU with few threads, dense integer keys there (range below four times the rows) have a direct
    table, with a slot of 4 bytes for each number of the range, in place of a hash table.

    Examples
    --------
    >>> import numpy as np
    >>> left, right = np.array([5, 7, 5, 9]), np.array([7, 5, 7])
    >>> join_indices(left, right)
    (array([0, 1, 1, 2]), array([1, 0, 2, 1]))
    >>> join_indices(left, right, "anti")
    (array([3]), array([-1]))
    """
    if how not in _HOWS:
        raise SpecError(f"how={how!r}; use {', '.join(_HOWS)}")
    met = to_common_dtype(left, right, ("left", "right"))
    pairs = pairs_of_words(met.backend, *met.words, how)
    whole = all(side.rows is None for side in met.asked)
    return pairs if whole else _renumbered_pairs(met, pairs, how)


def pairs_of_words(backend: Backend, asked: Any, stored: Any, how: str) -> tuple[Any, Any]:
    """Return the row pairs of two columns of key words, as `join_indices`."""
    xp, rows = backend.xp, RowsByKey(backend, stored)
    if rows.one_row_each or how in ("semi", "anti"):
        numbers, *counted = rows.first(asked)
        if how in ("inner", "semi", "anti"):
            return _select(backend, numbers, *counted, alone=how == "anti")
        pairs = row_numbers(backend, len(asked)), numbers
    else:
        numbers = rows.groups[0].find(asked)
        pairs = _pairs(backend, numbers, rows.runs, keep_left=how != "inner")
    if how != "outer":
        return pairs
    matched = backend.zeros(len(stored) + 1, bool)
    # Number -1 marks the last element.
    matched[numbers] = True
    alone = xp.flatnonzero(~(matched[:-1] if rows.one_row_each else matched[rows.groups[1]]))
    nobody = backend.full(len(alone), -1, np.int64)
    return xp.concatenate([pairs[0], nobody]), xp.concatenate([pairs[1], alone])


class RowsByKey:
    """Build side of a join: rows of a column by key.

    Parameters
    ----------
    backend : Backend
        Where the keys are.
    stored : array of uint32 or uint64
        Canonical key words.

    Attributes
    ----------
    one_row_each : bool
        Whether no key has two rows.
    """

    def __init__(self, backend: Backend, stored: Any) -> None:
        self._backend, self._stored = backend, stored
        self._placed = distinct_keys(backend, stored, numbered=False, grouped=True)
        self.one_row_each = len(self._placed) == len(stored)

    @functools.cached_property
    def groups(self) -> tuple[GroupTable | DirectTable, Any]:
        """Table of the keys' numbers, and each row's key number; replaces `first`."""
        return self._placed.grouped(self._stored)

    @functools.cached_property
    def runs(self) -> RowsByGroup:
        """The rows of each key; replaces `first`."""
        return RowsByGroup(self._backend, self.groups[1], len(self._placed))

    def first(self, asked: Any) -> tuple[Any, Any, int]:
        """Return the first row of each probe key, -1 for none; see `GroupTable.find_counted`."""
        return self._placed.find(asked)

    def pairs(self, asked: Any, valid: Any = None, *, named: bool = True) -> tuple[Any, Any]:
        """Return pairs of equal keys, sorted by the row in `asked`; `valid` masks these.

        Unless `named`, rows of `asked` may be None where each of them has one partner.
        """
        backend = self._backend
        if self.one_row_each:
            rows, found = _select(backend, *self.first(asked), named=named or valid is not None)
            if valid is None:
                return rows, found
            kept = valid[rows]
            return rows[kept], found[kept]
        return _pairs(backend, self._numbers(asked, valid), self.runs, keep_left=False)

    def pairs_by_row(self, asked: Any, valid: Any = None) -> tuple[Any, Any]:
        """Return pairs of equal keys, sorted by this column's row, which comes first."""
        numbers, groups = self._numbers(asked, valid), len(self._placed)
        runs = RowsByGroup(self._backend, numbers, groups, partial=True)
        return _pairs(self._backend, self.groups[1], runs, keep_left=False)

    def _numbers(self, asked: Any, valid: Any) -> Any:
        numbers = self.groups[0].find(asked)
        return numbers if valid is None else self._backend.xp.where(valid, numbers, -1)


def _renumbered_pairs(met: CommonKeys, pairs: tuple[Any, Any], how: str) -> tuple[Any, Any]:
    """Return row pairs renumbered for the whole columns.

    `pairs` number only the rows whose keys the common dtype can represent; other rows have no
    partner.
    """
    backend, xp, (left, right) = met.backend, met.backend.xp, met.asked
    rows, partners = (
        side.among_all(numbers) for side, numbers in zip((left, right), pairs, strict=True)
    )
    if how in ("inner", "semi"):
        return rows, partners
    alone_right = xp.flatnonzero(rows < 0)
    alone_right = xp.sort(xp.concatenate([partners[alone_right], right.others(backend)]))
    kept = xp.flatnonzero(rows >= 0)
    others = left.others(backend)
    rows = xp.concatenate([rows[kept], others])
    partners = xp.concatenate([partners[kept], backend.full(len(others), -1, np.int64)])
    order = backend.stable_order(rows)
    rows, partners = rows[order], partners[order]
    if how != "outer":
        return rows, partners
    nobody = backend.full(len(alone_right), -1, np.int64)
    return xp.concatenate([rows, nobody]), xp.concatenate([partners, alone_right])


def _select(
    backend: Backend, partners: Any, counts: Any, segment_rows: int, *,
    alone: bool = False, named: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """Return the matched left rows, and their right rows.

    With `alone`, returns the left rows without a partner and -1. `counts` are the partners found in
    each segment of the left rows. The left rows are None where all have one, unless `named`.
    """
    rows = len(partners)
    ends = ends_of(backend, counts, math.ceil(rows / segment_rows))
    found = int(ends[-1]) if rows else 0
    chosen = rows - found if alone else found
    if chosen == rows and not alone:
        return row_numbers(backend, rows) if named else None, partners
    right = backend.full(chosen, -1, np.int64) if alone else backend.empty(chosen, np.int64)
    return _write_rows(backend, partners, ends, chosen, segment_rows, right, alone=alone), right


def _write_rows(
    backend: Backend, partners: Any, ends: Any, chosen: int, segment_rows: int, right: Any = None,
    *, alone: bool,
) -> Any:  # fmt: skip
    """Return the `chosen` left rows with a partner, or the `alone` ones; fill their `right` rows.

    `ends` are the partners found up to the end of each segment.
    """
    left, rows = backend.empty(chosen, np.int64), len(partners)
    if chosen:
        backend.run(
            kernel_named("join_select"), math.ceil(rows / segment_rows),
            partner=partners, ends=ends, left=left, right=right, alone=int(alone),
            rows=rows, segment_rows=segment_rows,
        )  # fmt: skip
    return left


def filtered_rows(backend: Backend, asked: Any, stored: Any, *, alone: bool) -> Any:
    """Return the rows (int64) of words found among other words, or `alone` of the missing ones.

    There are words on both sides. One wait serves the table and the search.
    """
    partners, ends, found, segment_rows = build_group_table(
        backend, stored, DistinctEstimate.of(backend, stored),
        lambda table, repeats: table.place_and_find(stored, asked, repeats=repeats),
    )[1]  # fmt: skip
    chosen = len(asked) - found if alone else found
    return _write_rows(backend, partners, ends, chosen, segment_rows, alone=alone)


def _pairs(
    backend: Backend, numbers: Any, runs: RowsByGroup, *, keep_left: bool
) -> tuple[Any, Any]:
    """Return the pairs of left and right rows with the same key number.

    `numbers` are the key numbers of the left rows.
    """
    sizes = backend.empty(len(numbers) + 1, np.int64)
    backend.run(
        kernel_named("join_sizes"), len(sizes),
        keys=numbers, starts=runs.starts, ends=runs.ends, sizes=sizes, alone=int(keep_left),
    )  # fmt: skip
    offsets = backend.xp.cumsum(sizes)
    pairs = int(offsets[-1])
    left, right = backend.empty(pairs, np.int64), backend.empty(pairs, np.int64)
    segment_pairs = _SEGMENT_PAIRS[backend.name]
    backend.run(
        kernel_named("join_pairs"), math.ceil(pairs / segment_pairs),
        sides=(offsets, numbers, runs.starts, runs.rows, len(numbers)),
        left=left, right=right, pairs=pairs, segment_pairs=segment_pairs,
    )  # fmt: skip
    return left, right
