"""Parcels of rows for a shard, their inbox, and their exchange."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgpuhash.distributed.cluster.serialization import frame_of_payload
from dgpuhash.distributed.partition.change import CANDIDATE_CHUNKS
from dgpuhash.distributed.partition.skew import NO_COUNTS, KeyCounts
from dgpuhash.errors import IndexLost

# Parcels under way to one shard: while one is acknowledged, the next ones travel.
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Parcel:
    """Part of a partition's rows for one shard, sent as one message.

    Dask may run a task twice, at once or one after the other, so a parcel names its attempt. A
    change accepts one attempt of each partition and drops the parcels of the others.

    Attributes
    ----------
    partition : int
        Number of the input partition, by which rows are ordered.
    attempt : str
        Unique name of one run of the partition's task.
    number : int
        Number of the parcel within its segment; from `CANDIDATE_CHUNKS` on for keys that may be
        heavy; below 0 for keys alone, whose rows an upsert stores in other shards.
    rows : int
    payload : Any
        A frame, or device arrays.
    """

    partition: int
    attempt: str
    number: int
    rows: int
    payload: Any


@dataclass(frozen=True, slots=True)
class Receipt:
    """Confirmation of all parcels that one finished attempt sent.

    `rows` has the number of rows for each shard, `tally` the counts of keys that may be heavy,
    `keys` the number of keys for each shard of an upsert.
    """

    partition: int
    attempt: str
    rows: tuple[int, ...]
    tally: KeyCounts = NO_COUNTS
    keys: tuple[int, ...] = ()


@dataclass(eq=False)
class Inbox:
    """Parcels of one change received by one shard."""

    part: int
    _parcels: dict[tuple[int, str], dict[int, Parcel]] = field(default_factory=dict)
    arrived: int = 0
    """Rows that have come, with those of attempts that will not be accepted."""

    def accept(self, parcel: Parcel) -> None:
        """Store a parcel; a repeated delivery changes nothing."""
        segment = self._parcels.setdefault((parcel.partition, parcel.attempt), {})
        if parcel.number not in segment:
            segment[parcel.number] = parcel
            self.arrived += parcel.rows

    @property
    def is_full(self) -> bool:
        """Whether rows must be spilled before more are accepted."""
        return False

    def make_room(self) -> None:
        """Move rows from memory to disk, if the inbox supports it.

        Raises
        ------
        OutOfMemoryError
            When the disk is full.
        """

    def free(self) -> None:
        """Free files and other resources outside of memory."""

    def rows(self, parcel: Parcel, like: Any) -> Any:
        """Return the rows of a stored parcel as a frame with the columns of `like`."""
        return frame_of_payload(parcel.payload, like)

    def loose(self, receipts: Sequence[Receipt]) -> list[Parcel]:
        """Return the parcels of heavy-key candidates, of accepted attempts."""
        return [
            parcel
            for receipt in receipts
            for number, parcel in self._parcels.get(
                (receipt.partition, receipt.attempt), {}
            ).items()
            if CANDIDATE_CHUNKS <= number < 2 * CANDIDATE_CHUNKS
        ]

    def replace(self, parcel: Parcel) -> None:
        """Replace the stored parcel of the same partition, attempt and number."""
        self._parcels[parcel.partition, parcel.attempt][parcel.number] = parcel

    def collect_keys(self, receipts: Sequence[Receipt]) -> list[Any]:
        """Remove and return the payloads with keys alone, before `collect`.

        Raises as `collect`.
        """
        found = []
        for receipt in receipts:
            segment = self._parcels.get((receipt.partition, receipt.attempt), {})
            parcels = [segment.pop(number) for number in sorted(segment) if number < 0]
            self._check_rows(parcels, receipt, receipt.keys)
            found += [parcel.payload for parcel in parcels]
        return found

    def collect(self, receipts: Sequence[Receipt]) -> list[Any]:
        """Remove and return the payloads of accepted attempts, by partition.

        Parcels of all other attempts at these partitions are dropped.

        Raises
        ------
        IndexLost
            When more or fewer rows arrived than a receipt says.
        """
        found = []
        for receipt in sorted(receipts, key=lambda receipt: receipt.partition):
            segment = self._parcels.pop((receipt.partition, receipt.attempt), {})
            parcels = [segment[number] for number in sorted(segment)]
            self._check_rows(parcels, receipt, receipt.rows)
            found += [parcel.payload for parcel in parcels]
        done = {receipt.partition for receipt in receipts}
        self._parcels = {key: box for key, box in self._parcels.items() if key[0] not in done}
        return found

    def _check_rows(self, parcels: Sequence[Parcel], receipt: Receipt, told: Sequence[int]) -> None:
        rows, wanted = sum(parcel.rows for parcel in parcels), told[self.part] if told else 0
        if rows != wanted:
            raise IndexLost(
                f"shard {self.part} received {rows:,} of {wanted:,} rows of partition "
                f"{receipt.partition}; nothing was changed, call it again"
            )


class ParcelExchange(ABC):
    """Transport of row segments to the inboxes of the shards.

    `put` is asynchronous and acknowledged: when it returns, the parcel is in the inbox. An exchange
    whose transport works only in lockstep overrides `put_segments`, which is given all segments of
    one rank at once.
    """

    @property
    @abstractmethod
    def parts(self) -> int:
        """Number of shards."""

    @abstractmethod
    async def put(self, part: int, parcel: Parcel) -> None:
        """Send `parcel` to the inbox of shard `part`.

        Raises
        ------
        IndexLost
            When the owner of the shard is gone.
        """

    async def put_segments(self, segments: Sequence[Iterable[Parcel]]) -> None:
        """Send the parcels of ``segments[part]`` to each shard.

        All shards are served at the same time, each with at most `AT_ONCE` parcels under way, so
        the memory in flight is bounded by the size of a parcel times the number of shards.
        """
        turns = [iter(parcels) for parcels in segments]
        puts = [
            asyncio.ensure_future(self._put_in_turn(part, parcels))
            for part, parcels in enumerate(turns)
            for _ in range(AT_ONCE)
        ]
        try:
            await asyncio.gather(*puts)
        finally:
            for put in puts:
                put.cancel()

    async def _put_in_turn(self, part: int, parcels: Iterator[Parcel]) -> None:
        for parcel in parcels:
            await self.put(part, parcel)
