"""Storage: growable open-addressing table with atomic, combining inserts."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.batch.bucket_order import RegionRanges
from dgpuhash.backend.kernel import name_of_word
from dgpuhash.backend.launches import Step
from dgpuhash.backend.layout import struct_named
from dgpuhash.tables.arguments.combine import Update
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.arguments.lca import LcaChange
from dgpuhash.tables.commit import BrokenSlots, MakeSteps, assigner
from dgpuhash.tables.open_addressing import cardinality
from dgpuhash.tables.open_addressing.batch_insert import BatchInserter
from dgpuhash.tables.open_addressing.bulk_stream import StreamedBuild
from dgpuhash.tables.open_addressing.slots import GrowableSlots, LoadFactor, Slots, rehash
from dgpuhash.tables.stats import Figures
from dgpuhash.tables.store import Lent


class Storage(BatchInserter):
    """Growable table of key words, and of value words for maps, on one device.

    Parameters
    ----------
    backend : Backend
        Where the slots live.
    key, value : dtype
        uint32 or uint64, keys also `WIDE_WORD`; `value` is None for sets.
    max_load : float
        Load factor above which the table grows.
    seed : int
        Seed of the hash function; further seeds derive from it when too many keys hash close
        together.
    capacity : int
        Keys that fit before the table grows for the first time.
    """

    def __init__(
        self,
        backend: Backend,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        *,
        max_load: float = 0.9,
        seed: int,
        capacity: int = 0,
    ) -> None:
        slots = Slots(backend, key, value, slots=LoadFactor(max_load).slots(capacity), seed=seed)
        slots.clear()
        super().__init__(backend, slots, max_load)
        self.witnesses: cardinality.DuplicateProbe = cardinality.DuplicateProbe()
        """Buffers that check large batches for new keys."""

    def __len__(self) -> int:
        return self._slots.state().occupied

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self._slots.nbytes

    @property
    def seed(self) -> int:
        """Seed of the hash function in use."""
        return self.slots.seed

    @property
    def broken(self) -> bool:
        """Whether a change has failed half-way."""
        return isinstance(self._slots, BrokenSlots)

    @property
    def reseeds(self) -> int:
        """Number of seed changes since the table was last empty."""
        return self.slots.generation

    @property
    def value(self) -> np.dtype[Any] | None:
        """Dtype of the value words; None for sets."""
        return self.slots.value

    def insert(self, keys: Any, values: Any, then: MakeSteps | None = None) -> Any:
        """Insert the absent keys; return a mask of the rows that created keys.

        In all verbs, keys and values may have any dtype as wide as the words. `then` makes steps
        from the mask, which run in one call with the change.
        """
        if then is None:
            return self._insert(keys, values, told=True)
        return self._insert(keys, values, told=True, then=lambda fresh, _: then(fresh))

    def combine(self, keys: Any, values: Any, change: Update | LcaChange) -> Any:
        """Insert pairs, combining each further value of a key with the stored one.

        Returns a mask of the rows that created keys. `values` may be one number, the word of every
        row.
        """
        rows, backend = len(keys), self.backend
        room = self._has_room(rows)
        slots, fresh = self._slots, None
        if not room and rows >= cardinality.LEAST_ROWS:
            fresh = self._combined_by_estimate(keys, values, change)
        if fresh is not None:
            return fresh
        if isinstance(values, int) and (not room or self._bulk_pays(slots, rows)):
            values = backend.full(rows, values, slots.value)

        def then(fresh: Any, into: Slots) -> list[Step]:
            if slots.blank and into is not slots and into.state().occupied == rows:
                # Each row created a key.
                return []
            step = changing(backend, into, keys, values, fresh, change)
            if into is not self._slots:
                return [step]
            broken, whole = (assigner(self, _slots=each) for each in (BrokenSlots(into), into))
            return [broken, step, whole]

        if not room:
            return self._insert_unsure(words_of(keys), words_of(values), told=True, then=then)
        if self._bulk_pays(slots, rows):
            fresh = self._built_in_bulk(keys, values, told=True, then=then)
        if fresh is None:
            fresh = backend.empty(rows, np.dtype(bool))
            self.commit(*combining(backend, self._slots, keys, values, fresh, change))
        return fresh

    def _combined_by_estimate(self, keys: Any, values: Any, change: Update | LcaChange) -> Any:
        """Combine a batch of repeated keys that fits if an estimate is right.

        Returns None, and changes nothing, where most rows bring new keys, or too many do.
        """
        slots, backend = self._slots, self.backend
        new = cardinality.new_keys(backend, slots, words_of(keys))
        most = new.most or cardinality.most_unseen(len(keys))
        if new.all or 2 * most > len(keys):
            return None
        if most <= self.capacity - slots.state().taken:
            made = slots.lent() if slots.blank else slots
        elif slots.blank:
            made = rehash(slots, self._load.slots_after(slots.slots, most), filled=False)
        else:
            return None
        fresh = backend.empty(len(keys), np.dtype(bool))
        steps = combining(backend, made, keys, values, fresh, change)
        if made is slots:
            # All, until those that are taken are counted.
            slots.taken_bound = slots.slots
            self.commit(*steps)
            left = refused_rows(slots)
        else:
            backend.in_one_call(steps)
            left = refused_rows(made)
            if left:
                return None
        if left:
            made = self._combined_rest(keys, values, fresh, change)
        made.taken_bound = made.state().taken
        backend.in_one_call([assigner(self, _slots=made)])
        return fresh

    def _combined_rest(
        self, keys: Any, values: Any, fresh: Any, change: Update | LcaChange
    ) -> Slots:
        """Return larger slots with the refused rows of a batch.

        An estimate exceeds four standard deviations, and then all slots beyond the load factor too,
        once in more batches than anybody has. Until the rest is stored the table is broken.
        """
        slots, backend = self.slots, self.backend
        self._slots = BrokenSlots(slots)
        rows = backend.xp.flatnonzero(fresh.view(np.uint8) == REFUSED)
        wanted = slots.state().occupied + len(rows)
        made = rehash(slots, self._load.slots_after(slots.slots, wanted))
        terms = values if isinstance(values, int) else words_of(values)[rows]
        created = backend.empty(len(rows), np.dtype(bool))
        keys = words_of(keys)[rows]
        backend.in_one_call(combining(backend, made, keys, terms, created, change))
        fresh[rows] = created
        return made

    def add(self, keys: Any, values: Any) -> None:
        """Insert the absent keys without returning a mask.

        May cost less than `insert`.
        """
        self._insert(keys, values, told=False)

    def upsert(self, keys: Any, values: Any) -> None:
        """Store pairs with distinct keys; overwrite the values of stored keys."""
        if self._has_room(len(keys)):
            self._slots.replace(keys, values)
        else:
            self._insert_unsure(words_of(keys), words_of(values), told=False, over=True)

    def replacing(self, keys: Any, values: Any) -> Step:
        """Return the `commit` step that overwrites stored pairs.

        The keys are distinct; they are stored already, or the table has room for them.
        """
        return self.slots.inserting(keys, values, over=True)

    def commit(self, *steps: Step) -> None:
        """Run steps in one call: launches on these slots, and assignments.

        No step needs memory. When the first step fails, nothing has changed; when a later one
        fails, all verbs raise TableBroken from then on.
        """
        first, *others = steps
        slots = self._slots
        self.backend.in_one_call(
            [
                first,
                assigner(self, _slots=BrokenSlots(slots)),
                *others,
                assigner(self, _slots=slots),
            ]
        )

    def ranges(self, rows: int, owners: int) -> RegionRanges | None:
        """Return how batches are split into ranges of buckets, or None.

        Senders split batches of `rows` rows by owner (`owners` in all) and range, for tables of
        this size. Returns None where this table has keys, where a bulk build does not pay for such
        a batch, or where `RegionRanges.of` has too many regions or owners.
        """
        slots = self._slots
        if not slots.blank or not self._bulk_pays(slots, rows):
            return None
        return RegionRanges.of(
            self.backend, buckets=slots.buckets, seed=slots.seed, owners=owners,
            shift=self.backend.region_shift,
        )  # fmt: skip

    def intake(self, ranges: RegionRanges, rows: int) -> StreamedBuild:
        """Start a bulk build of at most `rows` rows, range by range.

        The table has room for them.
        """
        self._slots.taken_bound += rows
        return StreamedBuild(self.backend, self._slots, ranges)

    def find(
        self, keys: Any, default: int = 0, dtype: np.dtype[Any] | None = None
    ) -> tuple[Any, Any]:
        """Return the value words of keys and a mask of the stored keys.

        The words are `default` where a key is absent, and None for sets. `dtype`, which is as wide,
        is the dtype of the returned words.
        """
        return self._slots.find(keys, default, dtype)

    def find_to(self, keys: Any, values: Any, found: Any, default: int) -> None:
        """Write the result of `find` to `values` and `found`.

        `values` has a dtype as wide as the words; `found` has one byte for each key.
        """
        self._slots.find_to(keys, values, found, default)

    def contains(self, keys: Any) -> Any:
        """Return a mask of the keys that are stored."""
        return self._slots.contains(keys)

    def absent(self, keys: Any) -> Any:
        """Return the rows (int64) with absent keys."""
        return cardinality.absent_rows(self.backend, self._slots, keys)

    def erase(self, keys: Any) -> Any:
        """Erase keys; return a mask with one row of each key that was stored."""
        return self._slots.erase(keys)

    def erasing(self, keys: Any) -> Step:
        """Return the step of an erase without a result; read no counters before it runs."""
        return self.slots.erasing(keys)

    def items(self) -> tuple[Any, Any]:
        """Return all key words and their value words (None for sets)."""
        return self._slots.items()

    def take(self, slots: Slots | None) -> bool:
        """Adopt slots in place of its own empty ones; return whether it did."""
        if slots is None or slots.state().taken > self._load.capacity(slots.slots):
            return False
        self._slots = slots
        return True

    def reserve(self, keys: int) -> None:
        """Grow until `capacity` is at least `keys`."""
        if keys > self.capacity:
            self._slots = rehash(self._slots, self._load.slots(keys))

    def rehash(self, seed: int) -> None:
        """Rehash all keys with another seed."""
        self._slots = rehash(self._slots, self._slots.slots, seed=seed)

    def lend(self, *, write: bool) -> Lent:
        """Return the table for user kernels; with `write`, call its `settle` after them."""
        slots = self.slots
        slots.fill()
        if write:
            slots._change()
            slots._state[2:3].fill(np.uint64(0))

        def settle() -> int:
            refused = int(slots._count(slots._host_state())["pending"])
            slots.taken_bound = slots.state().taken
            return refused

        words = f"{name_of_word(slots.key)},{name_of_word(slots.value)}"
        return Lent(
            ("device/auto.cuh",), f"dg::device::Auto<{words}>", struct_named("OpenStorage"),
            slots.storage, settle, slots.slots,
        )  # fmt: skip

    def settle(self, keys: Any, values: Any) -> None:
        """Store pairs with distinct keys, sorted by hash, in an empty table.

        The table has room for them.
        """
        self._slots.taken_bound = len(keys)
        self._slots.settle(keys, values)

    reserves = True

    def make_room(self, new: int) -> None:
        """Reserve slots for `new` further keys; grow if necessary."""
        if not self._has_room(new):
            grown = GrowableSlots(self._slots, self._load)
            grown.enlarge(len(self) + new)
            grown.slots.taken_bound += new
            self._slots = grown.slots

    def emptied(self, value: np.dtype[Any], keys: int) -> Storage:
        """Return an empty table with room for `keys` and value words of `value`.

        Returns this table, which is empty, if it fits. The next verb must store keys.
        """
        if value == self.value and keys <= self.capacity:
            return self
        made = copy.copy(self)
        made._slots = self.slots.like(self._load.slots(keys), value)
        made._slots.forget()
        made.witnesses = cardinality.DuplicateProbe()
        return made

    def lent(self) -> Storage:
        """Return a temporary empty table in the memory of this empty one.

        This table stays in use: the temporary one can be dropped at any time.
        """
        if not self._slots.blank:
            self._slots = self._slots.emptied()
        made = copy.copy(self)
        made._slots = self._slots.lent()
        return made

    def empty_in_place(self) -> Storage:
        """Return an empty table in the memory of this one, with the first seed.

        A caller that keeps the new table must drop this one.
        """
        made = copy.copy(self)
        made._slots = self._slots.emptied()
        return made

    def fill(self) -> None:
        """Write the slots that `empty_in_place` only marked empty."""
        self.slots.fill()

    def ready(self) -> None:
        """Allocate the memory for large batches in advance."""
        self.witnesses.ready(self.backend, self.slots)

    def figures(self) -> Figures:
        """Return the figures of the slots; reads all of them."""
        self.fill()
        slots = self.slots
        state, totals = slots.state(), self.backend.zeros(2, np.uint64)
        self.backend.run(
            kernel_named("open_lines", slots.key, slots.value), slots.buckets,
            table=slots.storage, present=totals[:1], absent=totals[1:],
        )  # fmt: skip
        present, absent = (int(total) for total in self.backend.to_host(totals))
        return Figures(
            slots=slots.slots,
            occupied=state.occupied,
            tombstones=state.erased,
            lines=present / max(state.occupied, 1),
            absent_lines=absent / slots.buckets,
            seed=slots.seed,
            reseeds=self.reseeds,
            details={},
        )

    def copy(self) -> Storage:
        """Return an independent table with the same content."""
        made = copy.copy(self)
        made._slots, made.witnesses = self._slots.copy(), cardinality.DuplicateProbe()
        return made


# Flag of the rows that the first of two launches leaves to the second.
_LEFT = 2
REFUSED = 3
"""Flag of the rows that found no slot."""


def combining(
    backend: Backend, slots: Slots, keys: Any, values: Any, flags: Any, change: Update | LcaChange
) -> tuple[Step, ...]:
    """Return the steps that store and combine pairs; `refused_rows` counts rows without a slot.

    Read no counters before them. `values` may be one number, the word of every row. `flags`
    becomes a mask of the rows that created keys. The first step does all where a pair is published
    whole, and for sums of integers; what it leaves is the second one's. Lowest common ancestors
    take one step.
    """
    slots.fill()
    if not slots.blank:
        slots._state[2] = 0
    slots._change()
    if isinstance(change, LcaChange):
        return (_folding(backend, slots, keys, values, flags, change),)
    fields = _fields(slots, keys, values, flags, change)
    kernel = kernel_named("open_combine", slots.key, slots.value)
    first = backend.prepared(kernel, len(keys), **fields)
    return first, changing(backend, slots, keys, values, flags, change, flag=_LEFT)


def changing(
    backend: Backend,
    slots: Slots,
    keys: Any,
    values: Any,
    flags: Any,
    change: Update | LcaChange,
    *,
    flag: int = 0,
) -> Step:
    """Return the step that changes the values of stored keys by some rows.

    These are the rows whose flag is `flag`; it becomes 0.
    """
    if isinstance(change, LcaChange):
        # A row that created its key changes nothing more.
        return _folding(backend, slots, keys, values, None, change)
    fields = _fields(slots, keys, values, flags, change)
    kernel = kernel_named("open_change", slots.key, slots.value)
    return backend.prepared(kernel, len(keys), flag=flag, **fields)


def _folding(
    backend: Backend, slots: Slots, keys: Any, values: Any, flags: Any, change: LcaChange
) -> Step:
    kernel = kernel_named("open_lca", slots.key, slots.value)
    return backend.prepared(
        kernel, len(keys),
        table=slots.storage, keys=keys, values=values, flags=flags, tree=change.tree,
    )  # fmt: skip


def refused_rows(slots: Slots) -> int:
    """Return the refused rows of the last `combining`; waits for the device."""
    return int(slots._count(slots._host_state())["pending"])


def _fields(slots: Slots, keys: Any, values: Any, flags: Any, change: Update) -> dict[str, Any]:
    fields = {"table": slots.storage, "keys": keys, "flags": flags}
    fields |= {"action": change.action, "kind": change.kind}
    return fields | ({"term": values} if isinstance(values, int) else {"values": values})
