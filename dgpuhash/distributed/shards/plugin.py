"""The worker plugin: keeps a worker's shards and answers requests for them."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from distributed import WorkerPlugin
from distributed.core import error_message

from dgpuhash.backend.cpu import Shares, native
from dgpuhash.distributed.cluster.device_thread import ShardThread
from dgpuhash.distributed.cluster.serialization import loaded
from dgpuhash.distributed.cluster.user_errors import leave_out_refusals
from dgpuhash.distributed.collective.endpoint import WorkerEnd
from dgpuhash.distributed.shards.inbox import Parcel
from dgpuhash.distributed.shards.shard_store import Shards
from dgpuhash.errors import CompileError, IndexLost

if TYPE_CHECKING:
    from dgpuhash.distributed.shards.table_store import Hosted

from dgpuhash.distributed.cluster.host import NAME, the_plugin

__all__ = ["ShardHost"]

# Or an event loop would load it, the first time that it makes room for rows.
with suppress(CompileError):
    native()

# Of all workers in this process, which have one pool of threads.
SHARES = Shares()

# Groups that are not joined any more: a call to join one may come after that to close it.
LEFT = 64


Service = TypeVar("Service")
Handler = Callable[..., Awaitable[dict[str, Any]]]


def answering(handler: Callable[..., Awaitable[list[Any]]]) -> Handler:
    """`handler` with its results or its error put into a message."""

    @functools.wraps(handler)
    async def answer(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return {"status": "OK", "answer": await handler(*args, **kwargs)}
        except Exception as error:
            return dict(error_message(error))

    return answer


@the_plugin
class ShardHost(WorkerPlugin):
    """Shards, the thread that works on them, and handlers for requests of other workers.

    One for each worker, for all indexes. It is registered once with the scheduler, so that late
    and restarted workers have it too; they come up empty.
    """

    name = NAME
    idempotent = True

    worker: Any
    shards: Shards
    thread: ShardThread
    ends: dict[str, WorkerEnd]
    """Of the groups that this worker is in, by their names."""
    left: deque[str]
    """The names of groups that were closed last."""
    _services: dict[type, Any]
    tables: dict[str, Hosted]
    """Parts of distributed tables, by the uid of their table."""

    def setup(self, worker: Any) -> None:
        """Start on `worker`; state hangs on the worker, since a process may have several."""
        leave_out_refusals()
        self.worker = worker
        self.shards = Shards()
        self.thread = ShardThread()
        self._services = {}
        self.ends = {}
        self.left = deque(maxlen=LEFT)
        self.tables = {}
        with suppress(CompileError):
            SHARES.take(worker.id, worker.state.nthreads)
        worker.handlers["dgpuhash_match"] = answering(self.match)
        worker.handlers["dgpuhash_bits"] = answering(self.bits)
        worker.handlers["dgpuhash_known"] = answering(self.known)
        worker.handlers["dgpuhash_put"] = answering(self.put)
        worker.handlers["dgpuhash_ping"] = answering(self.ping)
        worker.handlers["dgpuhash_collective"] = answering(self.collective)

    def service(self, kind: type[Service]) -> Service:
        """The one object of class `kind` on this worker, made when it is first asked for."""
        found: Service = self._services.get(kind) or self._services.setdefault(kind, kind())
        return found

    def teardown(self, worker: Any) -> None:
        """Let the shards go."""
        with suppress(CompileError):
            SHARES.give_back(worker.id)
        for operation in [name for name in worker.handlers if name.startswith(f"{NAME}_")]:
            worker.handlers.pop(operation)
        for end in self.ends.values():
            end.close()
        self.thread.close()
        self.shards = Shards()
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
    ) -> list[Any]:
        """Rows of the query that match, the rows of the index that they match, and the rest."""
        query_rows, payload, rest = await self.thread.run(
            self.shards.match, uid, epoch, incarnation, keys, how, columns, skip, nbytes
        )
        return [loaded(query_rows), loaded(payload), rest]

    async def bits(self, *, uid: str, epoch: int, incarnation: str, **asked: int) -> list[Any]:
        """What `Sieve.bits` tells of a shard."""

        def told() -> Any:
            index = self.shards.at(uid, epoch, incarnation)
            shard = self.shards.standing(uid)
            assert shard is not None
            return shard.sieve.bits(index, **asked)

        return [loaded(await self.thread.run(told))]

    async def known(self, *, keys: Any, uid: str, transaction: str) -> list[Any]:
        """The row of the first of `keys` that a prepared change leaves in this shard, or -1."""
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
        """Take a parcel of an open change."""
        parcel = Parcel(partition, attempt, number, rows, payload)
        self.shards.accept(uid, transaction, parcel)
        return []

    async def collective(self, *, group: str, **message: Any) -> list[Any]:
        """Take a message of another rank of a group."""
        if group not in self.ends:
            raise IndexLost(f"worker {self.worker.address} has left the exchange {group}")
        return await self.ends[group].receive(**message)

    async def ping(self) -> list[Any]:
        """Show that the event loop is alive."""
        return []
