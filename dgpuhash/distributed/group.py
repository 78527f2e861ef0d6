"""Groups of workers that exchange columns in lockstep."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from distributed import Client

from dgpuhash.distributed.exchange import Collective, CommCollective
from dgpuhash.distributed.exchange.membership import Membership
from dgpuhash.distributed.exchange.worker_end import WorkerEnd
from dgpuhash.distributed.phase import GRACE, installed, on_workers
from dgpuhash.distributed.plugin import NAME, ShardHost
from dgpuhash.errors import IndexLost, SpecError

__all__ = ["Group", "Transport", "form_group"]

Result = TypeVar("Result")

Transport = Literal["auto", "comm"]


@dataclass(frozen=True, slots=True)
class Group:
    """Workers with a `Collective` each; rank r is on ``workers[r]``.

    It is only a name, and can be pickled. Once a phase on it failed it is of no use but to be
    closed.
    """

    name: str
    workers: tuple[str, ...]
    exchange: str
    """What carries the columns."""

    def run(
        self,
        client: Client,
        function: Callable[..., Result],
        *args: Any,
        limit: float | None = None,
    ) -> list[Result]:
        """``function(host, collective, *args)`` on the shard threads of all workers at once.

        Parameters
        ----------
        client : distributed.Client
        function : callable
            Of a module. What it raises on one worker ends the calls on the others.
        limit : float, optional
            Seconds to wait for the results.

        Returns
        -------
        list
            The results in the order of ranks.

        Raises
        ------
        IndexLost
            When a worker is lost, or the group failed before.
        DgpuhashError
            What `function` raised on a worker.
        """
        try:
            return on_workers(
                client, self.workers, take_part, self.name, function, args, limit=limit
            )
        except BaseException as error:
            # Their shard threads wait in the exchange: only the event loops can be told.
            self._tell(client, abort_end, f"{type(error).__name__} at the client")
            raise

    def close(self, client: Client) -> None:
        """Free what the workers that are there hold for it."""
        self._tell(client, close_end)

    def _tell(self, client: Client, function: Callable[..., None], *args: Any) -> None:
        """Call `function` on the event loops; who cannot be reached notices by itself."""

        async def tell() -> None:
            there = set(await client.scheduler.ncores()) & set(self.workers)
            await client.run(
                function,
                self.name,
                *args,
                workers=sorted(there),
                on_error="ignore",
                asynchronous=True,
            )

        with contextlib.suppress(TimeoutError, OSError, RuntimeError):
            client.sync(asyncio.wait_for, tell(), GRACE)


def form_group(client: Client, workers: Sequence[str], exchange: Transport = "auto") -> Group:
    """A new group of `workers`.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses, in the order of ranks.
    exchange : {"auto", "comm"}
        What carries the columns. ``"comm"``: the comms of the Dask cluster.

    Raises
    ------
    SpecError
        When `exchange` is something else.
    IndexLost
        When a worker is lost meanwhile.
    """
    if exchange not in ("auto", "comm"):
        raise SpecError(f"exchange={exchange!r}; give 'auto' or 'comm'")
    group = Group(f"group-{uuid.uuid4().hex[:8]}", tuple(workers), "comm")
    installed(client, ShardHost())
    try:
        on_workers(client, group.workers, join_group, group)
        on_workers(client, group.workers, watch_group, group.name)
    except BaseException:
        group.close(client)
        raise
    return group


def collective_of(host: ShardHost, name: str) -> Collective:
    """This worker's end of a group.

    Raises
    ------
    IndexLost
        When it has none.
    """
    if name not in host.ends:
        raise IndexLost(
            f"worker {host.worker.address} is not in the exchange {name}: it was closed, or the "
            "worker was restarted; form a group anew"
        )
    return host.ends[name]


def join_group(host: ShardHost, group: Group) -> None:
    membership = Membership(host.worker, group.name, group.workers)
    host.ends[group.name] = CommCollective(membership)


def watch_group(host: ShardHost, name: str) -> None:
    host.ends[name].watch()


def take_part(
    host: ShardHost, name: str, function: Callable[..., Result], args: tuple[Any, ...]
) -> Result:
    collective = collective_of(host, name)
    try:
        return function(host, collective, *args)
    except BaseException as error:
        collective.abort(f"rank {collective.rank} failed with {type(error).__name__}: {error}")
        raise


def ends_of(worker: Any) -> dict[str, WorkerEnd]:
    host = worker.plugins.get(NAME)
    return {} if host is None else host.ends


def abort_end(name: str, reason: str, dask_worker: Any) -> None:
    end = ends_of(dask_worker).get(name)
    if end is not None:
        end.abort(reason)


def close_end(name: str, dask_worker: Any) -> None:
    end = ends_of(dask_worker).pop(name, None)
    if end is not None:
        end.close()
