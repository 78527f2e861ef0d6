"""Scheduler side of broadcasts: call the workers, and queue collectives.

A lock held by the client would cost three more messages.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client

from dgpuhash.distributed.cluster.dask_internals import (
    CommClosedError,
    drop_data,
    futures_of_held,
    hold_data,
    is_client_connected,
    pickle,
    put_data,
)
from dgpuhash.distributed.cluster.locality import (
    DataNotLocal,
    InputSpec,
    LocalInputs,
    TaskOutput,
    watch_departures,
)
from dgpuhash.distributed.cluster.rpc import (
    call_scheduler_async,
    call_worker,
    encode_call,
    fire_and_forget,
)

# Seconds between two checks that the client of the collective that runs is alive.
CLIENT_CHECK_SECONDS = 2.0
# Seconds that the other workers of a collective have to answer when one has failed.
ABORT_SECONDS = 2.0


class RemoteError:
    """Error of a worker, sent to the client as a result.

    Attributes
    ----------
    error : Exception
    told : bool
        Whether it is secondary: the consequence of another worker's error, which that worker is
        about to send.
    """

    def __init__(self, error: Exception, *, told: bool = False) -> None:
        self.error: Exception = error
        self.told: bool = told


@dataclass(eq=False)
class QueuedCollective:
    """Collective in the scheduler's queue, which runs one at a time.

    `begun`: it reached the head of the queue, and workers may have been called. `over`:
    it ended, or its client no longer waits for it.
    """

    name: str
    client: str
    begun: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


# The queue of each scheduler in this process; its head runs.
_queues: WeakKeyDictionary[Any, deque[QueuedCollective]] = WeakKeyDictionary()


async def broadcast_call(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    turn: str | None = None,
    needed: InputSpec | None = None,
) -> dict[str, Any]:
    """Run ``function(*args, dask_worker=…)`` on all workers' event loops.

    All start at the same time. Returns the result of each worker, or the exception of its call, by
    address. Data of a `TaskOutput` stays on its worker, and the result here has futures for it; the
    data is freed when another worker fails, or no client waits.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses.
    function : callable
        Defined in a module: it is pickled by name. May be a coroutine function.
    args : tuple
    turn : str, optional
        The name of a collective, which begins when no other one runs; `leave_queue` lets the next
        one begin. Its workers wait for each other: when one fails, the others are waited for no
        longer than `ABORT_SECONDS` seconds.
    needed : InputSpec, optional
        Input data; each function then gets its `LocalInputs` as the keyword argument ``given``.

    Raises
    ------
    DataNotLocal
        When the needed data is not on the workers that need it.
    """
    post = encode_call(run_and_encode, function, args)
    answers = await call_scheduler_async(
        client, dispatch, list(workers), post, turn, client.id, needed
    )
    if isinstance(answers, str):
        raise DataNotLocal(answers)
    return {worker: _decode(answer, client) for worker, answer in answers.items()}


def _decode(answer: EncodedResult | Exception, client: Client) -> Any:
    if isinstance(answer, Exception):
        return answer
    result = pickle.loads(answer.post)
    return (
        result if answer.left is None else TaskOutput(result, futures_of_held(client, answer.left))
    )


async def leave_queue(client: Client, turn: str) -> bool:
    """Remove a collective from the queue, so that the next one can begin.

    Returns whether it was still waiting, so that it never begins.
    """
    found: bool = await call_scheduler_async(client, leave_queue_here, turn)
    return found


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """Pickled result or error of a worker; the scheduler does not unpickle it.

    Attributes
    ----------
    post : bytes
    failed, told : bool
        Whether it is an error, and a secondary one (`RemoteError.told`).
    left : mapping of label to int, or None
        The bytes of each output that stays on the worker; None where the result is no `TaskOutput`.
    """

    post: bytes
    failed: bool
    left: Mapping[Hashable, int] | None = None
    told: bool = False


async def run_and_encode(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    *dealt: Any,
    dask_worker: Any,
) -> EncodedResult:
    """Run `function` on this worker and return its pickled outcome.

    `dealt`: further arguments of `LocalInputs.to`, where the broadcast has input data.
    """
    left = None
    try:
        given = {"given": LocalInputs.to(dask_worker, *dealt)} if dealt else {}
        result = function(*args, **given, dask_worker=dask_worker)
        if asyncio.iscoroutine(result):
            result = await result
        if isinstance(result, TaskOutput):
            left = put_data(dask_worker, result.data)
            result = result.result
    except Exception as error:
        result = error
    told = isinstance(result, RemoteError) and result.told
    return EncodedResult(
        pickle.dumps(result), isinstance(result, Exception | RemoteError), left, told
    )


async def dispatch(
    workers: list[str],
    post: bytes,
    turn: str | None,
    client: str,
    needed: InputSpec | None,
    dask_scheduler: Any,
) -> dict[str, EncodedResult | Exception] | str:
    """Dispatch a call to `workers` when its turn comes; return the answers.

    Runs on the scheduler. Returns a text instead when the input data is not local: the reason.
    """
    mine, more = QueuedCollective(turn or "", client), None
    try:
        if turn is not None:
            waiting = _queues.setdefault(dask_scheduler, deque())
            waiting.append(mine)
            await _wait_for_head(waiting, mine, dask_scheduler)
            mine.begun = True
        if needed is not None:
            dealt = needed.dealt(workers, dask_scheduler)
            if isinstance(dealt, str):
                return dealt
            more = pickle.dumps((workers, dealt, needed.token or uuid.uuid4().hex))
        ask = partial(_answer, post, more, dask_scheduler)
        answers = await _call_workers(workers, ask, together=turn is not None)
        return _hold_or_drop_outputs(answers, mine, dask_scheduler)
    finally:
        mine.over.set()


def leave_queue_here(turn: str, dask_scheduler: Any) -> bool:
    """Mark the collective of this name as over; see `leave_queue`.

    Runs on the scheduler.
    """
    found = [each for each in _queues.get(dask_scheduler, ()) if each.name == turn]
    for each in found:
        each.over.set()
    return bool(found) and not any(each.begun for each in found)


async def _wait_for_head(
    waiting: deque[QueuedCollective], mine: QueuedCollective, scheduler: Any
) -> None:
    """Wait until `mine` is at the head of the queue."""
    while waiting[0] is not mine:
        first = waiting[0]
        try:
            await asyncio.wait_for(first.over.wait(), CLIENT_CHECK_SECONDS)
        except TimeoutError:
            if not is_client_connected(scheduler, first.client):
                first.over.set()
        if first.over.is_set() and waiting[0] is first:
            waiting.popleft()
    if mine.over.is_set():
        raise TimeoutError(f"phase {mine.name} was given up before it began")


async def _call_workers(
    workers: Sequence[str],
    ask: Callable[[str], Awaitable[EncodedResult | Exception]],
    together: bool,
) -> dict[str, asyncio.Future[EncodedResult | Exception]]:
    """Call all `workers` at once by `ask` and return their answers' futures.

    Ranks of a collective (`together`) may wait for one that has failed, so after a primary failure
    they have `ABORT_SECONDS` seconds to answer. A secondary failure does not start that timeout:
    the error it stems from says more.
    """
    left, enough = len(workers), asyncio.get_running_loop().create_future()

    async def noted(worker: str) -> EncodedResult | Exception:
        # Setting `enough` here wakes the waiter one turn of the event loop earlier.
        nonlocal left
        over = True
        try:
            found = await ask(worker)
            over = together and _is_first_failure(found)
            return found
        finally:
            left -= 1
            if (over or left == 0) and not enough.done():
                enough.set_result(None)

    answers = {worker: fire_and_forget(noted(worker)) for worker in workers}
    if workers:
        await enough
    waiting = [answer for answer in answers.values() if not answer.done()]
    if waiting:
        await asyncio.wait(waiting, timeout=ABORT_SECONDS)
    return answers


def _hold_or_drop_outputs(
    answers: Mapping[str, asyncio.Future[EncodedResult | Exception]],
    phase: QueuedCollective,
    scheduler: Any,
) -> dict[str, EncodedResult | Exception]:
    """Return the answers; claim their outputs for the client, or free them.

    Outputs are claimed when all workers succeeded and the client still waits.
    """
    found = {worker: _answer_of(worker, answer, scheduler) for worker, answer in answers.items()}
    awaited = is_client_connected(scheduler, phase.client) and not phase.over.is_set()
    if awaited and not any(map(_is_failure, found.values())):
        packets = {
            worker: each for worker, each in found.items() if isinstance(each, EncodedResult)
        }
        left = {worker: each.left for worker, each in packets.items() if each.left}
        if left:
            watch_departures(scheduler)
            hold_data(scheduler, phase.client, left)
        return found
    for worker, answer in answers.items():
        answer.add_done_callback(partial(_let_drop, scheduler, worker))
    return {
        worker: replace(each, left=each.left and {}) if isinstance(each, EncodedResult) else each
        for worker, each in found.items()
    }


def _answer_of(
    worker: str, answer: asyncio.Future[EncodedResult | Exception], scheduler: Any
) -> EncodedResult | Exception:
    if not answer.done():
        return TimeoutError(f"{worker} waits for another")
    found = answer.result()
    if isinstance(found, EncodedResult) and found.left and worker not in scheduler.workers:
        return CommClosedError(f"{worker} left the cluster with what it made")
    return found


def _let_drop(
    scheduler: Any, worker: str, answer: asyncio.Future[EncodedResult | Exception]
) -> None:
    found = None if answer.cancelled() else answer.result()
    if isinstance(found, EncodedResult) and found.left:
        drop_data(scheduler, worker, found.left)


def _is_failure(answer: EncodedResult | Exception) -> bool:
    return isinstance(answer, Exception) or answer.failed


def _is_first_failure(answer: EncodedResult | Exception) -> bool:
    return isinstance(answer, Exception) or (answer.failed and not answer.told)


async def _answer(
    post: bytes, more: bytes | None, scheduler: Any, worker: str
) -> EncodedResult | Exception:
    try:
        found: EncodedResult = await call_worker(scheduler, worker, post, more)
    except Exception as error:
        return error
    return found
