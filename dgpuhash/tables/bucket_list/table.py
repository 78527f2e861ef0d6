"""Key table of a multimap: keys with the entries of their value lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.tables.bucket_list.grouping import GroupedBatch, group_by_key
from dgpuhash.tables.bucket_list.pool import NO_VALUES, PreparedAppend, ValueLists
from dgpuhash.tables.open_addressing.cardinality import Sample
from dgpuhash.tables.open_addressing.growth import Storage

__all__ = ["all_lists", "build_grouped", "build_lists", "find_handles", "prepare_append"]

# Batches of at least this size are sampled first.
_SAMPLED_ROWS = 2**18


def find_handles(store: Storage, lists: ValueLists, bits: Any) -> tuple[Any, Any]:
    """Return the handles of keys, and the entries they were opened from."""
    entries, found = store.find(bits)
    return lists.open(entries, found), entries


def all_lists(store: Storage, lists: ValueLists) -> tuple[Any, Any, Any]:
    """Return distinct key words, offsets, and value words."""
    bits, entries = store.items()
    words, offsets = lists.gather(lists.open(entries), entries)
    return bits, offsets, words


def build_lists(store: Storage, lists: ValueLists, bits: Any, words: Any) -> Storage:
    """Replace the content of the lists by pairs; return a table of entries.

    `bits` and `words` are the pairs' keys and values.

    The table is `store`, which has no keys, if the entries fit.
    """
    sample = None
    if len(bits) >= _SAMPLED_ROWS:
        sample = Sample.of(store.backend, bits)
        if sample.unique:
            made = _settle_unique(store, lists, bits, words)
            if made is not None:
                return made
    return build_grouped(
        store, lists, group_by_key(store.backend, bits, words, store.slots.seed, sample)
    )


def build_grouped(store: Storage, lists: ValueLists, batch: GroupedBatch) -> Storage:
    """Fill the lists as `build_lists` does, with a batch that is grouped by key."""
    if batch.by_hash:
        # Usually the right size: the GPU clears the slots while `lists.settle` waits for counts.
        store = store.emptied(batch.values.dtype, len(batch.keys))
        store.slots.fill()
    entries = lists.settle(batch.values, batch.starts, len(batch.keys))
    store = store.emptied(entries.dtype, len(entries))
    if batch.by_hash:
        store.settle(batch.keys, entries)
    else:
        store.add(batch.keys, entries)
    return store


def _settle_unique(store: Storage, lists: ValueLists, bits: Any, words: Any) -> Storage | None:
    """Fill the lists as `build_lists` does, with pairs whose keys seem distinct.

    None if a key occurs twice.

    This build only moves keys and values to their slots. If it fails, its work is lost.
    """
    rows = len(bits)
    entries = lists.settle(words, None, rows)
    made = store.emptied(entries.dtype, rows)
    made.add(bits, entries)
    if len(made) == rows:
        return made
    if made is store:
        store.slots.clear()
    return None


def prepare_append(store: Storage, lists: ValueLists, batch: GroupedBatch) -> PreparedAppend | None:
    """Prepare the append of a grouped batch to the lists.

    New keys get entries, or runs at the end of the pool; the lists of stored keys grow.

    Reserves slots for the new keys. None if there are too few list numbers.
    """
    starts = batch.starts
    if starts is None:
        starts = store.backend.xp.arange(len(batch.keys) + 1, dtype=np.int64)
    plan = lists.plan(*find_handles(store, lists, batch.keys), starts, batch.values)
    if not lists.can_number(plan):
        return None
    appended = lists.appending(plan, batch.values)
    store.make_room(int((plan.handles == np.uint64(NO_VALUES)).sum()))
    return appended
