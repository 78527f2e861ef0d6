"""Two-level all-to-all: small parts share one message per pair of hosts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dgpuhash.distributed.cluster.serialization import chunk_nbytes
from dgpuhash.distributed.collective import dask_comm
from dgpuhash.distributed.collective.base import Outgoing, columns_differ_error
from dgpuhash.distributed.collective.dask_comm import CommCollective, IncomingRows
from dgpuhash.distributed.collective.membership import Post, all_of
from dgpuhash.distributed.collective.two_level.layout import HostLayout
from dgpuhash.errors import UnsupportedError
from dgpuhash.typing import Device

Columns = list[Any]


def small_nbytes(layout: HostLayout, device: Device) -> int:
    """Return the most bytes from one rank to another that travel through gateways.

    All small parts that may share a message fit it. Between GPUs, whose messages may be larger, it
    is as many times more.
    """
    most = chunk_nbytes(device)
    larger = max(1, most // chunk_nbytes("cpu"))
    return min(larger * dask_comm.SMALL_NBYTES, most // layout.most_in_message)


class TwoLevelCollective(CommCollective):
    """Endpoint whose counts and small parts travel through the gateways of hosts.

    A rank gives the other ranks of its host their counts and rows, and to each those for the hosts
    that it is the gateway for. A gateway sends another host one message with what all ranks of its
    own have for it, and gives the ranks of its host what came for them. So a rank of 128 hosts of
    eight sends 30 messages instead of 1,023. Parts that are too large for that follow in chunks
    from rank to rank, once a rank has its counts.
    """

    def connect(self) -> None:
        """Check that the layout has two levels.

        Raises
        ------
        UnsupportedError
            When all ranks are on one host, or each has a host of its own.
        """
        if self.membership.layout is None:
            raise UnsupportedError(
                "a two-level exchange needs several hosts, one of them with several workers; give "
                "exchange='auto'"
            )

    async def _send_all(self, number: int, outgoing: Outgoing, arrival: IncomingRows) -> None:
        layout = self.membership.layout
        assert layout is not None
        limit = small_nbytes(layout, outgoing.device.name) // max(1, outgoing.kind.row_nbytes)
        relay = SmallParts(self, layout, number, outgoing, limit)
        large = [rank for rank in layout.order(self.rank) if outgoing.counts[rank] > limit]
        await all_of([], relay.carry(arrival), self._send_large(number, outgoing, arrival, large))

    async def _send_large(
        self, number: int, outgoing: Outgoing, arrival: IncomingRows, ranks: Sequence[int]
    ) -> None:
        # The others have their counts at about the same time, so that chunks need not wait there.
        await asyncio.shield(arrival.ready)
        await all_of([self.send_chunks(number, outgoing, rank) for rank in ranks])

    async def on_host(self, parts: Sequence[Columns]) -> list[Columns]:
        """Return the columns of `parts` in host memory."""
        if self._staging is None or not parts:
            return list(parts)
        width = len(parts[0])
        flat = await self._staging.fetched([column for part in parts for column in part])
        return [flat[first : first + width] for first in range(0, len(flat), width)]


class Parts:
    """Small parts of an exchange: row counts between ranks, and the rows.

    Parameters
    ----------
    counts : int64 array
        For each pair of ranks, in an order that sender and receiver know.
    rows : int64 array
        The rows of each pair that are in `columns`: all of a small pair, none of others.
    columns : list of array
        These rows, one after the other; empty for no rows.
    """

    def __init__(self, counts: np.ndarray, rows: np.ndarray, columns: Columns) -> None:
        self.counts: np.ndarray = counts
        self.rows: np.ndarray = rows
        self.columns: Columns = columns
        self._ends = np.concatenate([[0], rows.cumsum()])

    def between(self, start: int, stop: int) -> Columns:
        """Return the rows of the pairs from `start` to `stop`, as views."""
        first, last = self._ends[start], self._ends[stop]
        return [column[first:last] for column in self.columns] if last > first else []


class SmallParts:
    """Exchange of one rank's counts and small parts through the gateways.

    Parameters
    ----------
    end : TwoLevelCollective
    layout : HostLayout
    number : int
        Of the exchange.
    outgoing : Outgoing
    limit : int
        Most rows of a small part.
    """

    def __init__(
        self, end: TwoLevelCollective, layout: HostLayout, number: int, outgoing: Outgoing,
        limit: int,
    ) -> None:  # fmt: skip
        self._end, self._layout, self._number = end, layout, number
        self._outgoing, self._limit = outgoing, limit
        self._rank = end.rank
        self._host = layout.host_numbers[end.rank]
        self._near = layout.hosts[self._host]
        self._served = layout.served(end.rank)

    async def carry(self, arrival: IncomingRows) -> None:
        """Exchange the counts and the small parts of all ranks."""
        layout, rank = self._layout, self._rank
        given = {each: await self._rows_for(each) for each in self._near}
        mine = given.pop(rank)
        packs = {rank: mine} | await self._swap("within", given, layout.peers(rank))
        gateways = {host: layout.gateway(host, self._host) for host in self._served}
        bundles = {gateways[host]: await self._bundle(host, packs) for host in self._served}
        came = await self._swap("between", bundles, list(gateways.values()))
        far = [came[gateways[host]] for host in self._served]
        others = [each for each in self._near if each != rank] if far else []
        spread = {each: await self._of(each, far) for each in others}
        servers = [each for each in layout.servers(rank) if each != rank]
        found = await self._swap("spread", spread, servers)
        if far:
            found[rank] = await self._of(rank, far)
        await self._arrive(arrival, packs, found)

    async def _rows_for(self, peer: int) -> Parts:
        """Return the rows to give to a rank of this host: for itself, and for hosts it serves."""
        ranks = self._layout.routed_ranks(peer)
        counts = self._outgoing.counts[list(ranks)]
        if peer == self._rank:
            # It keeps its own rows.
            counts[0] = 0
        rows = np.where(counts <= self._limit, counts, 0)
        sent = [each for each, some in zip(ranks, rows, strict=True) if some]
        parts = await self._end.on_host([self._outgoing.part(each) for each in sent])
        return Parts(counts, rows, await _join(parts))

    async def _bundle(self, host: int, packs: Mapping[int, Parts]) -> Parts:
        """Return this host's rows for another host, by receiver."""
        first = self._layout.routed_ranks(self._rank).index(self._layout.hosts[host][0])
        places = range(first, first + len(self._layout.hosts[host]))
        pairs = list(itertools.product(places, self._near))
        counts = np.array([packs[source].counts[place] for place, source in pairs], np.int64)
        rows = np.array([packs[source].rows[place] for place, source in pairs], np.int64)
        parts = [packs[source].between(place, place + 1) for place, source in pairs]
        return Parts(counts, rows, await _join(parts))

    async def _of(self, rank: int, far: Sequence[Parts]) -> Parts:
        """Return the rows from other hosts for a rank of this host."""
        place, parts = self._near.index(rank), []
        for host, bundle in zip(self._served, far, strict=True):
            size = len(self._layout.hosts[host])
            mine = slice(place * size, (place + 1) * size)
            columns = bundle.between(mine.start, mine.stop)
            parts.append(Parts(bundle.counts[mine], bundle.rows[mine], columns))
        return Parts(
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.rows for part in parts]),
            await _join([part.columns for part in parts]),
        )

    async def _arrive(
        self, arrival: IncomingRows, packs: Mapping[int, Parts], found: Mapping[int, Parts]
    ) -> None:
        """Announce the counts, and put the rows to their destination."""
        came: list[tuple[Sequence[int], Parts]] = [
            ((source,), pack) for source, pack in packs.items() if source != self._rank
        ]
        came += [(self._layout.far(server), parts) for server, parts in found.items()]
        digest = self._outgoing.kind.digest
        for sources, parts in came:
            # Of a rank of this host, the first pair is the one with this rank.
            for source, count in zip(sources, parts.counts.tolist(), strict=False):
                arrival.announce(source, count, digest)
        await asyncio.shield(arrival.ready)
        for sources, parts in came:
            first = 0
            for source, rows in arrival.runs(sources, parts.rows[: len(sources)].tolist()):
                part = [column[first : first + rows] for column in parts.columns]
                await arrival.place(source, 0, part)
                first += rows

    async def _swap(
        self, step: str, parts: Mapping[int, Parts], sources: Sequence[int]
    ) -> dict[int, Parts]:
        digest = self._outgoing.kind.digest
        posts = {
            rank: Post.of((digest, each.counts, each.rows), each.columns)
            for rank, each in parts.items()
        }
        membership = self._end.membership
        found = await membership.swap(f"rows {step}", self._number, posts, sources)
        came = {}
        for source, post in found.items():
            theirs, counts, rows = post.value
            if theirs != digest:
                raise columns_differ_error(source, self._rank)
            came[source] = Parts(counts, rows, list(post.columns))
        return came


async def _join(parts: Sequence[Columns]) -> Columns:
    """Return the rows of `parts` one after the other; parts without rows are empty lists."""
    filled = [part for part in parts if part]
    if len(filled) < 2:
        return filled[0] if filled else []
    nbytes = sum(column.nbytes for part in filled for column in part)
    if nbytes > dask_comm.SMALL_NBYTES:
        return await asyncio.to_thread(_concatenate, filled)
    return _concatenate(filled)


def _concatenate(parts: Sequence[Columns]) -> Columns:
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
