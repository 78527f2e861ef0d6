"""Whole-table verbs: clear, copy, save, load and rebuild."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any, Self, Unpack

from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import client_of, workers_of
from dgpuhash.distributed.cluster.survivors import run_to_end
from dgpuhash.distributed.collective.group_cache import use_shared_group
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.distributed.partition.descriptor import SavedRevision
from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.shards import table_store
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.storage.arrow_files import RowsFile, check_shared
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import MANIFEST, load_with_retry
from dgpuhash.distributed.tables import contents
from dgpuhash.distributed.tables.base import DistributedTable
from dgpuhash.distributed.tables.batch import answer_columns, array_of, check_arrays
from dgpuhash.distributed.tables.saved import SavedBatch, SavedTable, homes_of
from dgpuhash.errors import FormatError, IndexLost, UnsupportedError
from dgpuhash.typing import ConflictName, Device, OnWorkers


class TableMaintenance(DistributedTable):
    """Whole-table verbs of distributed tables."""

    kind = ""
    _saved: tuple[SavedRevision, int] | None = None
    """The last save, and the epoch whose content it has."""
    _unfilled: tuple[int, ...] = ()
    """Shards that a rebuild has begun, and not finished."""

    def clear(self) -> None:
        """Remove every key; the capacity stays."""
        with self._at_work(), self._alone:
            if self._device is None:
                self._epoch += 1
            else:
                self._change_shards("clear", table_store.clear_table_shard)

    def copy(self) -> Self:
        """Return an independent table with the same content.

        It has the same workers and devices.

        Raises
        ------
        OutOfMemoryError
            When a worker has no memory for it.
        IndexLost
            When a worker was lost, or the table has been.
        """
        with self._at_work():
            try:
                made = self._like_this()
            except UnsupportedError as error:
                if set(self._workers) <= set(workers_of(self._client)):
                    raise
                said = f"a worker with a shard of the table is gone; {table_store.REMEDY}"
                raise IndexLost(said) from error
            with made._closed_on_error():
                if self._open:
                    made._held = self._phase(contents.copy_table_shard, made._uid)
                    made._open = True
        return made

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the table to a directory: an Arrow file a shard, and a manifest.

        Any Arrow library reads the columns ``key`` and ``value``: numbers and times as such, times
        that Arrow has no unit for as int64, and values of other dtypes as fixed bytes. A program
        that is killed during a save leaves files that the manifest does not name, which may be
        removed, or, beside `url`, a folder whose name ends with ``.part``, which the next save or
        load of that name removes.

        Parameters
        ----------
        url : str or path
            A path that this program and all workers see, or any fsspec URL. An earlier save of this
            table there, or the one it was loaded from, is replaced at once when all is written.
        overwrite : bool
            Whether to replace a save of another table; nothing else is ever replaced.

        Raises
        ------
        ExistsError
            When `url` holds something else, or a save of another table without `overwrite`: before
            anything is written, or when another save appears meanwhile.
        UnsupportedError
            When this program does not see the files at `url` that the workers have written.
        SpecError
            When fsspec does not know the URL.
        OSError
            When `url` cannot be written; an earlier save there stays unchanged.
        IndexLost
            When a worker was lost, or the table has been.
        """
        folder = Folder(url)
        mark = f"part-{self._uid[:12]}-"
        token = uuid.uuid4().hex[:12]
        names = {
            worker: f"{mark}{token}-{rank:05}.arrow" for rank, worker in enumerate(self._workers)
        }
        replaced = self._replaced_in(folder, overwrite)

        def write(place: Folder) -> bytes:
            self._settle(None)
            files = run_to_end(
                self._client, self._workers, contents.write_table_shard,
                self._uid, self._epoch, names, place.url,
            )  # fmt: skip
            check_shared(place, files)
            if replaced is not None:
                # Another table may have been saved here meanwhile.
                self._replaced_in(folder, overwrite)
            size = sum(sum(rows.batches) for rows in files)
            return SavedTable(
                self._spec, self._owner_seed, size, self._uid, self._epoch, tuple(files), self._mode
            ).to_bytes()

        with self._at_work():
            folder.fill(list(names.values()), MANIFEST, write, fresh=replaced is None)
            folder.sweep(MANIFEST)
            self._saved = SavedRevision(folder.url, self._uid, self._epoch), self._epoch
            if replaced is not None:
                # Also files of workers that an earlier save did not wait for: only this handle's
                # files have its mark.
                stale = {rows.file for rows in replaced.shards}
                stale |= {name for name in folder.names() if name.startswith(mark)}
                folder.remove(stale - set(names.values()))

    def _replaced_in(self, folder: Folder, overwrite: bool) -> SavedTable | None:
        """Return the manifest that a save of this table replaces; None for none."""
        there, saved = SavedTable.replaced_in(folder), self._saved and self._saved[0]
        if there is not None:
            there.check_replaceable(folder, self._uid, saved, overwrite=overwrite)
        return there

    @classmethod
    def load(
        cls,
        url: str | os.PathLike[str],
        *,
        device: Device | None = None,
        conflict: ConflictName | None = None,
        **where: Unpack[OnWorkers],
    ) -> Self:
        """Load a saved table from `url` onto the current workers.

        Their number may differ from the one at the save.

        Parameters
        ----------
        url : str or path
            A path that all workers see, or any fsspec URL.
        device : {"cpu", "cuda"}, optional
            Default: ``"cpu"``.
        client, workers, exchange, piece_rows
            As for the class.
        conflict : str, optional
            For an independent map: as for `DistributedMap`. Default: as it was saved. On fewer
            workers than saved it, values of a key that meet on one are merged by this rule.

        Raises
        ------
        FormatError
            When `url` holds no saved table of this class, or a damaged one.
        SpecError, DeviceError, UnsupportedError, OutOfMemoryError
            As for the class, at once; and when fsspec does not know the URL.
        """
        folder = Folder(url)
        client = client_of(where.get("client"))
        options = {**where, "client": client, "device": device or "cpu"}
        return load_with_retry(folder, lambda: cls._loaded(folder, options, conflict))

    @classmethod
    def _loaded(cls, folder: Folder, options: dict[str, Any], conflict: str | None) -> Self:
        saved = SavedTable.found_in(folder)
        if saved.spec.kind != cls.kind:
            raise FormatError(
                f"{folder.url} holds a {saved.spec.kind} and not a {cls.kind}; load it with the "
                "class that it was saved from"
            )
        mode, made = saved.mode, object.__new__(cls)
        if conflict is not None:
            mode = TableMode.of(mode.placement.value, conflict, saved.spec.value)
        DistributedTable.__init__(
            made, saved.spec, saved.size, owner_seed=saved.owner_seed, mode=mode, **options
        )
        with made._closed_on_error(), made._at_work():
            made._fill(folder, saved, saved.shards, range(len(made._workers)))
        return made

    def rebuild(self) -> tuple[int, ...]:
        """Rebuild lost shards from the last save, if nothing has changed since.

        Surviving shards stay where they are, if there are workers enough for the others; else all
        shards are made anew, on the workers that there are.

        Returns
        -------
        tuple of int
            Numbers of the shards that were made anew, as in `stats`.

        Raises
        ------
        IndexLost
            When the table was not saved after its last change, or another worker is lost meanwhile.
        FormatError
            When the save is damaged, or was replaced by another.
        OutOfMemoryError
            When a worker has no memory for its shard.
        """
        with self._at_work(if_lost=True):
            if self._saved is None or self._saved[1] != self._epoch:
                raise IndexLost(
                    f"this {type(self).__name__} cannot be rebuilt: it was not saved after its "
                    "last change; make it again from its source, or load an older save with "
                    f"{type(self).__name__}.load(url)"
                )
            where, _ = self._saved
            folder = Folder(where.url)
            saved = SavedTable.found_in(folder)
            if (saved.uid, saved.epoch) != (where.uid, where.revision):
                raise FormatError(
                    f"{where.url} holds another state than this table had: it was saved to again; "
                    "load that, or make the table again from its source"
                )
            lost = self._lost_parts()
            if lost:
                self._lost = "its rebuild failed"
                files = self._replace(lost, saved.shards)
                self._fill(folder, saved, files, self._unfilled)
            made, self._unfilled, self._lost = self._unfilled, (), None
            return made

    def _lost_parts(self) -> list[int]:
        """Return the shards that no worker has at the current epoch."""
        there = workers_of(self._client)
        reachable = [worker for worker in self._workers if worker in there]
        found = run_on_workers(
            self._client, reachable, contents.holds_table_shard, self._uid, self._epoch
        )
        whole = {worker for worker, holds in zip(reachable, found, strict=True) if holds}
        return [
            part
            for part, worker in enumerate(self._workers)
            if worker not in whole or part in self._unfilled
        ]

    def _replace(self, lost: Sequence[int], files: Sequence[RowsFile]) -> Sequence[RowsFile]:
        """Create empty shards in place of lost ones; return the files to fill them.

        All shards begin anew where workers are too few, or `files` has another number of shards.
        """
        staying = [worker for part, worker in enumerate(self._workers) if part not in lost]
        spare = [
            place.worker for place in shard_addresses(self._client) if place.worker not in staying
        ]
        # A worker that came back gets its shard again.
        spare.sort(key=lambda worker: worker not in self._workers)
        apart = bool(staying) and len(spare) >= len(lost) and len(files) == len(self._workers)
        workers = sorted([*staying, *spare])
        if apart:
            new = iter(spare)
            workers = [next(new) if part in lost else one for part, one in enumerate(self._workers)]
        use = use_shared_group(self._client, workers, self._exchange)
        self._finalizer.detach()
        self._holding.free(parts=not apart)
        self._workers = workers
        self._unfilled = tuple(lost if apart else range(len(workers)))
        if not apart:
            self._uid, self._epoch, self._open = uuid.uuid4().hex, 0, False
            self._saved = self._saved and (self._saved[0], 0)
            self._hold(use)
            return files
        self._hold(use)
        run_on_workers(
            self._client, [workers[part] for part in lost], table_store.open_table_shard,
            self._uid, self._epoch, self._spec, self._owner_seed, self._mode, self._share,
            self._device, workers,
        )  # fmt: skip
        return [files[part] for part in lost]

    def _fill(
        self, folder: Folder, saved: SavedTable, files: Sequence[RowsFile], parts: Sequence[int]
    ) -> None:
        """Insert the rows in `files`; for an independent table into the shards `parts`.

        Afterwards the table must have all entries that `saved` claims.
        """
        self._settle(None)
        client, workers, fewer = self._client, self._workers, False
        verb = Verb("insert" if self.kind == "multimap" else "add")
        if not self._mode.independent:
            batches = [SavedBatch(client, workers, folder, saved.spec, files)]
        else:
            homes = homes_of(files, [workers[part] for part in parts])
            batches = [SavedBatch(client, workers, folder, saved.spec, *each) for each in homes]
            fewer = len(homes) > 1 and self.kind != "multimap"
        for number, batch in enumerate(batches):
            if number and self.kind == "map":
                verb = Verb("settle")
            if batch.rows:
                self._order(verb, batch)
        size = sum(held.size for held in self._held)
        # Fewer shards than were saved merge keys that several of those had.
        if size != saved.size and not (fewer and size < saved.size):
            raise FormatError(
                f"{folder.url} is damaged: it holds {size:,} distinct entries and claims "
                f"{saved.size:,}; save the table again"
            )
        self._saved = SavedRevision(folder.url, saved.uid, saved.epoch), self._epoch

    def _contents(self, what: str, dtypes: Sequence[Any]) -> tuple[Any, ...]:
        """Return columns of all shards as Dask arrays on the workers."""
        check_arrays()
        name = f"dgpuhash-{what}-{uuid.uuid4().hex}"
        ranks = {worker: rank for rank, worker in enumerate(self._workers)}
        with self._at_work():
            made = self._phase(contents.keep_contents, ranks, what, name)
            kept = answer_columns(made, len(dtypes))
            return tuple(
                array_of(column, dtype, self._device)
                for column, dtype in zip(kept, dtypes, strict=True)
            )

    def _like_this(self) -> Self:
        made: Self = object.__new__(type(self))
        DistributedTable.__init__(
            made,
            self._spec,
            self._capacity,
            client=self._client,
            workers=self._workers,
            exchange=self._exchange,
            device=self._device,
            piece_rows=self._piece_rows,
            owner_seed=self._owner_seed,
            mode=self._mode,
        )
        return made
