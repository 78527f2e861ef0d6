"""Handle of an index: its descriptor, epochs, statistics and closing."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any, Self, TypeVar

import pandas as pd
from distributed import Client

from dgpuhash import config
from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.events import log_event
from dgpuhash.distributed.ingest.commit import abandon, change_to, commit_change, drop_shards
from dgpuhash.distributed.ingest.history import Lineage, RowOperation, RowStep, operations_of
from dgpuhash.distributed.ingest.source import check_library, collection_of, meta_of
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, SavedRevision
from dgpuhash.distributed.partition.registry import (
    Registry,
    check_same_index,
    name_taken_error,
    unknown_index_error,
)
from dgpuhash.distributed.partition.row_order import check_arrival_column
from dgpuhash.distributed.partition.skew import HeavyKeys
from dgpuhash.distributed.query.plan import MergePlans
from dgpuhash.distributed.shards.inbox import Receipt
from dgpuhash.distributed.shards.stats import IndexSize, row_count, shard_stats
from dgpuhash.distributed.storage import change_log
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.errors import (
    ClosedError,
    DgpuhashError,
    IndexChanged,
    IndexLost,
    IndexNotFound,
    KeyTypeError,
)
from dgpuhash.frames import join_columns, key_names
from dgpuhash.tables.stats import format_bytes, html_table

Result = TypeVar("Result")

# Columns that the repr of a handle names.
COLUMNS_SHOWN = 8

# Changes of this process that an interrupt has cut while they were published, by the index's uid:
# the next call of any handle finds out whether they have happened.
_unsettled: dict[str, Change] = {}


class Handle:
    """Base of `DistributedIndex`: identity, statistics, epochs, and closing."""

    def __init__(self, descriptor: Descriptor, client: Client | None) -> None:
        self._descriptor = descriptor
        self._given_client = client
        self._history = Lineage()
        self._closed = False
        self._held: IndexSize | None = None
        self._merging: MergePlans | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Neither a client nor the futures of a source are pickled: the unpickled handle uses the
        # client of its process, and its `rebuild` needs a save.
        return self.__dict__ | {
            "_given_client": None,
            "_history": Lineage(),
            "_merging": None,
        }

    @property
    def _client(self) -> Client:
        return client_of(self._given_client)

    @property
    def _registry(self) -> Registry:
        return Registry(self._client)

    @property
    def name(self) -> str:
        """Name by which `open` finds the index."""
        return self._descriptor.name

    @property
    def on(self) -> list[Hashable]:
        """Labels of the key columns."""
        return list(self._descriptor.encoder.names)

    @property
    def meta(self) -> Any:
        """Empty frame like the stored rows."""
        # Indexes of one schema share one empty frame.
        return self._descriptor.meta.copy()

    @property
    def columns(self) -> list[Hashable]:
        """Labels of the stored columns, keys included."""
        return list(self._descriptor.meta)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and key tables on all workers, by a call to them."""
        found = self.stats()
        return int(found["row_nbytes"].sum() + found["table_nbytes"].sum())

    @property
    def epoch(self) -> int:
        """Number of changes that this handle knows of: builds, updates, moves."""
        return self._descriptor.epoch

    @property
    def placement(self) -> Placement:
        """Placement mode: which workers store a row."""
        return self._descriptor.placement

    @property
    def durable(self) -> str | None:
        """URL of the write-ahead log; None without one."""
        return self._descriptor.log

    @property
    def workers(self) -> list[str]:
        """Addresses of the workers that store the shards."""
        return self._descriptor.workers

    def __len__(self) -> int:
        return self._reading(partial(row_count, self._client))

    def stats(self) -> pd.DataFrame:
        """Return a row for each shard, with its worker, rows and bytes.

        Columns are ``part`` (the shard), ``worker``, rows, bytes and the kind of the table.
        ``filter_nbytes``: bytes of the worker's replica of a Bloom filter. ``absent_rows`` and
        ``repeated_rows``: rows of merges and lookups on the worker since the last change for which
        no shard was queried, as the filter excludes their keys, or other rows have the same keys.
        """

        def ask(descriptor: Descriptor) -> pd.DataFrame:
            found = shard_stats(self._client, descriptor)
            nbytes = found["row_nbytes"] + found["table_nbytes"]
            shards = list(zip(found["rows"].tolist(), nbytes.tolist(), strict=True))
            replicated = descriptor.placement is Placement.REPLICATED
            self._learn(IndexSize.of(descriptor.epoch, replicated, shards))
            return found

        return self._reading(ask)

    def refresh(self) -> None:
        """Bring this handle to the newest epoch.

        Raises
        ------
        IndexNotFound
            When the index was closed by another client, or the scheduler has forgotten it.
        IndexLost
            When the scheduler is gone.
        """
        self._check_open()
        self._settle_log(self._go_to(self._registry.find(self.name)))

    def close(self) -> None:
        """Free the shards and the name; a second call does nothing."""
        if self._closed:
            return
        newest = self._registry.remove(self._descriptor)
        change = _unsettled.pop(self._descriptor.uid, None)
        if newest is not None:
            drop_shards(self._client, newest.uid, newest.workers)
        elif change is not None:
            abandon(self._client, change)
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"<{type(self).__name__} {self.name!r}, closed>"
        return (
            f"<{type(self).__name__} {self.name!r} on {self.on!r}: {self._columns_in_words()}, "
            f"{self._held_in_words()}, {self._placed_in_words()}, epoch {self.epoch}, "
            f"{self._kept_in_words()}>"
        )

    def _repr_html_(self) -> str:
        if self._closed:
            return f"<p>{escape(repr(self))}</p>"
        rows = [
            ("keys", repr(self.on)),
            ("columns", self._columns_in_words()),
            ("size", self._held_in_words()),
            ("placement", self._placed_in_words()),
            ("epoch", f"{self.epoch:,}"),
            ("when lost", self._kept_in_words()),
        ]
        return html_table(f"{type(self).__name__} {self.name!r}", rows)

    def _placed_in_words(self) -> str:
        descriptor = self._descriptor
        placed = f"{len(descriptor.shards)} shards, {descriptor.placement.value}"
        if descriptor.conflict is not Conflict.ERROR:
            placed += f" with conflict={descriptor.conflict.value!r}"
        if descriptor.reason:
            placed += f" ({descriptor.reason})"
        return placed

    def _columns_in_words(self) -> str:
        """Return the names of the non-key columns as text."""
        names = [label for label in self._descriptor.meta if label not in self.on]
        more = f" and {len(names) - COLUMNS_SHOWN} more" if len(names) > COLUMNS_SHOWN else ""
        return f"columns {names[:COLUMNS_SHOWN]!r}{more}"

    def _held_in_words(self) -> str:
        """Return the last known rows and bytes as text, without a call to the cluster."""
        held = self._held
        if held is None or held.epoch != self.epoch:
            return "rows and bytes unknown before stats()"
        nbytes = "bytes unknown" if held.nbytes is None else format_bytes(held.nbytes)
        return f"{held.rows:,} rows, {nbytes}"

    def _kept_in_words(self) -> str:
        """Return as text the source that lost shards would be rebuilt from."""
        if self._descriptor.log is not None:
            return f"durable at {self._descriptor.log}"
        ways = self._history.ways_to_rebuild(self._descriptor)
        if not ways:
            return "cannot be rebuilt by this handle"
        start = ways[0][0].rows
        place = start.url if isinstance(start, SavedRevision) else "its source"
        return f"can be rebuilt from {place}"

    def _learn(self, held: IndexSize) -> None:
        self._held = held

    def _change(self, verb: str, rows: Any, names: Sequence[Hashable]) -> int:
        with self._changing() as current:
            collection = collection_of(rows, list(names))
            if current.groups is None:
                # Groups are of states, which frames of both libraries have.
                check_library(collection, current.meta)
            if not self._compares(verb, meta_of(collection), names, current):
                return 0
            if verb != "erase" and current.placement is Placement.INDEPENDENT:
                check_arrival_column(collection)
            end = replace(current, epoch=current.epoch + 1, revision=current.revision + 1)
            step = RowStep(verb, collection, end.revision)
            change = change_to(end, verb)

            def write(newest: Descriptor) -> None:
                if newest.log is not None:
                    outdated = partial(self._registry.outdated_error, current)
                    change_log.append(self._client, change, newest, outdated)

            acts = operations_of(self._client, end, [step])
            return self._carry_out(current, end, change, acts, step, write=write)

    def _compares(
        self, verb: str, given: Any, names: Sequence[Hashable], current: Descriptor
    ) -> bool:
        """Return whether a change `verb` needs keys like `given` compared with stored ones.

        Raises KeyTypeError where the types of the keys do not compare. Keys of any type compare
        with an index without rows; an erase of keys that compare only therefore is no change, as no
        log could record it.
        """
        given = given[list(key_names(given, list(names)))]

        def check(descriptor: Descriptor) -> bool:
            join_columns(given, descriptor.encoder)
            return descriptor is current

        return self._while_empty(current, check) if verb == "erase" else check(current)

    def _while_empty(self, descriptor: Descriptor, read: Callable[[Descriptor], Result]) -> Result:
        """Return the result of `read`; an empty index accepts keys of any type.

        The shards are asked whether they have rows only where key types do not compare.
        """
        try:
            return read(descriptor)
        except KeyTypeError:
            empty = descriptor.without_rows()
            if empty.encoder == descriptor.encoder or row_count(self._client, descriptor):
                raise
            return read(empty)

    def _carry_out(
        self,
        before: Descriptor | None,
        end: Descriptor,
        change: Change,
        acts: Sequence[RowOperation],
        step: RowStep | None = None,
        moved: Callable[[], list[Receipt]] | None = None,
        write: Callable[[Descriptor], None] = lambda newest: None,
    ) -> int:
        """Commit a change to `end`, record `step`, and return the changed rows.

        `write` runs when all shards are prepared, before any client sees the change. `before` is
        None for a new index.
        """

        def publish(heavy: HeavyKeys) -> None:
            newest = replace(end, heavy=heavy)
            with self._settled_later(change):
                write(newest)
                try:
                    self._publish(newest, before)
                except IndexLost as lost:
                    if change.verb == "build" or not change_log.stays(newest, change):
                        raise
                    stood_still = isinstance(lost, IndexChanged)
                    why = "another client went on meanwhile" if stood_still else lost
                    raise IndexLost(
                        f"the {change.verb} was made, as it is in the log at {newest.log}: do not "
                        f"repeat it; but then {why}"
                    ) from lost
            if step is not None:
                self._history.record(step)

        start = time.perf_counter()
        rows = commit_change(self._client, change, acts, publish, self._learn, moved)
        seconds, held = time.perf_counter() - start, self._held
        verb = "move" if step is None else step.verb
        log_event(
            self._client, verb, index=end.name, uid=end.uid, epoch=end.epoch, rows=rows,
            held_rows=None if held is None else held.rows, seconds=seconds, shards=len(end.shards),
        )  # fmt: skip
        return rows

    def _publish(self, newest: Descriptor, after: Descriptor | None) -> None:
        registry = self._registry
        if not registry.publish(newest, after=after):
            if after is None:
                raise name_taken_error(self.name)
            raise registry.outdated_error(after) or unknown_index_error(self.name)
        self._descriptor = newest

    @contextmanager
    def _settled_later(self, change: Change) -> Iterator[None]:
        """Publish a change in a block; record an interruption, and abandon it on other errors."""
        try:
            yield
        except BaseException as error:
            # An IndexLost may be of a scheduler that has published it.
            if isinstance(error, DgpuhashError | OSError) and type(error) is not IndexLost:
                abandon(self._client, change)
            else:
                _unsettled[change.uid] = change
            raise

    @contextmanager
    def _changing(self, *, settle: bool = True) -> Iterator[Descriptor]:
        """Lock the index for a change; yield its newest descriptor.

        With `settle`, changes that an interrupt has cut are settled first.
        """
        self._check_open()
        with self._registry.changing(self.name):
            self._check_open()
            current = self._go_to(self._registry.begin(self.name))
            yield self._settle_changes(current) if settle else current

    def _settle_changes(self, current: Descriptor) -> Descriptor:
        """Complete interrupted changes; return the newest descriptor.

        A change without a log has happened if it was published. One with its record in the log has
        happened: it is published here.
        """
        change = _unsettled.get(current.uid)
        if change is not None and change.epoch > current.epoch:
            abandon(self._client, change)
        while current.log is not None:
            record = change_log.unpublished_record(Folder(current.log), current)
            if record is None:
                break
            end = replace(current, revision=record.revision)
            if record.files:
                end = replace(end, epoch=current.epoch + 1)
                step = RowStep(record.verb, record, end.revision)
                acts = operations_of(self._client, end, [step])
                self._carry_out(current, end, change_to(end, record.verb), acts, step)
            else:
                self._publish(end, current)
            current = self._descriptor
        _unsettled.pop(current.uid, None)
        return current

    def _settle_log(self, newest: Descriptor) -> None:
        """Publish a logged change that another client left unpublished, if any."""
        if newest.log is not None and change_log.unpublished_record(Folder(newest.log), newest):
            with self._changing():
                pass

    def _go_to(self, newest: Descriptor | None) -> Descriptor:
        self._descriptor = check_same_index(self._descriptor, newest)
        return self._descriptor

    def _reading(self, read: Callable[[Descriptor], Result]) -> Result:
        """Return the result of `read`, consistent at one epoch.

        The epoch is the handle's. Where another client has changed the index since, the handle is
        brought to the newest epoch and `read` is called again.
        """
        attempts = config.count("retries.read")
        for _ in range(attempts):
            descriptor = self._current()
            try:
                return self._while_empty(descriptor, read)
            except IndexLost as error:
                if not self._refresh(descriptor, error):
                    raise
        raise IndexChanged(
            f"index {self.name!r} was changed {attempts} times while this call read it; call it "
            "again when other clients have finished their changes"
        )

    def _refresh(self, before: Descriptor, error: IndexLost | None = None) -> bool:
        """Bring the handle to the newest epoch; return whether that is newer.

        The result is whether there is a newer epoch than that of `before`. After an `error`, which
        is the better one to raise, the wait for the scheduler is short.
        """
        try:
            limit = None if error is None else config.seconds("liveness.timeout")
            newest = self._registry.newest(before, limit)
        except IndexNotFound as gone:
            raise gone from error
        except IndexLost:
            if error is None:
                raise
            return False
        # Another thread may have changed the index by this handle since.
        if newest.epoch > self._descriptor.epoch:
            self._descriptor = newest
        return newest.epoch > before.epoch

    def _current(self) -> Descriptor:
        self._check_open()
        if self._descriptor.uid in _unsettled:
            with self._changing():
                pass
        return self._descriptor

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(
                f"index {self.name!r} was closed; build it again, or load it where it was saved"
            )
