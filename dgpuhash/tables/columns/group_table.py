"""The table of the distinct keys of a batch: their first rows, their numbers, their totals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.structs import groups as args
from dgpuhash.seeds import spread_seed

__all__ = ["GroupTable"]

_LINE_WORDS = 8
# What a GPU's first view of a table shows is what its L1 caches keep: a launch of its own for the
# first rows lets them keep the keys that come again and again.
_LEADING_ROWS = 2**16
# Few on a GPU, so that tiles go on nearly in row order and seldom have to lower a first row.
_SEGMENT_ROWS = {"cpu": 4096, "cuda": 128}
# Of a block's own totals: lanes of a tile that add to one group mostly have one each.
_MOST_COPIES = 8
# What a block adds up before it hands its totals over.
_BLOCK_ROWS = 2**15


class GroupTable:
    """Records of a key, its first row or its number, and totals.

    Parameters
    ----------
    backend : Backend
        Where the records are.
    key : dtype
        uint32 or uint64, the words that stand for keys.
    records : int
        The least number of records.
    seed : int
        Of the hash whose upper bits say where in the table a key stands.
    most_lines : int, optional
        A key that would have to pass more lines of 64 bytes finds no place; None: all find one.
    folds : sequence of str
        Of the totals; see `args.FOLDS`.
    """

    def __init__(
        self,
        backend: Backend,
        key: np.dtype[Any],
        records: int,
        *,
        seed: int,
        most_lines: int | None = None,
        folds: Sequence[str] = (),
    ) -> None:
        self._backend, self._key = backend, key
        words = 1 << (1 + len(folds)).bit_length()
        line = max(_LINE_WORDS // words, 1)
        lines = math.ceil(max(records, 1) / line)
        # One more for the key that is all ones.
        self._records = lines * line + 1
        self._memory = backend.empty(self._records * words, np.uint64)
        self._storage = backend.pack(
            args.GROUP_STORAGE, records=self._memory, lines=lines, words=words, line_records=line,
            most_lines=lines if most_lines is None else min(lines, most_lines),
            salt=spread_seed(seed),
        )  # fmt: skip
        ones = 3 + sum(4 << place for place, fold in enumerate(folds) if fold == "least")
        self._run(args.group_clear(), args.GROUP_CLEAR, self._records * words, ones=ones)

    def place(self, bits: Any, slots: Any, *, repeats: bool) -> int | None:
        """Place all keys; how many there are, or None when one found no place.

        `slots` (int64) gets where each row's key stands, for `codes`.
        `repeats`: whether most rows are expected to hold a key that came before.
        """
        counts = self._backend.zeros(2, np.uint64)
        segment_rows = _SEGMENT_ROWS[self._backend.name]
        for first, last in _launches(len(bits), repeats):
            self._run(
                args.group_place(self._key), args.GROUP_PLACE,
                math.ceil((last - first) / segment_rows), keys=bits, slots=slots,
                created=counts[:1], refused=counts[1:],
                first_row=first, rows=last, segment_rows=segment_rows,
            )  # fmt: skip
        created, refused = self._backend.to_host(counts)
        return None if refused else int(created)

    def add(
        self,
        bits: Any,
        columns: Any,
        count: int,
        *,
        repeats: bool,
        few: int | None = None,
        rows: Any = None,
    ) -> bool:
        """Place all keys and add up their columns; False when a key found no place.

        `columns` are `count` structs `REDUCE_COLUMN` on the device. `few`: how many keys there seem
        to be, where they are so few that blocks had better have totals of their own. `rows` (int64)
        are the rows' numbers, which rise for each key, where they do not just count up.
        """
        refused = self._backend.zeros(1, np.uint64)
        batch = self._backend.pack(
            args.GROUP_BATCH, table=self._storage, columns=columns, column_count=count,
            keys=bits, rows=rows, refused=refused,
        )  # fmt: skip
        if few is not None:
            slots, copies = _front(few, count)
            self._backend.run(
                args.group_add_by_block(self._key), args.GROUP_ADD_BY_BLOCK,
                math.ceil(len(bits) / _BLOCK_ROWS), batch=batch, rows=len(bits),
                segment_rows=_BLOCK_ROWS, slots=slots, copies=copies,
            )  # fmt: skip
            return int(refused[0]) == 0
        kernel = args.group_add(self._key, in_order=rows is not None)
        segment_rows = _SEGMENT_ROWS[self._backend.name]
        for first, last in _launches(len(bits), repeats):
            self._backend.run(
                kernel, args.GROUP_ADD, math.ceil((last - first) / segment_rows),
                batch=batch, first_row=first, rows=last, segment_rows=segment_rows,
            )  # fmt: skip
        return int(refused[0]) == 0

    def number(self, rows: int) -> Any:
        """Replace first rows, which are below `rows`, by their ranks; the first rows (int64)."""
        members, first_rows = self._ranked(rows)
        self._run(args.group_number(), args.GROUP_NUMBER, self._records, first_rows=(members,))
        return first_rows

    def first_rows(self, rows: int) -> Any:
        """The first rows, which are below `rows`, in order; int64."""
        return self._ranked(rows)[1]

    def codes(self, slots: Any) -> None:
        """Replace slots by the numbers of the keys that stand there."""
        self._run(args.group_codes(), args.GROUP_CODES, len(slots), slots=slots)

    def find(self, bits: Any, *, counted: bool = False) -> tuple[Any, Any, int]:
        """First rows or numbers (int64) of keys, -1 where absent.

        Then, where `counted`, how many keys of each segment are there (uint64), else None; and the
        rows of a segment.
        """
        rows, segment_rows = len(bits), _SEGMENT_ROWS[self._backend.name]
        segments = math.ceil(rows / segment_rows)
        words = self._backend.empty(rows, np.uint64)
        counts = self._backend.empty(segments, np.uint64) if counted else None
        self._run(
            args.group_find(self._key), args.GROUP_FIND, segments,
            keys=bits, words=words, counts=counts, rows=rows, segment_rows=segment_rows,
        )  # fmt: skip
        return words.view(np.int64), counts, segment_rows

    def totals(self, bits: Any, first_rows: Any, columns: int) -> tuple[Any, list[Any]]:
        """The keys of the groups with these first rows, and the totals of each column (uint64)."""
        keys = self._backend.empty(len(first_rows), bits.dtype)
        totals = self._backend.empty((columns, len(first_rows)), np.uint64)
        self._run(
            args.group_gather(self._key), args.GROUP_GATHER, len(first_rows),
            keys=bits, rows=first_rows, keys_to=keys, totals=totals, columns=columns,
        )  # fmt: skip
        return keys, list(totals)

    def _ranked(self, rows: int) -> tuple[Any, Any]:
        """The set of the first rows, ready to rank them, and its members in order."""
        backend, words = self._backend, math.ceil(rows / 64)
        members = backend.zeros((words, 2), np.uint64)
        marks = (members,)
        self._run(args.group_mark(), args.GROUP_MARK, self._records, first_rows=marks)
        counts = backend.empty(words, np.uint64)
        kernel, struct = args.group_count(), args.GROUP_COUNT
        backend.run(kernel, struct, words, first_rows=marks, counts=counts)
        ends = backend.xp.cumsum(counts, dtype=np.uint64)
        first_rows = backend.empty(int(ends[-1]) if words else 0, np.int64)
        kernel, struct = args.group_rank(), args.GROUP_RANK
        backend.run(kernel, struct, words, first_rows=marks, ends=ends, rows=first_rows)
        return members, first_rows

    def _run(self, kernel: Any, struct: np.dtype[Any], n: int, **fields: Any) -> None:
        self._backend.run(kernel, struct, n, table=self._storage, **fields)


def _launches(rows: int, repeats: bool) -> list[tuple[int, int]]:
    edges = sorted({0, min(rows, _LEADING_ROWS) if repeats else 0, rows})
    return list(itertools.pairwise(edges))


def _front(keys: int, columns: int) -> tuple[int, int]:
    """Slots of a block's own totals, and copies of each: twice as many slots as keys where they
    fit, and copies in what is left.

    Examples
    --------
    >>> _front(100, 2), _front(4000, 2), _front(100, 6)
    ((256, 4), (1024, 1), (256, 2))
    """
    slots = min(_below(args.FRONT_WORDS // (2 + columns)), 2 * _below(max(2 * keys - 1, 1)))
    return slots, min(_below((args.FRONT_WORDS // slots - 2) // columns), _MOST_COPIES)


def _below(number: int) -> int:
    """The greatest power of two up to `number`."""
    return 1 << number.bit_length() - 1
