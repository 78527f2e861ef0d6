"""Pool of a multimap's values: runs, appended buckets, and list numbers."""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend, Kernel, kernel_named, struct_named
from dgpuhash.backend.launches import Step
from dgpuhash.errors import CapacityError

# In values; further buckets are as large.
_LARGEST_BUCKET = 1 << 20


@functools.lru_cache(maxsize=64)
def bucket_ends(first: int, growth: float, link_slots: int) -> np.ndarray:
    """Return the cumulative pool slots of a list's first, second, … bucket.

    Every bucket but the first has a link, too. The growth is the decimal number that it prints as:
    ten values are followed by eleven, if lists grow by 1.1.

    Examples
    --------
    >>> (bucket_ends(1, 1.1, 0)[[0, 1, 3, 10, 25]]).tolist()
    [1, 3, 10, 66, 560]
    """
    sizes, factor = [first], Fraction(repr(growth))
    while len(sizes) < 2 or (growth > 1 and sizes[-1] < _LARGEST_BUCKET):
        sizes.append(math.ceil(factor * sizes[-1]))
    slots = [size + link_slots * (number > 0) for number, size in enumerate(sizes)]
    ends = np.cumsum(slots).astype(np.uint64)
    ends.flags.writeable = False
    return ends


# Most list numbers beside values of four bytes; with more, entries have eight bytes.
_MOST_NARROW = 2**31
_LEAST = 2**12
# Log2 of the ranges into which the words are cut; one range has the list numbers.
_RANGES_BITS = 8
_SAMPLE = 4096


@dataclass(frozen=True, slots=True)
class ListNumberRange:
    """Range of entry words that are list numbers rather than values.

    Entries are the words beside keys in the table.

    A value in the range is stored in a list of its own, so it stays correct.
    """

    entry: np.dtype[Any]
    """The dtype of the words."""
    base: int
    """The word of the first list number."""
    span: int
    """List numbers in the range."""

    @classmethod
    def beside(cls, backend: Backend, values: Any, numbers: int) -> Self:
        """Return at least `numbers` list numbers in a range with few of `values`.

        Half of the numbers are spare.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> made = ListNumberRange.beside(backend.get("cpu"), np.arange(9, dtype=np.uint32), 5000)
        >>> made.entry, made.span, made.base > 9
        (dtype('uint32'), 16384, True)
        """
        span = 1 << (2 * max(numbers, _LEAST) - 1).bit_length()
        entry = values.dtype if span <= _MOST_NARROW else np.dtype(np.uint64)
        bits = 8 * entry.itemsize
        width = max(span, 2 ** (bits - _RANGES_BITS))
        stride = max(len(values) // _SAMPLE, 1)
        sample = backend.to_host(backend.xp.ascontiguousarray(values[::stride]))
        ranges = (sample.astype(np.uint64) // np.uint64(width)).astype(np.int64)
        seen = np.bincount(ranges, minlength=2**bits // width)
        # The middle one of the rarest ranges: far from zero, near which most values are.
        rare = np.flatnonzero(seen == seen.min())
        return cls(entry, int(rare[len(rare) // 2]) * width, span)


NO_VALUES = 2**64 - 1
"""The handle of a key that has no values."""
# A handle has 36 bits for the start of a run, and 26 bits for its number of values.
MOST_SLOTS = 2**36
LONGEST_RUN = 2**26 - 1
# Values that one tile copies.
_SEGMENT = {"cpu": 4096, "cuda": 1024}
# Up to this share of a batch, keys' only values stay in the pool, unread, which saves a copy.
_HOLES = 1 / 32


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """Offsets of the slots, records and handles that an append needs."""

    handles: Any
    """Handles of the runs' keys before the append."""
    entries: Any
    """The entries from which the handles were opened."""
    starts: Any
    """Where each run begins in the batch, and where the last one ends."""
    slots: Any
    """Where each run's new slots begin in the pool, and where the last ones end."""
    records: Any
    """The same for each run's new records."""
    pieces: Any
    """The same for the pieces in which each run is copied."""
    numbers: Any
    """The same for each run's new handles."""

    @property
    def end(self) -> int:
        """The slots in use after the append."""
        return int(self.slots[-1])

    @property
    def recorded(self) -> int:
        """The records in use after the append."""
        return int(self.records[-1])

    @property
    def handles_in_use(self) -> int:
        """The handles in use after the append."""
        return int(self.numbers[-1])


@dataclass(frozen=True, slots=True)
class PreparedAppend:
    """An append of a batch of runs, prepared but not yet executed."""

    lists: ValueLists
    """The lists after the append; in the same memory if it has room."""
    entries: Any
    """New entries of the runs' keys, written by `steps`; the caller stores them."""
    steps: list[Step]
    """Steps that append. The old lists are invalid afterwards; the caller replaces them."""


class ValueLists:
    """Value lists of all keys: the pool, and the kernels that use it.

    Beside each key, the table's slot has an entry: the key's only value, or the number of its list.
    The lowest numbers are runs that `settle` stored, for which only their start is kept; a list
    that was added or changed later has a handle.

    Parameters
    ----------
    backend : Backend
        Where the pool lives.
    value : dtype
        uint32 or uint64.
    first : int
        Values of the first bucket behind a run.
    growth : float
        Factor by which each further bucket is larger.
    """

    def __init__(
        self, backend: Backend, value: np.dtype[Any], *, first: int, growth: float
    ) -> None:
        self._backend = backend
        self._value = value
        self._link_slots = 8 // value.itemsize
        self._ends = backend.from_host(bucket_ends(first, growth, self._link_slots))
        self.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        held = (self._pool, self._starts, self._handles, self._records, self._ends)
        return sum(int(part.nbytes) for part in held)

    def clear(self) -> None:
        """Drop every value and free the pool."""
        self._pool = self._backend.empty(0, self._value)
        self._starts = self._backend.empty(0, np.uint32)
        self._handles = self._backend.empty(0, np.uint64)
        self._records = self._backend.empty((0, 4), np.uint64)
        self._numbering = ListNumberRange(self._value, 0, 0)
        self._used = self._recorded = self._settled = self._numbered = 0
        self.compact = True
        """Whether every key has one run, and the pool has only runs, also of erased keys."""
        self.appended: int = 0
        """Values appended, including values of erased keys."""

    def emptied(self) -> ValueLists:
        """Return empty lists."""
        made = copy.copy(self)
        made.clear()
        return made

    def copy(self) -> ValueLists:
        """Return independent lists with the same content."""
        made = copy.copy(self)
        for name, used in (
            ("_pool", self._used),
            ("_starts", len(self._starts)),
            ("_handles", self._numbered),
            ("_records", self._recorded),
        ):
            setattr(made, name, _resize(self._backend, getattr(self, name), used, used))
        return made

    def settle(self, values: Any, starts: Any, runs: int, room: int = 0) -> Any:
        """Replace the content by `values`, grouped in runs; return entries.

        The runs begin at `starts`; each run gets one entry.

        `starts` also has the end of the last run; it is None if each run is one value. Numbers are
        reserved for `room` further lists. The entries may be `values` itself.

        Raises
        ------
        CapacityError
            When a pool cannot hold all values.
        """
        check_slots(len(values))
        self.clear()
        backend, rows = self._backend, len(values)
        longest = rows // LONGEST_RUN
        wanted = min(runs, rows - runs) + int(rows * _HOLES) + longest + room
        while True:
            self._numbering = ListNumberRange.beside(backend, values, wanted)
            lists, places = self._count_lists(values, starts, runs)
            listed, listed_values = int(lists[-1]), int(places[-1])
            packed = starts is None or runs - listed > rows * _HOLES
            wanted = (listed if packed else runs) + longest + room
            if wanted <= self._numbering.span:
                break
        self.appended = rows
        if starts is None and listed == 0 and self._numbering.entry == values.dtype:
            return values
        self._handles = backend.empty(longest, np.uint64)
        self._records = backend.empty((longest, 4), np.uint64)
        self._settled = listed if packed else runs
        entries = backend.empty(runs, self._numbering.entry)
        begins, stretches = starts, None
        if packed:
            begins = backend.empty(listed + 1, np.int64)
            stretches = backend.empty(listed, np.uint64)
            begins[listed:] = listed_values
        packing = {"lists": lists, "places": places, "begins": begins, "stretches": stretches}
        recorded = self._number(values, starts, entries, **packing if packed else {})
        if longest:
            self._recorded = self._numbered = int(recorded[0])
        self._pool = values
        if packed:
            pool = backend.empty(listed_values, self._value)
            self._move(kernel_named("list_gather", self._value), begins, stretches, pool)
            self._pool = pool
        self._used = len(self._pool)
        narrow = self._used < 2**32
        self._starts = begins.astype(np.uint32) if narrow else begins.view(np.uint64)
        return entries

    def _number(self, values: Any, starts: Any, entries: Any, **packing: Any) -> Any:
        """Write the entries of runs; return the number of records, on the device."""
        recorded = self._backend.zeros(1, np.uint64)
        segments, segment = self._segments(len(entries))
        self._run(
            kernel_named("list_settle"), segments,
            starts=starts, values=values, entries=entries, recorded=recorded,
            rows=len(entries), segment_rows=segment, **packing,
        )  # fmt: skip
        return recorded

    def _count_lists(self, values: Any, starts: Any, runs: int) -> tuple[Any, Any]:
        """Return the first list number and pool offset of each segment of runs.

        The last elements are the totals.
        """
        backend = self._backend
        segments, segment = self._segments(runs)
        lists, places = (backend.zeros(segments + 1, np.int64) for _ in range(2))
        self._run(
            kernel_named("list_weigh"), segments,
            starts=starts, values=values, lists=lists[1:], values_of=places[1:],
            rows=runs, segment_rows=segment,
        )  # fmt: skip
        for sums in (lists, places):
            backend.xp.cumsum(sums, out=sums)
        return lists, places

    def open(self, entries: Any, found: Any = None) -> Any:
        """Return the handles of entries, all or only those `found` (1)."""
        handles = self._backend.empty(len(entries), np.uint64)
        self._run(
            kernel_named("list_open"), len(entries),
            entries=entries, found=found, handles=handles,
        )  # fmt: skip
        return handles

    def plan(self, handles: Any, entries: Any, starts: Any, values: Any) -> AppendPlan:
        """Return the plan of appending runs of `values` to the keys of `handles`.

        The runs begin at `starts`.

        Raises
        ------
        CapacityError
            When the pool would be too large.
        """
        runs = len(handles)
        slots, records, pieces, numbers = self._backend.empty((4, runs + 1), np.int64)
        self._run(
            kernel_named("list_plan"), runs,
            handles=handles, entries=entries, run_offsets=starts, values=values,
            slots=slots[1:], records=records[1:], pieces=pieces[1:], numbers=numbers[1:],
        )  # fmt: skip
        used = (self._used, self._recorded, 0, self._numbered)
        for needed, first in zip((slots, records, pieces, numbers), used, strict=True):
            needed[0] = first
            needed.cumsum(out=needed)
        plan = AppendPlan(handles, entries, starts, slots, records, pieces, numbers)
        check_slots(plan.end)
        return plan

    def can_number(self, plan: AppendPlan) -> bool:
        """Return whether enough list numbers are free for `plan`.

        If not, all lists have to be settled anew.
        """
        return self._settled + plan.handles_in_use <= self._numbering.span

    def appending(self, plan: AppendPlan, values: Any) -> PreparedAppend:
        """Prepare the append of the runs of `values`.

        These lists keep their content until the steps run.
        """
        made = object.__new__(ValueLists)
        made.__dict__.update(self.__dict__)
        for name, end, used in (
            ("_pool", plan.end, self._used),
            ("_records", plan.recorded, self._recorded),
            ("_handles", plan.handles_in_use, self._numbered),
        ):
            held = getattr(self, name)
            if end > len(held):
                room = max(end, len(held) * 3 // 2)
                setattr(made, name, _resize(self._backend, held, used, room))
        made._used, made._recorded, made._numbered = plan.end, plan.recorded, plan.handles_in_use
        made.appended = self.appended + len(values)
        made.compact = False
        backend, runs = self._backend, len(plan.handles)
        pieces = int(plan.pieces[-1])
        begins = backend.empty(pieces + 1, np.int64)
        begins[pieces:] = len(values)
        stretches = backend.empty(pieces, np.uint64)
        entries = plan.entries.copy()
        append = backend.prepared(
            kernel_named("list_append", self._value), runs, table=made.storage,
            to=(begins, stretches), handles=plan.handles, entries=entries,
            run_offsets=plan.starts, values=values,
            slots=plan.slots, records=plan.records, places=plan.pieces, numbers=plan.numbers,
        )  # fmt: skip
        scatter = backend.prepared(
            kernel_named("list_scatter", self._value), self._segments(len(values))[0],
            table=made.storage, **self._moving(begins, stretches, values),
        )  # fmt: skip
        return PreparedAppend(made, entries, [append, scatter])

    def count(self, handles: Any) -> Any:
        """Return the number of values (int64) of each handle."""
        counts = self._backend.empty(len(handles), np.int64)
        self._run(kernel_named("list_count"), len(handles), handles=handles, counts=counts)
        return counts

    def gather(self, handles: Any, entries: Any) -> tuple[Any, Any]:
        """Return the values of all handles, and their offsets (int64).

        The handles were opened from `entries`.
        """
        backend, rows = self._backend, len(handles)
        offsets, places = self._offsets(handles)
        values = backend.empty(int(offsets[-1]), self._value)
        if places is None:
            self._move(kernel_named("list_gather", self._value), offsets, handles, values, entries)
            return values, offsets
        pieces = int(places[-1])
        begins = backend.empty(pieces + 1, np.int64)
        begins[pieces:] = len(values)
        stretches = backend.empty(pieces, np.uint64)
        self._run(
            kernel_named("list_locate", self._value), rows,
            to=(begins, stretches), handles=handles, offsets=offsets, places=places,
        )  # fmt: skip
        self._move(kernel_named("list_gather", self._value), begins, stretches, values, entries)
        return values, offsets

    def _offsets(self, handles: Any) -> tuple[Any, Any]:
        """Return the value offsets of the handles, and the piece offsets.

        The latter are None if every handle is one piece.
        """
        backend, rows = self._backend, len(handles)
        segments, segment = self._segments(rows)
        sums = [backend.zeros(segments + 1, np.int64) for _ in range(2 if self._recorded else 1)]
        fields: dict[str, Any] = {"handles": handles, "rows": rows, "segment_rows": segment}
        values, pieces = (sums[0], sums[-1] if self._recorded else None)
        self._run(
            kernel_named("list_sum"), segments,
            values=values[1:], pieces=None if pieces is None else pieces[1:], **fields,
        )  # fmt: skip
        made = []
        for each in sums:
            each.cumsum(out=each)
            made.append(backend.empty(rows + 1, np.int64))
            made[-1][rows:] = each[segments:]
        offsets, places = made[0], made[-1] if self._recorded else None
        self._run(
            kernel_named("list_offsets"), segments,
            values=values, pieces=pieces, offsets=offsets, places=places, **fields,
        )  # fmt: skip
        return offsets, places

    def _segments(self, rows: int) -> tuple[int, int]:
        segment = _SEGMENT[self._backend.name]
        return math.ceil(rows / segment), segment

    def _move(
        self, kernel: Kernel, begins: Any, stretches: Any, values: Any, entries: Any = None
    ) -> None:
        fields = self._moving(begins, stretches, values)
        self._run(kernel, self._segments(len(values))[0], entries=entries, **fields)

    def _moving(self, begins: Any, stretches: Any, values: Any) -> dict[str, Any]:
        return {
            "offsets": begins, "handles": stretches, "values": values, "pieces": len(stretches),
            "rows": len(values), "segment_rows": self._segments(len(values))[1],
        }  # fmt: skip

    def _run(self, kernel: Kernel, n: int, **fields: Any) -> None:
        self._backend.run(kernel, n, table=self.storage, **fields)

    @property
    def storage(self) -> bytes:
        """The lists as a kernel argument."""
        numbering = self._numbering
        return self._backend.pack(
            struct_named("ListStorage"), pool=self._pool, records=self._records,
            growth=(self._ends, len(self._ends), self._link_slots),
            entries=self._backend.pack(
                struct_named("ListEntries"), base=numbering.base, span=numbering.span,
                nbytes=numbering.entry.itemsize, value_nbytes=self._value.itemsize,
                starts=self._starts, start_nbytes=self._starts.itemsize, settled=self._settled,
                handles=self._handles,
            ),
        )  # fmt: skip


def list_numbers(backend: Backend, offsets: Any, total: int) -> Any:
    """Return the number of its list for each of `total` values.

    No list is empty.
    """
    owners = backend.zeros(total, np.int64)
    owners[offsets[1:-1]] = 1
    return backend.xp.cumsum(owners)


def check_slots(slots: int) -> None:
    if slots > MOST_SLOTS:
        raise CapacityError(
            f"the values would need {slots:,} slots, and a table has at most {MOST_SLOTS:,}; "
            f"spread the keys over several tables"
        )


def _resize(backend: Backend, array: Any, used: int, room: int) -> Any:
    made = backend.empty((room, *array.shape[1:]), array.dtype)
    made[:used] = array[:used]
    return made
