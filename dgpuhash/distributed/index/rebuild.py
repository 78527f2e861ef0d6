"""Maintenance verbs of an index: save, rebalance, and rebuild lost shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from dgpuhash.distributed.cluster.survivors import all_workers_respond
from dgpuhash.distributed.index.handle import Handle
from dgpuhash.distributed.index.rebalance import (
    assign_owners,
    kept_shards,
    move_shards,
    sending_shards,
    surviving_arrivals,
    surviving_shards,
)
from dgpuhash.distributed.ingest.commit import change_to, drop_shards, shard_addresses
from dgpuhash.distributed.ingest.history import RowOperation, RowStep, operations_of
from dgpuhash.distributed.partition.change import LostShards
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.shards.inbox import Receipt
from dgpuhash.distributed.storage import checkpoint
from dgpuhash.errors import DgpuhashError, FormatError, IndexLost, UnsupportedError

# The input of a build that only moves shards: no rows.
NO_ROWS = RowOperation("build", [], [])


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Result of `DistributedIndex.rebuild`: its shards and rows.

    Attributes
    ----------
    parts : tuple of int
        Numbers of the rebuilt shards, as in `DistributedIndex.stats`.
    kept : tuple of int
        Numbers of the shards that stayed unchanged on their workers.
    rows : int
        Rows of the rebuilt shards.

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


class IndexMaintenance(Handle):
    """Maintenance verbs of `DistributedIndex`: save, rebalance and rebuild.

    Which rows the index has does not change.
    """

    def save(self, url: str, *, overwrite: bool = False) -> None:
        """Save the index to a folder: an Arrow file a shard, and a manifest.

        Any Arrow library reads the columns by name; columns whose names are no texts by number.

        Parameters
        ----------
        url : str
            A path that client and workers share, or an fsspec URL of one. An earlier save of this
            index there, or the one that it was loaded from, is replaced; at the URL of a durable
            index's log, the save compacts the log. A client that is killed during the save leaves
            files that nothing reads; the next save of this index there removes them, and the next
            save or load of any index a folder beside it whose name ends with ``.part``. From a
            folder that existed and was empty, remove them yourself.
        overwrite : bool
            Whether to replace a save of another index; no other files are ever replaced.

        Raises
        ------
        ExistsError
            When the folder has other files, as the log of another index; or a save of another
            index, without `overwrite`. Raised before anything is written, and also when these
            files appear during the save.
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When a worker is lost, or another index continues the log that is there.
        IndexChanged
            When this client stalled before it compacted the log, so that another client took over;
            the log is as the other client left it.
        OSError
            When the save cannot be written; an earlier save is unchanged.
        UnsupportedError
            When the client does not see the workers' files there, or Arrow has no type for a
            column.
        SpecError
            When fsspec does not know the URL.
        """
        with self._changing() as current:
            outdated = partial(self._registry.outdated_error, current)
            fenced = checkpoint.fence_for_save(current, url, outdated)
            if fenced is not current:
                self._publish(fenced, current)
            self._descriptor = checkpoint.save(self._client, fenced, url, overwrite=overwrite)
            # The save is complete, whether or not the scheduler still knows the index.
            self._registry.publish(self._descriptor, after=fenced)

    def rebalance(self, workers: Sequence[str] | None = None) -> int:
        """Move shards to the current workers; return the number of moved rows.

        Rows are sent from worker to worker as one change, to the next epoch: until all have
        arrived, the old shards stay and answer. When the number of shards stays the same, workers
        that hold a shard keep it. Of an independent index, only the rows of leaving workers move;
        of a replicated one, copies are made.

        A worker that leaves, also by ``client.retire_workers``, takes its shard with it, since Dask
        moves only its own data: call this with the remaining workers first, and `rebuild` when it
        is too late.

        Parameters
        ----------
        workers : list of str, optional
            Addresses of the workers that are to hold the shards; default: all.

        Raises
        ------
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When a shard or a worker is lost; the remaining shards are unchanged.
        IndexChanged
            When this client stalled during the change, so that another client took over; nothing
            moved.
        UnsupportedError
            When the cluster does not have these workers.
        """
        with self._changing() as current:
            shards = assign_owners(current.shards, shard_addresses(self._client, workers))
            staying = [part for part, shard in enumerate(current.shards) if shard in shards]
            same_parts = len(shards) == len(current.shards)
            if same_parts and len(staying) == len(shards):
                return 0
            # Rows of heavy keys may go to any shard.
            kept = frozenset() if current.heavy else kept_shards(current, shards, staying)
            end = replace(_on(current, shards), epoch=current.epoch + 1)
            change = replace(change_to(end, "build"), kept=kept, heavy=current.heavy)
            gone = sending_shards(current, range(len(current.shards)), kept)
            moved = 0

            def move() -> list[Receipt]:
                nonlocal moved
                receipts = move_shards(self._client, current, change, gone)
                for part, receipt in zip(gone, receipts, strict=True):
                    owners = zip(shards, receipt.rows, strict=True)
                    moved += sum(n for shard, n in owners if shard != current.shards[part])
                return receipts

            self._carry_out(current, end, change, [NO_ROWS], moved=move)
            self._drop_all_but(shards, current)
            return moved

    def rebuild(self, *, whole: bool = False) -> Rebuilt:
        """Rebuild the lost shards of the index on the current workers.

        Other shards stay. Only the rows of lost shards are read again: from the write-ahead log of
        a durable index; else from the source and all changes since, if this handle made them all;
        else, or where the source is gone, from the last `save`, if no other handle has changed the
        index since. When there are fewer workers than shards, the stored rows are spread over those
        workers. Lost copies of a replicated index are copied from other shards. Rows of heavy keys,
        which all shards have, are read again and spread anew; of independent rows, the partitions
        that no shard has.

        Parameters
        ----------
        whole : bool
            Rebuild all shards, on all workers, even if none is lost.

        Raises
        ------
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When shards are lost, and their rows cannot be read again; or when another worker is
            lost during the rebuild.
        IndexChanged
            When this client stalled during the change, so that another client took over; nothing
            was rebuilt.
        FormatError
            When the log, or the only save, is damaged or gone.
        UnsupportedError
            When persisted rows of the source are gone, and there is no save.
        """
        with self._changing(settle=False) as current:
            done = self._rebuild_lost(current, whole)
            self._settle_changes(self._descriptor)
            return done

    def _rebuild_lost(self, current: Descriptor, whole: bool) -> Rebuilt:
        there = frozenset() if whole else surviving_shards(self._client, current)
        if len(there) == len(current.shards):
            return Rebuilt((), tuple(sorted(there)), 0)
        if there and current.placement is Placement.REPLICATED:
            return self._rebuild(current, there, [])
        ways = self._history.ways_to_rebuild(current)
        if not ways:
            raise IndexLost(
                f"index {self.name!r} cannot be rebuilt: this handle did not build it, and "
                "it was never saved in this state; build it again, or load an older save with "
                f"{type(self).__name__}.load(url)"
            )
        for number, steps in enumerate(ways):
            try:
                return self._rebuild(current, there, steps)
            except Exception as error:
                # The source, or a save, may be gone and another save exist. A damaged log is
                # always an error.
                gone = isinstance(error, FormatError | UnsupportedError)
                # The source may be a merge with another index, which is lost.
                if isinstance(error, IndexLost):
                    gone = all_workers_respond(self._client)
                known = isinstance(error, DgpuhashError) and not (gone and not current.log)
                if number == len(ways) - 1 or known:
                    raise
        raise AssertionError("the last way returns or raises")

    def _rebuild(
        self, current: Descriptor, there: frozenset[int], steps: Sequence[RowStep]
    ) -> Rebuilt:
        staying = [current.shards[part] for part in sorted(there)]
        spare = [shard for shard in shard_addresses(self._client) if shard not in staying]
        missing = len(current.shards) - len(there)
        enough = bool(there) and len(spare) >= missing
        # A worker that came back gets its shard again.
        spare.sort(key=lambda shard: shard.worker not in current.workers)
        shards = assign_owners(current.shards, [*staying, *(spare[:missing] if enough else spare)])
        kept = kept_shards(current, shards, there)
        end = replace(_on(current, shards), epoch=current.epoch + 1)
        lost = self._what_is_lost(current, there) if there and steps else None
        change = replace(change_to(end, "build"), kept=kept, lost=lost)
        if there:
            change = replace(change, heavy=current.heavy)
        moving = sending_shards(current, there, kept)
        rows = self._carry_out(
            current,
            end,
            change,
            operations_of(self._client, end, steps, lost) or [NO_ROWS],
            moved=lambda: move_shards(self._client, current, change, moving),
        )
        self._drop_all_but(shards, current)
        parts = tuple(part for part in range(len(shards)) if part not in kept)
        return Rebuilt(parts, tuple(sorted(kept)), rows)

    def _what_is_lost(self, current: Descriptor, there: frozenset[int]) -> LostShards:
        parts = len(current.shards)
        arrivals: frozenset[int] = frozenset()
        if current.placement is Placement.INDEPENDENT:
            arrivals = surviving_arrivals(self._client, current, there)
        gone = frozenset(range(parts)) - there
        return LostShards(parts, gone, current.heavy, arrivals)

    def _drop_all_but(self, shards: Sequence[ShardAddress], before: Descriptor) -> None:
        left = set(before.workers) - {shard.worker for shard in shards}
        # If this client stalled, another client may have moved new shards to these workers.
        drop_shards(self._client, before.uid, sorted(left), before.epoch)


def _on(current: Descriptor, shards: tuple[ShardAddress, ...]) -> Descriptor:
    """Return the descriptor with these shards.

    The reason "one worker" for a placement is dropped when there are more shards.
    """
    alone = len(current.shards) == 1 and len(shards) > 1
    return replace(current, shards=shards, reason="" if alone else current.reason)
