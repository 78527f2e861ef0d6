"""ListStorage: store of a multimap's keys and value lists, with atomic changes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, struct_named
from dgpuhash.backend.launches import Step
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.arguments.encoding import value_words, values_of
from dgpuhash.tables.bucket_list import table as bucket_list
from dgpuhash.tables.bucket_list.grouping import GroupedBatch, group_by_key
from dgpuhash.tables.bucket_list.part_lists import settle_parts
from dgpuhash.tables.bucket_list.pool import NO_VALUES, ValueLists, list_numbers
from dgpuhash.tables.bucket_list.streaming import DealtPairs, Keep, grouped_parts, select_keys
from dgpuhash.tables.bucket_list.table import OpenedBatch
from dgpuhash.tables.bucket_list.values import KeyedListStore
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.tables.open_addressing.slot_order import (
    SlotOrder,
    item_slices,
    order_in,
    ordered_items,
)
from dgpuhash.tables.store import Lent, no_appends

_GARBAGE_ROWS = 1024


class ListStorage(KeyedListStore):
    """Store of a multimap (see `ListStore`): slots of keys, and a pool of values.

    Parameters
    ----------
    backend : Backend
        Where keys and values live.
    spec : TableSpec
    key : dtype
        Of the key words.
    capacity : int
        Distinct keys that fit before the slots grow.
    """

    _keys: Storage
    # None: unknown since an interrupted change.
    _known_size: int | None

    def __init__(
        self, backend: Backend, spec: TableSpec, key: np.dtype[Any], capacity: int
    ) -> None:
        self.backend: Backend = backend
        self._spec = spec
        self._word = self._set_values(spec)
        self._cap = None if spec.cap is None else Cap(backend, spec.cap, self._dtype)
        self._known_size = 0
        self._payload, self._lists = self._no_payload(), self._new_lists()
        self._keys = Storage(
            backend, key, self._word, max_load=spec.max_load, seed=spec.seed, capacity=capacity
        )

    @property
    def pairs(self) -> int:
        """Number of stored pairs."""
        if self._known_size is None:
            entries = self._keys.items()[1]
            self._known_size = int(self._lists.count(self._lists.open(entries)).sum())
        return self._known_size

    @property
    def value(self) -> np.dtype[Any] | None:
        """Dtype of the value words in slots."""
        return self._keys.value

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        beside = 0 if self._payload is None else self._payload.nbytes
        return self._keys.nbytes + self._lists.nbytes + beside

    def insert(self, bits: Any, rows: Any, *then: Step) -> None:
        """Append one or more values to their keys' lists; run `then` in the same call."""
        self._tidy()
        store, size = self._keys, self.pairs + len(rows)
        if size == len(rows):
            payload, words = self._store_payload(self._no_payload(), rows)
            lists = self._new_lists()
            cut = None if self._cap is None else self._cap.cut
            store = bucket_list.build_lists(store.lent(), lists, bits, words, cut)
            size = lists.appended
            after = assigner(self, _keys=store, _lists=lists, _payload=payload, _known_size=size)
            store.backend.in_one_call([after, *then])
            return
        payload, words = self._store_payload(self._payload, rows)
        batch = group_by_key(store.backend, bits, words, store.slots.seed)
        if self._cap is not None:
            batch = self._cap.cut(batch)
        opened = self._open(batch)
        made = bucket_list.prepare_append(store, self._lists, opened)
        if made is None:
            self._compact(len(batch.keys))
            store, opened = self._keys, self._open(batch)
            made = bucket_list.prepare_append(store, self._lists, opened)
            assert made is not None
        size = self.pairs + len(opened.batch.values) - opened.replaced
        after = assigner(self, _lists=made.lists, _payload=payload, _known_size=size)
        self._known_size = None
        keys = opened.batch.keys
        store.commit(*made.steps, store.replacing(keys, made.entries), after, *then)

    def insert_all(
        self,
        batches: Iterable[tuple[Any, Any]],
        memory: int | None = None,
        keep: Keep | None = None,
    ) -> None:
        """Implement `ListStore.insert_all`; an empty store settles the values part by part."""
        if not self._inline or len(self):
            super().insert_all(batches, memory, keep)
            return
        backend, cap, seed = self.backend, self._cap, self._keys.slots.seed
        dealt = DealtPairs(backend, seed, memory)
        try:
            for bits, rows in batches:
                dealt.append(bits, value_words(rows, self._dtype))
            cut = None if cap is None else cap.cut
            parts = grouped_parts(backend, dealt, seed, cut)
            if keep is not None:
                parts = (select_keys(backend, part, keep) for part in parts)
            self._known_size = None
            n_parts, rows = 2**dealt.bits, dealt.rows
            self._keys, long = settle_parts(self._keys, self._lists, parts, n_parts, rows)
        finally:
            dealt.close()
        self._known_size = self._lists.appended
        for run in long:
            self.insert(backend.xp.repeat(run.keys, len(run.values)), self._decode(run.values))
        if long:
            self._compact()

    def build(self, bits: Any, offsets: Any, rows: Any, order: SlotOrder | None = None) -> None:
        """Store non-empty lists of values in this empty store.

        `order` is that in which the keys stood in other slots.
        """
        self._payload, words = self._store_payload(self._payload, rows)
        batch = GroupedBatch(bits, offsets, words.copy())
        self._keys = bucket_list.build_grouped(self._keys, self._lists, batch, order)
        self._known_size = len(rows)

    def find(self, bits: Any) -> tuple[Any, Any]:
        """Return the values of all keys, and their offsets (int64)."""
        found = bucket_list.find_handles(self._keys, self._lists, bits)
        words, offsets = self._lists.gather(*found)
        return self._decode(words), offsets

    def counts(self, bits: Any) -> Any:
        """Return each key's number of values (int64)."""
        return self._lists.count(bucket_list.find_handles(self._keys, self._lists, bits)[0])

    def erase(self, bits: Any) -> Any:
        """Erase keys; return a mask with one row of each key that was stored."""
        counts, size = self.counts(bits), self.pairs
        self._known_size = None
        erased = self._keys.erase(bits)
        self._known_size = size - int((counts * erased).sum())
        return erased

    def ordered_lists(self) -> tuple[Any, Any, Any, SlotOrder | None]:
        """Implement `ListStore.ordered_lists`."""
        bits, entries, order = ordered_items(self._keys.slots)
        words, offsets = self._gather(entries)
        return bits, offsets, self._decode(words), order

    def saved_lists(self) -> dict[str, np.ndarray | Pieces]:
        """Implement `ListStore.saved_lists`; some keys are on the host at a time."""
        host, slots, order = self.backend.to_host, self._keys.slots, order_in(self._keys.slots)

        def offset_pieces() -> Iterator[np.ndarray]:
            yield np.zeros(1, np.int64)
            end = 0
            for sizes in self._sizes():
                ends = end + np.cumsum(host(sizes), dtype=np.int64)
                end = int(ends[-1]) if len(ends) else end
                yield ends

        def value_pieces() -> Iterator[np.ndarray]:
            for _, entries in item_slices(slots):
                yield host(self._decode(self._gather(entries)[0]))

        return {
            "keys": Pieces(
                len(self) * slots.key.itemsize,
                lambda: (host(bits) for bits, _ in item_slices(slots)),
            ),
            "offsets": Pieces((len(self) + 1) * 8, offset_pieces),
            "values": Pieces(self.pairs * self._dtype.itemsize, value_pieces),
            **({} if order is None else order.buffers()),
        }

    def pair_slices(self) -> Iterator[tuple[Any, Any]]:
        """Implement `ListStore.pair_slices`."""
        for bits, entries in item_slices(self._keys.slots):
            words, offsets = self._gather(entries)
            yield bits[list_numbers(self.backend, offsets, len(words))], self._decode(words)

    def compact(self) -> None:
        """Store each key's values contiguously."""
        if not (self._lists.compact and self._lists.appended == self.pairs):
            self._compact()

    def lend(self, *, write: bool) -> Lent:
        """Return the lists for user kernels, with a count of their values.

        Raises
        ------
        UnsupportedError
            When kernels are to append values, too.
        """
        if write:
            raise no_appends("auto")
        keys = self._keys.lend(write=False)
        layout = struct_named("AutoListsStorage")
        storage = self.backend.pack(layout, keys=keys.storage, lists=self._lists.storage)
        table = keys.table.replace("Auto<", "AutoLists<")
        return keys._replace(
            files=("device/auto_lists.cuh",), table=table, layout=layout, storage=storage
        )

    def empty_in_place(self) -> ListStorage:
        """Return an empty store in this one's memory; `fill` makes it usable."""
        made = copy.copy(self)
        made._keys, made._lists = self._keys.empty_in_place(), self._lists.emptied()
        made._payload, made._known_size = self._no_payload(), 0
        return made

    def copy(self) -> ListStorage:
        """Return an independent store with the same content."""
        made = copy.copy(self)
        made._keys, made._lists = self._keys.copy(), self._lists.copy()
        made._payload = None if self._payload is None else self._payload.copy()
        return made

    def _open(self, batch: GroupedBatch) -> bucket_list.OpenedBatch:
        """Return a batch with its keys' lists, without values beyond the cap."""
        opened = bucket_list.open_batch(self._keys, self._lists, batch)
        return opened if self._cap is None else self._cap.beside(self._lists, opened)

    def _list_words(self) -> tuple[Any, Any, Any]:
        """Implement `ListStore._list_words`."""
        return bucket_list.all_lists(self._keys, self._lists)

    def _gather(self, entries: Any) -> tuple[Any, Any]:
        """Return the value words of slots' lists, and their offsets."""
        return self._lists.gather(self._lists.open(entries), entries)

    def _sizes(self) -> Iterator[Any]:
        """Implement `ListStore._sizes`."""
        for _, entries in item_slices(self._keys.slots):
            yield self._lists.count(self._lists.open(entries))

    def _new_lists(self) -> ValueLists:
        first, growth = self._spec.initial_bucket, self._spec.growth
        return ValueLists(self.backend, self._word, first=first, growth=growth)

    def _tidy(self) -> None:
        """Compact if erased values take more room than live ones."""
        if self._lists.appended - self.pairs > max(self.pairs, _GARBAGE_ROWS):
            self._compact()

    def _compact(self, room: int = 0) -> None:
        """Move all pairs to new runs; an error leaves the old lists in use.

        Reserves numbers for `room` further lists. With `room`, wide values keep their row numbers,
        because the batch to insert already has its own.
        """
        bits, offsets, words = self._list_words()
        store, payload = self._keys, self._payload
        if payload is not None and room == 0:
            payload = payload.kept(words.view(np.int64))
            words = store.backend.xp.arange(len(words), dtype=np.uint64)
        made = self._new_lists()
        entries = made.settle(words, offsets, len(bits), room)
        if store.value == entries.dtype:
            after = assigner(self, _lists=made, _payload=payload, _known_size=self.pairs)
            self._known_size = None
            store.commit(store.replacing(bits, entries), after)
        else:
            store = store.emptied(entries.dtype, store.capacity)
            store.add(bits, entries)
            assigner(self, _keys=store, _lists=made, _payload=payload)()


class Cap:
    """Limit of values per key, which keeps the smallest ones.

    Parameters
    ----------
    backend : Backend
    most : int
    dtype : dtype
        The integers that words of values stand for.
    """

    def __init__(self, backend: Backend, most: int, dtype: np.dtype[Any]) -> None:
        self._backend = backend
        self.most: int = most
        self._dtype = dtype

    def cut(self, batch: GroupedBatch) -> GroupedBatch:
        """Return a batch without the values beyond the limit within the batch."""
        if batch.starts is None:
            return batch
        lengths = batch.starts[1:] - batch.starts[:-1]
        over = self._backend.xp.flatnonzero(lengths > self.most)
        if not len(over):
            return batch
        return self._cut(batch, lengths, over)

    def _cut(self, batch: GroupedBatch, lengths: Any, over: Any) -> GroupedBatch:
        backend, xp = self._backend, self._backend.xp
        places, offsets = _places(backend, batch.starts[over], lengths[over])
        words = batch.values[places]
        ordered, ranks, _ = self._smallest_first(words, offsets)
        stays = ranks < self.most
        # Those that stay take the first places of their run.
        values, kept = batch.values.copy(), xp.ones(len(batch.values), bool)
        values[places] = words[ordered]
        kept[places] = stays
        return GroupedBatch(
            batch.keys, _sums(backend, xp.minimum(lengths, self.most)), values[kept], batch.by_hash
        )

    def beside(self, lists: ValueLists, opened: OpenedBatch) -> OpenedBatch:
        """Return a cut batch without the values beyond the limit given stored values."""
        xp, batch = self._backend.xp, opened.batch
        starts, handles, entries = batch.starts, opened.handles, opened.entries
        lengths, counts = starts[1:] - starts[:-1], lists.count(handles)
        is_over = (counts > 0) & (counts + lengths > self.most)
        over, rest = xp.flatnonzero(is_over), xp.flatnonzero(~is_over)
        if not len(over):
            return opened
        stored, _ = lists.gather(handles[over], entries)
        merged, n_stored = self._merge(batch, stored, counts[over], lengths[over], over)
        changed = xp.flatnonzero(n_stored < self.most)
        places, offsets = _places(self._backend, starts[rest], lengths[rest])
        rows = xp.concatenate([rest, over[changed]])
        ends = offsets[-1] + self.most * xp.arange(1, len(changed) + 1, dtype=np.int64)
        whole = merged.reshape(-1, self.most)[changed]
        found = handles[rows] != np.uint64(NO_VALUES)
        found[len(rest) :] = False
        # Handles of only values are numbers of rows.
        left_entries = entries[rows]
        made = lists.open(left_entries, found.astype(np.uint8))
        left = GroupedBatch(
            batch.keys[rows],
            xp.concatenate([offsets, ends]),
            xp.concatenate([batch.values[places], whole.ravel()]),
        )
        replaced = int(counts[over[changed]].sum())
        return OpenedBatch(left, made, left_entries, opened.new, replaced)

    def _merge(
        self, batch: GroupedBatch, stored: Any, counts: Any, lengths: Any, over: Any
    ) -> tuple[Any, Any]:
        """Return the smallest values of some keys, concatenated by key.

        And how many of each key's are stored ones.
        """
        backend, xp = self._backend, self._backend.xp
        places, _ = _places(backend, batch.starts[over], lengths)
        offsets = _sums(backend, counts + lengths)
        # Stored values come first: of equal ones they stay.
        words = backend.empty(int(offsets[-1]), stored.dtype)
        of_stored, _ = _places(backend, offsets[:-1], counts)
        of_new, _ = _places(backend, offsets[:-1] + counts, lengths)
        words[of_stored], words[of_new] = stored, batch.values[places]
        is_stored = xp.zeros(len(words), bool)
        is_stored[of_stored] = True
        ordered, ranks, owners = self._smallest_first(words, offsets)
        stays = ranks < self.most
        n_stored = xp.bincount(owners[stays & is_stored[ordered]], minlength=len(counts))
        return words[ordered][stays], n_stored

    def _smallest_first(self, words: Any, offsets: Any) -> tuple[Any, Any, Any]:
        """Return the order of all runs by value, with the rank and run of each position."""
        backend, xp = self._backend, self._backend.xp
        owners = list_numbers(backend, offsets, len(words))
        values = values_of(backend, words, self._dtype)
        wide = values.astype(np.int64 if self._dtype.kind == "i" else np.uint64)
        ranks = xp.arange(len(words), dtype=np.int64) - offsets[owners]
        is_ascending = (wide[1:] >= wide[:-1]) | (owners[1:] != owners[:-1])
        if bool(is_ascending.all()):
            return xp.arange(len(words)), ranks, owners
        order = backend.stable_order(wide)
        return order[backend.stable_order(owners[order])], ranks, owners


def _places(backend: Backend, starts: Any, lengths: Any) -> tuple[Any, Any]:
    """Return the positions of runs, concatenated, and each run's offset.

    No run is empty.
    """
    xp = backend.xp
    offsets = _sums(backend, lengths)
    n = int(offsets[-1])
    return (starts - offsets[:-1])[list_numbers(backend, offsets, n)] + xp.arange(n), offsets


def _sums(backend: Backend, sizes: Any) -> Any:
    """Return the offset of each of these sizes, and the total last (int64)."""
    sums = backend.zeros(len(sizes) + 1, np.int64)
    backend.xp.cumsum(sizes, dtype=np.int64, out=sums[1:])
    return sums
