"""Keys in a storage with the entries of their lists beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.tables.bucket_list.grouping import KeyRuns, key_runs
from dgpuhash.tables.bucket_list.pool import NONE, Appending, Lists
from dgpuhash.tables.open_addressing.cardinality import Sample
from dgpuhash.tables.open_addressing.growth import Storage

__all__ = ["appending", "contents", "fill", "handles", "settle"]

# Of a batch, to look at some first.
_SAMPLED_ROWS = 2**18


def handles(store: Storage, lists: Lists, bits: Any) -> tuple[Any, Any]:
    """Of the keys, and the entries that they were opened from."""
    entries, found = store.find(bits)
    return lists.open(entries, found), entries


def contents(store: Storage, lists: Lists) -> tuple[Any, Any, Any]:
    """Distinct key words, offsets, value words."""
    bits, entries = store.items()
    words, offsets = lists.gather(lists.open(entries), entries)
    return bits, offsets, words


def fill(store: Storage, lists: Lists, bits: Any, words: Any) -> Storage:
    """Make pairs what the lists hold; gives a table with their entries.

    That is `store`, which has no keys, if it fits.
    """
    sample = None
    if len(bits) >= _SAMPLED_ROWS:
        sample = Sample.of(store.backend, bits)
        if sample.unique:
            made = _settle_unique(store, lists, bits, words)
            if made is not None:
                return made
    return settle(store, lists, key_runs(store.backend, bits, words, store.slots.seed, sample))


def settle(store: Storage, lists: Lists, batch: KeyRuns) -> Storage:
    """As `fill`, of a batch that is grouped."""
    if batch.by_hash:
        # Most likely what the entries need: a GPU is busy with it when the lists ask for answers.
        store = store.emptied(batch.values.dtype, len(batch.keys))
        store.slots.fill()
    entries = lists.settle(batch.values, batch.starts, len(batch.keys))
    store = store.emptied(entries.dtype, len(entries))
    if batch.by_hash:
        store.settle(batch.keys, entries)
    else:
        store.add(batch.keys, entries)
    return store


def _settle_unique(store: Storage, lists: Lists, bits: Any, words: Any) -> Storage | None:
    """As `fill`, of pairs whose keys seem to differ; None when keys come twice.

    Such a build moves nothing but keys and values to their slots. When it fails the work is lost.
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


def appending(store: Storage, lists: Lists, batch: KeyRuns) -> Appending | None:
    """How new keys get entries or runs at the end of the pool, and the others' lists grow.

    There is room for the keys then. None when the lists lack numbers.
    """
    starts = batch.starts
    if starts is None:
        starts = store.backend.xp.arange(len(batch.keys) + 1, dtype=np.int64)
    plan = lists.plan(*handles(store, lists, batch.keys), starts, batch.values)
    if not lists.can_number(plan):
        return None
    appended = lists.appending(plan, batch.values)
    store.make_room(int((plan.handles == np.uint64(NONE)).sum()))
    return appended
