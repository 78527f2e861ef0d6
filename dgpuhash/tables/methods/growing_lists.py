"""Table of growable lists, appended by the inserting kernel (WarpCore §IV-C)."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Kernel, verb_kernel
from dgpuhash.backend.kernel import name_of_word
from dgpuhash.backend.launches import Step
from dgpuhash.errors import CapacityError, OutOfMemoryError
from dgpuhash.tables.bucket_list.pool import bucket_ends
from dgpuhash.tables.open_addressing.extent import Extent
from dgpuhash.tables.stores.list_recipe import ListRecipe

_UINT32, _UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)
# Of a handle: all ones is no list; else a state, the values, the last bucket's first slot.
_NO_LIST, _TAIL_BITS, _COUNT_BITS = 2**64 - 1, 34, 28
MOST_VALUES = 2**_COUNT_BITS - 1
# Kernels that do not depend on the keys, and those that do not depend on the values.
_OF_VALUES = ("read_lists", "read_parts")
_OF_BOTH = ("append_rows", "append")
# Rows that one tile appends: many, where the batch is large, and where keys have many rows, since
# tiles with the same key hinder each other.
_SEGMENT = {"cpu": (4096, 4096), "cuda": (32, 2048)}
_TILES, _HEAVY_TILES, _LONGEST_SEGMENT = 2**14, 2**12, 2**15
# An ordered batch where a key comes twice at this distance has keys with many rows.
_HEAVY_ROWS = 2**13
# Lists that are longer are read in parts of so many values.
_PART_VALUES = 4096


class GrowingLists(ListRecipe):
    """Key slots with list handles, and a pool of the lists' buckets.

    The two reserved keys have lists like others; their handles are in the table's state.
    """

    unit = "lines"
    pair_a_place = False

    @classmethod
    def words(
        cls, key: np.dtype[Any], value: np.dtype[Any] | None
    ) -> tuple[np.dtype[Any], np.dtype[Any] | None]:
        """Implement `Recipe.words`: keys and values of 4 and 8 bytes, in any combination."""
        return key, value

    @property
    def value(self) -> np.dtype[Any]:
        """Dtype of the value words."""
        assert self.plan.value is not None
        return self.plan.value

    @property
    def table(self) -> str:
        """Implement `Recipe.table`."""
        return f"dg::GrowingLists<{self.types}>"

    @property
    def slots(self) -> int:
        """Implement `Recipe.slots`."""
        return len(self.fields["slots"]) // 2

    @property
    def pool(self) -> Any:
        """The value slots."""
        return self.fields["values"]

    def kernel(self, verb: str) -> Kernel:
        """Implement `Recipe.kernel`: kernels that see one kind of words only are shared."""
        key, value = (name_of_word(each) for each in (self.plan.key, self.value))
        if verb in _OF_VALUES:
            key = "dg::u32"
        elif verb not in _OF_BOTH:
            value = "dg::u32"
        return verb_kernel(verb, f"dg::GrowingLists<{key},{value}>", self.width(verb))

    def width(self, verb: str) -> int | None:
        """Implement `Recipe.width`; with `width` 1, each lane of a warp searches its own key."""
        chosen: int = self.plan.settings["width"]
        return chosen if verb == "append" else None

    def allocate(self, keys: int) -> dict[str, Any]:
        """Implement `Recipe.allocate`."""
        backend, chosen = self.backend, self.plan.settings
        extent = Extent.of(_UINT64, _UINT64, math.ceil(keys / chosen["load"]))
        if extent.slots > 2**32 - 8:
            raise CapacityError(
                f"{keys:,} keys need {extent.slots:,} slots and a table can number {2**32:,}; "
                "spread the keys over several tables"
            )
        link_slots = 8 // self.value.itemsize
        ends = bucket_ends(chosen["initial_bucket"], chosen["growth"], link_slots)
        self._ends = ends.astype(np.int64)
        self._value_ends = self._ends - link_slots * np.arange(len(ends))
        return {
            "slots": backend.empty(2 * extent.slots, np.uint64),
            "values": backend.empty(0, self.value),
            "pool": {"taken": backend.empty(1, np.uint64), "slots": 0},
            "growth": {
                "slots_end": backend.from_host(ends.copy()),
                "levels": len(ends),
                "link_slots": link_slots,
            },
            "lines": extent.buckets,
            "segment_shift": extent.segment.bit_length() - 1,
        }

    def reset(self) -> None:
        """Implement `Recipe.reset`."""
        self.fields["slots"].view(np.uint8).fill(0xFF)
        self.fields["pool"]["taken"].fill(np.uint64(0))

    def forget(self) -> None:
        """Implement `Recipe.forget`."""
        super().forget()
        self.appended = 0
        """Values that were appended, also those that are erased."""

    @property
    def used(self) -> int:
        """Used slots of the pool; waits for the device."""
        return 0 if self.blank else min(int(self.fields["pool"]["taken"][0]), len(self.pool))

    @property
    def dry(self) -> bool:
        """Whether a launch needed more slots than the pool has; waits for the device."""
        return not self.blank and int(self.fields["pool"]["taken"][0]) > len(self.pool)

    def add_room(self, wanted: int) -> None:
        """Enlarge the pool to at least `wanted` slots, or more if memory allows.

        Raises
        ------
        CapacityError
            When the pool would be too large.
        """
        held = len(self.pool)
        if wanted <= held:
            return
        if wanted >= 2**_TAIL_BITS:
            raise CapacityError(
                f"the values need {wanted:,} slots of a pool and a table can number "
                f"{2**_TAIL_BITS:,}; spread the keys over several tables"
            )
        used = self.used
        try:
            pool = self.backend.empty(max(wanted, held * 3 // 2), self.value)
        except OutOfMemoryError:
            pool = self.backend.empty(wanted, self.value)
        pool[:used] = self.pool[:used]
        self._set_pool(pool, used)

    def _set_pool(self, pool: Any, used: int) -> None:
        taken = self.backend.full(1, used, np.uint64)
        self.replace(values=pool, pool={"taken": taken, "slots": len(pool)})

    def copied(self) -> Self:
        """Return an independent table with the same content."""
        made = type(self)(self.plan, self.keys, self.generation)
        if not self.blank:
            made.fields["slots"][...] = self.fields["slots"]
            made.state[...] = self.state
            made._set_pool(self.pool[: self.used].copy(), self.used)
            made.filled, made.blank, made.appended = True, False, self.appended
            made.erased_bound = self.erased_bound
        return made

    def appending(self, keys: Any, values: Any, *, rows: Any = None, pending: Any = None) -> Step:
        """Implement `ListRecipe.appending`; any keys."""
        self.change()
        backend, number = self.backend, len(keys) if rows is None else len(rows)
        tiled = self.plan.settings["width"] > 1 and rows is None
        if tiled:
            return backend.prepared(
                self.kernel("append"), number, table=self.storage, keys=keys, values=values,
                pending_rows=pending,
            )  # fmt: skip
        segment = self._segment_rows(number, keys if rows is None else None)
        return backend.prepared(
            self.kernel("append_rows"), -(-number // segment), table=self.storage, keys=keys,
            values=values, chosen=rows, pending_rows=pending, rows=number, segment_rows=segment,
        )  # fmt: skip

    def _segment_rows(self, number: int, keys: Any) -> int:
        """Return the rows appended per tile; `keys` is None for selected rows."""
        least, most = _SEGMENT[self.backend.name]
        segment = min(max(number // _TILES // least * least, least), most)
        if keys is None or number < 4 * _HEAVY_ROWS:
            return segment
        strided = keys[::_HEAVY_ROWS]
        heavy = bool((strided[1:] == strided[:-1]).any())
        return min(max(number // _HEAVY_TILES, segment), _LONGEST_SEGMENT) if heavy else segment

    @classmethod
    def store(cls) -> type[Any]:
        """Implement `Recipe.store`."""
        from dgpuhash.tables.methods.bucket_list import BucketListStore

        return BucketListStore

    def opened(self, keys: Any) -> tuple[Any, Any]:
        """Return the handles (uint64) of keys, and their numbers of values (int64)."""
        self.fill()
        handles, counts = (self.backend.empty(len(keys), kind) for kind in (np.uint64, np.int64))
        self._run("open_lists", len(keys), keys=keys, handles=handles, counts=counts)
        return handles, counts

    def restoring(self, keys: Any, handles: Any, state: Any) -> list[Step]:
        """Return the steps that restore the keys' handles of an earlier `open`."""
        step = self.backend.prepared(
            self.kernel("restore_lists"), len(keys), table=self.storage, keys=keys, handles=handles
        )
        return [step, functools.partial(operator.setitem, self.state, slice(0, 6), state[:6])]

    def counts(self, keys: Any) -> Any:
        """Implement `ListRecipe.counts`."""
        self.fill()
        counts = self.backend.empty(len(keys), np.int64)
        self._run("open_lists", len(keys), keys=keys, counts=counts)
        return counts

    def read(self, handles: Any, counts: Any) -> tuple[Any, Any]:
        """Return the value words of lists concatenated, and their offsets (int64)."""
        backend, lists = self.backend, len(handles)
        xp, offsets = backend.xp, backend.zeros(lists + 1, np.int64)
        if lists == 0:
            return backend.empty(0, self.value), offsets
        xp.cumsum(counts, out=offsets[1:])
        total, longest = (int(each) for each in (offsets[-1], counts.max()))
        values = backend.empty(total, self.value)
        mean = total / lists
        width = 4 if mean <= 8 else 8 if mean <= 128 else 16
        kernel = verb_kernel("read_lists", self._value_table, width)
        backend.run(
            kernel, lists, table=self.storage, handles=handles, offsets=offsets, values=values,
            longest=_PART_VALUES,
        )  # fmt: skip
        if longest > _PART_VALUES:
            rows = xp.flatnonzero(counts > _PART_VALUES)
            parts = backend.zeros(len(rows) + 1, np.int64)
            xp.cumsum(-(-counts[rows] // _PART_VALUES), out=parts[1:])
            self._run(
                "read_parts", int(parts[-1]), handles=handles[rows], offsets=offsets[rows],
                parts=parts, values=values, part_values=_PART_VALUES, lists=len(rows),
            )  # fmt: skip
        return values, offsets

    def withdrawing(self, keys: Any, erased: Any) -> Step:
        """Implement `ListRecipe.withdrawing`; any keys, of which one row becomes true."""
        self._note_erase(len(keys))
        return self.backend.prepared(
            self.kernel("erase_lists"), len(keys), table=self.storage, keys=keys, erased=erased
        )

    def stored_keys(self) -> Any:
        """Return the distinct stored key words, reserved keys last."""
        keys = self._items(2)[0]
        counts = self._reserved_counts()
        marks = np.flatnonzero(counts)
        regular = len(keys) - 2
        top = self.plan.key.type(np.iinfo(self.plan.key).max)
        keys[regular : regular + len(marks)] = self.backend.from_host(
            top - marks.astype(self.plan.key)
        )
        return keys[: regular + len(marks)]

    def items(self) -> tuple[Any, Any]:
        """Implement `Contents.items`; keys only, and no reserved ones."""
        return self._items(0)[0], None

    def distinct(self) -> int:
        """Implement `ListRecipe.distinct`."""
        return self.count().links

    def move_to(self, target: Self, pending: Any = None, *, again: bool = False) -> int:  # type: ignore[override]
        """Implement `ListRecipe.move_to`; the target shares this table's pool from then on."""
        self.fill()
        if again:
            target.forget()
        target.change()
        target.replace(values=self.pool, pool=self.fields["pool"])
        target.appended = self.appended
        counts = self._reserved_counts()
        there = [int(counts.sum()), 0, 0, int(np.count_nonzero(counts))]
        target.state[:4] = self.backend.from_host(np.array(there, np.uint64))
        target.state[6:] = self.state[6:]
        self._run("move_lists", self.places, target=target.storage, pending_rows=pending)
        target.change()
        return target.count().pending

    def figures(self) -> dict[str, Any]:
        """Implement `Recipe.figures`."""
        counts = self.backend.to_host(self.counts(self.stored_keys()))
        last, more = self._last_buckets(counts)
        buckets = int((last + 1 + more).sum())
        ends = self._value_ends
        return {
            "buckets": buckets,
            "slots": int((ends[last] + more * (ends[-1] - ends[-2])).sum()),
            "links": buckets - len(counts),
            "pool_slots": len(self.pool),
            "pool_taken": self.used,
            "mapping": "one-to-one" if self.plan.settings["width"] == 1 else "many-to-one",
        }

    def slots_of(self, counts: np.ndarray) -> int:
        """Return the pool slots of lists with some numbers of values, links included."""
        (last, more), ends = self._last_buckets(counts), self._ends
        return int((ends[last] + more * (ends[-1] - ends[-2])).sum())

    def _last_buckets(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each list's last bucket number, and the number of buckets after the largest."""
        ends = self._value_ends
        more = -(-np.maximum(counts - ends[-1], 0) // (ends[-1] - ends[-2]))
        return np.minimum(np.searchsorted(ends, counts), len(ends) - 1), more

    @property
    def _value_table(self) -> str:
        return f"dg::GrowingLists<dg::u32,{name_of_word(self.value)}>"

    def _reserved_counts(self) -> np.ndarray:
        """Return the numbers of values of the two reserved keys."""
        handles = self._host_state()[6:]
        counts = handles >> np.uint64(_TAIL_BITS) & np.uint64(MOST_VALUES)
        return np.where(handles == _NO_LIST, np.uint64(0), counts)

    def _run(self, verb: str, n: int, **fields: Any) -> None:
        self.backend.run(self.kernel(verb), n, table=self.storage, **fields)
