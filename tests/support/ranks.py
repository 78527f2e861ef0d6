"""Distributed table whose ranks are threads of one process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.distributed.collective.base import DestinationBuffers, Outgoing, Received, Transfer
from dgpuhash.distributed.collective.local import LocalCollective, LocalTransfer
from dgpuhash.distributed.partition.table_mode import DISTRIBUTED, TableMode
from dgpuhash.distributed.pipeline.plan import Chunk
from dgpuhash.distributed.pipeline.verb import VerbExecution
from dgpuhash.distributed.shards.table_shard import TableShard, Verb
from dgpuhash.frames.keys.seeds import draw_owner_seed
from dgpuhash.spec import TableSpec

__all__ = ["LandingEnd", "Ranks"]


class Ranks:
    """Table in shards, each with a thread and an end of a local exchange."""

    def __init__(
        self,
        device: Any,
        size: int,
        rows: tuple[int, int],
        *spec: Any,
        capacity: int = 0,
        ends: type[LocalCollective] = LocalCollective,
        mode: TableMode = DISTRIBUTED,
        **settings: Any,
    ) -> None:
        self.device, self.size = device, size
        self.piece_rows, self.slice_rows = rows
        self.spec = TableSpec.of(*spec, **settings)
        self.owner_seed = draw_owner_seed()
        self.parts = [
            TableShard(self.spec, capacity, device.name, self.owner_seed, mode) for _ in range(size)
        ]
        self.ends = ends.group(size, limit=120)

    def __len__(self) -> int:
        return sum(len(part.table) for part in self.parts)

    def ask(self, verb: Verb, cuts: list[int], places: list[int], *columns: Any) -> list[Any]:
        """Run a verb and return the answers of its chunks as host arrays.

        Chunks end at `cuts` and lie on the ranks of `places`.
        """
        edges = [0, *sorted(min(cut, len(columns[0])) for cut in cuts), len(columns[0])]
        chunks: list[list[Chunk]] = [[] for _ in range(self.size)]
        given: list[list[Any]] = [[] for _ in range(self.size)]
        for number, (start, stop) in enumerate(itertools.pairwise(edges)):
            rank = places[number % len(places)] % self.size
            chunks[rank].append(Chunk(number, (), start, stop - start))
            given[rank].append([self.device.array(column[start:stop]) for column in columns])

        def work(rank: int) -> list[list[Any]]:
            with_end = VerbExecution(self.parts[rank], verb, chunks, rank, given[rank])
            try:
                end = self.ends[rank]
                offers = end.gather(with_end.offer(end, self.piece_rows) if verb.changes else None)
                answers = with_end.go(end, self.piece_rows, self.slice_rows, offers)
                if with_end.refused is not None:
                    raise with_end.refused
                return answers
            except BaseException:
                self.ends[rank].abort("failed")
                raise

        with ThreadPoolExecutor(self.size) as threads:
            done = list(threads.map(work, range(self.size)))
        answers = {
            chunk.number: answer
            for rank in range(self.size)
            for chunk, answer in zip(chunks[rank], done[rank], strict=True)
        }
        return [answers[number] for number in sorted(answers)]

    def joined(self, verb: Verb, cuts: list[int], places: list[int], *columns: Any) -> list[Any]:
        """Return the answers as columns of the whole batch."""
        answers = self.ask(verb, cuts, places, *columns)
        return [
            np.concatenate([self.device.backend.to_host(part) for part in column])
            for column in zip(*answers, strict=True)
        ]


class LandingEnd(LocalCollective):
    """Collective that writes rows straight into other ranks' memory.

    `landed`: the received bytes.
    """

    landed = 0
    _fields: Sequence[Any] = ()

    def lands(self, device: str) -> bool:
        self._device = backend.get(device)
        return True

    def landing(self, nbytes: Sequence[int]) -> DestinationBuffers | None:
        asked = self.gather(list(nbytes))
        assert all(each == asked[0] for each in asked)
        mine = self._device.zeros(nbytes[self.rank], np.uint8)
        mine.fill(255)
        self._device.synchronize()
        self._fields = self.gather(mine)
        return LandingField(self._fields)

    def _carry(self, outgoing: Outgoing) -> Transfer:
        if outgoing.theirs is None:
            return super()._carry(outgoing)
        outgoing.device.synchronize()
        if not outgoing.put:
            for rank, offsets in enumerate(outgoing.theirs):
                for column, offset in zip(outgoing.part(rank), offsets, strict=True):
                    raw = column.reshape(-1).view(np.uint8)
                    self._fields[rank][offset : offset + len(raw)] = raw
            outgoing.device.synchronize()
        transfer = LandedTransfer(self, self._put(outgoing), outgoing)
        self._under_way.append(transfer)
        return transfer


class LandedTransfer(LocalTransfer):
    """Transfer that waits for all other ranks to have written their rows."""

    def _assemble(self, sent: list[Outgoing]) -> Received:
        counts = np.array([theirs.counts[self._end.rank] for theirs in sent], np.int64)
        assert all(theirs.theirs is not None for theirs in sent)
        columns = self._outgoing.room(counts).columns
        self._end.landed += sum(column.nbytes for column in columns)
        return Received(columns, counts)


class LandingField(DestinationBuffers):
    """Memory of all ranks."""

    def __init__(self, fields: Sequence[Any]) -> None:
        self._fields = fields

    def array(self, rank: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        nbytes = int(np.prod(shape)) * dtype.itemsize
        assert offset + nbytes <= len(self._fields[rank])
        return self._fields[rank][offset : offset + nbytes].view(dtype).reshape(shape)
