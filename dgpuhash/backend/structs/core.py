"""Argument structs of table kernels as NumPy dtypes, and the kernels.

Each dtype mirrors the C++ struct of the same name in ``kernels/``; pointers are ``uint64``. A test
compares every offset with the compiled extension. A kernel takes the struct of its own name unless
its function names another: `open_find` takes `OPEN_FIND`. Where a first line says "one row per
key" or "by key", a row of the launch is a key.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words

__all__ = [
    "BUCKET_BYTES",
    "FLOAT_WORDS",
    "GROWTH",
    "HASH_COMBINE",
    "HASH_KEYS",
    "HASH_STRINGS",
    "LIMIT",
    "LIST_APPEND",
    "LIST_COUNT",
    "LIST_ENTRIES",
    "LIST_LOCATE",
    "LIST_MOVE",
    "LIST_OFFSETS",
    "LIST_OPEN",
    "LIST_PIECES",
    "LIST_PLAN",
    "LIST_RECORD",
    "LIST_SETTLE",
    "LIST_STORAGE",
    "LIST_SUM",
    "LIST_WEIGH",
    "OPEN_COMBINE",
    "OPEN_COUNT",
    "OPEN_ERASE",
    "OPEN_FIND",
    "OPEN_INSERT",
    "OPEN_ITEMS",
    "OPEN_LINES",
    "OPEN_REHASH",
    "OPEN_SETTLE",
    "OPEN_STATE",
    "OPEN_STORAGE",
    "OWNER_OF",
    "RUN_COUNT",
    "RUN_MEND",
    "RUN_MIXED",
    "RUN_ORDER",
    "RUN_WRITE",
    "STRUCTS",
    "UNLIMITED",
    "float_words",
    "hash_combine",
    "hash_keys",
    "hash_strings",
    "list_append",
    "list_count",
    "list_gather",
    "list_locate",
    "list_offsets",
    "list_open",
    "list_plan",
    "list_scatter",
    "list_settle",
    "list_sum",
    "list_weigh",
    "open_change",
    "open_combine",
    "open_count",
    "open_erase",
    "open_find",
    "open_insert",
    "open_items",
    "open_lines",
    "open_rehash",
    "open_settle",
    "open_settle_late",
    "overflow_bits",
    "owner_of",
    "run_count",
    "run_mend",
    "run_mixed",
    "run_write",
]

BUCKET_BYTES = 64
UNLIMITED = 2**64 - 1


# In device memory.
OPEN_STATE = np.dtype(
    [
        ("occupied", "<u8"),
        ("erased", "<u8"),
        ("pending", "<u8"),
        ("strayed", "<u8"),
        ("side_present", "<u8", 2),
        ("side_value", "<u8", 2),
    ],
    align=True,
)
LIST_RECORD = _words("start", "count", "listed", "tail")

# Passed by value.
OPEN_STORAGE = _words("keys", "values", "state", "overflow", "buckets", "segment_shift", "seed")
OPEN_INSERT = _words(
    "keys", "values", "fresh", "pending_rows", "n", "limit", "overwrite", table=OPEN_STORAGE
)
OPEN_COMBINE = _words(
    "keys", "values", "flags", "n", "term", "action", "kind", "flag", table=OPEN_STORAGE
)
OPEN_FIND = _words("keys", "values", "found", "n", "default_value", table=OPEN_STORAGE)
OPEN_ERASE = _words("keys", "erased", "n", table=OPEN_STORAGE)
OPEN_COUNT = _words("counts", "n", table=OPEN_STORAGE)
OPEN_ITEMS = _words("offsets", "keys", "values", "n", table=OPEN_STORAGE)
OPEN_LINES = _words("present", "absent", "n", table=OPEN_STORAGE)
OPEN_REHASH = _words("n", table=OPEN_STORAGE, target=OPEN_STORAGE)

OPEN_SETTLE = _words(
    "keys", "values", "later", "late", "rows", "segment_rows", "n", table=OPEN_STORAGE
)

GROWTH = _words("slots_end", "levels", "link_slots")
LIST_ENTRIES = _words(
    "base", "span", "nbytes", "value_nbytes", "starts", "start_nbytes", "settled", "handles"
)
LIST_STORAGE = _words("pool", "records", growth=GROWTH, entries=LIST_ENTRIES)
LIST_PIECES = _words("begins", "handles")
LIST_WEIGH = _words(
    "starts", "values", "lists", "values_of", "rows", "segment_rows", "n", table=LIST_STORAGE
)
LIST_SETTLE = _words(
    "starts", "values", "entries", "lists", "places", "begins", "stretches", "recorded",
    "rows", "segment_rows", "n",
    table=LIST_STORAGE,
)  # fmt: skip
LIST_OPEN = _words("entries", "found", "handles", "n", table=LIST_STORAGE)
LIST_COUNT = _words("handles", "counts", "n", table=LIST_STORAGE)
LIST_SUM = _words("handles", "values", "pieces", "rows", "segment_rows", "n", table=LIST_STORAGE)
LIST_OFFSETS = _words(
    "handles", "values", "pieces", "offsets", "places", "rows", "segment_rows", "n",
    table=LIST_STORAGE,
)  # fmt: skip
LIST_LOCATE = _words("handles", "offsets", "places", "n", table=LIST_STORAGE, to=LIST_PIECES)
LIST_PLAN = _words(
    "handles", "entries", "run_offsets", "values", "slots", "records", "pieces", "numbers", "n",
    table=LIST_STORAGE,
)  # fmt: skip
LIST_APPEND = _words(
    "handles", "entries", "run_offsets", "values", "slots", "records", "places", "numbers", "n",
    table=LIST_STORAGE, to=LIST_PIECES,
)  # fmt: skip
LIST_MOVE = _words(
    "offsets", "handles", "entries", "values", "pieces", "rows", "segment_rows", "n",
    table=LIST_STORAGE,
)  # fmt: skip

RUN_ORDER = _words("seed", "spread")
RUN_COUNT = _words(
    "keys", "counts", "mixed", "mixed_rows", "mixed_most", "rows", "segment_rows", "n",
    order=RUN_ORDER,
)  # fmt: skip
RUN_MIXED = _words(
    "keys", "mixed", "mixed_rows", "firsts", "lengths", "many", "most", "rows", "n",
    order=RUN_ORDER,
)  # fmt: skip
RUN_MEND = _words(
    "keys", "values", "counts", "mixed", "firsts", "lengths", "scratch_keys", "scratch_values",
    "most", "segment_rows", "n",
    order=RUN_ORDER,
)  # fmt: skip
RUN_WRITE = _words("keys", "places", "starts", "run_keys", "rows", "segment_rows", "n")

FLOAT_WORDS = _words("floats", "words", "n", "sign", "infinity", "nan")
HASH_KEYS = _words("keys", "hashes", "n", "seed")
HASH_STRINGS = _words("offsets", "bytes", "hashes", "n", "seed")
HASH_COMBINE = _words("hashes", "next", "n")
OWNER_OF = _words("hashes", "owners", "n", "parts")
LIMIT = _words("keys", "values", "slots", "n", "slot_count")

# By the C++ name.
STRUCTS = {
    "OpenState": OPEN_STATE,
    "OpenStorage": OPEN_STORAGE,
    "OpenInsertArgs": OPEN_INSERT,
    "OpenCombineArgs": OPEN_COMBINE,
    "OpenFindArgs": OPEN_FIND,
    "OpenEraseArgs": OPEN_ERASE,
    "OpenCountArgs": OPEN_COUNT,
    "OpenItemsArgs": OPEN_ITEMS,
    "OpenLinesArgs": OPEN_LINES,
    "OpenRehashArgs": OPEN_REHASH,
    "OpenSettleArgs": OPEN_SETTLE,
    "Growth": GROWTH,
    "ListRecord": LIST_RECORD,
    "ListEntries": LIST_ENTRIES,
    "ListStorage": LIST_STORAGE,
    "ListPieces": LIST_PIECES,
    "ListWeighArgs": LIST_WEIGH,
    "ListSettleArgs": LIST_SETTLE,
    "ListOpenArgs": LIST_OPEN,
    "ListCountArgs": LIST_COUNT,
    "ListSumArgs": LIST_SUM,
    "ListOffsetArgs": LIST_OFFSETS,
    "ListLocateArgs": LIST_LOCATE,
    "ListPlanArgs": LIST_PLAN,
    "ListAppendArgs": LIST_APPEND,
    "ListMoveArgs": LIST_MOVE,
    "RunOrder": RUN_ORDER,
    "RunCountArgs": RUN_COUNT,
    "RunMixedArgs": RUN_MIXED,
    "RunMendArgs": RUN_MEND,
    "RunWriteArgs": RUN_WRITE,
    "LimitArgs": LIMIT,
    "FloatWordsArgs": FLOAT_WORDS,
    "HashKeysArgs": HASH_KEYS,
    "HashStringsArgs": HASH_STRINGS,
    "HashCombineArgs": HASH_COMBINE,
    "OwnerOfArgs": OWNER_OF,
}


def _open(name: str, key: DTypeLike, value: DTypeLike | None) -> Kernel:
    return Kernel(f"dg::{name}<{_word(key)},{_word(value)},32>", "launch/open.cuh")


def _contents(name: str, key: DTypeLike, value: DTypeLike | None) -> Kernel:
    return Kernel(f"dg::{name}<{_word(key)},{_word(value)},4>", "launch/contents.cuh", 4)


def _list(name: str, *words: DTypeLike) -> Kernel:
    names = f"<{','.join(map(_word, words))}>" if words else ""
    return Kernel(f"dg::{name}{names}", "launch/bucket_list.cuh")


def _by_warp(name: str, word: DTypeLike, file: str) -> Kernel:
    return Kernel(f"dg::{name}<{_word(word)},32>", f"launch/{file}.cuh", 32)


def open_insert(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that inserts keys or pairs, one row per key."""
    return _open("open_insert", key, value)


def open_find(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that looks keys up, one row per key."""
    return _open("open_find", key, value)


def open_combine(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that stores pairs and combines values, one row per key."""
    return _open("open_combine", key, value)


def open_change(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that changes the values of stored keys by flagged rows.

    Takes `OPEN_COMBINE`, one row per key.
    """
    return _open("open_change", key, value)


def open_erase(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that removes keys, one row per key."""
    return _open("open_erase", key, value)


def open_count(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that counts keys by bucket, one row per bucket."""
    return _contents("open_count", key, value)


def open_items(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that writes out the keys and values of each bucket."""
    return _contents("open_items", key, value)


def open_lines(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that sums the buckets read by searches, by bucket."""
    return _contents("open_lines", key, value)


def open_rehash(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that inserts a table into another, one row per slot."""
    return Kernel(f"dg::open_rehash<{_word(key)},{_word(value)},32>", "launch/contents.cuh")


def open_settle(key: DTypeLike, value: DTypeLike) -> Kernel:
    """Return the kernel that bulk-builds from pairs sorted by hash.

    One row per segment of the batch.
    """
    return Kernel(f"dg::open_settle<{_word(key)},{_word(value)},32>", "launch/region.cuh", 32)


def open_settle_late(key: DTypeLike, value: DTypeLike) -> Kernel:
    """Return the kernel that stores the pairs that `open_settle` left.

    Takes `OPEN_SETTLE`, one row per segment.
    """
    return Kernel(f"dg::open_settle_late<{_word(key)},{_word(value)},4>", "launch/region.cuh", 4)


def list_weigh() -> Kernel:
    """Return the kernel that counts runs that need lists, by segment of runs."""
    return Kernel("dg::list_weigh<32>", "launch/bucket_list.cuh", 32)


def list_settle() -> Kernel:
    """Return the kernel that makes entries of runs, one row per segment."""
    return Kernel("dg::list_settle<32>", "launch/bucket_list.cuh", 32)


def list_open() -> Kernel:
    """Return the kernel that makes handles of entries, one row per entry."""
    return _list("list_open")


def list_count() -> Kernel:
    """Return the kernel that counts values, one row per handle."""
    return _list("list_count")


def list_sum() -> Kernel:
    """Return the kernel that counts values and pieces by segment of handles."""
    return Kernel("dg::list_sum<32>", "launch/bucket_list.cuh", 32)


def list_offsets() -> Kernel:
    """Return the kernel that writes offsets of values and pieces, by segment."""
    return Kernel("dg::list_offsets<32>", "launch/bucket_list.cuh", 32)


def list_locate(value: DTypeLike) -> Kernel:
    """Return the kernel that locates all values, one row per handle."""
    return _list("list_locate", value)


def list_plan() -> Kernel:
    """Return the kernel that sizes an append, one row per run."""
    return _list("list_plan")


def list_append(value: DTypeLike) -> Kernel:
    """Return the kernel that makes room for runs in lists, one row per run."""
    return _list("list_append", value)


def list_gather(value: DTypeLike) -> Kernel:
    """Return the kernel that copies pieces from the pool.

    Takes `LIST_MOVE`, one row per segment of values.
    """
    return _by_warp("list_gather", value, "bucket_list")


def list_scatter(value: DTypeLike) -> Kernel:
    """Return the kernel that copies pieces to the pool.

    Takes `LIST_MOVE`, one row per segment of values.
    """
    return _by_warp("list_scatter", value, "bucket_list")


def run_count(key: DTypeLike) -> Kernel:
    """Return the kernel that counts runs of equal keys, by segment."""
    return _by_warp("run_count", key, "group_runs")


def run_mixed(key: DTypeLike) -> Kernel:
    """Return the kernel that finds the rows around mixed ones, by mixed row."""
    return _by_warp("run_mixed", key, "group_runs")


def run_mend(key: DTypeLike, value: DTypeLike) -> Kernel:
    """Return the kernel that brings equal keys together, by group of rows."""
    return Kernel(f"dg::run_mend<{_word(key)},{_word(value)},32>", "launch/group_runs.cuh", 32)


def run_write(key: DTypeLike) -> Kernel:
    """Return the kernel that writes the starts of runs, by segment."""
    return _by_warp("run_write", key, "group_runs")


def float_words(word: DTypeLike) -> Kernel:
    """Return the kernel that makes keys of floats, one row per float."""
    return Kernel(f"dg::float_words<{_word(word)}>", "launch/hash.cuh")


def hash_keys(key: DTypeLike) -> Kernel:
    """Return the kernel that hashes words, one row per word."""
    return Kernel(f"dg::hash_keys<{_word(key)}>", "launch/hash.cuh")


def hash_strings() -> Kernel:
    """Return the kernel that hashes byte strings, one row per string."""
    return Kernel("dg::hash_strings", "launch/hash.cuh")


def hash_combine() -> Kernel:
    """Return the kernel that combines hashes of columns, one row per hash."""
    return Kernel("dg::hash_combine", "launch/hash.cuh")


def owner_of() -> Kernel:
    """Return the kernel that tells the owner of each hash, one row per hash."""
    return Kernel("dg::owner_of", "launch/hash.cuh")


def overflow_bits(slot_nbytes: int) -> int:
    """Return the bits of the overflow filter of a bucket.

    See kernels/table/overflow.cuh.
    """
    return 2 if BUCKET_BYTES // slot_nbytes < 8 else 8
