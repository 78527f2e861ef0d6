"""What keeps an index through the loss, the coming and the going of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from dgpuhash.distributed.cluster.survivors import all_answer
from dgpuhash.distributed.handle import Handle
from dgpuhash.distributed.ingest.commit import change_to, drop_shards, places
from dgpuhash.distributed.ingest.history import Act, Step, acts_of
from dgpuhash.distributed.ingest.rebalance import (
    arrivals_there,
    kept_parts,
    move_shards,
    parts_there,
    sources,
    spread,
)
from dgpuhash.distributed.partition.change import Lost
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.shards.inbox import Receipt
from dgpuhash.distributed.storage import checkpoint
from dgpuhash.errors import DgpuhashError, FormatError, IndexLost, UnsupportedError

__all__ = ["Rebuilt", "Upkeep"]

# What a build is given that moves shards.
NOTHING = Act("build", [], [])


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What `DistributedIndex.rebuild` has done.

    Attributes
    ----------
    parts : tuple of int
        The numbers of the shards that were made anew, as in `DistributedIndex.stats`.
    kept : tuple of int
        Those of the shards that stayed as they were, where they were.
    rows : int
        Of the shards that were made anew.

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> from distributed import Client
    >>> from dgpuhash import DistributedIndex
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> planes = dd.from_pandas(pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]}))
    >>> index = DistributedIndex.build(planes, on="tailnum", client=client)
    >>> index.rebuild()
    Rebuilt(parts=(), kept=(0, 1), rows=0)
    >>> index.rebuild(whole=True)
    Rebuilt(parts=(0, 1), kept=(), rows=2)
    >>> index.close(); client.close()
    """

    parts: tuple[int, ...]
    kept: tuple[int, ...]
    rows: int


class Upkeep(Handle):
    """The verbs of `DistributedIndex` that change where its rows are, and not which."""

    def save(self, url: str, *, overwrite: bool = False) -> None:
        """Write the index to a directory: an Arrow file for each shard, and a manifest.

        Any Arrow library reads the columns by their names, or numbered where these are no texts.

        Parameters
        ----------
        url : str
            A path that client and workers see, or such an fsspec URL. What this index saved there
            before, or was loaded from, is replaced; at the URL of a durable index's log, the log
            begins anew after the save, and is short again. A client that is killed meanwhile leaves
            files behind, which nothing reads, and which go with the next save of this index there;
            from a folder that was there and empty you remove them.
        overwrite : bool
            Whether to replace a save of another index; nothing else is ever replaced.

        Raises
        ------
        ExistsError
            When there is something else, as the log of another index; or a save of another index,
            and no `overwrite`: before anything is written, and where it comes meanwhile.
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When a worker is lost, or another index goes on with the log that is there.
        IndexChanged
            When this client stood still before it made the log short, so that another one went on;
            the log is as that one left it.
        OSError
            When it cannot be written; what was there is as it was.
        UnsupportedError
            When the client does not see there what workers wrote, or Arrow has no type for a
            column.
        SpecError
            When fsspec does not know the URL.
        """
        with self._changing() as current:
            outdated = partial(self._registry.outdated, current)
            fenced = checkpoint.fenced(current, url, outdated)
            if fenced is not current:
                self._publish(fenced, current)
            self._descriptor = checkpoint.save(self._client, fenced, url, overwrite=overwrite)
            # It is written, whether or not the scheduler still knows the index.
            self._registry.publish(self._descriptor, after=fenced)

    def rebalance(self, workers: Sequence[str] | None = None) -> int:
        """Spread the index over the workers that are there now; returns the rows that moved.

        Rows travel from worker to worker as one change, to the next epoch: until all have arrived,
        the old shards stay and answer. When the number of shards stays the same, whoever has one
        keeps it. Of an independent index only the rows of workers that leave move; of a replicated
        one copies are made.

        A worker that leaves, by ``client.retire_workers`` too, takes its shard with it, since Dask
        moves its own data only: call this with the workers that remain first, and `rebuild` when
        it is too late for that.

        Parameters
        ----------
        workers : list of str, optional
            Addresses of the workers that shall hold the shards; default: all.

        Raises
        ------
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When a shard or a worker is lost; the shards that are there are as they were.
        IndexChanged
            When this client stood still in the middle, so that another one went on; nothing moved.
        UnsupportedError
            When the cluster does not have these workers.
        """
        with self._changing() as current:
            shards = spread(current.shards, places(self._client, workers))
            staying = [part for part, shard in enumerate(current.shards) if shard in shards]
            same_parts = len(shards) == len(current.shards)
            if same_parts and len(staying) == len(shards):
                return 0
            # Rows of heavy keys may go to any part.
            kept = frozenset() if current.heavy else kept_parts(current, shards, staying)
            end = replace(_on(current, shards), epoch=current.epoch + 1)
            change = replace(change_to(end, "build"), kept=kept, heavy=current.heavy)
            gone = sources(current, range(len(current.shards)), kept)
            moved = 0

            def move() -> list[Receipt]:
                nonlocal moved
                receipts = move_shards(self._client, current, change, gone)
                for part, receipt in zip(gone, receipts, strict=True):
                    owners = zip(shards, receipt.rows, strict=True)
                    moved += sum(n for shard, n in owners if shard != current.shards[part])
                return receipts

            self._carry_out(current, end, change, [NOTHING], moved=move)
            self._drop_all_but(shards, current)
            return moved

    def rebuild(self, *, whole: bool = False) -> Rebuilt:
        """Make the shards that are lost anew on the workers that are there.

        Shards that are there stay. Only the rows of lost ones are read again: from the log of a
        durable index; else from the source and all changes since, where this handle has made them;
        else, or where that is gone, from the last `save`, when nothing but this handle has changed
        it since. When there are fewer workers than shards, the stored rows are spread over those
        there are. Lost copies of a replicated index are made of those that are there. Rows of heavy
        keys, which all shards have, are read again and spread anew; of independent rows, the
        partitions that no shard has.

        Parameters
        ----------
        whole : bool
            Make all shards anew, on all workers, even if none is lost.

        Raises
        ------
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When shards are lost, and their rows cannot be read again; or when another worker is
            lost meanwhile.
        IndexChanged
            When this client stood still in the middle, so that another one went on; nothing was
            made anew.
        FormatError
            When the log, or the only save, is damaged or gone.
        UnsupportedError
            When rows that were persisted are gone, and there is no save.
        """
        with self._changing() as current:
            there = frozenset() if whole else parts_there(self._client, current)
            if len(there) == len(current.shards):
                return Rebuilt((), tuple(sorted(there)), 0)
            if there and current.placement is Placement.REPLICATED:
                return self._rebuild(current, there, [])
            ways = self._history.ways_to(current)
            if not ways:
                raise IndexLost(
                    f"index {self.name!r} cannot be rebuilt: this handle did not build it, and "
                    "it was never saved in this state; build it again, or load an older save with "
                    "DistributedIndex.load(url)"
                )
            for number, steps in enumerate(ways):
                try:
                    return self._rebuild(current, there, steps)
                except Exception as error:
                    # The source, or a save, may be gone and another save be there. That a log is
                    # damaged is not to be passed over.
                    gone = isinstance(error, FormatError | UnsupportedError)
                    # The source may be of another index, which is lost.
                    if isinstance(error, IndexLost):
                        gone = all_answer(self._client)
                    known = isinstance(error, DgpuhashError) and not (gone and not current.log)
                    if number == len(ways) - 1 or known:
                        raise
            raise AssertionError("the last way returns or raises")

    def _rebuild(
        self, current: Descriptor, there: frozenset[int], steps: Sequence[Step]
    ) -> Rebuilt:
        staying = [current.shards[part] for part in sorted(there)]
        spare = [shard for shard in places(self._client) if shard not in staying]
        missing = len(current.shards) - len(there)
        enough = bool(there) and len(spare) >= missing
        # A worker that came back gets its part again.
        spare.sort(key=lambda shard: shard.worker not in current.workers)
        shards = spread(current.shards, [*staying, *(spare[:missing] if enough else spare)])
        kept = kept_parts(current, shards, there)
        end = replace(_on(current, shards), epoch=current.epoch + 1)
        lost = self._what_is_lost(current, there) if there and steps else None
        change = replace(change_to(end, "build"), kept=kept, lost=lost)
        if there:
            change = replace(change, heavy=current.heavy)
        moving = sources(current, there, kept)
        rows = self._carry_out(
            current,
            end,
            change,
            acts_of(self._client, end, steps, lost) or [NOTHING],
            moved=lambda: move_shards(self._client, current, change, moving),
        )
        self._drop_all_but(shards, current)
        parts = tuple(part for part in range(len(shards)) if part not in kept)
        return Rebuilt(parts, tuple(sorted(kept)), rows)

    def _what_is_lost(self, current: Descriptor, there: frozenset[int]) -> Lost:
        parts = len(current.shards)
        arrivals: frozenset[int] = frozenset()
        if current.placement is Placement.INDEPENDENT:
            arrivals = arrivals_there(self._client, current, there)
        gone = frozenset(range(parts)) - there
        return Lost(parts, gone, current.heavy, arrivals)

    def _drop_all_but(self, shards: Sequence[ShardAddress], before: Descriptor) -> None:
        left = set(before.workers) - {shard.worker for shard in shards}
        # Another client may have given them new ones, should this one have stood still.
        drop_shards(self._client, before.uid, sorted(left), before.epoch)


def _on(current: Descriptor, shards: tuple[ShardAddress, ...]) -> Descriptor:
    """The index on these shards; with more than one, that there was one worker explains nothing."""
    alone = len(current.shards) == 1 and len(shards) > 1
    return replace(current, shards=shards, reason="" if alone else current.reason)
