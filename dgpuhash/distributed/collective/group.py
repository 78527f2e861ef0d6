"""Form groups of workers and run collectives on them."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import (
    GRACE_SECONDS,
    clear_tracebacks,
    ensure_plugin,
    run_on_workers,
)
from dgpuhash.distributed.cluster.client import seceding, workers_of
from dgpuhash.distributed.cluster.host import NAME, PluginHost
from dgpuhash.distributed.cluster.locality import DataNotLocal, InputSpec, LocalInputs
from dgpuhash.distributed.cluster.preload import import_on_cluster
from dgpuhash.distributed.cluster.rpc import REMEDY, fire_and_forget
from dgpuhash.distributed.cluster.scheduler import RemoteError, leave_queue
from dgpuhash.distributed.collective.base import TransportError
from dgpuhash.distributed.collective.cuda_ipc import PeerCollective
from dgpuhash.distributed.collective.dask_comm import CommCollective
from dgpuhash.distributed.collective.endpoint import Endpoint
from dgpuhash.distributed.collective.membership import Membership
from dgpuhash.distributed.collective.nccl import NcclCollective
from dgpuhash.distributed.collective.two_level.collective import TwoLevelCollective
from dgpuhash.distributed.collective.two_level.layout import HostLayout
from dgpuhash.errors import ClosedError, IndexLost, SpecError, UnsupportedError
from dgpuhash.typing import Device

Result = TypeVar("Result")

Transport = Literal["auto", "comm", "nccl", "peer", "two-level"]

ENDS: dict[str, type[Endpoint]] = {
    "comm": CommCollective,
    "nccl": NcclCollective,
    "peer": PeerCollective,
    "two-level": TwoLevelCollective,
}
# Transports whose small values, at least, travel in two levels where there are.
IN_LEVELS = {"nccl", "two-level"}

# Identifies a host. Containers of one host share it, but not always its memory; connecting then
# fails.
BOOT = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger("distributed.dgpuhash.exchange")


@dataclass(slots=True)
class Attempt:
    """State of one call of `Group.run`.

    `begun`: some workers may have received the call; if it fails, the group cannot be
    used again.
    """

    begun: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """Workers with a `Collective` each; rank r is on ``workers[r]``.

    The object only holds the group's name, and can be pickled. After a phase on it has failed, it
    can only be closed.
    """

    name: str
    workers: tuple[str, ...]
    exchange: str
    """Name of the transport."""

    def run(
        self,
        client: Client,
        function: Callable[..., Result],
        *args: Any,
        limit: float | None = None,
        needed: InputSpec | None = None,
        meanwhile: Callable[[], None] | None = None,
        attempt: Attempt | None = None,
    ) -> list[Result]:
        """Run ``function(host, collective, *args)`` on all workers at once.

        It runs on the shard thread of each worker.

        Parameters
        ----------
        client : distributed.Client
        function : callable
            A function of a module. An error that it raises on one worker aborts the others.
        limit : float, optional
            Seconds to wait for the results.
        needed : InputSpec, optional
            Inputs; each worker's `LocalInputs` is the last argument of its `function`.
        meanwhile : callable, optional
            Called on the client while the workers run, unless they finish almost at once.
        attempt : Attempt, optional
            Its `begun` is cleared when the call was interrupted while it was queued
            behind others.

        Returns
        -------
        list
            The results in the order of ranks.

        Raises
        ------
        DataNotLocal
            When an input is not on the worker that needs it; nothing was run then.
        IndexLost
            When a worker is lost, or the group failed before.
        DgpuhashError
            What `function` raised on a worker.
        """
        # Two phases at once could each hold some workers and wait for the others: a deadlock.
        turn = uuid.uuid4().hex
        try:
            with seceding(client):
                return run_on_workers(
                    client, self.workers, run_on_rank, self.name, function, args,
                    limit=limit, turn=turn, needed=needed, meanwhile=meanwhile,
                )  # fmt: skip
        except DataNotLocal:
            raise
        except BaseException as error:
            attempt = attempt or Attempt()
            if not isinstance(error, Exception):
                attempt.begun = not self._withdrawn(client, turn)
            if attempt.begun:
                # The shard threads wait in the exchange: only the event loops can be reached.
                self._tell(client, abort_end, f"{type(error).__name__} at the client", turn=turn)
            raise

    def _withdrawn(self, client: Client, turn: str) -> bool:
        """Withdraw a queued phase, and return whether it had not started."""
        withdrawn = False

        async def withdraw() -> None:
            nonlocal withdrawn
            withdrawn = await leave_queue(client, turn)

        async def withdraw_in_a_moment() -> None:
            await asyncio.wait([fire_and_forget(withdraw())], timeout=GRACE_SECONDS)

        client.sync(withdraw_in_a_moment)
        return withdrawn

    def transport_after(self, client: Client, error: BaseException, wanted: Transport) -> Transport:
        """Return the transport for the group that replaces this failed one.

        It is `wanted`, or, with a warning, ``"comm"`` where `error` says that the transport failed
        while all workers are alive.
        """
        if isinstance(error, TransportError):
            # The transport also fails when a worker is lost.
            with suppress(IndexLost):
                if set(self.workers) <= set(workers_of(client)):
                    says = "exchange=%r failed, going on with exchange='comm': %s"
                    _log.warning(says, self.exchange, error)
                    return "comm"
        return wanted

    def close(self, client: Client) -> None:
        """Free what the workers that are alive hold for the group."""
        self._tell(client, close_end, turn=self.name)

    def _tell(
        self, client: Client, function: Callable[..., Any], *args: Any, turn: str | None = None
    ) -> None:
        """Run `function` on the event loops of the living workers.

        With `turn`, the scheduler first ends the phase of that name. A worker that cannot be
        reached finds out by its own liveness checks.
        """

        async def tell() -> None:
            if turn is not None:
                await leave_queue(client, turn)
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
            await asyncio.wait([fire_and_forget(tell())], timeout=GRACE_SECONDS)

        client.sync(tell_for_a_moment)


def form_group(client: Client, workers: Sequence[str], exchange: Transport = "auto") -> Group:
    """Return a new group of `workers`.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses, in the order of ranks.
    exchange : {"auto", "comm", "nccl", "peer", "two-level"}
        The transport. ``"comm"``: the comms of the Dask cluster. ``"two-level"``: the same comms,
        by one message between two hosts for counts and small parts. ``"nccl"``: NCCL, between GPUs.
        ``"peer"``: CUDA IPC, where GPUs of one host write into each other's memory. ``"auto"``:
        ``"peer"`` where possible, else ``"nccl"``, else ``"two-level"`` where it takes fewer
        messages, else ``"comm"``.

    Raises
    ------
    SpecError
        When `exchange` has another value.
    UnsupportedError
        When the transport cannot connect the workers.
    IndexLost
        When a worker is lost meanwhile.
    """
    if exchange not in ("auto", *ENDS):
        *others, last = map(repr, ("auto", *ENDS))
        raise SpecError(f"exchange={exchange!r}; give {', '.join(others)} or {last}")
    name = f"group-{uuid.uuid4().hex[:8]}"
    group = Group(name, tuple(workers), exchange)
    import_on_cluster(client)
    ensure_plugin(client)
    try:
        places = run_on_workers(client, group.workers, join_group, name, group.workers)
        for way in transports_of(exchange, group.workers, places):
            layout = layout_for(way, places)
            sharing = can_share_memory(places) or (
                layout is not None and in_separate_processes(places)
            )
            refusals = run_on_workers(
                client, group.workers, connect_group, name, way, sharing, layout, turn=name
            )
            if not any(refusals):
                break
            if exchange != "auto":
                raise UnsupportedError(f"exchange={exchange!r} is not possible: {refusals[0]}")
            _log.warning("exchange=%r cannot be, trying the next: %s", way, refusals[0])
        run_on_workers(client, group.workers, watch_group, name)
    except BaseException:
        group.close(client)
        raise
    return replace(group, exchange=way)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Host, process and device of a worker, which decide its transports."""

    host: str
    process: int
    device: Device


def in_separate_processes(places: Sequence[WorkerInfo]) -> bool:
    """Return whether all workers are in separate processes."""
    return len({(place.host, place.process) for place in places}) == len(places)


def on_one_host(places: Sequence[WorkerInfo]) -> bool:
    """Return whether all workers are on one host."""
    return len({place.host for place in places}) == 1


def can_share_memory(places: Sequence[WorkerInfo]) -> bool:
    """Return whether the workers can share host memory for small messages."""
    return len(places) > 1 and in_separate_processes(places) and on_one_host(places)


def transports_between(places: Sequence[WorkerInfo]) -> list[str]:
    """Return the transports that may connect workers, the fastest first."""
    over_comm = ["two-level", "comm"] if layout_of(places).pays else ["comm"]
    if not in_separate_processes(places) or any(place.device != "cuda" for place in places):
        return over_comm
    return ["peer", "nccl", "comm"] if on_one_host(places) else ["nccl", *over_comm]


def layout_of(places: Sequence[WorkerInfo]) -> HostLayout:
    """Return a layout of the workers by host."""
    return HostLayout.of([place.host for place in places])


def layout_for(way: str, places: Sequence[WorkerInfo]) -> HostLayout | None:
    """Return the host layout if this transport exchanges in two levels, else None."""
    layout = layout_of(places)
    return layout if way in IN_LEVELS and layout.has_levels else None


def transports_of(
    exchange: Transport, workers: Sequence[str], places: Sequence[WorkerInfo]
) -> Sequence[str]:
    """Return the transports to try: the requested one, or all possible ones.

    NCCL has no encryption. Where Dask's comms have, it is not taken between hosts by itself.
    """
    if exchange != "auto":
        return [exchange]
    ways = transports_between(places)
    encrypted = any(each.startswith(("tls://", "wss://")) for each in workers)
    return [way for way in ways if way != "nccl" or not encrypted or on_one_host(places)]


def collective_of(host: PluginHost, name: str) -> Endpoint:
    """Return this worker's endpoint of a group.

    Raises
    ------
    IndexLost
        When the worker is not in the group.
    """
    if name not in host.ends:
        raise IndexLost(
            f"worker {host.worker.address} is not in the exchange {name}: it was closed, or the "
            f"worker was restarted; call it again, and where that fails, {REMEDY}"
        )
    return host.ends[name]


def join_group(host: PluginHost, name: str, workers: Sequence[str]) -> WorkerInfo:
    if name in host.left:
        raise IndexLost(f"the exchange {name} was abandoned before it was formed; call it again")
    host.ends[name] = CommCollective(Membership(host.worker, name, workers))
    return WorkerInfo(BOOT.read_text(), os.getpid(), backend.default_device())


def connect_group(
    host: PluginHost, name: str, exchange: str, sharing: bool, layout: HostLayout | None
) -> str:
    """Switch the transport; return the reason for a failure, or an empty string."""
    membership = host.ends[name].membership
    membership.layout = layout
    end = ENDS[exchange](membership)
    host.ends[name] = end
    try:
        end.connect()
    except UnsupportedError as error:
        end.release()
        return str(error)
    if sharing:
        end.share_memory()
    return ""


def watch_group(host: PluginHost, name: str) -> None:
    host.ends[name].watch()


def run_on_rank(
    host: PluginHost,
    name: str,
    function: Callable[..., Result],
    args: tuple[Any, ...],
    *given: LocalInputs,
) -> Result | RemoteError:
    collective = collective_of(host, name)
    try:
        with collective.membership.phase():
            return function(host, collective, *args, *given)
    except BaseException as error:
        collective.abort(f"rank {collective.rank} failed with {type(error).__name__}: {error}")
        if collective.membership.told and isinstance(error, IndexLost):
            clear_tracebacks(error)
            return RemoteError(error, told=True)
        if isinstance(error, ClosedError):
            raise IndexLost(
                f"worker {host.worker.address} has left its exchange; call it again, and where "
                f"that fails, {REMEDY}"
            ) from error
        raise


def ends_of(worker: Any) -> dict[str, Endpoint]:
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
    # The worker may be about to join.
    host.left.append(name)
    end = host.ends.pop(name, None)
    if end is not None:
        end.close()
    # The shard thread is free again once the call that waits there has been aborted.
    late = await host.thread.run(host.ends.pop, name, None)
    if late is not None:
        late.close()
    for each in (end, late):
        if each is not None:
            await host.thread.run(each.release)
