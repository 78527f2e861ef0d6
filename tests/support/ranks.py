"""Distributed table whose ranks are threads of one process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from agreement import fresh_once
from hypothesis import strategies as st
from model import MapModel, MultiMapModel, SetModel, key_of, rows_of
from strategies import keys_from

from dgpuhash import backend
from dgpuhash.distributed.collective.base import DestinationBuffers, Outgoing, Received, Transfer
from dgpuhash.distributed.collective.local import LocalCollective, LocalTransfer
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.table_mode import DISTRIBUTED, TableMode
from dgpuhash.distributed.pipeline.slices import Chunk
from dgpuhash.distributed.pipeline.verb import VerbExecution
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.shards.table_shard import TableShard, Verb
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.keys.seeds import draw_owner_seed
from dgpuhash.spec import TableSpec

__all__ = ["VERBS", "LandingEnd", "Ranks", "play"]


MODELS = {"set": SetModel, "map": MapModel, "multimap": MultiMapModel}
VERBS = {
    "set": ["insert", "add", "erase", "contains", "count", "distinct"],
    "map": ["insert", "insert", "upsert", "erase", "find", "find", "count"],
    "multimap": ["insert", "insert", "erase", "find", "find", "count", "distinct"],
}
STORING = ("insert", "upsert", "add")
SPARINGS = [PruningOptions(bloom, once) for bloom in (False, True) for once in (False, True)]


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


def play(ranks, data, verbs, *, ordered=True):
    """Carry out drawn verbs, and compare the answers with those of models.

    There is a model for each rank of an independent table, and else one for all.
    """
    spec, device, mode = ranks.spec, ranks.device, ranks.parts[0].mode
    kind, key, value = spec.kind, spec.key, spec.value
    models = [MODELS[kind]() for _ in range(ranks.size if mode.independent else 1)]
    steps = st.tuples(
        st.sampled_from(verbs),
        keys_from(key),
        st.integers(0, 99),
        st.lists(st.integers(0, 60), max_size=4),
        st.lists(st.integers(0, 2), min_size=1, max_size=4),
    )
    for name, keys, seed, cuts, places in data.draw(st.lists(steps, max_size=6)):
        stored = np.any([model.contains(keys) for model in models], axis=0)
        several = np.sum([model.contains(keys) for model in models], axis=0) > 1
        columns = [keys]
        verb = Verb(name, sparing=SPARINGS[0 if name == "distinct" else seed % 4])
        if name in STORING:
            verb = Verb(name, keep=("first", "last")[seed % 2])
            columns += [] if value is None else [values_for(value, len(keys), seed)]
        if (name, kind, mode.conflict) == ("find", "map", Conflict.ERROR) and several.any():
            with pytest.raises(UnsupportedError, match="several workers"):
                ranks.ask(verb, cuts, places, *columns)
            return
        answers = ranks.ask(verb, cuts, places, *columns)
        got = [
            np.concatenate([device.backend.to_host(each) for each in column])
            for column in zip(*answers, strict=True)
        ]
        if name in STORING:
            for model, rows in zip(models, shares_of(ranks, keys, cuts, places), strict=True):
                stored_once(model, verb, [column[rows] for column in columns], got, rows)
        elif name == "erase":
            gone = SetModel()
            gone.insert(keys[stored])
            fresh_once(keys, got[0], gone.erase(keys))
            for model in models:
                model.erase(keys)
        elif name == "contains":
            assert got[0].tolist() == stored.tolist()
        elif name == "count":
            lists = kind == "multimap"
            counts = [model.count(keys) if lists else model.contains(keys) for model in models]
            assert got[0].tolist() == np.sum(counts, axis=0).tolist()
        elif name == "distinct":
            fresh_once(keys, got[1], SetModel().insert(keys))
        elif kind == "map":
            assert got[1].tolist() == stored.tolist()
            found = rows_of(device.host(device.backend.from_host(got[0]), value))
            for one, each, there in zip(keys, found, stored, strict=True):
                if there:
                    has = [m.pairs[key_of(one)] for m in models if key_of(one) in m.pairs]
                    assert same_value(each, merged(has, mode.conflict.value, value), value)
        else:
            lists = [list_of(device, value, *each) for each in answers]
            for one, each in zip(keys, itertools.chain(*lists), strict=True):
                wanted = [row for m in models for row in m.lists.get(key_of(one), [])]
                assert each == wanted if ordered else sorted(each) == sorted(wanted)
        assert len(ranks) == sum(map(len, models))


def shares_of(ranks, keys, cuts, places):
    """Return the rows of each model, in their order."""
    edges = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    shares = [[] for _ in range(ranks.size)]
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        shares[places[number % len(places)] % ranks.size] += range(start, stop)
    return shares if ranks.parts[0].mode.independent else [list(range(len(keys)))]


def stored_once(model, verb, columns, got, rows):
    """Store rows in a model, and compare the mask of what was new there."""
    if verb.name == "upsert":
        model.upsert(*columns)
    elif isinstance(model, MapModel):
        fresh = model.insert(*columns, keep=verb.keep)
        assert verb.name == "add" or got[0][rows].tolist() == fresh
    else:
        fresh = model.insert(*columns)
        if verb.name == "insert" and isinstance(model, SetModel):
            fresh_once(columns[0], got[0][rows], fresh)


def list_of(device, dtype, values, offsets):
    """Return the values of each key of a chunk, as bytes."""
    rows, ends = rows_of(device.host(values, dtype)), device.backend.to_host(offsets).tolist()
    return [rows[start:stop] for start, stop in itertools.pairwise(ends)]


def same_value(one, other, dtype):
    values = [np.frombuffer(each, dtype)[0] for each in (one, other)]
    return one == other or all(each != each for each in values)


def merged(values, conflict, dtype):
    """Return the value, as bytes, that counts of those that several workers have."""
    if conflict in ("first", "last", "error"):
        return values[-1 if conflict == "last" else 0]
    series = pd.Series(np.frombuffer(b"".join(values), dtype))
    options = {"min_count": 1} if conflict == "sum" else {}
    return pd.Series([getattr(series, conflict)(**options)], dtype=dtype).to_numpy().tobytes()


def values_for(dtype, rows, seed):
    """Return values with some nulls, where the dtype has one."""
    made = ((np.arange(rows) * 7 + seed) % 100).astype(np.int32).astype(dtype)
    if made.dtype.kind in "fM":
        made[::5] = np.nan if made.dtype.kind == "f" else np.datetime64("NaT")
    return made
