"""Spill build rows to a file beyond the worker's share of memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from dask.sizeof import sizeof

from dgpuhash.distributed.cluster.serialization import (
    Payload,
    concat_payloads,
    frame_of_payload,
    is_plain,
)
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.shards import worker_memory
from dgpuhash.distributed.shards.inbox import Inbox, Parcel, Receipt
from dgpuhash.distributed.shards.incoming import without_rows
from dgpuhash.distributed.shards.worker_memory import Spillable, WorkerMemory
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import FrameIndex, check_lossless_concat
from dgpuhash.frames.spill.file import SpillFile, detach

# Bytes that a key table takes for a row, and with what is there only while it is filled.
TABLE_NBYTES, FILLING_NBYTES = 20, 48


@dataclass(frozen=True, slots=True)
class SpilledPayload:
    """Rows of a parcel: keys in memory, other columns in a file from row `first` on."""

    keys: Any
    first: int


class SpillingInbox(Spillable, Inbox):
    """Inbox of a build whose rows go to a file when those of all runs exceed the worker's share.

    Keys stay in memory.

    Parameters
    ----------
    part : int
    change : Change
    memory : WorkerMemory
    """

    def __init__(self, part: int, change: Change, memory: WorkerMemory) -> None:
        Inbox.__init__(self, part)
        self._change = change
        names = set(change.encoder.names)
        self._key_places = [place for place, label in enumerate(change.meta) if label in names]
        self._keys = change.meta.iloc[:, self._key_places]
        self._others = change.meta[[label for label in change.meta if label not in names]]
        self._there = -1
        self._rows = self._keys_nbytes = self._others_nbytes = 0
        self._waiting: list[Parcel] = []
        # Parcels come on the event loop, and other threads write them.
        self._lock = threading.Lock()
        Spillable.__init__(self, memory)

    def accept(self, parcel: Parcel) -> None:
        """Store a parcel; a repeated delivery changes nothing."""
        if self._there < 0:
            self._there = max(0, self._memory.for_keys())
        if parcel.number in self._parcels.get((parcel.partition, parcel.attempt), ()):
            return
        super().accept(parcel)
        self._note(parcel)

    def replace(self, parcel: Parcel) -> None:
        before = self._parcels[parcel.partition, parcel.attempt][parcel.number]
        super().replace(parcel)
        self._note(before, -1)
        self._note(parcel)

    def _note(self, parcel: Parcel, times: int = 1) -> None:
        keys, others = self._sizes(parcel.payload)
        with self._lock:
            self._rows += times * parcel.rows
            self._keys_nbytes += times * keys
            self._others_nbytes += times * others
            if times == 1:
                self._waiting.append(parcel)

    def _sizes(self, payload: Payload) -> tuple[int, int]:
        """Return the bytes of the keys, and of the other columns."""
        if isinstance(payload, SpilledPayload):
            return nbytes_of(payload.keys), 0
        if is_plain(payload):
            keys = sum(payload[place].nbytes for place in self._key_places)
            return keys, sum(array.nbytes for array in payload) - keys
        keys = nbytes_of(payload.iloc[:, self._key_places])
        return keys, max(0, nbytes_of(payload) - keys)

    @property
    def is_full(self) -> bool:
        if self._kept > self._place(self._memory.for_keys):
            return True
        if self._others_nbytes <= worker_memory.WRITTEN_AT_ONCE:
            return False
        return self._file is not None or self._memory.spills.is_beyond

    @property
    def nbytes(self) -> int:
        return self._others_nbytes if self._others.shape[1] else 0

    @property
    def kept_nbytes(self) -> int:
        return self._keys_nbytes

    def make_room(self) -> None:
        """Write the rows that are in memory to the file, and see that keys have a place.

        Raises
        ------
        OutOfMemoryError
            When the disk is full, or memory has no place for the keys.
        """
        self.spill()
        self._memory.relieve()
        self._require_memory(self._kept, self._memory.for_keys)

    def spill(self) -> None:
        if not self._others.shape[1]:
            return
        with self.with_file():
            with self._lock:
                waiting, self._waiting = self._waiting, []
            try:
                while waiting and not self._freed:
                    self._write(waiting[0])
                    del waiting[0]
            finally:
                with self._lock:
                    self._waiting += waiting
                    if not self._waiting:
                        # Sizes of texts are estimates.
                        self._others_nbytes = 0

    def _write(self, parcel: Parcel) -> None:
        """Write a parcel's columns, except the keys, to the file and free them."""
        segment = self._parcels.get((parcel.partition, parcel.attempt), {})
        if segment.get(parcel.number) is not parcel:
            return
        if self._file is None:
            self._file = SpillFile(self._others, self._memory.folder)
        frame = frame_of_payload(parcel.payload, self._change.meta)
        first = self._file.append(frame[list(self._others)])
        keys = detach(frame.iloc[:, self._key_places])
        segment[parcel.number] = replace(parcel, payload=SpilledPayload(keys, first))
        with self._lock:
            self._others_nbytes -= self._sizes(parcel.payload)[1]

    def rows(self, parcel: Parcel, like: Any) -> Any:
        payload = parcel.payload
        if not isinstance(payload, SpilledPayload):
            return super().rows(parcel, like)
        with self.with_file():
            assert self._file is not None
            others = self._file.take(range_of(payload.first, parcel.rows))
        return pd.concat([payload.keys, others], axis=1)[list(like)]

    def sealed(self, receipts: Sequence[Receipt]) -> FrameIndex | None:
        """Return the index of accepted rows; None if nothing was spilled.

        All go there then; see `collect`.

        Raises
        ------
        OutOfMemoryError
            When the worker has no memory for the keys and their table, or the disk is full.
        """
        # Keys are put together, and get their codes.
        self._memory.spills.remove(self)
        needed = 2 * self._keys_nbytes + self._rows * FILLING_NBYTES
        self._require_memory(needed, self._memory.for_tasks)
        if self._file is None:
            self._waiting = []
            return None
        self.spill()
        payloads: list[SpilledPayload] = self.collect(receipts)
        spans = [(each.first, len(each.keys)) for each in payloads]
        keys = [each.keys for each in payloads]
        del payloads
        check_lossless_concat(keys, self._keys)
        together = concat_payloads(keys, self._keys)
        keys.clear()
        index = without_rows(self._change)
        index.insert_spilled(together, self._file, spans)
        return index

    @property
    def _kept(self) -> int:
        """Bytes of the keys and their hash table."""
        return self._keys_nbytes + self._rows * TABLE_NBYTES

    def _place(self, left: Callable[[], int]) -> int:
        """Return the bytes available for keys, including their present bytes.

        `left` is what the worker's memory has left for them.
        """
        held = 0 if self._file is None else self._file.held_nbytes
        mine = self._keys_nbytes + self._others_nbytes
        return max(0, self._there - held, left() + mine)

    def _require_memory(self, needed: int, left: Callable[[], int]) -> None:
        """Raise OutOfMemoryError unless the keys fit the memory."""
        if self._memory.wait(lambda: self._freed or needed <= self._place(left)):
            return
        raise OutOfMemoryError(
            f"the keys of {self._rows:,} rows of a build, with their hash table, need {needed:,} "
            f"bytes on worker {self._memory.address}, and "
            f"{self._place(left):,} are free; use more workers or workers with more memory, with "
            f"npartitions= at least their number, or make the other side the build side: "
            f"build='left' or 'right', or swap the sides"
        )


def nbytes_of(frame: Any) -> int:
    """Return the bytes of a frame; for objects an estimate that includes views."""
    return max(sizeof(frame), int(frame.memory_usage(deep=False).sum()))


def range_of(first: int, count: int) -> Any:
    """Return the numbers of `count` rows."""
    return pd.RangeIndex(first, first + count).to_numpy()
