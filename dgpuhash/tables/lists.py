"""The values of a multimap by handle: runs, and lists of buckets behind them, in one pool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, Kernel, args
from dgpuhash.errors import CapacityError

__all__ = ["NOTHING", "Lists", "Plan", "owners_of"]

NOTHING = 2**64 - 1
"""The handle of a key that has no values."""
# A handle has 36 bits for the place of a run, and 26 for the number of its values.
MOST_SLOTS = 2**36
_LONGEST_RUN = 2**26 - 1
_LARGEST_BUCKET = 1 << 20
# Values that one tile copies.
_SEGMENT = {"cpu": 4096, "cuda": 1024}


@dataclass(frozen=True, slots=True)
class Plan:
    """What appending a batch of runs takes."""

    handles: Any
    """Of the runs' keys, before the append."""
    starts: Any
    """Where each run begins in the batch, and the last one ends."""
    slots: Any
    """Where each run's new slots begin in the pool, and the last one's end."""
    records: Any
    """As `slots`, of its new records."""
    pieces: Any
    """As `slots`, of the pieces that it is copied in."""
    end: int
    """The slots in use afterwards."""
    recorded: int
    """The records in use afterwards."""


class Lists:
    """The pool, and the kernels that append to lists and read them.

    Parameters
    ----------
    backend : Backend
        Where the pool lives.
    value : dtype
        uint32 or uint64.
    first : int
        Values in the first bucket behind a run.
    growth : float
        How much larger each further bucket is.
    """

    def __init__(
        self, backend: Backend, value: np.dtype[Any], *, first: int, growth: float
    ) -> None:
        self._backend = backend
        self._value = value
        self._link_slots = 8 // value.itemsize
        self._ends = backend.from_host(_ends_of_buckets(first, growth, self._link_slots))
        self.clear()

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return int(self._pool.nbytes + self._records.nbytes + self._ends.nbytes)

    @property
    def compact(self) -> bool:
        """Whether every key has one run, and the pool nothing else."""
        return self._recorded == 0 and self._used == self.appended == len(self._pool)

    def clear(self) -> None:
        """Forget every value and give the pool back."""
        self._pool = self._backend.empty(0, self._value)
        self._records = self._backend.empty((0, 4), np.uint64)
        self._used = self._recorded = 0
        self.appended = 0
        """Values appended, those of erased keys included."""

    def copy(self) -> Lists:
        """Independent lists with the same content."""
        made = object.__new__(Lists)
        made.__dict__.update(self.__dict__)
        made._pool = _resized(self._backend, self._pool, self._used, self._used)
        made._records = _resized(self._backend, self._records, self._recorded, self._recorded)
        return made

    def settle(self, values: Any, starts: Any, runs: int) -> Any:
        """Take `values`, in runs that begin at `starts`, for the pool; gives the runs' handles.

        `starts` also has the last run's end, or is None where each run is one value.

        Raises
        ------
        CapacityError
            When a pool cannot have so many values.
        """
        _check_slots(len(values))
        self.clear()
        self._records = self._backend.empty((len(values) // _LONGEST_RUN, 4), np.uint64)
        self._pool = values
        self._used = self.appended = len(values)
        handles = self._backend.empty(runs, np.uint64)
        recorded = self._backend.zeros(1, np.uint64)
        self._run(
            args.list_settle(), args.LIST_SETTLE, runs,
            starts=starts, handles=handles, recorded=recorded,
        )  # fmt: skip
        if len(self._records):
            self._recorded = int(recorded[0])
        return handles

    def plan(self, handles: Any, starts: Any) -> Plan:
        """What appending runs, which begin at `starts`, to the keys of `handles` takes.

        Raises
        ------
        CapacityError
            When the pool would be too large.
        """
        runs = len(handles)
        slots, records, pieces = (self._backend.zeros(runs + 1, np.int64) for _ in range(3))
        self._run(
            args.list_plan(), args.LIST_PLAN, runs,
            handles=handles, run_offsets=starts,
            slots=slots[1:], records=records[1:], pieces=pieces[1:],
        )  # fmt: skip
        for needed, used in ((slots, self._used), (records, self._recorded), (pieces, 0)):
            needed[0] = used
            self._backend.xp.cumsum(needed, out=needed)
        end, recorded = int(slots[-1]), int(records[-1])
        _check_slots(end)
        return Plan(handles, starts, slots, records, pieces, end, recorded)

    def reserve(self, plan: Plan) -> None:
        """Make pool and records large enough for `plan`."""
        backend = self._backend
        if plan.end > len(self._pool):
            room = max(plan.end, len(self._pool) * 3 // 2)
            self._pool = _resized(backend, self._pool, self._used, room)
        if plan.recorded > len(self._records):
            room = max(plan.recorded, len(self._records) * 3 // 2)
            self._records = _resized(backend, self._records, self._recorded, room)

    def append(self, plan: Plan, values: Any) -> Any:
        """Append the runs of `values`, for which there is room; gives their keys' handles.

        What the lists hold without the new handles stays as it is only for keys that have none
        or a run: the caller stores all handles.
        """
        backend, runs = self._backend, len(plan.handles)
        pieces = int(plan.pieces[-1])
        begins = backend.empty(pieces + 1, np.int64)
        begins[pieces:] = len(values)
        stretches = backend.empty(pieces, np.uint64)
        handles = plan.handles.copy()
        self._run(
            args.list_append(self._value), args.LIST_APPEND, runs,
            to=(begins, stretches), handles=handles, run_offsets=plan.starts,
            slots=plan.slots, records=plan.records, places=plan.pieces,
        )  # fmt: skip
        self._used, self._recorded = plan.end, plan.recorded
        self.appended += len(values)
        self._move(args.list_scatter(self._value), begins, stretches, values)
        return handles

    def count(self, handles: Any) -> Any:
        """How many values each handle has, int64."""
        counts = self._backend.empty(len(handles), np.int64)
        self._run(args.list_count(), args.LIST_COUNT, len(handles), handles=handles, counts=counts)
        return counts

    def gather(self, handles: Any) -> tuple[Any, Any]:
        """The values of all handles, and where each one's begin and the last one's end (int64)."""
        backend, rows = self._backend, len(handles)
        offsets, places = self._offsets(handles)
        values = backend.empty(int(offsets[-1]), self._value)
        if places is None:
            self._move(args.list_gather(self._value), offsets, handles, values)
            return values, offsets
        pieces = int(places[-1])
        begins = backend.empty(pieces + 1, np.int64)
        begins[pieces:] = len(values)
        stretches = backend.empty(pieces, np.uint64)
        self._run(
            args.list_locate(self._value), args.LIST_LOCATE, rows,
            to=(begins, stretches), handles=handles, offsets=offsets, places=places,
        )  # fmt: skip
        self._move(args.list_gather(self._value), begins, stretches, values)
        return values, offsets

    def _offsets(self, handles: Any) -> tuple[Any, Any]:
        """Where each handle's values begin and the last one's end; and its pieces, if not None."""
        backend, rows = self._backend, len(handles)
        segment = _SEGMENT[backend.name]
        segments = math.ceil(rows / segment)
        sums = [backend.zeros(segments + 1, np.int64) for _ in range(2 if self._recorded else 1)]
        fields: dict[str, Any] = {"handles": handles, "rows": rows, "segment_rows": segment}
        values, pieces = (sums[0], sums[-1] if self._recorded else None)
        self._run(
            args.list_sum(), args.LIST_SUM, segments,
            values=values[1:], pieces=None if pieces is None else pieces[1:], **fields,
        )  # fmt: skip
        made = []
        for each in sums:
            backend.xp.cumsum(each, out=each)
            made.append(backend.empty(rows + 1, np.int64))
            made[-1][rows:] = each[segments:]
        offsets, places = made[0], made[-1] if self._recorded else None
        self._run(
            args.list_offsets(), args.LIST_OFFSETS, segments,
            values=values, pieces=pieces, offsets=offsets, places=places, **fields,
        )  # fmt: skip
        return offsets, places

    def _move(self, kernel: Kernel, begins: Any, stretches: Any, values: Any) -> None:
        segment = _SEGMENT[self._backend.name]
        self._run(
            kernel, args.LIST_MOVE, math.ceil(len(values) / segment),
            offsets=begins, handles=stretches, values=values,
            pieces=len(stretches), rows=len(values), segment_rows=segment,
        )  # fmt: skip

    def _run(self, kernel: Kernel, struct: np.dtype[Any], n: int, **fields: Any) -> None:
        pointer = self._backend.pointer
        made = np.zeros((), struct)
        table = made["table"]
        table["pool"], table["records"] = pointer(self._pool), pointer(self._records)
        table["growth"]["slots_end"] = pointer(self._ends)
        table["growth"]["levels"] = len(self._ends)
        table["growth"]["link_slots"] = self._link_slots
        made["n"] = n
        for name, field in fields.items():
            if isinstance(field, tuple):
                made[name] = tuple(pointer(part) for part in field)
            else:
                made[name] = field if isinstance(field, int) else pointer(field)
        if n:
            self._backend.launch(kernel, made, n)


def owners_of(backend: Backend, offsets: Any, total: int) -> Any:
    """For each of `total` values, the number of its list; none is empty."""
    owners = backend.zeros(total, np.int64)
    owners[offsets[1:-1]] = 1
    return backend.xp.cumsum(owners)


def _check_slots(slots: int) -> None:
    if slots > MOST_SLOTS:
        raise CapacityError(
            f"the values would take {slots:,} places and a table can number {MOST_SLOTS:,}; "
            "spread the keys over several tables"
        )


def _resized(backend: Backend, array: Any, used: int, room: int) -> Any:
    made = backend.empty((room, *array.shape[1:]), array.dtype)
    made[:used] = array[:used]
    return made


def _ends_of_buckets(first: int, growth: float, link_slots: int) -> np.ndarray:
    """Pool slots of a list's first, first two, … buckets; a link stands in all but the first."""
    sizes = [first]
    while len(sizes) < 2 or (growth > 1 and sizes[-1] < _LARGEST_BUCKET):
        sizes.append(math.ceil(growth * sizes[-1]))
    slots = [size + link_slots * (number > 0) for number, size in enumerate(sizes)]
    return np.cumsum(slots).astype(np.uint64)
