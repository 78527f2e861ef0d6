"""Parcels, the box they are put into, and the protocol that carries them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgpuhash.distributed.partition.change import LOOSE
from dgpuhash.distributed.partition.skew import NO_TALLY, Tally
from dgpuhash.errors import IndexLost

__all__ = ["Exchange", "Inbox", "Parcel", "Receipt"]


# Parcels on their way to a part: while one is acknowledged the next ones travel.
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Parcel:
    """A piece of one partition's segment for one part.

    Dask may run a task twice, at once or one after the other, so a parcel says which attempt it
    belongs to; the phase is sealed with one attempt of each partition, and the rest is dropped.

    Attributes
    ----------
    partition : int
        Number of the input partition; gives the order of rows.
    attempt : str
        Drawn anew by each run of the partition's task.
    number : int
        Of this piece within the segment.
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
    """What one finished attempt has put: `rows` for each part, and keys that may be heavy."""

    partition: int
    attempt: str
    rows: tuple[int, ...]
    tally: Tally = NO_TALLY


@dataclass
class Inbox:
    """The parcels of one bulk phase that arrived at one part."""

    part: int
    _parcels: dict[tuple[int, str], dict[int, Parcel]] = field(default_factory=dict)

    def accept(self, parcel: Parcel) -> None:
        """Keep a parcel; one that was delivered before changes nothing."""
        segment = self._parcels.setdefault((parcel.partition, parcel.attempt), {})
        segment.setdefault(parcel.number, parcel)

    def loose(self, receipts: Sequence[Receipt]) -> list[Parcel]:
        """The parcels, of attempts that won, of keys that may be heavy."""
        return [
            parcel
            for receipt in receipts
            for number, parcel in self._parcels.get(
                (receipt.partition, receipt.attempt), {}
            ).items()
            if LOOSE <= number < 2 * LOOSE
        ]

    def replace(self, parcel: Parcel) -> None:
        """Put a parcel in the place of that with its number."""
        self._parcels[parcel.partition, parcel.attempt][parcel.number] = parcel

    def collect(self, receipts: Sequence[Receipt]) -> list[Any]:
        """The payloads of the attempts that won, in the order of partitions.

        All attempts at these partitions leave the box.

        Raises
        ------
        IndexLost
            When rows are missing that a receipt speaks of.
        """
        found = []
        for receipt in sorted(receipts, key=lambda receipt: receipt.partition):
            segment = self._parcels.pop((receipt.partition, receipt.attempt), {})
            parcels = [segment[number] for number in sorted(segment)]
            rows = sum(parcel.rows for parcel in parcels)
            if rows != receipt.rows[self.part]:
                raise IndexLost(
                    f"part {self.part} received {rows:,} of {receipt.rows[self.part]:,} rows of "
                    f"partition {receipt.partition}; nothing was changed, call it again"
                )
            found += [parcel.payload for parcel in parcels]
        done = {receipt.partition for receipt in receipts}
        self._parcels = {key: box for key, box in self._parcels.items() if key[0] not in done}
        return found


class Exchange(ABC):
    """Puts segments into the inboxes of the parts.

    `put` is asynchronous and acknowledged: when it returns, the parcel is in the inbox. An
    exchange whose transport works only in lockstep overrides `put_segments`, which has all
    segments of one rank at once.
    """

    @property
    @abstractmethod
    def parts(self) -> int:
        """The number of parts."""

    @abstractmethod
    async def put(self, part: int, parcel: Parcel) -> None:
        """Hand `parcel` to the inbox of `part`.

        Raises
        ------
        IndexLost
            When the owner of the part is gone.
        """

    async def put_segments(self, segments: Sequence[Iterable[Parcel]]) -> None:
        """Put the parcels of ``segments[part]`` to each part.

        Parts are served at the same time, each with a few parcels on their way, so that the memory
        in flight is bounded by the size of a parcel times the number of parts.
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
