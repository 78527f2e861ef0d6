"""Phases of a run as tasks carry them out: sink, finalize and source."""

from __future__ import annotations

import functools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from dask.sizeof import sizeof
from distributed import Client

from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import task_client
from dgpuhash.distributed.cluster.dask_internals import Expr, Task, TaskRef
from dgpuhash.distributed.cluster.expressions import PartitionExpr, SharedExpr
from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.distributed.partition.descriptor import ShardAddress
from dgpuhash.distributed.runs.run import (
    Run,
    announced_run,
    begin_anew,
    current_run,
    lost_runs_again,
    run_of_part,
)
from dgpuhash.errors import IndexLost
from dgpuhash.tables.memory_errors import memory_errors_of

# Attempts to begin a run while workers leave.
OPENINGS = 5
# Bytes of a task's result beside its rows: Dask asks each result how large it is.
RESULT_NBYTES = 2**10


@dataclass(frozen=True, slots=True)
class BufferedRows:
    """Rows or states of a partition without an owner: the result of its task.

    Attributes
    ----------
    partition : int
    rows : DataFrame
    categories : Any
        Those of the partition, where the verb needs them.
    """

    partition: int
    rows: Any
    categories: Any = None

    def __sizeof__(self) -> int:
        return RESULT_NBYTES + sizeof(self.rows)


@dataclass(frozen=True, slots=True)
class SentRows:
    """Confirmation that the owners of a run have the rows or states of a partition."""

    uid: str
    receipt: Any


class RunTask(ABC):
    """What the tasks of a run have in common; each verb has its own.

    All of a run lies in three phases. In *sink* each partition gives its rows or states to their
    owners, or keeps them as its result where they are few. *Finalize* begins once all partitions
    are there. In *source* any number of tasks read.
    """

    __slots__ = ()

    #: What the tasks do, in words.
    verb: ClassVar[str]
    #: Making and sending what a partition gives takes at least this often its bytes.
    copies: ClassVar[int]

    @abstractmethod
    def opening(
        self, uid: str, there: Sequence[ShardAddress], packed: CachedPickle[Any]
    ) -> tuple[Run, Sequence[Any]]:
        """Return a run on workers, and the function that opens it on each, with its arguments."""

    @abstractmethod
    def sink(self, frame: Any, number: int) -> tuple[BufferedRows, Any]:
        """Return what a partition gives, and the codes of its keys if known."""

    @abstractmethod
    def are_few(self, rows: Any) -> bool:
        """Return whether the rows or states of a partition need no owners."""

    @abstractmethod
    def sender(
        self, opened: Any, buffered: BufferedRows, codes: Any, frame: Any
    ) -> Callable[[], Any]:
        """Return the function that sends what a partition gives and returns the receipt."""

    @abstractmethod
    def finalize(self, client: Client, key: Any, opened: Any, receipts: list[Any]) -> Any:
        """Return what readers get, once the owners have all partitions."""

    @abstractmethod
    def finalize_buffered(self, key: Any, buffered: Sequence[BufferedRows]) -> Any:
        """Return what readers get of partitions that no owner has."""


def open_run(packed: CachedPickle[Any], key: Any = None) -> tuple[Any, Any]:
    """Return the key of a seal and the answer of its run; the first task of a run opens it.

    It is tried again where a worker leaves meanwhile. Without `key`, the seal is that of the
    current task.
    """
    with raise_without_traceback():
        client, own = task_client(), current_worker().get_current_task()

        def attempt() -> tuple[Any, Any]:
            seal, found = (
                run_of_part(client, own) if key is None else (key, current_run(client, key))
            )
            return seal, _open(client, packed, seal) if found is None else found

        for _ in range(OPENINGS - 1):
            with suppress(IndexLost):
                return attempt()
        return attempt()


def _open(client: Client, packed: CachedPickle[Any], key: Any) -> Any:
    """Return the answer of the key's run, which is begun on the workers that are there.

    Raises IndexLost when one of them leaves meanwhile.
    """
    run, call = packed.opened().opening(uuid.uuid4().hex, shard_addresses(client), packed)
    return announced_run(
        client, key, run, functools.partial(run_on_workers, client, run.workers, *call)
    )


def sink(frame: Any, packed: CachedPickle[Any], number: int) -> BufferedRows | SentRows:
    """Send what a partition gives to its owners; return the receipt, or few rows as they are.

    It may run more than once: each run is an attempt of its own.
    """
    task = packed.opened()
    with raise_without_traceback(), memory_errors_of(task.verb):
        memory = plugin_of(current_worker()).shards.memory
        if memory is not None:
            memory.require_task(frame, task.copies)
        buffered, codes = task.sink(frame, number)
        if task.are_few(buffered.rows):
            return buffered
        key, opened = open_run(packed)
        with lost_runs_again(key, opened.uid):
            send = task.sender(opened, buffered, codes, frame)
            # What is sent may be a copy.
            del buffered, codes
            return SentRows(opened.uid, send())


def finalize(packed: CachedPickle[Any], key: Any, *sunk: BufferedRows | SentRows) -> Any:
    """Return what readers get; send what is buffered, unless all partitions are."""
    task = packed.opened()
    with raise_without_traceback(), memory_errors_of(task.verb):
        buffered = [each for each in sunk if isinstance(each, BufferedRows)]
        if buffered and len(buffered) == len(sunk):
            return task.finalize_buffered(key, buffered)
        client, (_, opened) = task_client(), open_run(packed, key)
        with lost_runs_again(key, opened.uid):
            if any(isinstance(each, SentRows) and each.uid != opened.uid for each in sunk):
                # That run was freed when nobody wanted it.
                begin_anew(client, key)
            receipts = [
                each.receipt
                if isinstance(each, SentRows)
                else task.sender(opened, each, None, each.rows)()
                for each in sunk
            ]
            return task.finalize(client, key, opened, receipts)


@contextmanager
def source(sealed: Any, verb: str) -> Iterator[None]:
    """Guard a task that reads what a run has."""
    with (
        raise_without_traceback(),
        memory_errors_of(verb),
        lost_runs_again(sealed.key, sealed.uid),
    ):
        yield


class SinkExpr(PartitionExpr):
    """Partitions of a frame, which go to a run; ``_packed`` has what its tasks have in common."""

    def _task(self, name: Any, index: int) -> Task:
        return Task(name, sink, TaskRef((self.frame._name, index)), self._packed, index)


class SealExpr(SharedExpr):
    """A run while tasks read it; its one key is the seal that all partitions have gone to.

    ``_packed`` has what the tasks of the run have in common.
    """

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> Expr | None:
        return None

    def _layer(self) -> dict[Any, Task]:
        key, count = (self._name, 0), self.frame.npartitions
        sunk = (TaskRef((self.frame._name, number)) for number in range(count))
        return {key: self._last(key, self._packed, key, *sunk)}

    def _last(self, key: Any, *args: Any) -> Task:
        """Return the seal task, which depends on all partitions."""
        return Task(key, finalize, *args)
