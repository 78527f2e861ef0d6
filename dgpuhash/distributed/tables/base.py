"""Base of distributed tables: shards on workers, collective verbs, and commits."""

from __future__ import annotations

import math
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from numbers import Integral
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
import pandas as pd
from distributed import Client

from dgpuhash.distributed.cluster.broadcast import GRACE_SECONDS, run_on_workers
from dgpuhash.distributed.cluster.client import client_of, seceding
from dgpuhash.distributed.cluster.locality import DataNotLocal, TaskOutput
from dgpuhash.distributed.cluster.lock import ReentranceGuard
from dgpuhash.distributed.collective.group import Attempt, Transport
from dgpuhash.distributed.collective.group_cache import GroupUse, use_shared_group
from dgpuhash.distributed.events import log_event
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.distributed.partition.table_mode import DISTRIBUTED, TableMode
from dgpuhash.distributed.pipeline.verb import run_verb
from dgpuhash.distributed.pruning.policy import AbsentKeyStats
from dgpuhash.distributed.shards import table_store
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.shards.table_store import (
    StatsDisplay,
    TableShardSize,
    VerbRequest,
    VerbResult,
    format_entries,
    translated_losses,
)
from dgpuhash.distributed.tables.batch import (
    AnswerColumn,
    EarlyAnswer,
    KeyBatch,
    answer_columns,
    batch_of,
)
from dgpuhash.distributed.tables.leases import LIMIT, TableLease
from dgpuhash.errors import (
    ClosedError,
    DeviceError,
    DgpuhashError,
    IndexLost,
    KeyTypeError,
    SpecError,
    UnsupportedError,
)
from dgpuhash.frames.keys.seeds import draw_owner_seed
from dgpuhash.spec import TableSpec, check_capacity
from dgpuhash.tables.memory_errors import memory_errors_of
from dgpuhash.tables.stats import format_bytes
from dgpuhash.tables.stores.method import methods
from dgpuhash.tables.stores.mixed import OP_DTYPE
from dgpuhash.typing import Device

Result = TypeVar("Result")

MASK = AnswerColumn(np.dtype(bool))
# Keys of a shard: batches that fill smaller ones end before memory for them could be made.
SMALL_SHARE = 2**22
# Dask may move a chunk, or compute it anew, right after this library has moved it.
MOST_MOVES = 3


class DistributedTable:
    """Base class of distributed sets, maps, multimaps and filters."""

    def __init__(
        self,
        spec: TableSpec,
        capacity: int,
        *,
        client: Client | None = None,
        workers: Sequence[str] | None = None,
        exchange: Transport = "auto",
        device: Device | None = None,
        piece_rows: int | None = None,
        owner_seed: int | None = None,
        mode: TableMode = DISTRIBUTED,
    ) -> None:
        if device not in ("cpu", "cuda", None):
            raise DeviceError(f"device {device!r}; use 'cpu', 'cuda' or None (where the data is)")
        if piece_rows is not None and not (isinstance(piece_rows, Integral) and piece_rows > 0):
            raise SpecError(f"piece_rows={piece_rows!r}; give a number of rows, or None")
        if spec.key.names is not None:
            raise KeyTypeError(
                f"keys of dtype {spec.key} are records, which distributed tables do not support; "
                f"number them with a column of at most 8 bytes"
            )
        self._spec, self._mode = spec, mode
        self._owner_seed = draw_owner_seed() if owner_seed is None else owner_seed
        self._capacity = self._first_capacity = check_capacity(capacity)
        self._client = client_of(client)
        self._exchange = exchange
        self._device = device
        self._piece_rows = None if piece_rows is None else int(piece_rows)
        self._uid = uuid.uuid4().hex
        self._workers: list[str] = []
        with translated_losses(self._client, lambda: self._workers):
            self._workers = [place.worker for place in shard_addresses(self._client, workers)]
            self._hold(use_shared_group(self._client, self._workers, exchange))
        self._open, self._epoch = False, 0
        # Of lookups since keys were added.
        self._absences: AbsentKeyStats | None = None
        self._figures = StatsDisplay()
        self._held: list[TableShardSize] = []
        self._lost: str | None = None
        self._closed = False
        self._turn, self._alone = threading.RLock(), ReentranceGuard(type(self).__name__)
        self._commits = Commits()

    def _hold(self, use: GroupUse) -> None:
        """Make the workers free the handle's shards when the handle is gone."""
        self._transport = use.group.exchange
        self._holding = TableLease(self._client, self._uid, self._workers, use)
        self._finalizer = weakref.finalize(self, self._holding.abandon)
        self._finalizer.atexit = False

    @property
    def spec(self) -> TableSpec:
        """Settings of the table."""
        return self._spec

    @property
    def key_dtype(self) -> np.dtype[Any]:
        """Dtype of the keys."""
        return self._spec.key

    @property
    def value_dtype(self) -> np.dtype[Any] | None:
        """Dtype of the values; None for sets."""
        return self._spec.value

    @property
    def device(self) -> Device | None:
        """Device, ``"cpu"`` or ``"cuda"``; None until the first arrays decide."""
        return self._device

    @property
    def workers(self) -> list[str]:
        """Addresses of the workers that store the shards."""
        return list(self._workers)

    @property
    def epoch(self) -> int:
        """Number of changes of the table so far."""
        return self._epoch

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all shards."""
        return sum(held.nbytes for held in self._held)

    def stats(self) -> pd.DataFrame:
        """Return statistics, one row per shard; none before the device is known.

        Its ``part`` and ``worker``, the device, the fields of `dgpuhash.tables.TableStats`, and
        those of its ``details``; the frame's ``attrs["details"]`` has these for all shards.
        ``exchange_nbytes``: peak bytes of rows and answers under way there in the last verb; memory
        that the table needs to answer is not counted. ``seconds``: how long that verb ran there.
        ``filter_nbytes``: bytes of the worker's copy of a Bloom filter. ``absent_rows``,
        ``repeated_rows``: rows of the last verb that the worker pruned, as the filter had no such
        key, and as other rows had the same.
        """
        with self._at_work():
            rows = self._run_if_opened(table_store.stats_on_worker)
            return self._figures.learn(self._held, rows)

    def close(self) -> None:
        """Free the shards; closing twice is no error."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        """Free the shards; `error`, if given, is why the table ended."""
        if self._closed:
            return
        self._closed = True
        # A silent worker has been waited for already. The collector frees what an interrupt leaves.
        self._holding.free(GRACE_SECONDS if isinstance(error, IndexLost) else LIMIT)
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._close(error)

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            f"a {type(self).__name__} cannot be pickled; pass arrays of its results to tasks, or "
            f"create a table in the task"
        )

    def __repr__(self) -> str:
        value = self.value_dtype
        types = str(self.key_dtype) if value is None else f"{self.key_dtype} -> {value}"
        if self._spec.method != "auto":
            types += f" ({self._spec.method})"
        state = "closed" if self._closed else "lost" if self._lost else f"epoch {self._epoch}"
        return (
            f"<{type(self).__name__} {types}: {self._filled()}, "
            f"{format_bytes(self.nbytes)}, {self._mode.placement.value} over {len(self._workers)} "
            f"workers, {self._device or 'no device yet'}, exchange {self._transport}, {state}>"
        )

    def _filled(self) -> str:
        # Nobody has counted the distinct keys of shards that have keys in common.
        counted = self._spec.kind != "multimap" or not self._mode.independent
        return format_entries(self._spec.kind if counted else "map", self._held)

    def _repr_html_(self) -> str:
        there = not self._closed and self._lost is None
        return self._figures.html(repr(self), self._workers, self._held if there else [])

    def _ask(
        self,
        verb: Verb,
        keys: Any,
        *values: Any,
        ops: Any = None,
        shown: Sequence[AnswerColumn] = (),
    ) -> tuple[Any, ...]:
        """Run `verb`; return its result columns in the form of `keys`."""
        arguments: list[Any] = [(keys, self.key_dtype, "keys")]
        arguments += [(each, *self._as_values(each)) for each in values]
        if ops is not None:
            arguments.append((ops, OP_DTYPE, "ops"))
        lists = verb.name == "execute" and self._spec.kind == "multimap"
        needed = "erase" if lists else verb.method_verb
        methods()[self._spec.method].require(needed, self._spec.kind)
        with self._at_work():
            exact = verb.stores or verb.call is not None
            batch = batch_of(self._client, self._workers, arguments, exact)
            self._settle(batch.device)
            with self._alone:
                return self._order(replace(verb, mixed=batch.mixed), batch, shown)

    def _as_values(self, values: Any) -> tuple[Any, str]:
        """Return the dtype of values in messages, and the argument's name."""
        return self.value_dtype, "values"

    def _order(
        self, verb: Verb, batch: KeyBatch, shown: Sequence[AnswerColumn] = ()
    ) -> tuple[Any, ...]:
        """Run `verb` on all ranks; return its result columns."""
        rows = sum(batch.rows)
        if not verb.changes:
            absences = self._absences = self._absences or AbsentKeyStats()
            pruning = absences.with_stats(verb.sparing, self._device, rows=rows)
            verb = replace(verb, sparing=pruning)
        order = VerbRequest(self._uid, self._epoch, verb, batch.hosted, self._piece_rows)
        foreseen = EarlyAnswer(self._client, batch, verb.name, shown)

        def commit() -> list[TaskOutput[VerbResult]]:
            return self._carried_out(order, foreseen, rows)

        def made() -> list[TaskOutput[VerbResult]]:
            return self._commits.run(commit) if verb.changes else commit()

        for left in reversed(range(MOST_MOVES + 1)):
            try:
                found = made()
                break
            except DataNotLocal as elsewhere:
                if not left:
                    raise IndexLost(f"{elsewhere}, though it was moved; call it again") from None
                batch.place(self._client, self._workers)
        if verb.call is not None:
            return tuple(result for each in found for result in each.result.results)
        return foreseen.answers(answer_columns(found, len(shown)))

    def _carried_out(
        self, order: VerbRequest, foreseen: EarlyAnswer, rows: int
    ) -> list[TaskOutput[VerbResult]]:
        """Return the ranks' results; record the changes of the verb."""
        verb, start = order.verb, time.perf_counter()
        made = self._made(order, foreseen)
        outcomes = [each.result for each in made]
        for outcome in outcomes:
            if outcome.refused is not None:
                raise outcome.refused
        self._epoch += verb.changes
        if verb.stores:
            self._absences = None
        elif self._absences is not None and not verb.changes and verb.name != "distinct":
            absent_rows = sum(outcome.absent_rows for outcome in outcomes)
            self._absences.note(rows=rows, absent_rows=absent_rows)
        pairs = zip(outcomes, self._held, strict=True)
        self._held = [outcome.held or held for outcome, held in pairs]
        if verb.changes:
            name = {"add": "insert", "settle": "upsert"}.get(verb.name, verb.name)
            seconds = time.perf_counter() - start
            about = {"table": self._uid, "kind": self._spec.kind, "epoch": self._epoch}
            shards = len(self._workers)
            log_event(self._client, name, **about, rows=rows, seconds=seconds, shards=shards)
        return made

    def _made(self, order: VerbRequest, foreseen: EarlyAnswer) -> list[TaskOutput[VerbResult]]:
        """Return the ranks' results; form a new group if the old one failed.

        A worker that was silent for a while fails the group, even while no verb runs. Raises
        `DataNotLocal` where chunks lie with no rank.
        """
        use, stood = self._holding.use, self._holding.use is not None
        if use is None:
            use = use_shared_group(self._client, self._workers, self._exchange)
            self._holding.renew(use)
            self._transport = use.group.exchange
        group, attempt = use.group, Attempt()
        try:
            return group.run(
                self._client, run_verb, order,
                needed=foreseen.needed(), meanwhile=foreseen.make, attempt=attempt,
            )  # fmt: skip
        except BaseException as error:
            foreseen.forget()
            if isinstance(error, DataNotLocal) or not attempt.begun:
                raise
            # A group that has failed is not used again.
            self._holding.use = None
            use.give_up()
            with suppress(DgpuhashError, OSError, RuntimeError):
                group.close(self._client)
            unchanged = isinstance(error, Exception) and self._as_before()
            failed = self._exchange
            self._exchange = group.transport_after(self._client, error, failed)
            again = isinstance(error, IndexLost) and (stood or self._exchange != failed)
            if unchanged and again:
                return self._made(order, foreseen)
            if order.verb.changes and not unchanged:
                self._lost = f"its {order.verb.name} failed ({type(error).__name__}: {error})"
            raise

    def _as_before(self) -> bool:
        """Return whether all shards survive without the failed change."""
        try:
            run_on_workers(
                self._client, self._workers, table_store.size_of,
                self._uid, self._epoch, limit=2 * GRACE_SECONDS,
            )  # fmt: skip
        except DgpuhashError:
            return False
        return True

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        """Close the new table if the block that fills it fails."""
        try:
            yield
        except BaseException as error:
            self._close(error)
            raise

    def _settle(self, device: Device | None) -> None:
        """Decide on the device, and open the shards there."""
        device = device or self._device or "cpu"
        if self._device not in (device, None):
            remedy = "cupy.asarray" if self._device == "cuda" else "cupy.asnumpy"
            raise DeviceError(
                f"arrays on {device!r} for a table on {self._device!r}; convert them with "
                f"{remedy}(x) (a Dask array: x.map_blocks({remedy}))"
            )
        if not self._open:
            try:
                self._held = run_on_workers(
                    self._client, self._workers, table_store.open_table_shard,
                    self._uid, self._epoch, self._spec, self._owner_seed, self._mode,
                    self._share, device, self._workers,
                )  # fmt: skip
            except MemoryError:
                # The reserved capacity may be more than the memory holds.
                self._capacity = self._first_capacity
                raise
            self._device, self._open = device, True
            self._make_ready()

    def _make_ready(self) -> None:
        """Allocate memory for the first batch before it arrives."""
        use = self._holding.use
        small = self._share < SMALL_SHARE or self._mode.independent
        if use is None or small or self._transport not in table_store.LANDING:
            return
        # A group that is lost is formed anew by the verb that follows.
        with suppress(IndexLost):
            arguments = self._uid, self._epoch, self._share
            use.group.run(self._client, table_store.prepare_for_batch, *arguments)

    @property
    def _share(self) -> int:
        """Initial capacity of each shard in keys."""
        share = self._capacity / len(self._workers)
        # Keys are partitioned by hash, so that some shards have more than their share.
        return math.ceil(share + 6 * math.sqrt(share)) if share else 0

    def _run_if_opened(self, function: Callable[..., Result], *args: Any) -> list[Result]:
        """Return `_phase`, or nothing before the device is known."""
        with self._at_work():
            return [] if self._device is None else self._phase(function, *args)

    def _phase(self, function: Callable[..., Result], *args: Any) -> list[Result]:
        """Return the results of ``function(host, uid, epoch, *args)`` on all workers."""
        with self._at_work():
            self._settle(None)
            args = (self._uid, self._epoch, *args)
            return run_on_workers(self._client, self._workers, function, *args)

    def _change_shards(
        self, what: str, function: Callable[..., TableShardSize], *args: Any
    ) -> None:
        """Change all shards by ``function(host, uid, epoch, *args)``; an error loses all of them.

        An interrupt waits for the end.
        """

        def commit() -> None:
            try:
                args_of_all = (self._uid, self._epoch, *args)
                self._held = run_on_workers(self._client, self._workers, function, *args_of_all)
            except BaseException as error:
                self._lost = self._lost or f"its {what} failed ({type(error).__name__}: {error})"
                raise
            self._epoch += 1

        self._settle(None)
        self._commits.run(commit)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"this {type(self).__name__} was closed; make it again")
        if self._client.status in {"closing", "closed"}:
            raise ClosedError(
                f"the client of this {type(self).__name__} is closed, and nobody else knows its "
                "shards; make it again with another client, or load a save"
            )

    @contextmanager
    def _at_work(self, *, if_lost: bool = False) -> Iterator[None]:
        """Lock a usable table for one thread in a block; a lost one too with `if_lost`.

        Frees it again after a block in which another thread closed it.
        """
        losses = translated_losses(self._client, lambda: self._workers)
        with seceding(self._client), self._turn, memory_errors_of(type(self).__name__), losses:
            self._commits.finish()
            self._check(if_lost=if_lost)
            try:
                yield
            except IndexLost:
                self._check_open()
                raise
            finally:
                if self._closed:
                    self._holding.free(GRACE_SECONDS)
                    self._finalizer.detach()

    def _check(self, *, if_lost: bool = False) -> None:
        self._check_open()
        if self._lost is not None and not if_lost:
            raise IndexLost(
                f"this {type(self).__name__} is lost: {self._lost}; some of its parts may have "
                f"changed, so {table_store.REMEDY}"
            )


class Commits:
    """Commits of a table, one after another, each in a thread that interrupts do not reach.

    Signal handlers run in the main thread, between any two instructions. So a change that workers
    have begun, and what the handle notes of it, is carried out by another thread.

    Examples
    --------
    >>> commits = Commits()
    >>> commits.run(lambda: 7)
    7
    >>> commits.finish()
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, commit: Callable[[], Result]) -> Result:
        """Return the result of `commit`, or raise its error.

        An interrupt that comes meanwhile is raised when the commit has ended, or before it has
        begun. A second interrupt is raised at once, and the commit goes on: see `finish`. Other
        threads than the main one, such as those of tasks, are not interrupted.
        """
        if threading.current_thread() is not threading.main_thread():
            with self._lock:
                return commit()
        done = Future[Result]()
        thread = threading.Thread(
            target=copy_context().run, args=(_carry_out, self._lock, commit, done),
            name="dgpuhash-commit", daemon=True,
        )  # fmt: skip
        try:
            try:
                thread.start()
                wait([done])
            except BaseException:
                # An interrupt as `wait` takes the condition leaves it to this thread for good.
                while done._condition._is_owned():  # type: ignore[attr-defined]
                    done._condition.release()
                if not done.cancel():
                    wait([done])
                raise
            return done.result()
        finally:
            # The error's frames refer to it.
            del done

    def finish(self) -> None:
        """Wait for a commit whose caller was interrupted twice."""
        with self._lock:
            pass


def _carry_out(lock: threading.Lock, commit: Callable[[], Result], done: Future[Result]) -> None:
    with lock:
        if not done.set_running_or_notify_cancel():
            return
        try:
            result = commit()
        except BaseException as error:
            done.set_exception(error)
            # What the error's frames refer to would wait for the collector.
            del done, commit
        else:
            done.set_result(result)
