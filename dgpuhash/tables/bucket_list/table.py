"""Key table of a multimap: keys with the entries of their value lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.tables.bucket_list.grouping import GroupedBatch, group_by_key
from dgpuhash.tables.bucket_list.pool import NO_VALUES, PreparedAppend, ValueLists
from dgpuhash.tables.open_addressing.cardinality import KeySample
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.tables.open_addressing.slot_order import SlotOrder, in_order

Cut = Callable[[GroupedBatch], GroupedBatch]

# Batches of at least this size are sampled first.
_SAMPLED_ROWS = 2**18


def find_handles(store: Storage, lists: ValueLists, bits: Any) -> tuple[Any, Any]:
    """Return the handles of keys, and their entries."""
    entries, found = store.find(bits)
    return lists.open(entries, found), entries


def all_lists(store: Storage, lists: ValueLists) -> tuple[Any, Any, Any]:
    """Return distinct key words, offsets, and value words."""
    bits, entries = store.items()
    words, offsets = lists.gather(lists.open(entries), entries)
    return bits, offsets, words


def build_lists(
    store: Storage, lists: ValueLists, bits: Any, words: Any, cut: Cut | None = None
) -> Storage:
    """Replace the content of the lists by pairs; return a table of entries.

    `bits` and `words` are the pairs' keys and values. `cut` takes those out of the grouped batch
    that have no place.

    The table is `store`, which has no keys, if the entries fit.
    """
    sample = None
    if len(bits) >= _SAMPLED_ROWS:
        sample = KeySample.of(store.backend, bits)
        if sample.unique:
            made = _settle_unique(store, lists, bits, words)
            if made is not None:
                return made
    batch = group_by_key(store.backend, bits, words, store.slots.seed, sample)
    return build_grouped(store, lists, batch if cut is None else cut(batch))


def build_grouped(
    store: Storage, lists: ValueLists, batch: GroupedBatch, order: SlotOrder | None = None
) -> Storage:
    """Fill the lists with a grouped batch, as `build_lists` does.

    `order` is that in which the keys stood in other slots.
    """
    if batch.by_hash:
        # Usually the right size: the GPU clears the slots while `lists.settle` waits for counts.
        store = store.emptied(batch.values.dtype, len(batch.keys))
        store.slots.fill()
    entries = lists.settle(batch.values, batch.starts, len(batch.keys))
    if order is not None:
        placed = store.emptied(entries.dtype, 1)
        if placed.take(in_order(placed.slots, batch.keys, entries, order)):
            return placed
    store = store.emptied(entries.dtype, len(entries))
    if batch.by_hash:
        store.settle(batch.keys, entries)
    else:
        store.add(batch.keys, entries)
    return store


def _settle_unique(store: Storage, lists: ValueLists, bits: Any, words: Any) -> Storage | None:
    """Fill the lists with pairs of apparently distinct keys, as `build_lists` does.

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


class OpenedBatch(NamedTuple):
    """A grouped batch, with the table's entries for its keys.

    Attributes
    ----------
    batch : GroupedBatch
        With starts.
    handles, entries : array
        Of its keys.
    new : int
        Keys that the table does not have.
    replaced : int
        Stored values whose keys get whole lists of their own: their handles say that they have
        none.
    """

    batch: GroupedBatch
    handles: Any
    entries: Any
    new: int
    replaced: int = 0


def open_batch(store: Storage, lists: ValueLists, batch: GroupedBatch) -> OpenedBatch:
    """Return a batch with the handles of its keys."""
    if batch.starts is None:
        starts = store.backend.xp.arange(len(batch.keys) + 1, dtype=np.int64)
        batch = GroupedBatch(batch.keys, starts, batch.values, batch.by_hash)
    handles, entries = find_handles(store, lists, batch.keys)
    new = store.backend.xp.count_nonzero(handles == np.uint64(NO_VALUES))
    return OpenedBatch(batch, handles, entries, int(new))


def prepare_append(store: Storage, lists: ValueLists, opened: OpenedBatch) -> PreparedAppend | None:
    """Prepare the append of a grouped batch to the lists.

    New keys get entries, or runs at the end of the pool; the lists of stored keys grow.

    Reserves slots for the new keys. None if there are too few list numbers.
    """
    batch = opened.batch
    plan = lists.plan(opened.handles, opened.entries, batch.starts, batch.values)
    if not lists.can_number(plan):
        return None
    appended = lists.appending(plan, batch.values)
    store.make_room(opened.new)
    return appended
