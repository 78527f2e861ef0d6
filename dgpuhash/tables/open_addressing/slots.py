"""Slots of one open-addressing table: kernels, load factor, and growth within a batch."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named, struct_named
from dgpuhash.backend.constants import SAMPLE_ROWS, UNLIMITED, claim_words, overflow_bits
from dgpuhash.backend.launches import Step
from dgpuhash.seeds import seed_of_generation
from dgpuhash.tables.cached import cached
from dgpuhash.tables.open_addressing.extent import Extent, State, side_items, slot_nbytes

_BOOL = np.dtype(bool)
# Attributes that hold addresses of other attributes' arrays, and the seed.
_ADDRESSED = ("storage", "_insert_rows", "_find_rows", "_erase_rows")
SETTLED_ROWS = 2**8
"""Rows of a sorted batch that one tile stores."""


class Slots:
    """Uninitialised slots for key and value words; `clear` makes them usable.

    Parameters
    ----------
    backend : Backend
        Where the slots live.
    key, value : dtype
        uint32 or uint64, keys also `WIDE_WORD`; `value` is None for sets.
    slots : int or Extent
        The least number of slots.
    seed : int
        Seed of the hash function.
    """

    def __init__(
        self,
        backend: Backend,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        *,
        slots: int | Extent,
        seed: int,
    ) -> None:
        self._backend = backend
        self.key: np.dtype = key
        self.value: np.dtype | None = value
        self.origin: int = seed
        self.seed: int = seed
        self.generation: int = 0
        """Number of seed changes; `seed` derives from it and from `origin`."""
        self._paired = value == key
        self.extent: Extent = slots if isinstance(slots, Extent) else Extent.of(key, value, slots)
        self.buckets: int
        self.slots: int
        self.buckets, self._segment, self.slots = self.extent
        nbytes = slot_nbytes(key, value)
        self._keys = backend.empty(self.slots * nbytes, np.uint8)
        self._values = None
        if value is not None and not self._paired:
            self._values = backend.empty(self.slots * value.itemsize, np.uint8)
        bits = self.buckets * overflow_bits(nbytes)
        claims = claim_words(key.itemsize, self.buckets)
        self._overflow = backend.empty(-(-bits // 32) + claims, np.uint32)
        self._state = backend.empty(_state_dtype().itemsize // 8, np.uint64)
        self.blank: bool = False
        """Whether nothing was stored since the slots were cleared."""
        self.filled: bool = True
        """Whether the empty pattern of empty slots is written."""
        # Counters read since the last change.
        self._counted: State | None = None
        self.taken_bound: int = 0
        """Upper bound of the slots taken, known without waiting for the device."""
        self.erased_bound: int = 0
        """Upper bound of the tombstones: those counted last, and the keys erased since."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        buffers = (self._keys, self._values, self._overflow, self._state)
        return sum(int(buffer.nbytes) for buffer in buffers if buffer is not None)

    @property
    def regions(self) -> int:
        """Number of table regions, each built in a block's shared memory."""
        return -(-self.buckets >> self._backend.region_shift)

    @cached
    def storage(self) -> bytes:
        """Return the packed table struct for kernels."""
        return self._backend.pack(
            struct_named("OpenStorage"), keys=self._keys, values=self._values, state=self._state,
            overflow=self._overflow, buckets=self.buckets, seed=self.seed,
            segment_shift=self._segment.bit_length() - 1,
        )  # fmt: skip

    def clear(self) -> None:
        """Empty every slot."""
        self._empty()
        self.fill()

    def forget(self) -> None:
        """Mark slots empty; `fill` or `insert_regions` writes them before reads."""
        self._empty()
        self._reset()

    def emptied(self) -> Slots:
        """Return empty slots in this memory, which replace these slots."""
        made = copy.copy(self)
        made._empty()
        made.reseed(0)
        return made

    def lent(self) -> Slots:
        """Return temporary empty slots in this memory; these stay empty."""
        assert self.blank
        made = copy.copy(self)
        # These slots must overwrite what the temporary ones leave behind.
        self.filled = False
        return made

    def fill(self) -> None:
        """Write the empty pattern to slots that were only marked empty."""
        if self.filled:
            return
        self._reset()
        for buffer in (self._keys, self._values):
            if buffer is not None:
                # Words, since CuPy fills byte by byte: 2 GB took 9.5 and take 1.2 ms on an H200.
                buffer.view(np.uint64).fill(np.uint64(2**64 - 1))
        self._overflow.fill(0)
        # Last, so that an interrupted fill is repeated.
        self.filled = True

    def _empty(self) -> None:
        self.blank, self.filled, self._counted = True, False, None
        self.taken_bound = self.erased_bound = 0

    def _reset(self) -> None:
        side_value = _state_dtype().itemsize // 8 - 2
        self._state[:side_value].fill(np.uint64(0))
        self._state[side_value:].fill(np.uint64(2**64 - 1))

    def __getstate__(self) -> dict[str, Any]:
        return {name: it for name, it in self.__dict__.items() if name not in _ADDRESSED}

    def like(self, slots: int, *value: np.dtype[Any]) -> Slots:
        """Return new slots with the same dtypes and seed, or another `value`."""
        held, *_ = (*value, self.value)
        made = Slots(self._backend, self.key, held, slots=slots, seed=self.origin)
        made.reseed(self.generation)
        return made

    def copy(self) -> Slots:
        """Return independent slots with the same content."""
        made = copy.copy(self)
        for name in ("_keys", "_values", "_overflow", "_state"):
            buffer = getattr(self, name)
            if buffer is not None:
                copied = self._backend.empty(buffer.shape, buffer.dtype)
                copied[...] = buffer
                setattr(made, name, copied)
        return made

    def reseed(self, generation: int) -> None:
        """Set the seed of a generation; the slots must be empty and private."""
        for name in _ADDRESSED:
            self.__dict__.pop(name, None)
        self.generation, self.seed = generation, seed_of_generation(self.origin, generation)

    def _change(self) -> None:
        self.blank, self._counted = False, None

    def state(self) -> State:
        """Return the counters; waits for the device unless nothing was stored."""
        if self.blank:
            return State(0, 0, 0)
        if self._counted is None:
            self._count(self._host_state())
        assert self._counted is not None
        return self._counted

    def counting(self) -> Callable[[], None]:
        """Start to copy the counters; the returned function waits for the copy."""
        fetched = self._backend.fetch(self._state)

        def wait() -> None:
            self._count(fetched().view(_state_dtype())[0])

        return wait

    def _count(self, state: np.ndarray) -> np.ndarray:
        counts = (int(state[name]) for name in ("occupied", "erased", "strayed"))
        self._counted = State(*counts)
        return state

    def sample(self, keys: Any, *, seed: int, zeros: int, limit: int) -> tuple[int, int]:
        """Store keys whose hashes have `zeros` leading zeros, up to `limit` keys.

        Returns the number of these keys and of their rows. The slots are an empty set. Waits for
        the device.
        """
        rows = len(keys)
        self._change()
        self._backend.run(
            kernel_named("open_sample", self.key), -(-rows // SAMPLE_ROWS),
            table=self.storage, keys=keys, seed=seed, zeros=zeros, limit=limit, rows=rows,
        )  # fmt: skip
        state = self._host_state()
        return int(state["occupied"]), int(state["pending"])

    def insert(self, keys: Any, values: Any, fresh: Any = None) -> Any:
        """Store pairs that fit; return a mask of the rows that created keys.

        The mask is written to `fresh` if it is given.
        """
        if fresh is None:
            fresh = self._backend.empty(len(keys), _BOOL)
        self._launch_insert(keys, values, fresh)
        return fresh

    def insert_regions(self, **batch: Any) -> int:
        """Store pairs in bucket order; return the number of rows left over.

        Takes the fields of `REGION_INSERT`; waits for the device.
        """
        if self.blank:
            self._reset()
        self.insert_in_regions(0, self.regions, blank=self.blank, part_shift=0, **batch)
        self.hold()
        return int(self._count(self._host_state())["pending"])

    def insert_in_regions(self, first: int, number: int, *, blank: bool, **batch: Any) -> Any:
        """Store pairs in `number` regions; return the number of rows left over.

        The number is a device array, overwritten by the next call. Call `hold` after all `blank`
        regions are written.
        """
        self._counted = None
        self._state[2] = 0
        self._backend.run(
            kernel_named("region_insert", self.key, self.value), number,
            table=self.storage, blank=blank, first=first,
            segment_rows=2**self._backend.region_shift, **batch,
        )  # fmt: skip
        return self._state[2:3]

    def hold(self) -> None:
        """Mark all regions as written by `insert_in_regions`."""
        self.blank, self.filled = False, True

    def replace(self, keys: Any, values: Any) -> None:
        """Store pairs that fit, overwriting the values of stored keys."""
        self._launch_insert(keys, values, None, overwrite=True)

    def inserting(self, keys: Any, values: Any, fresh: Any = None, *, over: bool = False) -> Step:
        """Return the step of an insert or replace; read no counters before it."""
        self.fill()
        self._change()
        return self._backend.prepared(
            kernel_named("open_insert", self.key, self.value), len(keys), table=self.storage,
            keys=keys, values=values, fresh=fresh, limit=UNLIMITED, overwrite=int(over),
        )  # fmt: skip

    def erasing(self, keys: Any) -> Step:
        """Return the step of an erase; read no counters before it runs."""
        self._counted = None
        self.erased_bound += len(keys)
        return self._backend.prepared(
            kernel_named("open_erase", self.key, self.value), len(keys),
            table=self.storage, keys=keys,
        )  # fmt: skip

    def settle(self, keys: Any, values: Any) -> None:
        """Store pairs with distinct keys, sorted by hash, in cleared slots."""
        assert self.value is not None
        self.fill()
        rows, backend = len(keys), self._backend
        segments = -(-rows // SETTLED_ROWS)
        later, late = backend.empty(rows, np.uint64), backend.empty(segments, np.uint64)
        for name in ("open_settle", "open_settle_late"):
            backend.run(
                kernel_named(name, self.key, self.value), segments,
                table=self.storage, keys=keys, values=values, later=later, late=late,
                rows=rows, segment_rows=SETTLED_ROWS,
            )  # fmt: skip
        self._state[0] = rows
        self._change()

    def insert_limited(self, keys: Any, values: Any, limit: int) -> tuple[Any, Any]:
        """Store pairs while fewer than `limit` slots are taken.

        Returns a mask of the rows that created keys, and the numbers of the rows without a slot.
        """
        fresh = self._backend.empty(len(keys), _BOOL)
        pending = self._backend.empty(len(keys), np.uint64)
        self._state[2] = 0
        self._launch_insert(keys, values, fresh, pending=pending, limit=limit)
        return fresh, pending[: int(self._host_state()["pending"])].view(np.int64)

    def find(self, keys: Any, default: int, dtype: np.dtype[Any] | None = None) -> tuple[Any, Any]:
        """Return value words (None for sets) and a mask of the stored keys.

        Absent keys get `default`. `dtype`, which is as wide, is the dtype of the returned words.
        """
        values = None
        if self.value is not None:
            values = self._backend.empty(len(keys), self.value if dtype is None else dtype)
        found = self._backend.empty(len(keys), _BOOL)
        self.find_to(keys, values, found, default)
        return values, found

    def find_to(self, keys: Any, values: Any, found: Any, default: int) -> None:
        """Write the result of `find` to `values` (of equal width) and `found`."""
        rows = len(keys)
        if not self.filled:
            self.fill()
        self._find_rows(rows, keys, values, found, rows, default)

    def contains(self, keys: Any) -> Any:
        """Return a mask of the keys that are stored."""
        found = self._backend.empty(len(keys), _BOOL)
        self.find_to(keys, None, found, 0)
        return found

    def erase(self, keys: Any) -> Any:
        """Erase keys; return a mask with one row of each key that was stored."""
        rows = len(keys)
        erased = self._backend.empty(rows, _BOOL)
        self.fill()
        self._counted = None
        self.erased_bound += rows
        self._erase_rows(rows, keys, erased, rows)
        return erased

    def items(self, counts: Any = None) -> tuple[Any, Any]:
        """Return key words and value words (None for sets), by bucket, reserved keys last."""
        self.fill()
        backend, state = self._backend, self._host_state()
        beside, its_values = side_items(state, self.key, self.value)
        stored = int(state["occupied"])
        keys = backend.empty(stored, self.key)
        values = None if self.value is None else backend.empty(stored, self.value)
        counts = self._counts(self.buckets) if counts is None else counts
        ends = backend.xp.cumsum(counts, dtype=np.uint64)
        # A bucket's keys end where the next one's begin.
        offsets = backend.zeros(self.buckets, np.uint64)
        offsets[1:] = ends[:-1]
        backend.run(
            kernel_named("open_items", self.key, self.value), self.buckets,
            table=self.storage, offsets=offsets, keys=keys, values=values,
        )  # fmt: skip
        if len(beside):
            keys[-len(beside) :] = backend.from_host(beside)
            if values is not None:
                values[-len(beside) :] = backend.from_host(its_values)
        return keys, values

    def move_to(self, target: Slots) -> None:
        """Store all keys in the blank table `target`, which has room for them."""
        if self.blank:
            return
        state = self._host_state()
        beside = np.zeros((), _state_dtype())
        for name in ("side_present", "side_value"):
            beside[name] = state[name]
        beside["occupied"] = state["side_present"].sum()
        target._state[:] = self._backend.from_host(np.frombuffer(beside.tobytes(), np.uint64))
        kernel = kernel_named("open_rehash", self.key, self.value)
        self._backend.run(kernel, self.slots, table=self.storage, target=target.storage)
        target._change()

    def _counts(self, buckets: int) -> Any:
        counts = self._backend.empty(buckets, np.uint32)
        kernel = kernel_named("open_count", self.key, self.value)
        self._backend.run(kernel, buckets, table=self.storage, counts=counts)
        return counts

    def _host_state(self) -> np.ndarray:
        return self._backend.to_host(self._state).view(_state_dtype())[0]

    def _launch_insert(
        self,
        keys: Any,
        values: Any,
        fresh: Any,
        *,
        pending: Any = None,
        limit: int = UNLIMITED,
        overwrite: bool = False,
    ) -> None:
        if not self.filled:
            self.fill()
        self._change()
        rows = len(keys)
        self._insert_rows(rows, keys, values, fresh, pending, rows, limit, int(overwrite))

    @cached
    def _insert_rows(self) -> Callable[..., None]:
        return self._backend.bound(kernel_named("open_insert", self.key, self.value), self.storage)

    @cached
    def _find_rows(self) -> Callable[..., None]:
        return self._backend.bound(kernel_named("open_find", self.key, self.value), self.storage)

    @cached
    def _erase_rows(self) -> Callable[..., None]:
        return self._backend.bound(kernel_named("open_erase", self.key, self.value), self.storage)


def _state_dtype() -> np.dtype[Any]:
    """Return the dtype of a table's counters on the device, reserved keys' values last."""
    return struct_named("OpenState").dtype


# Of tables of few keys, whose memory counts less than their time.
_ROOMY_LOAD = 0.6

_log = logging.getLogger("dgpuhash.tables")


@dataclass(frozen=True, slots=True)
class LoadFactor:
    """Load factor above which slots grow."""

    most: float

    def capacity(self, slots: int) -> int:
        """Return the number of keys for `slots` slots."""
        return max(1, int(slots * self.most))

    def slots(self, keys: int) -> int:
        """Return the number of slots for `keys` keys."""
        return math.ceil(max(keys, 1) / self.most) + 1

    def roomy_slots(self, keys: int) -> int:
        """Return the fastest number of slots for a small number of keys.

        On a CPU 100,000 pairs of 8 + 8 bytes took 2.5 ms to insert and 0.8 to find at load 0.6, and
        3.7 and 1.8 at load 0.9.
        """
        return math.ceil(max(keys, 1) / min(self.most, _ROOMY_LOAD)) + 1

    def slots_after(self, slots: int, keys: int) -> int:
        """Return the new number of slots for `keys` keys.

        The number stays the same when dropping tombstones makes enough room; otherwise it at least
        doubles.
        """
        capacity = self.capacity(slots)
        return slots if keys <= capacity * 3 // 4 else self.slots(max(2 * capacity, keys))


def rehash(slots: Slots, number: int, *, filled: bool = True, seed: int | None = None) -> Slots:
    """Return at least `number` new slots with the same keys.

    A given `seed` replaces the old one. Without it, the seed changes when many keys have left the
    segments in which they begin. With `filled` False, slots without keys stay unwritten.
    """
    made = slots.like(number)
    if seed is not None:
        made.origin = seed
        made.reseed(0)
    elif slots.extent.is_crowded(slots.state()):
        made.reseed(slots.generation + 1)
        _log.info("%d slots have seed %d: keys stood close by that before", made.slots, made.seed)
    if filled or not slots.blank:
        made.clear()
        slots.move_to(made)
        made.taken_bound = slots.state().occupied
    else:
        made.forget()
    return made


class GrowableSlots:
    """Private slots that grow when keys need more room.

    No other code sees these slots until they replace a table's slots.

    Parameters
    ----------
    slots : Slots
    load : Load
    """

    def __init__(self, slots: Slots, load: LoadFactor) -> None:
        self.slots: Slots = slots
        self._load = load

    @property
    def capacity(self) -> int:
        """Number of keys at which the slots grow."""
        return self._load.capacity(self.slots.slots)

    def enlarge(self, wanted: int) -> None:
        """Make room for `wanted` keys."""
        self.slots = rehash(self.slots, self._load.slots_after(self.slots.slots, wanted))

    def trim(self, before: int) -> None:
        """Shrink slots that are less than half used, down to `before` slots."""
        keys = self.slots.state().occupied
        wanted = max(before, self._load.slots_after(before, keys), self._load.roomy_slots(keys))
        if 2 * wanted <= self.slots.slots:
            self.slots = rehash(self.slots, wanted)

    def insert(self, keys: Any, values: Any) -> Any:
        """Store pairs; return a mask of the rows that created keys."""
        if self.slots.state().taken + len(keys) <= self.capacity:
            return self.slots.insert(keys, values)
        return self._insert_limited(keys, values)

    def _insert_limited(self, keys: Any, values: Any) -> Any:
        """Insert until the slots are full, grow, then insert the remaining rows."""
        new, rows = self.slots.insert_limited(keys, values, self.capacity)
        fresh, tried = new, len(keys)
        while len(rows):
            self._grow(int(new.sum()), tried - len(rows), len(rows))
            tried = len(rows)
            new, pending = self.slots.insert_limited(
                keys[rows], None if values is None else values[rows], self.capacity
            )
            fresh[rows] = new
            rows = rows[pending]
        return fresh

    def _grow(self, placed: int, settled: int, pending: int) -> None:
        """Make room for the new keys expected among `pending` rows.

        Of the `settled` rows, `placed` brought new keys; the pending rows are assumed to be alike.
        """
        state = self.slots.state()
        live = state.occupied
        # Rows that race to create the same key can be refused although the table is not full.
        if live + state.erased < self.capacity // 2:
            return
        share = placed / settled if settled else 1.0
        self.enlarge(live + min(pending, max(1, math.ceil(share * pending))))
