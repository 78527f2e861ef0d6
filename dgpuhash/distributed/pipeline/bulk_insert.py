"""New keys on their way to their owners, in the order of the owners' tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import Ranges
from dgpuhash.backend.batch.partition import Partitioned, Segments
from dgpuhash.distributed.collective.base import Collective, Places, Transfer
from dgpuhash.distributed.pipeline.slices import Field, Rows
from dgpuhash.distributed.shards.table_shard import Part
from dgpuhash.tables.open_addressing.bulk_stream import RegionIntake

__all__ = ["Offer", "Placing"]

# The share of a round that the first one has.
SHORT = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """What a rank tells before the owners agree on placing a batch range by range.

    Attributes
    ----------
    ranges : Ranges
        Of its table.
    room : int
        Keys that it has place for.
    counts : int64 array
        Its rows by owner and range.
    """

    ranges: Ranges
    room: int
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class _Round:
    """Some ranges, from `first` on, whose rows are on their way."""

    first: int
    counts: np.ndarray
    """Rows by rank, the others' first, and range."""
    transfer: Transfer


class Placing:
    """A rank's share of an insert into tables without keys that are alike on all ranks.

    One pass puts a batch in order by owner and range of the owner's table. Ranges travel one after
    the other, and while the next are on their way the owner's second pass puts the rows of those
    that came in order by region, and each region is built: so the batch is moved twice, and the
    table written once. No row number is kept: where not every row has brought a key, rows ask
    afterwards which did.

    Parameters
    ----------
    backend : Backend
    collective : Collective
    part : Part
    ranges : Ranges
    columns : list of array
        All rows of this rank, key words first.

    Attributes
    ----------
    peak_nbytes : int
        The most that rows on their way have taken at once on this rank.
    """

    def __init__(
        self,
        backend: Backend,
        collective: Collective,
        part: Part,
        ranges: Ranges,
        columns: list[Any],
    ) -> None:
        self._backend, self._collective, self._part = backend, collective, part
        self._ranges = ranges
        # Memory of the current stream, which gives it to others while this stream reads it.
        self._given = columns
        keys, *values = columns
        self._new: Callable[[], np.ndarray] = lambda: np.ones(0, bool)

        def counted(segments: Segments) -> None:
            self._starts = part.side.fetch(segments.starts)
            # Prepared while a GPU counts; once rows move, it has no room for other kernels.
            if len(keys):
                self._new = part.side.fetch(
                    part.store.witnesses.newness(backend, part.store.slots, keys)
                )

        part.side.follow()
        with part.side.use():
            moved = ranges.route(
                backend, keys, values[0] if values else None,
                owners=collective.size, owner_seed=part.owner_seed, counted=counted,
            )  # fmt: skip
        self._edges = self._mine = np.zeros((0, 0), np.int64)
        self._counts = np.zeros((0, 0, 0), np.int64)
        self._columns = [moved.keys, *([moved.values] if values else [])]
        self._intake: RegionIntake | None = None
        self._going: list[_Round] = []
        self.peak_nbytes = 0

    def offer(self) -> Offer | None:
        """What the other ranks are told, while rows move; None where not all keys seem new."""
        if not self._new().all():
            return None
        starts = self._starts().astype(np.int64)
        shape = self._collective.size, self._ranges.number
        self._edges, self._mine = starts[:-1].reshape(shape), np.diff(starts).reshape(shape)
        return Offer(self._ranges, self._part.table.capacity, self._mine)

    def give_up(self) -> None:
        """Let the current stream wait until no row is moved any more."""
        self._part.side.rejoin()
        self._starts()
        self._new()

    def agreed(self, offers: Sequence[Offer | None]) -> bool:
        """Whether all ranks have tables alike, with room for what comes: the same on all ranks."""
        offered = [offer for offer in offers if offer is not None]
        if len(offered) < len(offers) or any(each.ranges != self._ranges for each in offered):
            return False
        self._counts = np.stack([offer.counts for offer in offered])
        coming = self._counts.sum(axis=(0, 2)).tolist()
        return all(rows <= offer.room for rows, offer in zip(coming, offered, strict=True))

    def set_out(self, slice_rows: int) -> None:
        """Let all rows go; `place` follows.

        So the host has time until rows have moved, and what it does next delays none of them.
        """
        counts, ranks, rank = self._counts, self._collective.size, self._collective.rank
        of_ranks = counts.sum(axis=(0, 2)), counts.sum(axis=(1, 2))
        travelling = int(np.max(of_ranks)) * (ranks - 1) / ranks
        rounds = _rounds(self._ranges.number, max(1, round(travelling / slice_rows)))
        # Those of other ranks, and this one's, which stay where they are until they are placed.
        shares = np.roll(counts[:, rank], ranks - 1 - rank, axis=0)
        self._intake = self._part.intake(self._ranges, int(shares.sum()))
        rooms = self._rooms([first for first, _ in rounds])
        self._part.side.follow()
        self._part.side.rejoin()
        self._going = [
            _Round(first, shares[:, first : first + number], self._send(first, number, places))
            for (first, number), places in zip(rounds, rooms, strict=True)
        ]
        came_nbytes = [sum(column.nbytes for column in places.columns) for places in rooms]
        sent = sum(column.nbytes for column in self._columns)
        # Of one round's rows there is another copy, by region.
        self.peak_nbytes = sent + sum(came_nbytes) + max(came_nbytes)

    def place(self) -> RegionIntake:
        """Place all rows as they come; `finish` of what it gives follows."""
        intake, going = self._intake, self._going
        assert intake is not None
        bounds = self._bounds([each.counts for each in going])
        for each, edges in zip(going, bounds, strict=True):
            keys, *values = each.transfer.wait().columns
            ranks, number = each.counts.shape
            own_keys, *own_values = self._own(each.first, number)
            self._part.written = True
            intake.place(
                keys, values[0] if values else None, edges,
                first=each.first, number=number, shares=ranks,
                more=Partitioned(own_keys, own_values[0] if own_values else None, None),
            )  # fmt: skip
        return intake

    def _rooms(self, firsts: Sequence[int]) -> list[Places]:
        """For the rows of each round, of which those of this rank do not come.

        All rounds have theirs from the start, so that no row waits for what is placed before it.
        """
        rank, collective = self._collective.rank, self._collective
        counts = np.moveaxis(np.add.reduceat(self._counts, firsts, axis=2), 2, 0)
        rows = Rows.of(counts, turned=True)
        landing = None
        if collective.lands(self._backend.name):
            field = Field(self._columns, rows.ends.tolist(), [0] * collective.size)
            landing = collective.landing(field.ends)
        if landing is None:
            room = int(rows.ends[rank])
            columns = [self._backend.empty(room, each.dtype) for each in self._columns]
        else:
            columns = field.columns(landing, rank)
        begins, numbers = rows.begins[:, rank].tolist(), counts[:, :, rank].sum(axis=1).tolist()
        return [
            Places(
                [column[begin : begin + number] for column in columns],
                of_round[:, rank] - begin,
                theirs=None if landing is None else field.places(of_round[rank].tolist()),
            )
            for begin, number, of_round in zip(begins, numbers, rows.firsts, strict=True)
        ]

    def _bounds(self, counts: Sequence[np.ndarray]) -> list[Any]:
        """For each round where the rows of each share's ranges begin, and the last one's end."""
        edges = [np.concatenate([[0], np.cumsum(each)]).astype(np.uint64) for each in counts]
        ends = np.cumsum([len(each) for each in edges]).tolist()
        on_device = self._backend.from_host(np.concatenate(edges))
        return [on_device[end - len(each) : end] for each, end in zip(edges, ends, strict=True)]

    def _send(self, first: int, number: int, to: Places) -> Transfer:
        starts, counts = self._cut(first, number)
        counts[self._collective.rank] = 0
        with self._part.side.use():
            return self._collective.start(self._columns, counts, starts=starts, to=to)

    def _own(self, first: int, number: int) -> list[Any]:
        """The rank's own rows of some ranges."""
        starts, counts = self._cut(first, number)
        start = starts[self._collective.rank]
        stop = start + counts[self._collective.rank]
        return [column[start:stop] for column in self._columns]

    def _cut(self, first: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows of some ranges begin, by owner, and how many they are."""
        return self._edges[:, first], self._mine[:, first : first + number].sum(axis=1)


def _rounds(ranges: int, number: int) -> list[tuple[int, int]]:
    """About so many rounds of `ranges`, each by its first one and how many they are.

    The first is short, since nothing is placed before it is there.
    """
    step = math.ceil(ranges / number)
    short = step if number == 1 else math.ceil(step / SHORT)
    firsts = [0, *range(short, ranges, step)]
    return [(first, stop - first) for first, stop in itertools.pairwise([*firsts, ranges])]
