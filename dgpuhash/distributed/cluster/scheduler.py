"""Phases that the scheduler passes on to workers, in turns if asked.

A lock of the client's would be three more messages.
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
from distributed.comm import CommClosedError
from distributed.protocol import pickle

from dgpuhash.distributed.cluster.client import connected
from dgpuhash.distributed.cluster.locality import (
    Elsewhere,
    Given,
    Made,
    Needed,
    claim,
    claimed,
    free,
)
from dgpuhash.distributed.cluster.rpc import begun, call_worker, on_scheduler, posted

__all__ = ["Failed", "end_turn", "relayed"]

# Seconds between two looks whether the client whose turn it is is alive.
PATIENCE = 2.0
# Seconds that the others of a phase in turns have to say what they know when one has failed.
FAREWELL = 2.0


class Failed:
    """An error on its way to the client.

    Attributes
    ----------
    error : Exception
    told : bool
        Whether it only came of what another worker, which is about to answer, said of its own.
    """

    def __init__(self, error: Exception, *, told: bool = False) -> None:
        self.error, self.told = error, told


@dataclass(eq=False)
class Turn:
    """A phase that takes turns with others; `over` when it ended, or nobody waits for it.

    `begun`: its turn came, and workers may have been told of it.
    """

    name: str
    client: str
    begun: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


# Of each scheduler in this process, the phase whose turn it is first.
_turns: WeakKeyDictionary[Any, deque[Turn]] = WeakKeyDictionary()


async def relayed(
    client: Client,
    workers: Sequence[str],
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    turn: str | None = None,
    needed: Needed | None = None,
) -> dict[str, Any]:
    """``function(*args, dask_worker=…)`` on the event loops of `workers`, at the same time.

    Returns what each gave, or the exception that came of it. Where one gave `Made`, its data stays
    there, and futures for it come here; when another one fails, or nobody waits, it is freed.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Addresses.
    function : callable
        Of a module, so that it travels by name; perhaps a coroutine function.
    args : tuple
    turn : str, optional
        Names a phase that begins when no other named one is under way; `end_turn` lets the next
        one begin. Its workers wait for each other: when one fails, the others are waited for no
        longer than `FAREWELL`.
    needed : Needed, optional
        Then each function is called with `given` as well.

    Raises
    ------
    Elsewhere
        When what is needed does not lie where it must.
    """
    post = posted(packed, function, args)
    answers = await on_scheduler(client, relay, list(workers), post, turn, client.id, needed)
    if isinstance(answers, str):
        raise Elsewhere(answers)
    return {worker: _opened(answer, client) for worker, answer in answers.items()}


def _opened(answer: Packed | Exception, client: Client) -> Any:
    if isinstance(answer, Exception):
        return answer
    result = pickle.loads(answer.post)
    return result if answer.left is None else Made(result, claimed(client, answer.left))


async def end_turn(client: Client, turn: str) -> bool:
    """Let others begin, whether the phase of this name ended or not.

    Whether it waited for its turn, so that it is not going to begin.
    """
    found: bool = await on_scheduler(client, free_turn, turn)
    return found


@dataclass(frozen=True, slots=True)
class Packed:
    """A result, or error, as bytes, which the scheduler need not understand.

    Attributes
    ----------
    post : bytes
    failed, told : bool
        Of a `Failed`.
    left : mapping of label to int, or None
        The bytes of each thing that stays among the worker's data; None where none may.
    """

    post: bytes
    failed: bool
    left: Mapping[Hashable, int] | None = None
    told: bool = False


async def packed(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    *dealt: Any,
    dask_worker: Any,
) -> Packed:
    """Runs on a worker; what is `dealt`, if anything, makes its `Given`."""
    left = None
    try:
        given = {"given": Given.to(dask_worker, *dealt)} if dealt else {}
        result = function(*args, **given, dask_worker=dask_worker)
        if asyncio.iscoroutine(result):
            result = await result
        if isinstance(result, Made):
            left = dask_worker.update_data(dict(result.data))["nbytes"]
            result = result.result
    except Exception as error:
        result = error
    told = isinstance(result, Failed) and result.told
    return Packed(pickle.dumps(result), isinstance(result, Exception | Failed), left, told)


async def relay(
    workers: list[str],
    post: bytes,
    turn: str | None,
    client: str,
    needed: Needed | None,
    dask_scheduler: Any,
) -> dict[str, Packed | Exception] | str:
    """Runs on the scheduler; a string says why the phase cannot begin."""
    mine, more = Turn(turn or "", client), None
    try:
        if turn is not None:
            waiting = _turns.setdefault(dask_scheduler, deque())
            waiting.append(mine)
            await _head(waiting, mine, dask_scheduler)
            mine.begun = True
        if needed is not None:
            dealt = needed.dealt(workers, dask_scheduler)
            if isinstance(dealt, str):
                return dealt
            more = pickle.dumps((workers, dealt, needed.token or uuid.uuid4().hex))
        ask = partial(_answer, post, more, dask_scheduler)
        answers = await _asked(workers, ask, together=turn is not None)
        return _settled(answers, mine, dask_scheduler)
    finally:
        mine.over.set()


def free_turn(turn: str, dask_scheduler: Any) -> bool:
    """Runs on the scheduler; see `end_turn`."""
    found = [each for each in _turns.get(dask_scheduler, ()) if each.name == turn]
    for each in found:
        each.over.set()
    return bool(found) and not any(each.begun for each in found)


async def _head(waiting: deque[Turn], mine: Turn, scheduler: Any) -> None:
    """Wait until all turns before this one are over."""
    while waiting[0] is not mine:
        first = waiting[0]
        try:
            await asyncio.wait_for(first.over.wait(), PATIENCE)
        except TimeoutError:
            if not connected(scheduler, first.client):
                first.over.set()
        if first.over.is_set() and waiting[0] is first:
            waiting.popleft()
    if mine.over.is_set():
        raise TimeoutError(f"phase {mine.name} was given up before it began")


async def _asked(
    workers: Sequence[str], ask: Callable[[str], Awaitable[Packed | Exception]], together: bool
) -> dict[str, asyncio.Future[Packed | Exception]]:
    """What each of `workers` answers to `ask`, which is called at once for all.

    Those who work `together` may wait for one that has failed already, so they have `FAREWELL` to
    answer then. One that was told so is no reason not to wait: that other one's error says more.
    """
    left, enough = len(workers), asyncio.get_running_loop().create_future()

    async def noted(worker: str) -> Packed | Exception:
        # So whoever waits goes on with the event loop's next turn, not with the one after it.
        nonlocal left
        over = True
        try:
            found = await ask(worker)
            over = together and _failed_first(found)
            return found
        finally:
            left -= 1
            if (over or left == 0) and not enough.done():
                enough.set_result(None)

    answers = {worker: begun(noted(worker)) for worker in workers}
    if workers:
        await enough
    waiting = [answer for answer in answers.values() if not answer.done()]
    if waiting:
        await asyncio.wait(waiting, timeout=FAREWELL)
    return answers


def _settled(
    answers: Mapping[str, asyncio.Future[Packed | Exception]], phase: Turn, scheduler: Any
) -> dict[str, Packed | Exception]:
    """The answers of a phase, for whose client all that stays is claimed, or nothing stays."""
    found = {worker: _found(worker, answer, scheduler) for worker, answer in answers.items()}
    awaited = connected(scheduler, phase.client) and not phase.over.is_set()
    if awaited and not any(map(_failed, found.values())):
        packets = {worker: each for worker, each in found.items() if isinstance(each, Packed)}
        left = {worker: each.left for worker, each in packets.items() if each.left}
        claim(scheduler, phase.client, left)
        return found
    for worker, answer in answers.items():
        answer.add_done_callback(partial(_let_drop, scheduler, worker))
    return {
        worker: replace(each, left=each.left and {}) if isinstance(each, Packed) else each
        for worker, each in found.items()
    }


def _found(
    worker: str, answer: asyncio.Future[Packed | Exception], scheduler: Any
) -> Packed | Exception:
    if not answer.done():
        return TimeoutError(f"{worker} waits for another")
    found = answer.result()
    if isinstance(found, Packed) and found.left and worker not in scheduler.workers:
        return CommClosedError(f"{worker} left the cluster with what it made")
    return found


def _let_drop(scheduler: Any, worker: str, answer: asyncio.Future[Packed | Exception]) -> None:
    found = None if answer.cancelled() else answer.result()
    if isinstance(found, Packed) and found.left:
        free(scheduler, worker, found.left)


def _failed(answer: Packed | Exception) -> bool:
    return isinstance(answer, Exception) or answer.failed


def _failed_first(answer: Packed | Exception) -> bool:
    return isinstance(answer, Exception) or (answer.failed and not answer.told)


async def _answer(
    post: bytes, more: bytes | None, scheduler: Any, worker: str
) -> Packed | Exception:
    try:
        found: Packed = await call_worker(scheduler, worker, post, more)
    except Exception as error:
        return error
    return found
