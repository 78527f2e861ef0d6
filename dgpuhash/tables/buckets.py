"""The value lists of a multimap: buckets in one pool (WarpCore, Jünger et al. 2020, §IV-C)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, args
from dgpuhash.errors import CapacityError
from dgpuhash.tables.slots import Slots

__all__ = ["Buckets", "Plan"]

# A handle and a link have 31 bits for a place in the pool, a handle 31 for a key's values.
MOST_PLACES = 2**31 - 1
MOST_VALUES = 2**31 - 2
_LARGEST_BUCKET = 1 << 20
# Half of 2**24 pairs on one key, by 4 lanes: 0.59 s to append, 0.49 s to read; by 32: 0.15, 0.09.
_LONG_LIST = 1 << 13


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a batch of runs will go."""

    places: Any
    """The pool slots kept for each run: run *i* has those from ``places[i]`` to ``places[i+1]``."""
    end: int
    """The pool slots in use afterwards."""
    new_keys: int
    """Runs whose keys are not stored yet."""


class Buckets:
    """The pool, and the kernels that append to lists and read them.

    Parameters
    ----------
    backend : Backend
        Where the pool lives.
    value : dtype
        uint32 or uint64.
    first : int
        Values in a key's first bucket.
    growth : float
        How much larger each further bucket is.
    grain_shift : int
        Buckets are whole multiples of ``2**grain_shift`` slots, of which 2**31 can be numbered.
    tile : int, optional
        Lanes that serve one key; by default they follow the longest list of a batch.
    """

    def __init__(
        self,
        backend: Backend,
        value: np.dtype[Any],
        *,
        first: int,
        growth: float,
        grain_shift: int = 0,
        tile: int | None,
    ) -> None:
        self._backend = backend
        self._value = value
        self._tile = tile
        self.grain_shift = grain_shift
        self._ends = backend.from_host(_ends_of_buckets(first, growth, 1 << grain_shift))
        self._pool = backend.empty(0, value)
        self._state = backend.zeros(args.POOL_STATE.itemsize // 8, np.uint64)
        self._used = 0
        self.appended = 0
        """Values appended, those of erased keys included."""

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return int(self._pool.nbytes + self._ends.nbytes + self._state.nbytes)

    def plan(self, slots: Slots, runs: Any, starts: Any, rows: int) -> Plan:
        """What appending the runs of distinct keys, which begin at `starts`, takes.

        `rows` is the number of values in all runs.

        Raises
        ------
        CapacityError
            When a key would have too many values.
        """
        count = len(runs)
        if self.appended + rows > MOST_VALUES:
            longest = int((self.count(slots, runs) + starts[1:] - starts[:-1]).max())
            if longest > MOST_VALUES:
                raise CapacityError(
                    f"a key would have {longest:,} values and may have {MOST_VALUES:,}; "
                    "spread it over several keys, by a second column for instance"
                )
        needed = self._backend.empty(count, np.uint64)
        absent = self._backend.zeros(1, np.uint64)
        made = self._arguments(args.LIST_NEED, slots, count, run_keys=runs, run_offsets=starts)
        made["slots"] = self._backend.pointer(needed)
        made["absent"] = self._backend.pointer(absent)
        self._launch(args.list_need(slots.key, self._lanes()), made)
        places = self._backend.empty(count + 1, np.uint64)
        places[0] = self._used
        places[1:] = self._backend.xp.cumsum(needed) + np.uint64(self._used)
        return Plan(places, int(places[-1]), int(absent[0]))

    def fits(self, plan: Plan) -> bool:
        """Whether the pool's places can still be numbered with this grain."""
        return plan.end >> self.grain_shift <= MOST_PLACES

    def coarser(self, plan: Plan) -> int:
        """A grain with which the places of `plan`, and of as much again, can be numbered."""
        return self.grain_shift + max(2, (plan.end >> self.grain_shift).bit_length() - 30)

    def reserve(self, plan: Plan) -> None:
        """Make the pool large enough for `plan`."""
        if plan.end > len(self._pool):
            pool = self._backend.empty(max(plan.end, len(self._pool) * 3 // 2), self._value)
            pool[: self._used] = self._pool[: self._used]
            self._pool = pool

    def append(self, slots: Slots, plan: Plan, runs: Any, starts: Any, values: Any) -> None:
        """Append the runs; the pool and the slots have room for them."""
        count = len(runs)
        made = self._arguments(args.LIST_APPEND, slots, count, run_keys=runs, run_offsets=starts)
        made["values"] = self._backend.pointer(values)
        made["places"] = self._backend.pointer(plan.places)
        made["limit"] = args.UNLIMITED
        lanes = self._lanes(starts)
        self._launch(args.list_append(slots.key, self._value, lanes), made)
        self._used = plan.end
        self.appended += len(values)

    def count(self, slots: Slots, keys: Any) -> Any:
        """How many values each key has, int64."""
        counts = self._backend.empty(len(keys), np.uint64)
        made = self._arguments(args.LIST_COUNT, slots, len(keys), keys=keys, counts=counts)
        self._launch(args.list_count(slots.key, self._lanes()), made)
        return counts.view(np.int64)

    def retrieve(self, slots: Slots, keys: Any, offsets: Any) -> Any:
        """The values of all keys; those of key *i* begin at ``offsets[i]``."""
        values = self._backend.empty(int(offsets[-1]), self._value)
        made = self._arguments(args.LIST_RETRIEVE, slots, len(keys), keys=keys, offsets=offsets)
        made["values"] = self._backend.pointer(values)
        lanes = self._lanes(offsets)
        self._launch(args.list_retrieve(slots.key, self._value, lanes), made)
        return values

    def _lanes(self, offsets: Any = None) -> int:
        """Lanes for lists that begin at `offsets`, wide when one of them is long.

        One tile copies a list alone, so the longest decides how long a launch takes.
        """
        if self._tile is not None:
            return self._tile
        if offsets is None or len(offsets) < 2:
            return args.DEFAULT_TILE
        longest = int((offsets[1:] - offsets[:-1]).max())
        return args.TILE_WIDTHS[-1] if longest >= _LONG_LIST else args.DEFAULT_TILE

    def clear(self) -> None:
        """Forget every value and give the pool back."""
        self._pool = self._backend.empty(0, self._value)
        self._used = self.appended = 0

    def copy(self) -> Buckets:
        """Independent lists with the same content."""
        made = object.__new__(Buckets)
        made.__dict__.update(self.__dict__)
        made._pool = self._backend.empty(self._used, self._value)
        made._pool[...] = self._pool[: self._used]
        made._state = self._state.copy()
        return made

    def _arguments(self, struct: np.dtype[Any], slots: Slots, n: int, **arrays: Any) -> np.ndarray:
        made = np.zeros((), struct)
        table = made["table"]
        table["keys"] = slots.storage
        table["pool"]["slots"] = self._backend.pointer(self._pool)
        table["pool"]["state"] = self._backend.pointer(self._state)
        # Every run has its place, so that nothing is ever taken from the rest.
        table["pool"]["capacity"] = 0
        table["growth"]["slots_end"] = self._backend.pointer(self._ends)
        table["growth"]["levels"] = len(self._ends)
        table["growth"]["grain_shift"] = self.grain_shift
        made["n"] = n
        for name, array in arrays.items():
            made[name] = self._backend.pointer(array)
        return made

    def _launch(self, kernel: Any, made: np.ndarray) -> None:
        if made["n"]:
            self._backend.launch(kernel, made, int(made["n"]))


def _ends_of_buckets(first: int, growth: float, grain: int) -> np.ndarray:
    """Pool slots of a list's first, first two, … buckets; a link stands in all but the first."""
    sizes = [first]
    while len(sizes) < 2 or (growth > 1 and sizes[-1] < _LARGEST_BUCKET):
        sizes.append(math.ceil(growth * sizes[-1]))
    slots = [size + (number > 0) for number, size in enumerate(sizes)]
    whole = [-(-size // grain) * grain for size in slots]
    return np.cumsum(whole).astype(np.uint64)
