"""Worker plugin: store a worker's shards and serve RPCs on them."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from distributed import WorkerPlugin

from dgpuhash.backend.cpu import ThreadQuota
from dgpuhash.backend.native import native
from dgpuhash.distributed.cluster.dask_internals import error_message, rpc_handlers
from dgpuhash.distributed.cluster.device_thread import DeviceThread
from dgpuhash.distributed.cluster.serialization import to_message
from dgpuhash.distributed.cluster.user_errors import install_log_filter
from dgpuhash.distributed.collective.endpoint import Endpoint
from dgpuhash.distributed.shards.inbox import Parcel
from dgpuhash.distributed.shards.shard_store import ShardStore
from dgpuhash.distributed.shards.worker_memory import FreedMemory, WorkerMemory, keep_freed_memory
from dgpuhash.errors import CompileError, IndexLost

if TYPE_CHECKING:
    from dgpuhash.distributed.shards.table_store import HostedShard

from dgpuhash.distributed.cluster.host import NAME, plugin_class

# Loaded on import: else an event loop would load it when it first allocates room for rows.
with suppress(CompileError):
    native()

# CPU threads of all workers in this process, which share one pool.
SHARES = ThreadQuota()

# Closed groups to remember: a call to join a group may arrive after the call to close it.
LEFT = 64


Service = TypeVar("Service")
Handler = Callable[..., Awaitable[dict[str, Any]]]


def replying(handler: Callable[..., Awaitable[list[Any]]]) -> Handler:
    """Wrap `handler` to return its result or error as a message."""

    @functools.wraps(handler)
    async def answer(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return {"status": "OK", "answer": await handler(*args, **kwargs)}
        except Exception as error:
            return dict(error_message(error))

    return answer


@plugin_class
class ShardHost(WorkerPlugin):
    """Worker plugin with the shards, their device thread, and RPC handlers.

    Each worker has one, for all indexes and tables. It is registered once with the scheduler, so
    that late and restarted workers have it too; they start without shards.
    """

    name = NAME
    idempotent = True

    worker: Any
    shards: ShardStore
    thread: DeviceThread
    freed: FreedMemory
    ends: dict[str, Endpoint]
    """Exchange endpoints of the groups that this worker is in, by group name."""
    left: deque[str]
    """Names of the groups that were closed last."""
    _services: dict[type, Any]
    tables: dict[str, HostedShard]
    """Shards of distributed tables, by the uid of their table."""

    def setup(self, worker: Any) -> None:
        """Start on `worker`.

        State is kept for each worker, since a process may have several.
        """
        install_log_filter()
        keep_freed_memory(worker)
        self.worker = worker
        memory = WorkerMemory(worker)
        self.shards = ShardStore(memory=memory)
        self.freed = FreedMemory(memory)
        self.freed.start()
        self.thread = DeviceThread()
        self._services = {}
        self.ends = {}
        self.left = deque(maxlen=LEFT)
        self.tables = {}
        with suppress(CompileError):
            SHARES.take(worker.id, worker.state.nthreads)
        handlers = rpc_handlers(worker)
        handlers["dgpuhash_match"] = replying(self.match)
        handlers["dgpuhash_marks"] = replying(self.marks)
        handlers["dgpuhash_digest"] = replying(self.digest)
        handlers["dgpuhash_unmatched"] = replying(self.unmatched_rows)
        handlers["dgpuhash_bits"] = replying(self.bits)
        handlers["dgpuhash_known"] = replying(self.known)
        handlers["dgpuhash_put"] = replying(self.put)
        handlers["dgpuhash_ping"] = replying(self.ping)
        handlers["dgpuhash_collective"] = replying(self.collective)

    def service(self, kind: type[Service]) -> Service:
        """Return this worker's one object of class `kind`; make it on first use."""
        found: Service = self._services.get(kind) or self._services.setdefault(kind, kind())
        return found

    def teardown(self, worker: Any) -> None:
        """Free the shards, close the exchanges and remove the handlers."""
        with suppress(CompileError):
            SHARES.give_back(worker.id)
        for operation in [name for name in rpc_handlers(worker) if name.startswith(f"{NAME}_")]:
            rpc_handlers(worker).pop(operation)
        self.freed.stop()
        for end in self.ends.values():
            end.close()
        self.thread.close()
        self.shards = ShardStore()
        self.tables = {}

    async def match(
        self,
        *,
        keys: Any,
        columns: list[Any],
        uid: str,
        epoch: int,
        incarnation: str,
        how: str,
        skip: int,
        nbytes: int,
        marks: str = "",
    ) -> list[Any]:
        """Return a page of matches: query rows, payload, and the next page.

        The payload has the index rows that match; the next page is None after the last one.
        """
        if (shard := self.shards.standing(uid)) is not None:
            nbytes = min(nbytes, shard.index.store.page_nbytes)
        query_rows, payload, rest = await self.thread.run(
            self.shards.match, uid, epoch, incarnation, keys, how, columns, skip, nbytes, marks
        )
        return [to_message(query_rows), to_message(payload), rest]

    async def marks(self, *, uid: str, epoch: int, incarnation: str, marks: str) -> list[Any]:
        """Return a mask of the shard's rows that a join has matched."""
        found = self.shards.at(uid, epoch, incarnation).marks
        return [to_message(await self.thread.run(found.of, marks))]

    async def digest(
        self, *, uid: str, epoch: int, incarnation: str, marks: str, partition: int, digest: str
    ) -> list[Any]:
        """Return the first digest reported for a partition's keys."""
        found = self.shards.at(uid, epoch, incarnation).marks
        return [found.digest(marks, partition, digest)]

    async def unmatched_rows(
        self, *, others: Any, uid: str, epoch: int, incarnation: str, marks: str, **asked: Any
    ) -> list[Any]:
        """Return unmatched rows of a join, as `Marks.others`."""
        found = self.shards.at(uid, epoch, incarnation).marks
        call = functools.partial(found.others, marks, others, **asked)
        rows, rest, left = await self.thread.run(call)
        return [to_message(rows), rest, left]

    async def bits(self, *, uid: str, epoch: int, incarnation: str, **asked: int) -> list[Any]:
        """Return words of the shard's Bloom filter, as `BloomCache.bits` does."""

        def told() -> Any:
            shard = self.shards.at(uid, epoch, incarnation)
            return shard.sieve.bits(shard.index, **asked)

        return [to_message(await self.thread.run(told))]

    async def known(self, *, keys: Any, uid: str, transaction: str) -> list[Any]:
        """Return the position that a key will have in the shard; -1 if none.

        It is one of `keys`; the shard will hold it after a prepared change.
        """
        return [await self.thread.run(self.shards.known, uid, transaction, keys)]

    async def put(
        self,
        *,
        payload: Any,
        uid: str,
        transaction: str,
        partition: int,
        attempt: str,
        number: int,
        rows: int,
    ) -> list[Any]:
        """Accept a parcel of an open change."""
        parcel = Parcel(partition, attempt, number, rows, payload)
        inbox = self.shards.accept(uid, transaction, parcel)
        if inbox.is_full:
            # Not on the thread of the shards, which may wait for what this worker puts elsewhere.
            await asyncio.to_thread(inbox.make_room)
        return []

    async def collective(self, *, group: str, **message: Any) -> list[Any]:
        """Pass another rank's message to this worker's endpoint of the group."""
        if group not in self.ends:
            raise IndexLost(f"worker {self.worker.address} has left the exchange {group}")
        return await self.ends[group].receive(**message)

    async def ping(self) -> list[Any]:
        """Answer a liveness probe: the event loop runs."""
        return []
