"""Run functions on all workers of an index; the loss of a worker ends the call."""

from __future__ import annotations

import asyncio
import concurrent.futures
import traceback
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from distributed import Client, WorkerPlugin

from dgpuhash import config
from dgpuhash.distributed.cluster.client import (
    check_connected,
    translate_scheduler_errors,
    workers_of,
)
from dgpuhash.distributed.cluster.dask_internals import CANCELLED, CommClosedError
from dgpuhash.distributed.cluster.host import new_plugin, wait_for_plugin
from dgpuhash.distributed.cluster.liveness import Watchdog, stuck_work
from dgpuhash.distributed.cluster.locality import InputSpec, LocalInputs
from dgpuhash.distributed.cluster.rpc import REMEDY, TIMEOUT, call_scheduler_async, fire_and_forget
from dgpuhash.distributed.cluster.scheduler import RemoteError, broadcast_call
from dgpuhash.errors import IndexLost
from dgpuhash.tables.memory_errors import memory_errors_of

Result = TypeVar("Result")

# Seconds between two reads of the list of workers, and before the first.
MEMBERSHIP_SECONDS = 0.25
GRACE_SECONDS = 1.0  # For cleanups that no answer depends on; a busy worker does them later.
QUICK_SECONDS = 2e-3  # In which the messages of a broadcast are sent, and quick work is done.
POLL_SECONDS = 1.0  # Between two checks that the client has its scheduler.


def run_on_workers(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Result | RemoteError],
    *args: Any,
    limit: float | None = None,
    turn: str | None = None,
    needed: InputSpec | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> list[Result]:
    """Run ``function(host, *args)`` on the shard threads of all `workers`.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses; `host` is the `ShardHost` of each.
    function : callable
        Defined in a module: it is pickled by name. It may raise its error, or return `RemoteError`.
    limit : float, optional
        Seconds to wait for the results; default: until a worker is lost.
    turn, needed : optional
        As for `broadcast_call`; `function` gets its worker's `LocalInputs` as its last argument.
    meanwhile : callable, optional
        Called in this thread while the workers work, unless they answer within 2 ms.

    Returns
    -------
    list
        The results in the order of `workers`.

    Raises
    ------
    DataNotLocal
        When the needed data is not on the workers that need it; no worker was called then.
    IndexLost
        When a worker leaves the cluster before all have answered, or at the limit.
    DgpuhashError
        The error that `function` raised on a worker.
    """

    def begin() -> Awaitable[dict[str, Any]]:
        return broadcast_call(client, workers, run_on_shard_thread, (function, args), turn, needed)

    with translate_scheduler_errors():
        found = _WatchedCall(client, workers, begin, limit).outcome(meanwhile)
    return _results(found, workers)


async def run_on_shard_thread(
    function: Callable[..., Result],
    args: tuple[Any, ...],
    dask_worker: Any,
    given: LocalInputs | None = None,
) -> Result | RemoteError:
    """Run `function` on this worker's shard thread; return errors as `RemoteError`."""
    try:
        with memory_errors_of(function.__name__.lstrip("_")):
            host = await wait_for_plugin(dask_worker)
            if given is not None:
                args = (*args, given)
            return await host.thread.run(function, host, *args)
    except Exception as error:
        clear_tracebacks(error)
        return RemoteError(error)  # Dask would log a raised error twice.


def clear_tracebacks(error: BaseException) -> None:
    """Clear traceback frames, so arrays are freed before their CUDA streams.

    Frames and errors refer to each other, and Python's cycle collector frees streams first: RMM,
    which frees memory in stream order, then crashes the process.
    """
    seen: set[int] = set()
    ahead: list[BaseException | None] = [error]
    while ahead:
        each = ahead.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            ahead += [each.__cause__, each.__context__]


def run_on_event_loops(
    client: Client, workers: Sequence[str], function: Callable[..., Result]
) -> list[Result]:
    """Run ``function(dask_worker=…)`` on event loops; no plugin is required.

    Raises
    ------
    IndexLost
        When a worker is lost before it answers.
    """

    with translate_scheduler_errors():
        found = _WatchedCall(
            client, workers, lambda: broadcast_call(client, workers, function)
        ).outcome()
    return _results(found, workers)


def register_plugin(client: Client, plugin: WorkerPlugin) -> None:
    """Register `plugin` on all workers of the cluster and on later ones.

    Raises
    ------
    IndexLost
        When a worker is lost during the call.
    """
    workers = workers_of(client)
    try:
        _WatchedCall(client, workers, lambda: client.register_plugin(plugin)).outcome()
    except OSError as error:
        raise IndexLost(
            f"a worker of the cluster was lost before the index was begun ({error}); call it again"
        ) from error


def ensure_plugin(client: Client) -> None:
    """Install this library's plugin on all workers and on later ones."""
    register_plugin(client, new_plugin())


def gather_watched(client: Client, workers: Sequence[str], futures: list[Any]) -> list[Any]:
    """Return the results of `futures`, unless one of `workers` is lost first.

    Other workers that run these tasks, or their dependencies, may leave but not be silent.

    Raises
    ------
    IndexLost
        When a worker left or is silent, or the scheduler has forgotten the tasks.
    Exception
        The error that a task raised.
    """
    keys = [future.key for future in futures]
    gather = partial(client.gather, futures, asynchronous=True)
    return run_watched(client, workers, gather, keys=keys)


def run_watched(
    client: Client,
    workers: Sequence[str],
    begin: Callable[[], Awaitable[Result]],
    look: Callable[..., list[str]] | None = None,
    keys: Sequence[Hashable] = (),
) -> Result:
    """Await `begin` on the client's event loop, unless a worker is lost first.

    Every 2 s, `look` (default: `stuck_work`) runs as a heartbeat on `workers`, and on the workers
    that then have the tasks with these `keys`; it returns descriptions of work that is stuck.

    Raises
    ------
    IndexLost
        When one of `workers` left or is silent, or the scheduler has forgotten the tasks.
    OutOfMemoryError
        When a task (of the user's, too) or this process ran out of memory.
    """
    try:
        with memory_errors_of("a task, or who takes its result,"):
            return _WatchedCall(client, workers, begin, look=look, keys=keys).outcome()
    except (*CANCELLED, CommClosedError) as error:
        why = getattr(error, "reason", error)
        raise IndexLost(
            f"a worker or the scheduler was lost, or the cluster restarted ({why}); {REMEDY}"
        ) from error


class _WatchedCall(Generic[Result]):
    """Call on the client's event loop, with a watchdog over the workers.

    The result goes straight to the waiting thread: each task between them would cost a turn of the
    loop, 0.1 ms over UCXX. The call is never cancelled, as Dask's gather then logs an error for
    each future: when no thread waits any more, it ends by itself.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
    begin : callable
    limit : float, optional
        Seconds to wait for the result.
    look, keys : optional
        As for `run_watched`.
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
        self._limit, self._look, self._keys = limit, look or stuck_work, keys
        self._told = concurrent.futures.Future[Result]()
        self._timer: asyncio.TimerHandle | None = None
        self._alarms: list[asyncio.Future[None]] = []
        loop: Any = client.loop
        self._loop: asyncio.AbstractEventLoop = loop.asyncio_loop
        self._loop.call_soon_threadsafe(self._start)

    def outcome(self, meanwhile: Callable[[], None] | None = None) -> Result:
        """Return the result or raise; call `meanwhile` if it takes over `QUICK_SECONDS`."""
        told = self._told
        try:
            # Before that, this thread would delay the messages to the workers.
            if meanwhile is not None and not concurrent.futures.wait([told], QUICK_SECONDS).done:
                meanwhile()
            return self._result(told)
        except BaseException:
            if told.cancel():
                # The loop may have ended.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._rest)
            raise
        finally:
            # The error's frames refer to `self`: this breaks the reference cycle.
            self._told = concurrent.futures.Future()
            del told

    def _result(self, told: concurrent.futures.Future[Result]) -> Result:
        try:
            while not concurrent.futures.wait([told], POLL_SECONDS).done:
                check_connected(self._client)
            return told.result()
        finally:
            del told

    def _start(self) -> None:
        if not self._told.cancelled():
            self._timer = self._loop.call_later(MEMBERSHIP_SECONDS, self._watch)
            self._work = fire_and_forget(self._carry_out())

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
        """Stop the watchdog."""
        if self._timer is not None:
            self._timer.cancel()
        # The alarms end with an error whose frames refer to `self`.
        alarms, self._alarms = self._alarms, []
        for alarm in alarms:
            alarm.cancel()


async def _until_late(workers: Sequence[str], limit: float) -> IndexLost:
    await asyncio.sleep(limit - MEMBERSHIP_SECONDS)
    return IndexLost(f"workers among {list(workers)} have not answered for {limit:.0f} s")


async def _until_one_leaves(client: Client, workers: Sequence[str]) -> IndexLost:
    while True:
        try:
            with translate_scheduler_errors():
                there = await asyncio.shield(fire_and_forget(client.scheduler.ncores()))
        except IndexLost as lost:
            return lost
        gone = sorted(set(workers) - set(there))
        if gone:
            return IndexLost(f"workers {gone} with shards are gone; {REMEDY}")
        await asyncio.sleep(MEMBERSHIP_SECONDS)


async def _until_one_is_silent(
    client: Client,
    workers: Sequence[str],
    look: Callable[..., list[str]],
    keys: Sequence[Hashable],
) -> IndexLost:
    attendance = Watchdog()
    while True:
        await asyncio.sleep(config.seconds("liveness.heartbeat"))
        asked = list(workers)
        try:
            if keys:
                busy = await _in_time(call_scheduler_async(client, workers_of_tasks, keys))
                asked = sorted({*asked, *busy})
            call = client.run(look, workers=asked, on_error="ignore", asynchronous=True)
            answers = await _in_time(call)
        except TimeoutError:
            return IndexLost(
                f"a worker among {asked} with shards, or tasks of this call, has not "
                f"answered for {config.seconds(TIMEOUT):.0f} s; end it, and {REMEDY}"
            )
        except (OSError, RuntimeError):
            # The scheduler cannot be asked; `_until_one_leaves` says so.
            continue
        # A worker without memory for an answer closes the comm, and Dask then retries forever.
        said = {worker: answers.get(worker, ["no answer of it comes"]) for worker in asked}
        for worker, what in attendance.stuck_work(said, asyncio.get_running_loop().time()):
            return IndexLost(
                f"worker {worker} is connected but makes no progress, perhaps because its memory "
                f"ran out: {what}; end it, and {REMEDY}"
            )


async def _in_time(call: Awaitable[Result]) -> Result:
    limit = config.seconds(TIMEOUT)
    return await asyncio.wait_for(asyncio.shield(fire_and_forget(call)), limit)


def workers_of_tasks(keys: Sequence[Hashable], dask_scheduler: Any) -> set[str]:
    """Return workers with these tasks or dependencies; runs on the scheduler."""
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
    """Return the results, removing them from `found`, or raise the root error."""
    outcomes = [found.pop(worker) for worker in workers]  # Error frames refer to `found`.
    raised = [outcome.error for outcome in outcomes if isinstance(outcome, RemoteError)]
    # An error that the user can mend, or a failed transport, says more than the loss it led to.
    raised.sort(key=lambda error: isinstance(error, IndexLost) + (type(error) is IndexLost))
    unreachable = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    # A timeout of a worker that waits for another worker says less than the other's error.
    unreachable.sort(key=lambda error: isinstance(error, TimeoutError))
    try:
        if raised:
            raise raised[0]
        if unreachable:
            raise IndexLost(
                f"a worker with a shard is gone ({unreachable[0]}); {REMEDY}"
            ) from unreachable[0]
        return outcomes
    finally:
        del outcomes, raised, unreachable
