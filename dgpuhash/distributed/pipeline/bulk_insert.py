"""Bulk insert of new keys into empty tables, exchanged by ranges of slots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import RegionRanges
from dgpuhash.backend.batch.partition import Partitioned, PassLayout
from dgpuhash.distributed.collective.base import Collective, Destination, Transfer
from dgpuhash.distributed.pipeline.slices import LandingColumns, RoundLayout
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.tables.open_addressing.bulk_stream import StreamedBuild

# The first round has 1/`SHORT` of another round's ranges.
SHORT = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """Proposal of a rank, before ranks agree on a bulk insert by ranges.

    Attributes
    ----------
    ranges : RegionRanges
        How its table is cut into ranges.
    room : int
        Keys that its shard has room for.
    counts : int64 array
        Its rows by owner and range.
    """

    ranges: RegionRanges
    room: int
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class _Round:
    """Consecutive ranges, from `first` on, in flight."""

    first: int
    counts: np.ndarray
    """Rows by rank, the other ranks first, and by range."""
    transfer: Transfer


class BulkInsert:
    """One rank's bulk insert into empty tables of equal size.

    One pass partitions the batch by owner and range of the owner's table. Ranges travel one after
    the other; while the next ones are under way, the owner's second pass orders the rows that
    arrived by region, and each region is built. So the batch is moved twice and the table is
    written once. No row number is kept: where some rows have brought no new key, rows ask
    afterwards which of them did.

    Parameters
    ----------
    backend : Backend
    collective : Collective
    part : Part
    ranges : RegionRanges
    columns : list of array
        All rows of this rank, key words first.

    Attributes
    ----------
    peak_nbytes : int
        Peak bytes of rows under way on this rank.
    """

    def __init__(
        self,
        backend: Backend,
        collective: Collective,
        part: TableShard,
        ranges: RegionRanges,
        columns: list[Any],
    ) -> None:
        self._backend, self._collective, self._part = backend, collective, part
        self._ranges = ranges
        # Kept alive: the current stream would reuse this memory while the side stream reads it.
        self._given = columns
        keys, *values = columns
        self._new: Callable[[], np.ndarray] = lambda: np.ones(0, bool)

        def counted(segments: PassLayout) -> None:
            self._starts = part.side.fetch(segments.starts)
            # Prepared while a GPU counts; once rows move, the GPU has no room for other kernels.
            if len(keys):
                self._new = part.side.fetch(
                    part.store.witnesses.new_key_flags(backend, part.store.slots, keys)
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
        self._intake: StreamedBuild | None = None
        self._going: list[_Round] = []
        self.peak_nbytes: int = 0

    def offer(self) -> Offer | None:
        """Return this rank's offer; None if some keys seem not to be new.

        It is made while the GPU moves rows, and the other ranks are told.
        """
        if not self._new().all():
            return None
        starts = self._starts().astype(np.int64)
        shape = self._collective.size, self._ranges.number
        self._edges, self._mine = starts[:-1].reshape(shape), np.diff(starts).reshape(shape)
        return Offer(self._ranges, self._part.table.capacity, self._mine)

    def give_up(self) -> None:
        """Make the current stream wait until no rows are moved any more."""
        self._part.side.rejoin()
        self._starts()
        self._new()

    def agreed(self, offers: Sequence[Offer | None]) -> bool:
        """Return whether all tables are of equal size and have room for their rows.

        The result is the same on all ranks.
        """
        offered = [offer for offer in offers if offer is not None]
        if len(offered) < len(offers) or any(each.ranges != self._ranges for each in offered):
            return False
        self._counts = np.stack([offer.counts for offer in offered])
        coming = self._counts.sum(axis=(0, 2)).tolist()
        return all(rows <= offer.room for rows, offer in zip(coming, offered, strict=True))

    def send_all(self, slice_rows: int) -> None:
        """Send all rows; `place` follows.

        The host has time until the rows have moved: its next work delays none of them.
        """
        counts, ranks, rank = self._counts, self._collective.size, self._collective.rank
        of_ranks = counts.sum(axis=(0, 2)), counts.sum(axis=(1, 2))
        travelling = int(np.max(of_ranks)) * (ranks - 1) / ranks
        rounds = _rounds(self._ranges.number, max(1, round(travelling / slice_rows)))
        # Rows by sender: other ranks, then this rank, whose rows stay in place until stored.
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
        # One round's rows exist once more, ordered by region.
        self.peak_nbytes = sent + sum(came_nbytes) + max(came_nbytes)

    def place(self, advance: Callable[[int], object]) -> StreamedBuild:
        """Store all rows as they arrive; the returned intake's `finish` follows.

        `advance` is called with the number of rows of each round.
        """
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
            advance(len(keys) + len(own_keys))
        return intake

    def _rooms(self, firsts: Sequence[int]) -> list[Destination]:
        """Return each round's destination of rows from the other ranks.

        Memory for all rounds is allocated at the start, so that no row waits until earlier rows are
        stored.
        """
        rank, collective = self._collective.rank, self._collective
        counts = np.moveaxis(np.add.reduceat(self._counts, firsts, axis=2), 2, 0)
        rows = RoundLayout.of(counts, turned=True)
        landing = None
        if collective.lands(self._backend.name):
            field = LandingColumns(self._columns, rows.ends.tolist(), [0] * collective.size)
            landing = collective.landing(field.ends)
        if landing is None:
            room = int(rows.ends[rank])
            columns = [self._backend.empty(room, each.dtype) for each in self._columns]
        else:
            columns = field.columns(landing, rank)
        begins, numbers = rows.begins[:, rank].tolist(), counts[:, :, rank].sum(axis=1).tolist()
        return [
            Destination(
                [column[begin : begin + number] for column in columns],
                of_round[:, rank] - begin,
                theirs=None if landing is None else field.places(of_round[rank].tolist()),
            )
            for begin, number, of_round in zip(begins, numbers, rows.firsts, strict=True)
        ]

    def _bounds(self, counts: Sequence[np.ndarray]) -> list[Any]:
        """Return each round's row bounds of the ranges, by sender.

        They are where the rows of each sender's ranges begin, and where the last range ends.
        """
        edges = [np.concatenate([[0], np.cumsum(each)]).astype(np.uint64) for each in counts]
        ends = np.cumsum([len(each) for each in edges]).tolist()
        on_device = self._backend.from_host(np.concatenate(edges))
        return [on_device[end - len(each) : end] for each, end in zip(edges, ends, strict=True)]

    def _send(self, first: int, number: int, to: Destination) -> Transfer:
        starts, counts = self._cut(first, number)
        counts[self._collective.rank] = 0
        with self._part.side.use():
            return self._collective.start(self._columns, counts, starts=starts, to=to)

    def _own(self, first: int, number: int) -> list[Any]:
        """Return the rank's own rows of `number` ranges from `first` on."""
        starts, counts = self._cut(first, number)
        start = starts[self._collective.rank]
        stop = start + counts[self._collective.rank]
        return [column[start:stop] for column in self._columns]

    def _cut(self, first: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the row offsets and counts of some ranges, by owner."""
        return self._edges[:, first], self._mine[:, first : first + number].sum(axis=1)


def _rounds(ranges: int, number: int) -> list[tuple[int, int]]:
    """Return about `number` rounds, each as its first range and its length.

    The first round is short, since nothing is stored before its rows arrive.
    """
    step = math.ceil(ranges / number)
    short = step if number == 1 else math.ceil(step / SHORT)
    firsts = [0, *range(short, ranges, step)]
    return [(first, stop - first) for first, stop in itertools.pairwise([*firsts, ranges])]
