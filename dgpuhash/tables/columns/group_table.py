"""GroupTable: hash table of a batch's distinct keys, their numbers and aggregates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, Kernel, kernel_named, struct_named
from dgpuhash.backend.constants import FRONT_WORDS
from dgpuhash.seeds import spread_seed
from dgpuhash.tables.select import ends_of

_LINE_WORDS = 8
# A few words of free records without aggregates are written by one thread, or one call of CUDA.
_FEW_WORDS = 2**16
# A GPU's L1 caches keep the lines of a table as first read: a separate launch for the first rows
# lets them keep the keys that repeat often.
_LEADING_ROWS = 2**16
# Few on a GPU, so that tiles run nearly in row order and seldom have to lower a first row.
_SEGMENT_ROWS = {"cpu": 4096, "cuda": 128}
# Copies of block-local aggregates: lanes of a tile that add to one group mostly use different ones.
_MOST_COPIES = 8
# Rows that a block aggregates before it adds its local aggregates to the table: at most, and at
# least, where fewer would leave processors idle.
_BLOCK_ROWS, _FEWEST_BLOCK_ROWS, _BLOCKS_OF_PROCESSOR = 2**15, 2**10, 2


class GroupTable:
    """Hash table of records: a key, its first row or number, and aggregates.

    Parameters
    ----------
    backend : Backend
        Where the records are.
    key : dtype
        uint32 or uint64, the words that stand for keys.
    records : int
        The least number of records.
    seed : int
        Seed of the hash whose upper bits give the position of a key.
    most_lines : int, optional
        A key whose probe passes more lines of 64 bytes finds no place; None: no bound.
    folds : sequence of str
        Folds of the aggregates; see `FOLDS`.
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
        self._backend = backend
        self._key = key
        self.seed: int = seed
        words = 1 << (1 + len(folds)).bit_length()
        line = max(_LINE_WORDS // words, 1)
        lines = math.ceil(max(records, 1) / line)
        # One more record for the reserved key, which is all ones.
        self._records = lines * line + 1
        self._memory = backend.empty(self._records * words, np.uint64)
        self._storage = backend.pack(
            struct_named("GroupStorage"), records=self._memory, lines=lines, words=words,
            line_records=line,
            most_lines=lines if most_lines is None else min(lines, most_lines),
            salt=spread_seed(seed),
        )  # fmt: skip
        if not folds and len(self._memory) <= _FEW_WORDS:
            backend.fill_ones(self._memory)
            return
        ones = 3 + sum(4 << place for place, fold in enumerate(folds) if fold == "least")
        self._run(kernel_named("group_clear"), self._records * words, ones=ones)

    @property
    def records(self) -> int:
        """Number of records."""
        return self._records

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return int(self._memory.nbytes)

    def place(self, bits: Any, slots: Any, *, repeats: bool) -> int | None:
        """Insert all keys; return their number, or None if a key finds no slot.

        `slots` (int64, or None) receives the record of each row's key, for `codes`. `repeats`:
        whether most rows are expected to hold a key that came before.
        """
        counts = self._backend.zeros(2, np.uint64)
        self._place(bits, slots, counts[:1], counts[1:], repeats=repeats)
        created, refused = self._backend.to_host(counts)
        return None if refused else int(created)

    def _place(self, bits: Any, slots: Any, created: Any, refused: Any, *, repeats: bool) -> None:
        segment_rows = _SEGMENT_ROWS[self._backend.name]
        for first, last in _launches(len(bits), repeats):
            self._run(
                kernel_named("group_place", self._key),
                math.ceil((last - first) / segment_rows), keys=bits, slots=slots,
                created=created, refused=refused,
                first_row=first, rows=last, segment_rows=segment_rows,
            )  # fmt: skip

    def number_in_order(
        self, bits: Any, codes: Any, first_rows: Any, reached: Any, most: int
    ) -> None:
        """Assign numbers to keys in row order with one thread, from row ``reached[0]`` on.

        Stops when `most` keys have numbers, or one has no place. `codes` and `first_rows` (int64,
        or None) receive each row's number, and each number's first row. `reached` (two uint64 on
        the device) has the next row, and how many keys have numbers, before and after.
        """
        self._run(
            kernel_named("group_in_order", self._key), 1, keys=bits, codes=codes,
            first_rows=first_rows, reached=reached, rows=len(bits), most=most,
        )  # fmt: skip

    def add(
        self,
        bits: Any,
        columns: Any,
        count: int,
        *,
        repeats: bool,
        few: int | None = None,
        rows: Any = None,
    ) -> Any | None:
        """Insert all keys and aggregate the columns; return the first rows (int64), in order.

        None if a key finds no place. `columns` are `count` structs `REDUCE_COLUMN` on the device.
        `few` is the number of keys for which blocks have local aggregates, None for no such
        aggregates. `rows` (int64) are the row numbers, ascending for each key; None: rows are
        numbered from 0.
        """
        memory = self._row_counts(len(bits))
        batch = self._backend.pack(
            struct_named("GroupBatch"), table=self._storage, columns=columns, column_count=count,
            keys=bits, rows=rows, refused=self._refusal_mark(memory),
        )  # fmt: skip
        if few is not None:
            slots, copies = _block_table_size(few, count)
            blocks = _BLOCKS_OF_PROCESSOR * self._backend.partition_blocks
            segment_rows = min(_BLOCK_ROWS, max(_FEWEST_BLOCK_ROWS, math.ceil(len(bits) / blocks)))
            self._backend.run(
                kernel_named("group_add_by_block", self._key),
                math.ceil(len(bits) / segment_rows), batch=batch, rows=len(bits),
                segment_rows=segment_rows, slots=slots, copies=copies,
            )  # fmt: skip
            return self._rank(memory)[1]
        kernel = kernel_named("group_add", self._key, in_order=rows is not None)
        segment_rows = _SEGMENT_ROWS[self._backend.name]
        for first, last in _launches(len(bits), repeats):
            self._backend.run(
                kernel, math.ceil((last - first) / segment_rows),
                batch=batch, first_row=first, rows=last, segment_rows=segment_rows,
            )  # fmt: skip
        return self._rank(memory)[1]

    def number(self, rows: int) -> Any:
        """Replace first rows (below `rows`) by their ranks; return the first rows.

        The returned array is int64, in order.
        """
        members, first_rows = self._rank(self._row_counts(rows))
        self._run(kernel_named("group_number"), self._records, first_rows=(members,))
        return first_rows

    def enumerate(self) -> None:
        """Replace first rows by dense numbers in any order, in one launch."""
        some = 8 * _SEGMENT_ROWS[self._backend.name]
        self._run(
            kernel_named("group_enumerate"), math.ceil(self._records / some),
            numbered=self._backend.zeros(1, np.uint64), rows=self._records, segment_rows=some,
        )  # fmt: skip

    def first_rows(self, rows: int) -> Any:
        """Return the first rows (int64), which are below `rows`, in order."""
        return self._rank(self._row_counts(rows))[1]

    def codes(self, slots: Any) -> None:
        """Replace record positions in `slots` by the numbers of their keys."""
        self._run(kernel_named("group_codes"), len(slots), slots=slots)

    def find(self, bits: Any) -> Any:
        """Return first rows or numbers (int64) of keys, -1 where absent."""
        words = self._backend.empty(len(bits), np.uint64)
        self._find_to(bits, words)
        return words.view(np.int64)

    def find_counted(self, bits: Any) -> tuple[Any, Any, int]:
        """Return the result of `find`, the number found per segment, and a segment's rows.

        The counts are uint64, with room for one more; see `ends_of`.
        """
        segment_rows = _SEGMENT_ROWS[self._backend.name]
        counts = self._backend.empty(math.ceil(len(bits) / segment_rows) + 1, np.uint64)
        words = self._backend.empty(len(bits), np.uint64)
        self._find_to(bits, words, counts)
        return words.view(np.int64), counts, segment_rows

    def place_and_find(
        self, stored: Any, bits: Any, *, repeats: bool
    ) -> tuple[Any, Any, int, int] | None:
        """Insert all `stored` keys and find others, with one wait; None if a key finds no place.

        Returns the result of `find`, how many are found up to the end of each segment and in all,
        and a segment's rows.
        """
        backend, segment_rows = self._backend, _SEGMENT_ROWS[self._backend.name]
        # The words found, the segments' counts, a mark of refused keys, and room for one more:
        # each array of its own takes a GPU's allocator 10 µs.
        rows = len(bits)
        memory = backend.empty(rows + math.ceil(rows / segment_rows) + 2, np.uint64)
        words, counts = memory[:rows], memory[rows:]
        memory[-2:].fill(0)
        self._place(stored, None, memory[-1:], memory[-2:-1], repeats=repeats)
        self._find_to(bits, words, counts)
        ends = ends_of(backend, counts, len(counts) - 1)
        found, marked = map(int, backend.to_host(ends[-2:]))
        return None if found < marked else (words.view(np.int64), ends, found, segment_rows)

    def _find_to(self, bits: Any, words: Any, counts: Any = None) -> None:
        rows, segment_rows = len(bits), _SEGMENT_ROWS[self._backend.name]
        self._run(
            kernel_named("group_find", self._key), math.ceil(rows / segment_rows),
            keys=bits, words=words, counts=counts, rows=rows, segment_rows=segment_rows,
        )  # fmt: skip

    def totals(self, bits: Any, first_rows: Any, columns: int) -> tuple[Any, list[Any]]:
        """Return the keys and aggregates (uint64) of the groups at `first_rows`.

        There is one array of aggregates for each column.
        """
        memory = self._backend.empty((1 + columns, len(first_rows)), np.uint64)
        keys, totals = memory[0].view(bits.dtype)[: len(first_rows)], memory[1:]
        self._run(
            kernel_named("group_gather", self._key), len(first_rows),
            keys=bits, rows=first_rows, keys_to=keys, totals=totals, columns=columns,
        )  # fmt: skip
        return keys, list(totals)

    def _row_counts(self, rows: int) -> Any:
        """Return room for a count of each 64 rows, a mark, one number more, and a `RowSet`.

        The mark is 0; it becomes 1 when a key finds no place. The set is empty.
        """
        words = max(1, math.ceil(rows / 64))
        memory = self._backend.empty(3 * words + 2, np.uint64)
        memory[words:].fill(0)
        return memory

    def _refusal_mark(self, memory: Any) -> Any:
        """Return the mark in the memory of `_row_counts`."""
        words = len(memory) // 3
        return memory[words : words + 1]

    def _rank(self, memory: Any) -> tuple[Any, Any]:
        """Return the rank structure of the set of first rows, and its members in order.

        The members are None if a key found no place. `memory` comes from `_row_counts`.
        """
        backend, words = self._backend, len(memory) // 3
        counts, members = memory[: words + 2], memory[words + 2 :]
        marks = (members,)
        self._run(kernel_named("group_mark"), self._records, first_rows=marks)
        backend.run(kernel_named("group_count"), words, first_rows=marks, counts=counts)
        ends = ends_of(backend, counts, words + 1)
        found, marked = map(int, backend.to_host(ends[-2:]))
        if found < marked:
            return members, None
        first_rows = backend.empty(found, np.int64)
        backend.run(kernel_named("group_rank"), words, first_rows=marks, ends=ends, rows=first_rows)
        return members, first_rows

    def _run(self, kernel: Kernel, n: int, **fields: Any) -> None:
        self._backend.run(kernel, n, table=self._storage, **fields)


def _launches(rows: int, repeats: bool) -> list[tuple[int, int]]:
    edges = sorted({0, min(rows, _LEADING_ROWS) if repeats else 0, rows})
    return list(itertools.pairwise(edges))


def _block_table_size(keys: int, columns: int) -> tuple[int, int]:
    """Return the slots of a block-local table, and the copies of each slot.

    There are twice as many slots as keys where they fit, and copies in the remaining words.

    Examples
    --------
    >>> _block_table_size(100, 2), _block_table_size(4000, 2), _block_table_size(100, 6)
    ((256, 4), (1024, 1), (256, 2))
    """
    slots = min(_below(FRONT_WORDS // (2 + columns)), 2 * _below(max(2 * keys - 1, 1)))
    return slots, min(_below((FRONT_WORDS // slots - 2) // columns), _MOST_COPIES)


def _below(number: int) -> int:
    """Return the largest power of two that is at most `number`."""
    return 1 << number.bit_length() - 1
