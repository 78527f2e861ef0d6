"""Phases: one function on all shards' workers at once, given up when a worker is lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import traceback
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from distributed import Client, WorkerPlugin
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm import CommClosedError

from dgpuhash.distributed.cluster.client import asking_the_scheduler, workers_of
from dgpuhash.distributed.cluster.host import arriving_host_of, new_plugin
from dgpuhash.distributed.cluster.liveness import Attendance, unattended
from dgpuhash.distributed.cluster.locality import Given, Needed
from dgpuhash.distributed.cluster.rpc import REMEDY, begun, on_scheduler
from dgpuhash.distributed.cluster.scheduler import Failed, relayed
from dgpuhash.errors import IndexLost
from dgpuhash.tables.memory_errors import saying_memory

__all__ = [
    "GRACE",
    "SILENCE",
    "asked",
    "attended",
    "ensure_plugin",
    "installed",
    "on_workers",
    "watched",
]

Result = TypeVar("Result")

# Seconds between two looks at the list of workers, and before the first; between two calls on all.
# A worker may be busy for any time; one whose event loop is silent for SILENCE is given up.
WATCH = 0.25
PATIENCE = 2.0
SILENCE = 20.0
GRACE = 1.0  # For what nobody's answer depends on; a worker that is busy does it later.
# In which the messages of a phase are on their way, and what is quick is done.
SOON = 2e-3
# Seconds between two looks whether the client's event loop has ended.
LOOK = 1.0


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

    def begin() -> Awaitable[dict[str, Any]]:
        return relayed(client, workers, run_phase, (function, args), turn, needed)

    with asking_the_scheduler():
        found = _Awaited(client, workers, begin, limit).outcome(meanwhile)
    return _results(found, workers)


async def run_phase(
    function: Callable[..., Result],
    args: tuple[Any, ...],
    dask_worker: Any,
    given: Given | None = None,
) -> Result | Failed:
    """What `on_workers` runs on each worker; an error is a result, lest Dask logs it twice."""
    try:
        with saying_memory(function.__name__.lstrip("_")):
            host = await arriving_host_of(dask_worker)
            if given is not None:
                args = (*args, given)
            return await host.thread.run(function, host, *args)
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

    with asking_the_scheduler():
        found = _Awaited(client, workers, lambda: relayed(client, workers, function)).outcome()
    return _results(found, workers)


def installed(client: Client, plugin: WorkerPlugin) -> None:
    """Register `plugin` on all workers of the cluster, and on those that come later.

    Raises
    ------
    IndexLost
        When a worker is lost meanwhile.
    """
    workers = workers_of(client)
    try:
        _Awaited(client, workers, lambda: client.register_plugin(plugin)).outcome()
    except OSError as error:
        raise IndexLost(
            f"a worker of the cluster was lost before the index was begun ({error}); call it again"
        ) from error


def ensure_plugin(client: Client) -> None:
    """Install the plugin of this library on all workers, and on those that join later."""
    installed(client, new_plugin())


def watched(client: Client, workers: Sequence[str], futures: list[Any]) -> list[Any]:
    """The results of `futures`, unless one of `workers` leaves the cluster first.

    Others that have their tasks, or what these wait for, may leave, but not be silent.

    Raises
    ------
    IndexLost
        When a worker left or is silent, or the scheduler has forgotten the tasks.
    Exception
        What a task raised.
    """
    keys = [future.key for future in futures]
    gather = partial(client.gather, futures, asynchronous=True)
    return attended(client, workers, gather, keys=keys)


def attended(
    client: Client,
    workers: Sequence[str],
    begin: Callable[[], Awaitable[Result]],
    look: Callable[..., list[str]] | None = None,
    keys: Sequence[Hashable] = (),
) -> Result:
    """What comes of `begin`, called on the client's event loop, unless a worker is lost first.

    `look` is called on workers now and then, and names what nobody goes on with; default:
    `unattended`. So it is on those that have the tasks with these `keys` then.

    Raises
    ------
    IndexLost
        When one of `workers` left or is silent, or the scheduler has forgotten the tasks.
    OutOfMemoryError
        When a task ran out of memory, one of the user's too, or this process did.
    """
    try:
        with saying_memory("a task, or who takes its result,"):
            return _Awaited(client, workers, begin, look=look, keys=keys).outcome()
    except (FutureCancelledError, FuturesCancelledError, CommClosedError) as error:
        why = getattr(error, "reason", error)
        raise IndexLost(
            f"a worker or the scheduler was lost, or the cluster restarted ({why}); {REMEDY}"
        ) from error


class _Awaited(Generic[Result]):
    """What comes of `begin`, called on the client's event loop, unless a worker is lost first.

    It tells the thread that waits by itself: each task that waited for it would be one more turn of
    the loop, which over UCXX takes 0.1 ms. It is never cancelled, as Dask's gather logs an error
    for each future then: when nobody waits any more, it ends by itself.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
    begin : callable
    limit : float, optional
        Seconds to wait for it.
    look, keys : optional
        As for `attended`.
    """

    def __init__(
        self,
        client: Client,
        workers: Sequence[str],
        begin: Callable[[], Awaitable[Result]],
        limit: float | None = None,
        look: Callable[..., list[str]] | None = None,
        keys: Sequence[Hashable] = (),
    ) -> None:
        self._client, self._workers, self._begin = client, workers, begin
        self._limit, self._look, self._keys = limit, look or unattended, keys
        self._told = concurrent.futures.Future[Result]()
        self._timer: asyncio.TimerHandle | None = None
        self._alarms: list[asyncio.Future[None]] = []
        loop: Any = client.loop
        self._loop: asyncio.AbstractEventLoop = loop.asyncio_loop
        self._loop.call_soon_threadsafe(self._start)

    def outcome(self, meanwhile: Callable[[], None] | None = None) -> Result:
        """The result, or its error raised; `meanwhile` is called unless it is there soon."""
        told = self._told
        try:
            # Until then this thread would only be in the way of the messages to the workers.
            if meanwhile is not None and not concurrent.futures.wait([told], SOON).done:
                meanwhile()
            return self._result(told)
        except BaseException:
            if told.cancel():
                # The loop may have ended.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._rest)
            raise
        finally:
            # An error has frames that hold this: it would hold itself, and all that they do.
            self._told = concurrent.futures.Future()
            del told

    def _result(self, told: concurrent.futures.Future[Result]) -> Result:
        try:
            while not concurrent.futures.wait([told], LOOK).done:
                if not self._loop.is_running():
                    # It tells nothing of what it was asked for since.
                    raise CommClosedError("the client's event loop has ended")
            return told.result()
        finally:
            del told

    def _start(self) -> None:
        if not self._told.cancelled():
            self._timer = self._loop.call_later(WATCH, self._watch)
            self._work = begun(self._carry_out())

    async def _carry_out(self) -> None:
        try:
            found = await self._begin()
        except asyncio.CancelledError:
            self._tell(CommClosedError("the client's event loop ends"))
            raise
        except BaseException as error:
            self._tell(error)
        else:
            self._rest()
            with suppress(concurrent.futures.InvalidStateError):
                self._told.set_result(found)

    def _watch(self) -> None:
        client, workers = self._client, self._workers
        watching: list[Callable[[], Awaitable[IndexLost]]] = [
            partial(_until_one_leaves, client, workers),
            partial(_until_one_is_silent, client, workers, self._look, self._keys),
        ]
        if self._limit is not None:
            watching.append(partial(_until_late, workers, self._limit))
        self._alarms = [asyncio.ensure_future(self._raise(each)) for each in watching]

    async def _raise(self, alarm: Callable[[], Awaitable[IndexLost]]) -> None:
        try:
            self._tell(await alarm())
        except Exception as error:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        self._rest()
        with suppress(concurrent.futures.InvalidStateError):
            self._told.set_exception(error)

    def _rest(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
        # They end with an error whose frames hold this.
        alarms, self._alarms = self._alarms, []
        for alarm in alarms:
            alarm.cancel()


async def _until_late(workers: Sequence[str], limit: float) -> IndexLost:
    await asyncio.sleep(limit - WATCH)
    return IndexLost(f"workers among {list(workers)} have not answered for {limit:.0f} s")


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
    client: Client,
    workers: Sequence[str],
    look: Callable[..., list[str]],
    keys: Sequence[Hashable],
) -> IndexLost:
    attendance = Attendance()
    while True:
        await asyncio.sleep(PATIENCE)
        asked = list(workers)
        try:
            if keys:
                busy = await _in_time(on_scheduler(client, at_work, keys))
                asked = sorted({*asked, *busy})
            call = client.run(look, workers=asked, on_error="ignore", asynchronous=True)
            answers = await _in_time(call)
        except TimeoutError:
            return IndexLost(
                f"a worker among {asked} with shards of the index, or tasks of this call, has not "
                f"answered for {SILENCE:.0f} s; end it, and {REMEDY}"
            )
        except (OSError, RuntimeError):
            # The scheduler cannot be asked; `_until_one_leaves` says so.
            continue
        # One without memory for an answer ends the comm, and Dask then asks it on and on.
        said = {worker: answers.get(worker, ["no answer of it comes"]) for worker in asked}
        for worker, what in attendance.missed(said, asyncio.get_running_loop().time()):
            return IndexLost(
                f"worker {worker} is there and does not go on, as when memory ran out there: "
                f"{what}; end it, and {REMEDY}"
            )


async def _in_time(call: Awaitable[Result]) -> Result:
    return await asyncio.wait_for(asyncio.shield(begun(call)), SILENCE)


def at_work(keys: Sequence[Hashable], dask_scheduler: Any) -> set[str]:
    """Runs on the scheduler: the workers that have these tasks, or what they wait for."""
    tasks = dask_scheduler.tasks
    ahead = [tasks[key] for key in keys if key in tasks]
    seen, found = set(ahead), set()
    while ahead:
        task = ahead.pop()
        if task.processing_on is not None:
            found.add(task.processing_on.address)
        found.update(worker.address for worker in task.who_has or ())
        if task.state != "memory":
            ahead += task.dependencies - seen
            seen |= task.dependencies
    return found


def _results(found: dict[str, Any], workers: Sequence[str]) -> list[Any]:
    """What was found, which is taken out: an error's frames do not hold it."""
    outcomes = [found.pop(worker) for worker in workers]
    raised = [outcome.error for outcome in outcomes if isinstance(outcome, Failed)]
    # What the user can mend says more than the loss that it led to on other workers, and so does
    # the way that failed.
    raised.sort(key=lambda error: isinstance(error, IndexLost) + (type(error) is IndexLost))
    unreachable = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    # Who waits for another one says less than that one.
    unreachable.sort(key=lambda error: isinstance(error, TimeoutError))
    try:
        if raised:
            raise raised[0]
        if unreachable:
            raise IndexLost(
                f"a worker with a shard of the index is gone ({unreachable[0]}); {REMEDY}"
            ) from unreachable[0]
        return outcomes
    finally:
        del outcomes, raised, unreachable
