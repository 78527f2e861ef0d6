"""Keys in a storage with the entries of their lists beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.tables.key_runs import KeyRuns
from dgpuhash.tables.lists import NONE, Lists
from dgpuhash.tables.storage import Storage

__all__ = ["append", "contents", "handles", "settle", "settle_unique"]

# Rows that tell whether it is worth a try to store a large batch as if its keys all differed.
_SAMPLE = 2**16


def handles(store: Storage, lists: Lists, bits: Any) -> tuple[Any, Any]:
    """Of the keys, and the entries that they were opened from."""
    entries, found = store.find(bits)
    return lists.open(entries, found), entries


def contents(store: Storage, lists: Lists) -> tuple[Any, Any, Any]:
    """Distinct key words, offsets, value words."""
    bits, entries = store.items()
    words, offsets = lists.gather(lists.open(entries), entries)
    return bits, offsets, words


def settle(store: Storage, lists: Lists, batch: KeyRuns) -> Storage:
    """Make the batch what the lists hold; gives a table with their entries.

    That is `store`, which has no keys, if it fits.
    """
    entries = lists.settle(batch.values, batch.starts, len(batch.keys))
    store = store.emptied(entries.dtype, len(entries))
    if batch.by_hash:
        store.settle(batch.keys, entries)
    else:
        store.insert(batch.keys, entries)
    return store


def settle_unique(store: Storage, lists: Lists, bits: Any, words: Any) -> Storage | None:
    """As `settle`, of pairs that are not grouped; None when keys come twice.

    Such a build moves nothing but keys and values to their slots. When a sample has no key twice
    and the rest has, the work is lost.
    """
    rows, sample = len(bits), bits[:_SAMPLE]
    if rows < 4 * _SAMPLE or len(store.backend.xp.unique(sample)) < len(sample):
        return None
    entries = lists.settle(words, None, rows)
    made = store.emptied(entries.dtype, rows)
    made.insert(bits, entries)
    if len(made) == rows:
        return made
    if made is store:
        store.clear()
    return None


def append(store: Storage, lists: Lists, batch: KeyRuns) -> bool:
    """Give new keys entries or runs at the end of the pool, and append to the others' lists.

    False when the lists lack numbers, and nothing was done.
    """
    starts = batch.starts
    if starts is None:
        starts = store.backend.xp.arange(len(batch.keys) + 1, dtype=np.int64)
    plan = lists.plan(*handles(store, lists, batch.keys), starts, batch.values)
    if not lists.can_number(plan):
        return False
    lists.reserve(plan)
    store.make_room(int((plan.handles == np.uint64(NONE)).sum()))
    store.replace(batch.keys, lists.append(plan, batch.values))
    return True
