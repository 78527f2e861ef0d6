"""Argument structs and kernels that group and reduce; see `core`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words

__all__ = [
    "FOLDS",
    "FRONT_WORDS",
    "GROUP_ADD",
    "GROUP_ADD_BY_BLOCK",
    "GROUP_BATCH",
    "GROUP_CLEAR",
    "GROUP_CODES",
    "GROUP_COUNT",
    "GROUP_FIND",
    "GROUP_GATHER",
    "GROUP_MARK",
    "GROUP_NUMBER",
    "GROUP_PLACE",
    "GROUP_RANK",
    "GROUP_STORAGE",
    "READINGS",
    "REDUCE",
    "REDUCE_BATCH",
    "REDUCE_COLUMN",
    "ROW_SET",
    "STRUCTS",
    "TERMS",
    "group_add",
    "group_add_by_block",
    "group_clear",
    "group_codes",
    "group_count",
    "group_find",
    "group_gather",
    "group_mark",
    "group_number",
    "group_place",
    "group_rank",
    "group_reduce",
]

GROUP_STORAGE = _words("records", "lines", "words", "line_records", "most_lines", "salt")
# Pointers to words, two for each 64 rows.
ROW_SET = _words("words")
GROUP_CLEAR = _words("ones", "n", table=GROUP_STORAGE)
GROUP_PLACE = _words(
    "keys", "slots", "created", "refused", "first_row", "rows", "segment_rows", "n",
    table=GROUP_STORAGE,
)  # fmt: skip
GROUP_FIND = _words("keys", "words", "counts", "rows", "segment_rows", "n", table=GROUP_STORAGE)
GROUP_MARK = _words("n", table=GROUP_STORAGE, first_rows=ROW_SET)
GROUP_COUNT = _words("counts", "n", first_rows=ROW_SET)
GROUP_RANK = _words("ends", "rows", "n", first_rows=ROW_SET)
GROUP_NUMBER = _words("n", table=GROUP_STORAGE, first_rows=ROW_SET)
GROUP_CODES = _words("slots", "n", table=GROUP_STORAGE)

# Words of a block's own totals in shared memory; see kernels/batch/block_aggregate.cuh.
FRONT_WORDS = 4096
# In the order of the enums in kernels/batch/reduce.cuh; a reading is a dtype, and "date" any date.
READINGS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "date")
TERMS = ("one", "integer", "real", "rank", "row", "truth")
FOLDS = ("sum", "real_sum", "least", "greatest", "compensated")
# An array of these is in device memory.
REDUCE_COLUMN = _words("values", "totals", "reading", "term", "fold")
REDUCE_BATCH = _words("codes", "order", "columns", "column_count", "alone", "wide")
REDUCE = _words("edges", "rows", "segment_rows", "groups", "copies", "n", batch=REDUCE_BATCH)
GROUP_BATCH = _words("columns", "column_count", "keys", "rows", "refused", table=GROUP_STORAGE)
GROUP_ADD = _words("first_row", "rows", "segment_rows", "n", batch=GROUP_BATCH)
GROUP_ADD_BY_BLOCK = _words("rows", "segment_rows", "slots", "copies", "n", batch=GROUP_BATCH)
GROUP_GATHER = _words("keys", "rows", "keys_to", "totals", "columns", "n", table=GROUP_STORAGE)

# By the C++ name.
STRUCTS = {
    "GroupStorage": GROUP_STORAGE,
    "RowSet": ROW_SET,
    "GroupClearArgs": GROUP_CLEAR,
    "GroupPlaceArgs": GROUP_PLACE,
    "GroupFindArgs": GROUP_FIND,
    "GroupMarkArgs": GROUP_MARK,
    "GroupCountArgs": GROUP_COUNT,
    "GroupRankArgs": GROUP_RANK,
    "GroupNumberArgs": GROUP_NUMBER,
    "GroupCodesArgs": GROUP_CODES,
    "GroupBatch": GROUP_BATCH,
    "GroupAddArgs": GROUP_ADD,
    "GroupAddByBlockArgs": GROUP_ADD_BY_BLOCK,
    "GroupGatherArgs": GROUP_GATHER,
    "ReduceColumn": REDUCE_COLUMN,
    "ReduceBatch": REDUCE_BATCH,
    "ReduceArgs": REDUCE,
}


def group_clear() -> Kernel:
    """Return the kernel that empties a table of groups, one row per word."""
    return Kernel("dg::group_clear", "launch/groups.cuh")


def group_place(key: DTypeLike, tile: int = 32) -> Kernel:
    """Return the kernel that stores keys with their first rows.

    One row per segment of the keys.
    """
    return Kernel(f"dg::group_place<{_word(key)},{tile}>", "launch/groups.cuh", tile)


def group_find(key: DTypeLike, tile: int = 32) -> Kernel:
    """Return the kernel that looks up first rows, or numbers, of keys.

    One row per segment of the keys.
    """
    return Kernel(f"dg::group_find<{_word(key)},{tile}>", "launch/groups.cuh", tile)


def group_mark() -> Kernel:
    """Return the kernel that collects the first rows, one row per record."""
    return Kernel("dg::group_mark", "launch/groups.cuh")


def group_count() -> Kernel:
    """Return the kernel that counts a set of rows, by word of 64 rows."""
    return Kernel("dg::group_count", "launch/groups.cuh")


def group_rank(tile: int = 32) -> Kernel:
    """Return the kernel that writes a set of rows in order.

    One row per word of 64 rows.
    """
    return Kernel(f"dg::group_rank<{tile}>", "launch/groups.cuh", tile)


def group_number() -> Kernel:
    """Return the kernel that replaces first rows by their rank, by record."""
    return Kernel("dg::group_number", "launch/groups.cuh")


def group_codes() -> Kernel:
    """Return the kernel that gives each row its key's number, by key."""
    return Kernel("dg::group_codes", "launch/groups.cuh")


def group_reduce(tile: int = 32) -> Kernel:
    """Return the kernel that reduces columns by group.

    Takes `REDUCE`, one row per segment of the batch.
    """
    return Kernel(f"dg::group_reduce<{tile}>", "launch/reduce.cuh", tile)


def group_add(key: DTypeLike, *, in_order: bool = False) -> Kernel:
    """Return the kernel that stores keys and adds up their columns.

    One row per segment of the keys.
    """
    name = f"dg::group_add<{_word(key)},32>"
    return Kernel(name, "launch/reduce.cuh", 32, in_order=in_order)


def group_add_by_block(key: DTypeLike) -> Kernel:
    """Return the kernel that does what `group_add` does, for few keys.

    One row per segment of the keys.
    """
    name = f"dg::group_add_by_block<{_word(key)},256>"
    return Kernel(name, "launch/reduce.cuh", 256, 256)


def group_gather(key: DTypeLike, tile: int = 32) -> Kernel:
    """Return the kernel that reads out keys and totals.

    Each lane of a tile reads a group.
    """
    return Kernel(f"dg::group_gather<{_word(key)},{tile}>", "launch/reduce.cuh")
