"""Lineage of an index: this client's changes, kept to rebuild lost shards."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import dask
from distributed import Client

from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.ingest.source import partitions_of
from dgpuhash.distributed.partition.change import LostShards
from dgpuhash.distributed.partition.descriptor import Descriptor, SavedRevision
from dgpuhash.distributed.partition.row_order import arrival_number
from dgpuhash.distributed.storage.arrow_files import delayed_frames
from dgpuhash.distributed.storage.change_log import Record
from dgpuhash.distributed.storage.checkpoint import SavedRows, batches_of
from dgpuhash.frames import frames_of
from dgpuhash.frames.grouped.aggregation import Aggregation
from dgpuhash.tables.memory_errors import function_translates_memory_errors

# Verbs whose rows can as well be those of a build before.
ADDS = {"insert", "update"}


@dataclass(frozen=True, slots=True)
class RowOperation:
    """Verb and its rows, as Delayed or Future frames in order.

    `arrivals`: the arrival number of each partition, from `row_order.arrival_number`.
    """

    verb: str
    partitions: Sequence[Any]
    arrivals: Sequence[int]

    def without(self, arrivals: Collection[int]) -> RowOperation:
        """Return this operation without the partitions with these arrival numbers."""
        left = [
            (one, arrival)
            for one, arrival in zip(self.partitions, self.arrivals, strict=True)
            if arrival not in arrivals
        ]
        return RowOperation(self.verb, [one for one, _ in left], [arrival for _, arrival in left])

    def reduced(self, groups: Aggregation) -> RowOperation:
        """Return this operation with each partition's rows replaced by group states."""
        reduce, seal = dask.delayed(reduce_partition, pure=False), CachedPickle.of(groups)
        partitions = [reduce(one, seal, number) for number, one in enumerate(self.partitions)]
        return RowOperation(self.verb, partitions, self.arrivals)

    def and_then(self, act: RowOperation) -> RowOperation:
        """Return this operation with the partitions of `act` appended."""
        return RowOperation(
            self.verb,
            [*self.partitions, *act.partitions],
            [*self.arrivals, *act.arrivals],
        )


@dataclass(frozen=True, slots=True)
class RowStep:
    """One change: its verb, such as ``"build"`` or ``"insert"``, and its source.

    `revision`: the revision that the change led to. `rows` of a `Record` are in the index's log.
    """

    verb: str
    rows: Any | SavedRevision | Record
    revision: int

    def acts(
        self, client: Client, descriptor: Descriptor, lost: LostShards | None
    ) -> Iterator[RowOperation]:
        """Yield the operations that read the rows again.

        Only rows of lost shards, as far as these are known before the rows are read.
        """
        if isinstance(self.rows, SavedRevision | Record):
            groups = descriptor.groups
            library = "pandas" if groups is not None else frames_of(descriptor.meta).name
            url, batches = self._saved_rows(descriptor)
            for batch in batches:
                files = batch.files
                # Keys that are heavy now may have been saved by owner, and belong to any shard.
                owned = batch.owned and lost is not None and not lost.heavy
                if lost is not None and owned and len(files) == lost.parts:
                    files = tuple(files[part] for part in sorted(lost.gone))
                rows = delayed_frames(url, filter(None, files), library)
                if groups is not None:
                    read, seal = dask.delayed(read_states, pure=False), CachedPickle.of(groups)
                    rows = [read(each, seal) for each in rows]
                yield self._act(batch.verb, rows)
        else:
            names = descriptor.encoder.names if self.verb == "erase" else descriptor.given.columns
            # Groups of the client's own rows are found by all workers.
            pieces = 1 if descriptor.groups is None else len(descriptor.workers)
            act = self._act(
                self.verb,
                partitions_of(client, self.rows, list(names), descriptor.workers, pieces=pieces),
            )
            if descriptor.groups is not None:
                act = act.reduced(descriptor.groups)
            # Of the others, the keys are wanted on all shards.
            added = self.verb in {"build", "insert"}
            there = lost.arrivals if lost is not None and added else ()
            yield act.without(there) if there else act

    def _saved_rows(self, descriptor: Descriptor) -> tuple[str, list[SavedRows]]:
        """Return the folder of saved rows, and the rows."""
        if isinstance(self.rows, SavedRevision):
            return self.rows.url, batches_of(self.rows)
        assert descriptor.log is not None
        return descriptor.log, [SavedRows(self.verb, self.rows.files, self.rows.owned)]

    def _act(self, verb: str, partitions: Sequence[Any]) -> RowOperation:
        arrivals = [arrival_number(self.revision, number) for number in range(len(partitions))]
        return RowOperation(verb, partitions, arrivals)


@dataclass
class Lineage:
    """Changes by this client, by the revision they led to."""

    _steps: dict[int, RowStep] = field(default_factory=dict)

    def record(self, step: RowStep) -> None:
        """Remember a change."""
        self._steps[step.revision] = step

    def forget(self, revision: int) -> None:
        """Forget the changes up to a revision, and release their rows."""
        self._steps = {number: step for number, step in self._steps.items() if number > revision}

    def ways_to_rebuild(self, descriptor: Descriptor) -> list[list[RowStep]]:
        """Return lists of steps that reproduce the rows of `descriptor`, best first.

        First from its log where it has one; then from the source, where this client has built the
        index and made every change since; then from the last save, with the changes since.
        """
        ways = []
        if descriptor.log is not None:
            logged = SavedRevision(descriptor.log, descriptor.uid, descriptor.revision)
            ways.append([RowStep("build", logged, logged.revision)])
        starts = [(number, step) for number, step in self._steps.items() if step.verb == "build"]
        starts.sort(key=lambda start: start[0], reverse=True)
        if descriptor.saved is not None:
            saved = descriptor.saved
            starts.append((saved.revision, RowStep("build", saved, saved.revision)))
        for start, step in starts:
            later = range(start + 1, descriptor.revision + 1)
            if all(revision in self._steps for revision in later):
                ways.append([step, *(self._steps[revision] for revision in later)])
        return ways


def operations_of(
    client: Client, descriptor: Descriptor, steps: Sequence[RowStep], lost: LostShards | None = None
) -> list[RowOperation]:
    """Return the operations that redo `steps` in one change.

    An insert is merged into the build or the insert before it, an update of groups as well.
    """
    acts: list[RowOperation] = []
    for act in chain.from_iterable(step.acts(client, descriptor, lost) for step in steps):
        if acts and act.verb in ADDS and acts[-1].verb in {"build", *ADDS}:
            acts[-1] = acts[-1].and_then(act)
        else:
            acts.append(act)
    return acts


@raise_without_traceback()
@function_translates_memory_errors
def reduce_partition(frame: Any, seal: CachedPickle[Aggregation], number: int) -> Any:
    """Reduce a partition to group states; runs as a Dask task."""
    return seal.opened().reduce(frame, number)


@raise_without_traceback()
@function_translates_memory_errors
def read_states(states: Any, groups: CachedPickle[Aggregation]) -> Any:
    """Return saved states in the form of stored ones; runs as a Dask task."""
    return groups.opened().from_save(states)
