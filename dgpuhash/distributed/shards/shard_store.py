"""Store of a worker's index shards and their open changes."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dgpuhash.distributed.cluster.rpc import REMEDY
from dgpuhash.distributed.cluster.serialization import Payload, frame_of_payload, is_plain
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.skew import NO_HEAVY
from dgpuhash.distributed.shards.inbox import Inbox, Parcel, Receipt
from dgpuhash.distributed.shards.incoming import (
    all_keys_of,
    index_of_new_keys,
    keys_of,
    rows_of,
    without_rows,
)
from dgpuhash.distributed.shards.shard import HeavyKeyRepair, Shard, StagedChange
from dgpuhash.distributed.shards.spilling import SpillingInbox
from dgpuhash.distributed.shards.worker_memory import WorkerMemory
from dgpuhash.errors import IndexChanged, IndexLost
from dgpuhash.frames import (
    Cursor,
    FrameIndex,
    NumericDtypes,
    RowLimit,
    RowStore,
    frames_of,
    promote_dtypes,
)
from dgpuhash.frames.grouped.index import GroupIndex


@dataclass
class ShardStore:
    """Index shards of one worker, by the uid of their index.

    A change is opened, filled with parcels, prepared (all that can fail is done, nothing is
    visible) and applied. Between the last two the client publishes the new epoch: at that moment
    the change has happened. A shard that is asked for the published epoch before it was told to
    apply the change applies it then.
    """

    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)
    memory: WorkerMemory | None = None
    _shards: dict[str, Shard] = field(default_factory=dict)
    _staged: dict[str, StagedChange] = field(default_factory=dict)
    _broken: dict[str, str] = field(default_factory=dict)

    def open(self, change: Change, part: int) -> None:
        """Open a change of shard `part`, dropping one that another client left."""
        kept, incarnation = part in change.kept, change.shards[part].incarnation
        index = None
        if kept or change.verb != "build":
            index = self.at(change.uid, change.epoch - 1, incarnation).index
        elif incarnation != self.incarnation:
            raise IndexLost("a worker was restarted before an index was built; call it again")
        else:
            self._catch_up(change.uid, change.epoch - 1)
        inbox = Inbox(part)
        on_host = frames_of(change.meta).device == "cpu"
        if change.spills and on_host and self.memory is not None:
            inbox = SpillingInbox(part, change, self.memory)
        self._staged[change.uid] = StagedChange(change, inbox, index=index if kept else None)

    def accept(self, uid: str, transaction: str, parcel: Parcel) -> Inbox:
        """Put a parcel into the inbox of an open change, and return the inbox."""
        inbox = self._open(uid, transaction).inbox
        inbox.accept(parcel)
        return inbox

    def inbox(self, uid: str, transaction: str) -> Inbox:
        """Return the inbox of an open change."""
        return self._open(uid, transaction).inbox

    def prepare(
        self,
        uid: str,
        transaction: str,
        receipts: Sequence[Receipt],
        later: Sequence[tuple[str, Sequence[Receipt]]] = (),
    ) -> int:
        """Do the fallible part of a change without publishing it; return its number of rows.

        Parameters
        ----------
        uid, transaction : str
        receipts : sequence of Receipt
            For the rows of the change's verb.
        later : sequence of (str, sequence of Receipt)
            Verbs that follow a build in the same change, with the receipts for their rows.
        """
        staged = self._open(uid, transaction)
        change = staged.change
        heavy = NO_HEAVY if change.lost is None else change.lost.heavy
        if staged.kept and not heavy:
            staged.ready = True
            return 0
        staged.gone = keys_of(staged.inbox.collect_keys(receipts), change)
        if isinstance(staged.inbox, SpillingInbox):
            staged.index = staged.inbox.sealed(receipts)
            if staged.index is not None:
                staged.ready = True
                return len(staged.index)
        rows = rows_of(staged.inbox.collect(receipts), change)
        stays = staged.index
        self._take(staged, rows)
        for verb, others in later:
            gone = keys_of(staged.inbox.collect_keys(others), change)
            more = rows_of(staged.inbox.collect(others), replace(change, verb=verb))
            assert staged.index is not None
            _carry_out(verb, staged.index, more, gone, change.epoch)
        if stays is not None:
            assert staged.index is not None
            fresh = staged.index.frame()
            staged.mending = HeavyKeyRepair.of(stays, fresh, heavy, change.encoder)
            staged.index = stays
        staged.ready = True
        return len(rows)

    def prepare_arrays(self, uid: str, transaction: str, arrays: Sequence[Any]) -> None:
        """Prepare a change from this shard's rows as plain columns.

        As `prepare`, without parcels.
        """
        staged = self._open(uid, transaction)
        change = staged.change
        if change.verb == "build":
            staged.index = without_rows(change)
            staged.index.insert_arrays(arrays)
        else:
            self._take(staged, frames_of(change.meta).from_arrays(arrays, change.meta))
        staged.ready = True

    def numbers(self, uid: str, transaction: str) -> NumericDtypes:
        """Return the numeric dtypes of columns after a prepared change."""
        return promote_dtypes([store.numbers for store in self._stores(uid, transaction)])

    def accept_numbers(self, uid: str, transaction: str, numbers: NumericDtypes) -> None:
        """Adopt other shards' numeric dtypes for a prepared change.

        Raises
        ------
        ColumnError
            When integers of this shard would be rounded where rows of several shards are read
            together.
        """
        for store in self._stores(uid, transaction):
            store.check_promotion_with(numbers)
        self._open(uid, transaction).mixed = True

    def mixed(self, uid: str) -> bool:
        """Return whether some shards have other numeric dtypes than planned."""
        shard = self._shards.get(uid)
        return shard is not None and shard.mixed

    def _stores(self, uid: str, transaction: str) -> list[RowStore]:
        """Return the row stores of this shard after a prepared change."""
        staged = self._open(uid, transaction)
        if staged.index is not None:
            return [staged.index.store]
        stores = [self._shards[uid].index.store]
        if staged.change.verb != "erase":
            stores.append(RowStore(staged.change.meta))
            stores[1].append(staged.rows)
        return stores

    def new_keys(self, uid: str, transaction: str) -> Any:
        """Return a frame of the unique keys that a prepared change adds here.

        The change is a build, or an insert.
        """
        staged = self._open(uid, transaction)
        added = staged.added if staged.index is None else staged.index
        assert added is not None
        return added.frame(list(staged.change.encoder.names))

    def known(self, uid: str, transaction: str, keys: Any) -> int:
        """Return the position that a key will have in this shard; -1 if none.

        It is one of `keys`; the shard will hold it after a prepared change.
        """
        staged = self._open(uid, transaction)
        indexes = [staged.added if staged.index is None else staged.index]
        if staged.change.verb == "insert":
            indexes.append(self._shards[uid].index)
        names = list(staged.change.encoder.names)
        keys = frame_of_payload(keys, staged.change.meta[names])
        for index in indexes:
            assert index is not None
            found = index.match(keys, how="semi").query_rows
            if len(found):
                return int(found[0])
        return -1

    def made(self, uid: str, transaction: str) -> FrameIndex | None:
        """Return the index of a prepared build; None for other verbs."""
        return self._open(uid, transaction).index

    def prepared(self, uid: str, transaction: str) -> Any:
        """Return the rows, or keys to erase, of a prepared change."""
        staged = self._open(uid, transaction)
        return staged.rows if staged.index is None else staged.index.frame()

    def apply(self, uid: str, transaction: str) -> int:
        """Publish a prepared change; return the rows it added or erased here.

        Applying a change twice changes nothing.
        """
        shard = self._shards.get(uid)
        if shard is not None and shard.transaction == transaction:
            return shard.changed_rows
        staged = self._open(uid, transaction)
        if not staged.ready:
            raise IndexLost(f"a change of the index was not prepared on this worker; {REMEDY}")
        del self._staged[uid]
        change = staged.change
        if staged.index is not None:
            self._broken.pop(uid, None)
            if staged.mending is not None:
                with self._breaking(uid, "a rebuild"):
                    staged.mending.carry_out(staged.index)
            count = 0 if staged.kept else len(staged.index)
            self._shards[uid] = Shard(change.epoch, transaction, staged.index, count, staged.mixed)
            return count
        shard = self._shards[uid]
        with self._breaking(uid, f"the {change.verb}"):
            if staged.states is not None:
                assert isinstance(shard.index, GroupIndex)
                count = shard.index.commit(staged.states)
            else:
                count = _carry_out(change.verb, shard.index, staged.rows, staged.gone, change.epoch)
        self._shards[uid] = Shard(change.epoch, transaction, shard.index, count, staged.mixed)
        return count

    def abandon(self, uid: str, transaction: str) -> None:
        """Drop an open change."""
        staged = self._staged.get(uid)
        if staged is not None and staged.change.transaction == transaction:
            del self._staged[uid]

    def drop(self, uid: str, epoch: int | None = None) -> None:
        """Free the shard and its staged change, up to an epoch.

        Without `epoch`, of any epoch.
        """
        shard, staged = self._shards.get(uid), self._staged.get(uid)
        if shard is not None and (epoch is None or shard.epoch <= epoch):
            del self._shards[uid]
            shard.index.store.free()
        if staged is not None and (epoch is None or staged.change.epoch <= epoch):
            del self._staged[uid]
            staged.inbox.free()
        self._broken.pop(uid, None)

    def at(self, uid: str, epoch: int, incarnation: str) -> Shard:
        """Return the shard for a request at `epoch`.

        Raises
        ------
        IndexChanged
            When the index was changed since.
        IndexLost
            When the shard is gone, or behind `epoch`.
        """
        if incarnation != self.incarnation:
            raise IndexLost(f"a worker with a shard of the index was restarted; {REMEDY}")
        self._catch_up(uid, epoch)
        shard = self._shards.get(uid)
        if shard is None:
            why = self._broken.get(uid, "it was closed, or never finished")
            raise IndexLost(f"this worker has no shard of the index: {why}; {REMEDY}")
        if shard.epoch > epoch:
            raise IndexChanged(
                f"the index was changed (epoch {epoch} was requested, the shard is at "
                f"{shard.epoch}); call index.merge(…) again"
            )
        if shard.epoch < epoch:
            raise IndexLost(
                f"a shard of the index is at epoch {shard.epoch}, before {epoch}; {REMEDY}"
            )
        return shard

    def standing(self, uid: str) -> Shard | None:
        """Return the current shard or None; any thread may call this."""
        return self._shards.get(uid)

    def open_changes(self) -> list[StagedChange]:
        """Return the open changes here; any thread may call this."""
        return list(self._staged.values())

    def holds(self, uid: str, epoch: int, incarnation: str) -> bool:
        """Return whether `at` finds the shard."""
        try:
            self.at(uid, epoch, incarnation)
        except IndexLost:
            return False
        return True

    def match(
        self,
        uid: str,
        epoch: int,
        incarnation: str,
        keys: Any,
        how: str,
        columns: Sequence[Hashable],
        skip: int,
        nbytes: int,
        marks: str = "",
        limit: RowLimit | None = None,
    ) -> tuple[Any, Payload | None, Cursor | None]:
        """Return a page of matches of `keys`: positions, payload, and the next page.

        A page has at most `nbytes`. For a semi or anti join it is positions alone, all in one page.
        Rows on it get a mark of the join called `marks`, if any. `limit` may refuse them.
        """
        shard = self.at(uid, epoch, incarnation)
        index = shard.index
        keys, count = (tuple(keys), len(keys[0])) if is_plain(keys) else (keys, len(keys))
        if how in {"semi", "anti"}:
            return _narrow(index.match(keys, how=how).query_rows, count), None, None
        (rows, found), rest = index.page(
            keys, nbytes=nbytes, columns=columns, skip=skip, plain=True, limit=limit,
            marks=shard.marks.of(marks) if marks else None,
        )  # fmt: skip
        return _narrow(rows, count), found, rest

    def unmark(self, uid: str, join: str) -> None:
        """Drop the marks of a join."""
        shard = self._shards.get(uid)
        if shard is not None:
            shard.marks.forget(join)

    def _take(self, staged: StagedChange, rows: Any) -> None:
        change = staged.change
        if change.verb == "build":
            # Rows may have kept a wider dtype than all shards agree on.
            staged.index = without_rows(change)
            if isinstance(staged.index, GroupIndex):
                staged.index.check_overflow(rows)
            staged.index.insert(rows)
            return
        staged.rows, index = rows, self._shards[change.uid].index
        if isinstance(index, GroupIndex):
            staged.states = index.stage(change.verb, rows, change.epoch)
            return
        index.check_change(change.verb, rows)
        if change.verb != "erase":
            index.store.check_rounding(rows)
        if change.verb == "upsert":
            index.refuse_repeats(all_keys_of(rows, staged.gone, change))
        if change.verb == "insert" and change.unique:
            staged.added = index_of_new_keys(index, rows, change)

    @contextmanager
    def _breaking(self, uid: str, what: str) -> Iterator[None]:
        """Guard a block that changes a shard; an error makes the shard lost."""
        try:
            yield
        except Exception as error:
            del self._shards[uid]
            self._broken[uid] = f"{what} failed halfway ({error})"
            raise

    def _catch_up(self, uid: str, epoch: int) -> None:
        """Apply the prepared change to a published epoch, if not applied yet."""
        staged = self._staged.get(uid)
        if staged is not None and staged.ready and staged.change.epoch == epoch:
            self.apply(uid, staged.change.transaction)

    def _open(self, uid: str, transaction: str) -> StagedChange:
        staged = self._staged.get(uid)
        if staged is None or staged.change.transaction != transaction:
            raise IndexLost(
                "a change of the index was abandoned, because a worker was lost or another "
                "client began a change; nothing was changed, call it again"
            )
        return staged


def _carry_out(verb: str, index: FrameIndex, rows: Any, gone: Any, epoch: int) -> int:
    """Apply rows, or keys to erase, to an index; return their number.

    `gone` are further keys that an upsert erases. Of groups it is the number of those that change.
    """
    if isinstance(index, GroupIndex):
        return index.fold(rows, epoch, taken_off=verb == "retract")
    if verb == "erase":
        return index.erase(rows)
    if verb == "insert":
        index.insert(rows)
        return len(rows)
    if gone is not None:
        index.erase(gone)
    return index.upsert(rows)


def _narrow(positions: Any, end: int) -> Any:
    """Return positions below `end` as int32 where possible, to send less."""
    return positions.astype(np.int32) if end <= 2**31 else positions
