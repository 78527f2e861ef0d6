"""The structs that kernels take, as NumPy dtypes, and the names of kernel instances.

Each dtype mirrors the C++ struct of the same name in ``kernels/``; pointers are ``uint64``. A test
compares every offset with the compiled extension.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel

__all__ = [
    "DEFAULT_TILE",
    "FOLDS",
    "GROUP_CODES",
    "GROUP_NUMBER",
    "GROUP_PLACE",
    "GROWTH",
    "HASH_COMBINE",
    "HASH_KEYS",
    "HASH_STRINGS",
    "JOIN_PAIRS",
    "JOIN_SIDES",
    "LIMIT",
    "LIST_APPEND",
    "LIST_COUNT",
    "LIST_NEED",
    "LIST_RETRIEVE",
    "LIST_STORAGE",
    "MULTISPLIT",
    "OPEN_COUNT",
    "OPEN_ERASE",
    "OPEN_FIND",
    "OPEN_INSERT",
    "OPEN_ITEMS",
    "OPEN_LINES",
    "OPEN_STATE",
    "OPEN_STORAGE",
    "OWNER_OF",
    "POOL",
    "POOL_STATE",
    "READINGS",
    "REDUCE",
    "REDUCE_BATCH",
    "REDUCE_COLUMN",
    "STRUCTS",
    "TERMS",
    "TILE_WIDTHS",
    "UNLIMITED",
    "WINDOW_BUCKETS",
    "WINDOW_BYTES",
    "group_codes",
    "group_number",
    "group_place",
    "group_reduce",
    "hash_combine",
    "hash_keys",
    "hash_strings",
    "join_pairs",
    "list_append",
    "list_count",
    "list_need",
    "list_retrieve",
    "multisplit_count",
    "multisplit_scatter",
    "open_count",
    "open_erase",
    "open_find",
    "open_insert",
    "open_items",
    "open_lines",
    "owner_of",
]

TILE_WIDTHS = (1, 2, 4, 8, 16, 32)
DEFAULT_TILE = 4
# A table has a prime number of windows of eight buckets of 64 bytes.
WINDOW_BUCKETS = 1
WINDOW_BYTES = 64 * WINDOW_BUCKETS
UNLIMITED = 2**64 - 1


def _words(*fields: str, **nested: np.dtype) -> np.dtype:
    """A struct of `nested` structs and then 64-bit words, as all argument structs are."""
    return np.dtype([*nested.items(), *((field, "<u8") for field in fields)], align=True)


# In device memory.
OPEN_STATE = np.dtype(
    [
        ("occupied", "<u8"),
        ("erased", "<u8"),
        ("pending", "<u8"),
        ("side_present", "<u8", 2),
        ("side_value", "<u8", 2),
    ],
    align=True,
)
POOL_STATE = _words("used", "refused")

# Passed by value.
OPEN_STORAGE = _words("keys", "values", "state", "windows", "seed")
OPEN_INSERT = _words(
    "keys", "values", "fresh", "pending_rows", "n", "limit", "overwrite", table=OPEN_STORAGE
)
OPEN_FIND = _words("keys", "values", "found", "n", "default_value", table=OPEN_STORAGE)
OPEN_ERASE = _words("keys", "erased", "n", table=OPEN_STORAGE)
OPEN_COUNT = _words("counts", "n", table=OPEN_STORAGE)
OPEN_ITEMS = _words("offsets", "keys", "values", "n", table=OPEN_STORAGE)
OPEN_LINES = _words("lines", "n", table=OPEN_STORAGE)

POOL = _words("slots", "state", "capacity")
GROWTH = _words("slots_end", "levels", "grain_shift")
LIST_STORAGE = np.dtype([("keys", OPEN_STORAGE), ("pool", POOL), ("growth", GROWTH)], align=True)
LIST_NEED = _words("run_keys", "run_offsets", "slots", "absent", "n", table=LIST_STORAGE)
LIST_APPEND = _words(
    "run_keys", "run_offsets", "values", "places", "pending_runs", "n", "limit", table=LIST_STORAGE
)
LIST_COUNT = _words("keys", "counts", "n", table=LIST_STORAGE)
LIST_RETRIEVE = _words("keys", "offsets", "values", "n", table=LIST_STORAGE)

GROUP_PLACE = _words(
    "keys", "slots", "refused", "n", "first_row", "limit", "repeats", table=OPEN_STORAGE
)
GROUP_NUMBER = _words("slots", "first_rows", "n", table=OPEN_STORAGE)
GROUP_CODES = _words("slots", "n", table=OPEN_STORAGE)

# In the order of the enums in kernels/batch/reduce.cuh; a reading is a dtype, and "date" any date.
READINGS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "date")
TERMS = ("one", "integer", "real", "rank", "row", "truth")
FOLDS = ("sum", "real_sum", "least", "greatest")
# In device memory.
REDUCE_COLUMN = _words("values", "totals", "reading", "term", "fold")
REDUCE_BATCH = _words("codes", "order", "columns", "column_count", "alone", "wide")
REDUCE = _words("edges", "rows", "segment_rows", "groups", "copies", "n", batch=REDUCE_BATCH)

JOIN_SIDES = _words("offsets", "keys", "starts", "right_rows", "left_rows")
JOIN_PAIRS = _words("left", "right", "pairs", "segment_pairs", "n", sides=JOIN_SIDES)

MULTISPLIT = _words("destinations", "counters", "order", "rows", "parts", "segment_rows", "n")
HASH_KEYS = _words("keys", "hashes", "n", "seed")
HASH_STRINGS = _words("offsets", "bytes", "hashes", "n", "seed")
HASH_COMBINE = _words("hashes", "next", "n")
OWNER_OF = _words("hashes", "owners", "n", "parts")
LIMIT = _words("keys", "values", "slots", "n", "slot_count")

# By the C++ name.
STRUCTS = {
    "OpenState": OPEN_STATE,
    "PoolState": POOL_STATE,
    "OpenStorage": OPEN_STORAGE,
    "OpenInsertArgs": OPEN_INSERT,
    "OpenFindArgs": OPEN_FIND,
    "OpenEraseArgs": OPEN_ERASE,
    "OpenCountArgs": OPEN_COUNT,
    "OpenItemsArgs": OPEN_ITEMS,
    "OpenLinesArgs": OPEN_LINES,
    "Pool": POOL,
    "Growth": GROWTH,
    "ListStorage": LIST_STORAGE,
    "ListNeedArgs": LIST_NEED,
    "ListAppendArgs": LIST_APPEND,
    "ListCountArgs": LIST_COUNT,
    "ListRetrieveArgs": LIST_RETRIEVE,
    "GroupPlaceArgs": GROUP_PLACE,
    "GroupNumberArgs": GROUP_NUMBER,
    "GroupCodesArgs": GROUP_CODES,
    "ReduceColumn": REDUCE_COLUMN,
    "ReduceBatch": REDUCE_BATCH,
    "ReduceArgs": REDUCE,
    "JoinSides": JOIN_SIDES,
    "JoinPairsArgs": JOIN_PAIRS,
    "LimitArgs": LIMIT,
    "MultisplitArgs": MULTISPLIT,
    "HashKeysArgs": HASH_KEYS,
    "HashStringsArgs": HASH_STRINGS,
    "HashCombineArgs": HASH_COMBINE,
    "OwnerOfArgs": OWNER_OF,
}

_NAMES = {np.dtype(np.uint32): "dg::u32", np.dtype(np.uint64): "dg::u64"}


def _word(dtype: DTypeLike | None) -> str:
    return "void" if dtype is None else _NAMES[np.dtype(dtype)]


def _few(tile: int) -> int:
    """The widest tile up to `tile` that kernels with few instances have; all widths agree."""
    return max(width for width in (1, 4, 32) if width <= tile)


def _open(name: str, key: DTypeLike, value: DTypeLike | None, tile: int) -> Kernel:
    return Kernel(f"dg::{name}<{_word(key)},{_word(value)},{tile}>", "launch/open.cuh", tile)


def _contents(name: str, key: DTypeLike, value: DTypeLike | None) -> Kernel:
    return Kernel(f"dg::{name}<{_word(key)},{_word(value)},4>", "launch/contents.cuh", 4)


def _list(name: str, tile: int, *words: DTypeLike) -> Kernel:
    names, width = ",".join(map(_word, words)), _few(tile)
    return Kernel(f"dg::{name}<{names},{width}>", "launch/bucket_list.cuh", width)


def open_insert(key: DTypeLike, value: DTypeLike | None, tile: int = DEFAULT_TILE) -> Kernel:
    """Stores keys (`value` None) or pairs; takes `OPEN_INSERT`, a row is a key."""
    return _open("open_insert", key, value, tile)


def open_find(key: DTypeLike, value: DTypeLike | None, tile: int = DEFAULT_TILE) -> Kernel:
    """Looks keys up; takes `OPEN_FIND`, a row is a key."""
    return _open("open_find", key, value, tile)


def open_erase(key: DTypeLike, value: DTypeLike | None, tile: int = DEFAULT_TILE) -> Kernel:
    """Removes keys; takes `OPEN_ERASE`, a row is a key."""
    return _open("open_erase", key, value, _few(tile))


def open_count(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Counts the keys in each bucket; takes `OPEN_COUNT`, a row is a bucket."""
    return _contents("open_count", key, value)


def open_items(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Writes keys and values in storage order; takes `OPEN_ITEMS`, a row is a bucket."""
    return _contents("open_items", key, value)


def open_lines(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Sums the buckets read to find each key; takes `OPEN_LINES`, a row is a bucket."""
    return _contents("open_lines", key, value)


def list_need(key: DTypeLike, tile: int = DEFAULT_TILE) -> Kernel:
    """Pool slots that appending runs takes; takes `LIST_NEED`, a row is a run."""
    return _list("list_need", tile, key)


def list_append(key: DTypeLike, value: DTypeLike, tile: int = DEFAULT_TILE) -> Kernel:
    """Appends runs of values to keys; takes `LIST_APPEND`, a row is a run."""
    return _list("list_append", tile, key, value)


def list_count(key: DTypeLike, tile: int = DEFAULT_TILE) -> Kernel:
    """Values of each key; takes `LIST_COUNT`, a row is a key."""
    return _list("list_count", tile, key)


def list_retrieve(key: DTypeLike, value: DTypeLike, tile: int = DEFAULT_TILE) -> Kernel:
    """Writes all values of each key in order; takes `LIST_RETRIEVE`, a row is a key."""
    return _list("list_retrieve", tile, key, value)


def group_place(key: DTypeLike) -> Kernel:
    """Stores keys with their first rows; takes `GROUP_PLACE`, a row is a key."""
    name = f"dg::group_place<{_word(key)},{DEFAULT_TILE}>"
    return Kernel(name, "launch/groups.cuh", DEFAULT_TILE)


def group_number(key: DTypeLike) -> Kernel:
    """Stores each key's number; takes `GROUP_NUMBER`, a row is a group."""
    return Kernel(f"dg::group_number<{_word(key)}>", "launch/groups.cuh")


def group_codes(key: DTypeLike) -> Kernel:
    """Gives each row its key's number; takes `GROUP_CODES`, a row is a key."""
    return Kernel(f"dg::group_codes<{_word(key)}>", "launch/groups.cuh")


def group_reduce(tile: int = 32) -> Kernel:
    """Reduces columns by group; takes `REDUCE`, a row is a segment of the batch."""
    return Kernel(f"dg::group_reduce<{tile}>", "launch/reduce.cuh", tile)


def join_pairs(tile: int = 32) -> Kernel:
    """Writes the row numbers of pairs; takes `JOIN_PAIRS`, a row is a segment of the pairs."""
    return Kernel(f"dg::join_pairs<{tile}>", "launch/join.cuh", tile)


def multisplit_count(tile: int = 32) -> Kernel:
    """Counts each segment's rows by destination; takes `MULTISPLIT`, a row is a segment."""
    return Kernel(f"dg::multisplit_count<{tile}>", "launch/multisplit.cuh", tile)


def multisplit_scatter(tile: int = 32) -> Kernel:
    """Writes row numbers by destination; takes `MULTISPLIT`, a row is a segment."""
    return Kernel(f"dg::multisplit_scatter<{tile}>", "launch/multisplit.cuh", tile)


def hash_keys(key: DTypeLike) -> Kernel:
    """Hashes words; takes `HASH_KEYS`, a row is an element."""
    return Kernel(f"dg::hash_keys<{_word(key)}>", "launch/hash.cuh")


def hash_strings() -> Kernel:
    """Hashes byte strings; takes `HASH_STRINGS`, a row is a string."""
    return Kernel("dg::hash_strings", "launch/hash.cuh")


def hash_combine() -> Kernel:
    """Hashes of several columns together; takes `HASH_COMBINE`, a row is an element."""
    return Kernel("dg::hash_combine", "launch/hash.cuh")


def owner_of() -> Kernel:
    """Which of `parts` owns each hash; takes `OWNER_OF`, a row is an element."""
    return Kernel("dg::owner_of", "launch/hash.cuh")
