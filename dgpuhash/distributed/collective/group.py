"""Groups of workers that exchange columns in lockstep."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import (
    GRACE,
    ensure_plugin,
    let_go,
    on_workers,
)
from dgpuhash.distributed.cluster.client import giving_way, workers_of
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.cluster.locality import Elsewhere, Given, Needed
from dgpuhash.distributed.cluster.preload import import_there
from dgpuhash.distributed.cluster.rpc import REMEDY, begun
from dgpuhash.distributed.cluster.scheduler import Failed, end_turn
from dgpuhash.distributed.collective.base import CarrierLost
from dgpuhash.distributed.collective.cuda_ipc import PeerCollective
from dgpuhash.distributed.collective.dask_comm import CommCollective
from dgpuhash.distributed.collective.endpoint import WorkerEnd
from dgpuhash.distributed.collective.membership import Membership
from dgpuhash.distributed.collective.nccl import NcclCollective
from dgpuhash.errors import ClosedError, IndexLost, SpecError, UnsupportedError

if TYPE_CHECKING:
    from dgpuhash.distributed.shards.plugin import ShardHost

__all__ = ["Attempt", "Group", "Transport", "form_group"]

Result = TypeVar("Result")

Transport = Literal["auto", "comm", "nccl", "peer"]

ENDS: dict[str, type[WorkerEnd]] = {
    "comm": CommCollective,
    "nccl": NcclCollective,
    "peer": PeerCollective,
}

# Tells hosts apart. Containers of one host share it, and not always the memory; connecting shows
# that.
BOOT = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger("dgpuhash.exchange")


@dataclass(slots=True)
class Attempt:
    """A call of `Group.run`.

    `begun`: its group may have been told of it, and is of no use any more when it failed.
    """

    begun: bool = True


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
        needed: Needed | None = None,
        meanwhile: Callable[[], None] | None = None,
        attempt: Attempt | None = None,
    ) -> list[Result]:
        """``function(host, collective, *args)`` on the shard threads of all workers at once.

        Parameters
        ----------
        client : distributed.Client
        function : callable
            Of a module. What it raises on one worker ends the calls on the others.
        limit : float, optional
            Seconds to wait for the results.
        needed : Needed, optional
            Of which `function` gets its `Given` after its other arguments.
        meanwhile : callable, optional
            Called here while workers are at work, unless they take next to no time.
        attempt : Attempt, optional
            Is told when it was interrupted while others had their turn.

        Returns
        -------
        list
            The results in the order of ranks.

        Raises
        ------
        Elsewhere
            When what is needed does not lie where it must; nothing was done then.
        IndexLost
            When a worker is lost, or the group failed before.
        DgpuhashError
            What `function` raised on a worker.
        """
        # Of two in lockstep at once each could have some of the workers, and wait for the others.
        turn = uuid.uuid4().hex
        try:
            with giving_way(client):
                return on_workers(
                    client, self.workers, take_part, self.name, function, args,
                    limit=limit, turn=turn, needed=needed, meanwhile=meanwhile,
                )  # fmt: skip
        except Elsewhere:
            raise
        except BaseException as error:
            attempt = attempt or Attempt()
            if not isinstance(error, Exception):
                attempt.begun = not self._withdrawn(client, turn)
            if attempt.begun:
                # Their shard threads wait in the exchange: only the event loops can be told.
                self._tell(client, abort_end, f"{type(error).__name__} at the client", turn=turn)
            raise

    def _withdrawn(self, client: Client, turn: str) -> bool:
        """Whether a phase that waits for its turn is not going to have it."""
        withdrawn = False

        async def withdraw() -> None:
            nonlocal withdrawn
            withdrawn = await end_turn(client, turn)

        async def withdraw_in_a_moment() -> None:
            await asyncio.wait([begun(withdraw())], timeout=GRACE)

        client.sync(withdraw_in_a_moment)
        return withdrawn

    def exchange_after(self, client: Client, error: BaseException, wanted: Transport) -> Transport:
        """What is to carry the columns of a group in the place of this one, which ended by `error`.

        As `wanted`; ``"comm"``, with a warning, where what was wanted failed between workers that
        are there.
        """
        if isinstance(error, CarrierLost):
            # It also fails where a worker is lost.
            with suppress(IndexLost):
                if set(self.workers) <= set(workers_of(client)):
                    says = "exchange=%r failed, going on with exchange='comm': %s"
                    _log.warning(says, self.exchange, error)
                    return "comm"
        return wanted

    def close(self, client: Client) -> None:
        """Free what the workers that are there hold for it."""
        self._tell(client, close_end, turn=self.name)

    def _tell(
        self, client: Client, function: Callable[..., Any], *args: Any, turn: str | None = None
    ) -> None:
        """Call `function` on the event loops; who cannot be reached notices by itself."""

        async def tell() -> None:
            if turn is not None:
                await end_turn(client, turn)
            there = set(await client.scheduler.ncores()) & set(self.workers)
            await client.run(
                function,
                self.name,
                *args,
                workers=sorted(there),
                on_error="ignore",
                asynchronous=True,
            )

        async def tell_for_a_moment() -> None:
            await asyncio.wait([begun(tell())], timeout=GRACE)

        client.sync(tell_for_a_moment)


def form_group(client: Client, workers: Sequence[str], exchange: Transport = "auto") -> Group:
    """A new group of `workers`.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses, in the order of ranks.
    exchange : {"auto", "comm", "nccl", "peer"}
        What carries the columns. ``"comm"``: the comms of the Dask cluster. ``"nccl"``: NCCL,
        between GPUs. ``"peer"``: GPUs of one host put them into each other's memory. ``"auto"``:
        ``"peer"`` where it can be, else ``"nccl"``, else ``"comm"``.

    Raises
    ------
    SpecError
        When `exchange` is something else.
    UnsupportedError
        When the workers cannot exchange that way.
    IndexLost
        When a worker is lost meanwhile.
    """
    if exchange not in ("auto", *ENDS):
        *others, last = map(repr, ("auto", *ENDS))
        raise SpecError(f"exchange={exchange!r}; give {', '.join(others)} or {last}")
    name = f"group-{uuid.uuid4().hex[:8]}"
    group = Group(name, tuple(workers), exchange)
    import_there(client)
    ensure_plugin(client)
    try:
        places = on_workers(client, group.workers, join_group, name, group.workers)
        for way in ways_between(places) if exchange == "auto" else [exchange]:
            refusals = on_workers(
                client, group.workers, connect_group, name, way, share_memory(places), turn=name
            )
            if not any(refusals):
                break
            if exchange != "auto":
                raise UnsupportedError(f"exchange={exchange!r} cannot be: {refusals[0]}")
            _log.warning("exchange=%r cannot be, trying the next: %s", way, refusals[0])
        on_workers(client, group.workers, watch_group, name)
    except BaseException:
        group.close(client)
        raise
    return replace(group, exchange=way)


@dataclass(frozen=True, slots=True)
class Place:
    """What a worker's ways to others depend on."""

    host: str
    process: int
    device: str


def apart(places: Sequence[Place]) -> bool:
    """Whether no two workers are in one process."""
    return len({(place.host, place.process) for place in places}) == len(places)


def together(places: Sequence[Place]) -> bool:
    """Whether all workers are on one host."""
    return len({place.host for place in places}) == 1


def share_memory(places: Sequence[Place]) -> bool:
    """Whether the workers may look into memory that they share for what others tell."""
    return len(places) > 1 and apart(places) and together(places)


def ways_between(places: Sequence[Place]) -> list[str]:
    """What may carry columns between workers, the fastest first."""
    if not apart(places) or any(place.device != "cuda" for place in places):
        return ["comm"]
    return ["peer", "nccl", "comm"] if together(places) else ["nccl", "comm"]


def collective_of(host: ShardHost, name: str) -> WorkerEnd:
    """This worker's end of a group.

    Raises
    ------
    IndexLost
        When it has none.
    """
    if name not in host.ends:
        raise IndexLost(
            f"worker {host.worker.address} is not in the exchange {name}: it was closed, or the "
            f"worker was restarted; call it again, and where that fails, {REMEDY}"
        )
    return host.ends[name]


def join_group(host: ShardHost, name: str, workers: Sequence[str]) -> Place:
    if name in host.left:
        raise IndexLost(f"the exchange {name} was given up before it was formed; form it anew")
    host.ends[name] = CommCollective(Membership(host.worker, name, workers))
    return Place(BOOT.read_text(), os.getpid(), backend.default_device())


def connect_group(host: ShardHost, name: str, exchange: str, sharing: bool) -> str:
    """Change the way; why it cannot be, or nothing."""
    end = ENDS[exchange](host.ends[name].membership)
    host.ends[name] = end
    try:
        end.connect()
    except UnsupportedError as error:
        end.release()
        return str(error)
    if sharing:
        end.share_memory()
    return ""


def watch_group(host: ShardHost, name: str) -> None:
    host.ends[name].watch()


def take_part(
    host: ShardHost,
    name: str,
    function: Callable[..., Result],
    args: tuple[Any, ...],
    *given: Given,
) -> Result | Failed:
    collective = collective_of(host, name)
    try:
        with collective.membership.phase():
            return function(host, collective, *args, *given)
    except BaseException as error:
        collective.abort(f"rank {collective.rank} failed with {type(error).__name__}: {error}")
        if collective.membership.told and isinstance(error, IndexLost):
            let_go(error)
            return Failed(error, told=True)
        if isinstance(error, ClosedError):
            raise IndexLost(
                f"worker {host.worker.address} has left its exchange; call it again, and where "
                f"that fails, {REMEDY}"
            ) from error
        raise


def ends_of(worker: Any) -> dict[str, WorkerEnd]:
    host = worker.plugins.get(NAME)
    return {} if host is None else host.ends


def abort_end(name: str, reason: str, dask_worker: Any) -> None:
    end = ends_of(dask_worker).get(name)
    if end is not None:
        end.abort(reason)


async def close_end(name: str, dask_worker: Any) -> None:
    host = dask_worker.plugins.get(NAME)
    if host is None:
        return
    # It may be about to join.
    host.left.append(name)
    end = host.ends.pop(name, None)
    if end is not None:
        end.close()
    # The thread is there again when the call that waits has been told.
    late = await host.thread.run(host.ends.pop, name, None)
    if late is not None:
        late.close()
    for each in (end, late):
        if each is not None:
            await host.thread.run(each.release)
