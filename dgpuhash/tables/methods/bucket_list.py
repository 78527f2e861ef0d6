"""Method ``bucket_list``: WarpCore's bucket list hash table."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend.launches import Step
from dgpuhash.errors import CapacityError, OutOfMemoryError
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.bucket_list.pool import list_numbers
from dgpuhash.tables.commit import BrokenSlots, assigner
from dgpuhash.tables.methods.growing_lists import MOST_VALUES, GrowingLists
from dgpuhash.tables.stats import Figures
from dgpuhash.tables.stores.list_store import ListMethodStore, PairBatch
from dgpuhash.tables.stores.method import Method, Setting

_BOOL = np.dtype(bool)
# Batches of at least this size are ordered by so many bits of the hash: tiles that append at the
# same time then work at different lists, and near each other in memory.
_ORDERED_ROWS, _ORDER_BITS = 2**14, 16
# Rows of an ordered batch from which the number of its keys is estimated, in so many stretches.
_SAMPLED_ROWS, _STRETCHES = 2**17, 8
_FEW_KEYS = 2**12
# The estimate of the keys exceeds this many standard deviations, that of slots by this factor.
_DEVIATIONS, _SPARE = 4, 1.05
# Slots that appending a value to a list takes, links and free places included, by experience.
_SLOTS_EACH = 1.15
# Erased values that may stay in the pool.
_GARBAGE_ROWS = 1024


class _Estimate(NamedTuple):
    """Estimated numbers of new keys and slots in a batch."""

    keys: int
    """Distinct keys, mostly a few too many."""
    slots: int
    """Slots of the pool that lists of its values take."""


class BucketListStore(ListMethodStore):
    """Store that appends to lists in place; an error rolls the append back.

    The first batch says how many keys and values a table is made for. Later the pool grows between
    launches, and the key slots move to a larger table.

    Parameters are those of `ListMethodStore`.
    """

    _table: Any

    @property
    def table(self) -> GrowingLists:
        """The current table."""
        table: GrowingLists = self._table
        return table

    def insert(self, bits: Any, rows: Any, *then: Step) -> None:
        """Implement `ListStore.insert`."""
        self._drop_marks()
        self._tidy()
        self.attempts: int = 0
        payload, words = self._store_payload(self._payload, rows)
        keys, values = self._in_order(words_of(bits), words_of(words))
        batch = PairBatch(keys, values, None, self._beside, payload)
        if self.table.blank:
            self._append_to(self._with_size(keys), batch, *then)
        else:
            self._append_watched(batch, *then)

    def erase(self, bits: Any) -> Any:
        """Implement `AnyStore.erase`."""
        keys, table = words_of(bits), self.table
        erased = self.backend.empty(len(keys), _BOOL)
        self._known_keys = None
        self.backend.in_one_call([table.withdrawing(keys, erased)])
        return erased

    def compact(self) -> None:
        """Implement `ListStore.compact`; drops what erased keys left."""
        if self.table.blank:
            return
        self.attempts = 0
        payload = self._payload
        keys, offsets, words = self._list_words()
        if payload is not None:
            payload = payload.kept(words.view(np.int64))
            words = self.backend.xp.arange(len(words), dtype=np.uint64)
        table = self.table
        made = GrowingLists(table.plan, table.keys, table.generation)
        if len(keys):
            counts = self.backend.to_host(offsets[1:] - offsets[:-1])
            made.add_room(made.slots_of(counts))
        owners = keys[list_numbers(self.backend, offsets, len(words))]
        self._append_to(made, PairBatch(owners, words, None, self._beside, payload))

    def copy(self) -> BucketListStore:
        """Implement `AnyStore.copy`."""
        made = self._shallow()
        made._table = self.table.copied()
        made._payload = None if self._payload is None else self._payload.copy()
        return made

    def figures(self) -> Figures:
        """Implement `AnyStore.figures`."""
        return super().figures()._replace(occupied=len(self))

    def _in_order(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Return the rows of a large batch ordered by the keys' hashes, if memory allows."""
        if len(keys) < _ORDERED_ROWS:
            return keys, values
        try:
            return self.backend.sort_by_hash(keys, values, bits=_ORDER_BITS, seed=self.table.seed)
        except OutOfMemoryError:
            return keys, values

    def _with_size(self, keys: Any) -> GrowingLists:
        """Return an empty table sized for the first batch."""
        table, estimate = self.table, self._estimate(keys)
        if estimate.keys <= table.keys and estimate.slots <= len(table.pool):
            # Whatever becomes of the batch, the current table is written before it is used again.
            table.forget()
            return table.emptied()
        made = GrowingLists(table.plan, max(estimate.keys, table.keys), table.generation)
        made.add_room(estimate.slots)
        return made

    def _estimate(self, keys: Any) -> _Estimate:
        """Return the expected numbers of new keys and of value slots for a batch."""
        backend, rows, table = self.backend, len(keys), self.table
        if rows < _ORDERED_ROWS:
            counts = backend.to_host(backend.xp.unique(keys, return_counts=True)[1])
            return _Estimate(len(counts), table.slots_of(counts))
        xp, ranges, step = backend.xp, 2**_ORDER_BITS - 1, rows // _STRETCHES
        each = min(_SAMPLED_ROWS // _STRETCHES, step)
        sample = keys[: _STRETCHES * step].reshape(_STRETCHES, step)[:, :each].ravel()
        owners = backend.owner_of(backend.hash_keys(sample, table.seed), ranges)
        owners = owners.reshape(_STRETCHES, each).astype(np.int64)
        low, high = owners[:, :1], owners[:, -1:]
        # Whole ranges of hashes, so that it does not matter how often keys come.
        within = ((owners > low) & (owners < high)).ravel()
        share = int(xp.maximum(high - low - 1, 0).sum())
        counts = backend.to_host(xp.unique(sample[within], return_counts=True)[1])
        found = len(counts)
        most = found + _DEVIATIONS * (math.sqrt(found) + 1)
        # Without a whole range, a few keys have nearly all rows.
        number = min(rows, math.ceil(most * ranges / share) if share else _FEW_KEYS)
        counts = counts if found else np.ones(1, np.int64)
        slots = rows * max(table.slots_of(counts) / int(counts.sum()), _SLOTS_EACH)
        return _Estimate(number, math.ceil(slots * _SPARE))

    def _append_watched(self, batch: PairBatch, *then: Step) -> None:
        """Append a batch in place, with the table hidden; an error undoes it."""
        table, backend = self.table, self.backend
        handles, counts = table.opened(batch.keys)
        state = table.state.copy()
        counted = table.count()
        free = table.keys - counted.links - counted.erased
        new = int((counts == 0).sum())
        if new > free:
            new = min(new, self._estimate(batch.keys).keys)
        if new > free:
            made = self._rebuilt(2 * max(counted.links, new), table)
            self._append_to(made, batch, *then)
            return
        table.add_room(table.used + math.ceil(batch.number * _SLOTS_EACH))
        pending = backend.empty(len(batch.keys), np.uint64)
        table.watch()
        step = table.appending(batch.keys, batch.values, pending=pending)
        done = [*self._publishing(table, batch), *then]
        self._known_keys = None
        try:
            backend.in_one_call([assigner(self, _table=BrokenSlots(table)), step])
            if table.count().pending:
                final = self._complete(table, batch, table.refused(pending), tried=True)
                done = [*self._publishing(final, batch), *then]
            backend.in_one_call(done)
        except BaseException:
            if self.broken:
                undo = table.restoring(batch.keys, handles, state)
                backend.in_one_call([*undo, assigner(self, _table=table)])
                table.change()
            raise

    def _publishing(self, table: Any, batch: PairBatch) -> list[Step]:
        """Return the steps that install a complete table in the store."""
        appended = assigner(table, appended=table.appended + batch.number)
        return [appended, *super()._publishing(table, batch)]

    def _complete(self, table: Any, batch: PairBatch, rows: Any, *, tried: bool) -> Any:
        """Append some rows; return the given table or a larger one with all of them."""
        pending = self.backend.empty(len(batch.keys), np.uint64)
        while True:
            if tried:
                if len(rows) == 0:
                    return table
                rows = rows.copy()
                self._count_attempt(table, len(rows))
                counted = table.count()
                if table.dry:
                    wanted = len(table.pool) + math.ceil(len(rows) * 2 * _SLOTS_EACH)
                    table.add_room(max(wanted, len(table.pool) * 3 // 2))
                elif counted.links + counted.erased > table.keys // 2:
                    table = self._rebuilt(2 * table.keys, table)
                else:
                    _check_lengths(table, batch.keys[rows.view(np.int64)])
            table.watch()
            table.appending(batch.keys, batch.values, rows=rows, pending=pending)()
            rows, tried = table.refused(pending), True

    def _rebuilt(self, *keys: Any, **how: Any) -> Any:
        """Return another table with the same lists, in the same pool."""
        attempts = self.attempts
        made = super()._rebuilt(*keys, **how)
        self.attempts += attempts
        return made

    def _gather(self, keys: Any) -> tuple[Any, Any]:
        """Return the value words of all keys, and their offsets."""
        return self.table.read(*self.table.opened(keys))

    def _tidy(self) -> None:
        """Compact if erased values take more room than live ones."""
        table = self.table
        if table.appended - self.pairs > max(self.pairs, _GARBAGE_ROWS):
            self.compact()


def _check_lengths(table: GrowingLists, refused: Any) -> None:
    """Raise CapacityError if lists of refused rows would get too many values."""
    longest = int(table.counts(refused).max())
    if longest + len(refused) > MOST_VALUES:
        raise CapacityError(
            f"a key with {longest:,} values gets up to {len(refused):,} more and a list can have "
            f"{MOST_VALUES:,}; use method 'auto', or several tables"
        )


METHODS = (
    Method(
        name="bucket_list",
        paper="WarpCore",
        section="§IV-C",
        nouns={"multimap": GrowingLists},
        settings={
            "initial_bucket": Setting(1, 1, 1024),
            "growth": Setting(1.1, 1.0, 16.0),
            "load": Setting(0.8, 0.05, 0.95, size=True),
            "width": Setting(1, choices=(1, 2, 4, 8, 16, 32)),
        },
        ordered=False,
        when="comparison with WarpCore; many small inserts of keys with many values",
    ),
)
