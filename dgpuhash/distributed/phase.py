"""Phases: one function on all shards' workers at once, given up when a worker is lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from distributed import Client, WorkerPlugin
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm import CommClosedError

from dgpuhash.distributed.attendance import Attendance, unattended
from dgpuhash.distributed.clients import asking_the_scheduler, workers_of
from dgpuhash.distributed.plugin import arriving_host_of
from dgpuhash.distributed.relay import Failed, relayed
from dgpuhash.distributed.request import REMEDY, begun
from dgpuhash.distributed.worker_data import Given, Needed
from dgpuhash.errors import IndexLost
from dgpuhash.tables.scarcity import call_says_memory, saying_memory

__all__ = ["GRACE", "asked", "attended", "installed", "on_workers", "watched"]

Result = TypeVar("Result")

# Seconds between two looks at the list of workers, and before the first; between two calls on all.
# A worker may be busy for any time; one whose event loop is silent for SILENCE is given up.
WATCH = 0.25
PATIENCE = 2.0
SILENCE = 20.0
# What nobody's answer depends on is waited for no longer; a worker that is busy does it later.
GRACE = 1.0
# In which the messages of a phase are on their way, and what is quick is done.
SOON = 2e-3


def on_workers(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Result | Failed],
    *args: Any,
    limit: float | None = None,
    turn: str | None = None,
    needed: Needed | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> list[Result]:
    """``function(host, *args)`` on the shard threads of `workers`, all at the same time.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses; `host` is the `ShardHost` of each.
    function : callable
        Of a module, so that it travels by name. An error may be raised there, or returned.
    limit : float, optional
        Seconds to wait for the results; default: as long as the workers are alive.
    turn, needed : optional
        As for `relayed`; of what is needed `function` gets its `Given` after its other arguments.
    meanwhile : callable, optional
        Called here while workers are at work, unless they take next to no time.

    Returns
    -------
    list
        The results in the order of `workers`.

    Raises
    ------
    Elsewhere
        When what is needed does not lie where it must; nothing was done then.
    IndexLost
        When a worker leaves the cluster before all have answered, or at the limit.
    DgpuhashError
        What `function` raised on a worker.
    """

    async def phase() -> list[Result]:
        answers = relayed(client, workers, run_phase, (function, args), turn, needed)
        with asking_the_scheduler():
            found = await _watch(client, workers, answers, limit)
        return _results([found[worker] for worker in workers])

    return client.sync(phase) if meanwhile is None else _synced(client, phase, meanwhile)


def _synced(
    client: Client, work: Callable[[], Coroutine[Any, Any, Result]], meanwhile: Callable[[], None]
) -> Result:
    """As ``client.sync``, which has nothing done `meanwhile`."""
    loop: Any = client.loop
    going = asyncio.run_coroutine_threadsafe(work(), loop.asyncio_loop)
    try:
        # Until then this thread would only be in the way of the messages to the workers.
        if not concurrent.futures.wait([going], SOON).done:
            meanwhile()
        return going.result()
    except BaseException:
        going.cancel()
        raise


async def run_phase(
    function: Callable[..., Result],
    args: tuple[Any, ...],
    dask_worker: Any,
    given: Given | None = None,
) -> Result | Failed:
    """What `on_workers` runs on each worker; an error is a result, lest Dask logs it twice."""
    try:
        host = await arriving_host_of(dask_worker)
        if given is not None:
            args = (*args, given)
        return await host.thread.run(call_says_memory(function), host, *args)
    except Exception as error:
        let_go(error)
        return Failed(error)


def let_go(error: BaseException) -> None:
    """Free what the frames that `error` passed hold, arrays before the streams that they name.

    Frames and errors hold each other, and the collector of such cycles ends streams first: RMM,
    which frees memory in the order of its stream, then crashes the process.
    """
    seen: set[int] = set()
    ahead: list[BaseException | None] = [error]
    while ahead:
        each = ahead.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            ahead += [each.__cause__, each.__context__]


def asked(client: Client, workers: Sequence[str], function: Callable[..., Result]) -> list[Result]:
    """``function(dask_worker=…)`` on the event loops of `workers`, which need no plugin for it.

    Raises
    ------
    IndexLost
        When a worker is lost meanwhile.
    """

    async def ask() -> list[Result]:
        answers = relayed(client, workers, function)
        with asking_the_scheduler():
            found = await _watch(client, workers, answers)
        return _results([found[worker] for worker in workers])

    return client.sync(ask)


def installed(client: Client, plugin: WorkerPlugin) -> None:
    """Register `plugin` on all workers of the cluster, and on those that come later.

    Raises
    ------
    IndexLost
        When a worker is lost meanwhile.
    """
    workers = workers_of(client)

    async def register() -> None:
        try:
            await _watch(client, workers, client.register_plugin(plugin))
        except OSError as error:
            raise IndexLost(
                f"a worker of the cluster was lost before the index was begun ({error}); call it "
                "again"
            ) from error

    client.sync(register)


def watched(client: Client, workers: Sequence[str], futures: list[Any]) -> list[Any]:
    """The results of `futures`, unless one of `workers` leaves the cluster first.

    Raises
    ------
    IndexLost
        When a worker left, or the scheduler has forgotten the tasks.
    Exception
        What a task raised.
    """
    return attended(client, workers, lambda: client.gather(futures, asynchronous=True))


def attended(
    client: Client,
    workers: Sequence[str],
    begin: Callable[[], Awaitable[Result]],
    look: Callable[..., list[str]] | None = None,
) -> Result:
    """What comes of `begin`, called on the client's event loop, unless a worker is lost first.

    `look` is called on workers now and then, and names what nobody goes on with; default:
    `unattended`.

    Raises
    ------
    IndexLost
        When one of `workers` left or is silent, or the scheduler has forgotten the tasks.
    OutOfMemoryError
        When a task ran out of memory, one of the user's too, or this process did.
    """

    async def attend() -> Result:
        try:
            with saying_memory("a task, or who takes its result,"):
                return await _watch(client, workers, begin(), look=look)
        except (FutureCancelledError, FuturesCancelledError, CommClosedError) as error:
            why = getattr(error, "reason", error)
            raise IndexLost(
                f"a worker or the scheduler was lost, or the cluster restarted ({why}); {REMEDY}"
            ) from error

    return client.sync(attend)


async def _watch(
    client: Client,
    workers: Sequence[str],
    work: Awaitable[Result],
    limit: float | None = None,
    look: Callable[..., list[str]] | None = None,
) -> Result:
    # Never cancelled: Dask's gather logs an error for each future then. It ends by itself.
    task = begun(work)
    await asyncio.wait({task}, timeout=WATCH)
    if task.done():
        return task.result()
    alarms = [
        asyncio.ensure_future(_until_one_leaves(client, workers)),
        asyncio.ensure_future(_until_one_is_silent(client, workers, look or unattended)),
    ]
    try:
        waiting: set[asyncio.Future[Any]] = {task, *alarms}
        left = None if limit is None else limit - WATCH
        await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        for alarm in alarms:
            if alarm.done():
                raise alarm.result()
        raise IndexLost(f"workers among {list(workers)} have not answered for {limit:.0f} s")
    finally:
        for alarm in alarms:
            alarm.cancel()


async def _until_one_leaves(client: Client, workers: Sequence[str]) -> IndexLost:
    while True:
        try:
            with asking_the_scheduler():
                there = await asyncio.shield(begun(client.scheduler.ncores()))
        except IndexLost as lost:
            return lost
        gone = sorted(set(workers) - set(there))
        if gone:
            return IndexLost(f"workers {gone} with shards of the index are gone; {REMEDY}")
        await asyncio.sleep(WATCH)


async def _until_one_is_silent(
    client: Client, workers: Sequence[str], look: Callable[..., list[str]]
) -> IndexLost:
    attendance = Attendance()
    while True:
        await asyncio.sleep(PATIENCE)
        call = client.run(look, workers=list(workers), on_error="ignore", asynchronous=True)
        try:
            answers = await asyncio.wait_for(asyncio.shield(begun(call)), SILENCE)
        except TimeoutError:
            return IndexLost(
                f"a worker among {list(workers)} with shards of the index has not answered for "
                f"{SILENCE:.0f} s; end it, and {REMEDY}"
            )
        except (OSError, RuntimeError):
            # The scheduler cannot be asked; `_until_one_leaves` says so.
            continue
        # One without memory for an answer ends the comm, and Dask then asks it on and on.
        said = {worker: answers.get(worker, ["no answer of it comes"]) for worker in workers}
        for worker, what in attendance.missed(said, asyncio.get_running_loop().time()):
            return IndexLost(
                f"worker {worker} is there and does not go on, as when memory ran out there: "
                f"{what}; end it, and {REMEDY}"
            )


def _results(outcomes: Sequence[Any]) -> list[Any]:
    raised = [outcome.error for outcome in outcomes if isinstance(outcome, Failed)]
    # What the user can mend says more than the loss that it led to on other workers, and so does
    # the way that failed.
    raised.sort(key=lambda error: isinstance(error, IndexLost) + (type(error) is IndexLost))
    unreachable = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    # Who waits for another one says less than that one.
    unreachable.sort(key=lambda error: isinstance(error, TimeoutError))
    if raised:
        raise raised[0]
    if unreachable:
        raise IndexLost(
            f"a worker with a shard of the index is gone ({unreachable[0]}); {REMEDY}"
        ) from unreachable[0]
    return list(outcomes)
