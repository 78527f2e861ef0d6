"""Threads whose calls are worked on together: those that came while others were."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dgpuhash.backend import ran_out

__all__ = ["Together"]

# Seconds from one call to the next in which a batch waits, and between two looks for one.
PAUSE = 0.05
LOOK = 0.0005


@dataclass(eq=False, slots=True)
class Call:
    """What one thread wants to be worked on."""

    kind: int
    thing: Any
    nbytes: int
    taken: bool = False
    alone: bool = False
    answered: bool = False
    answer: Any = None
    error: BaseException | None = None


class Together:
    """Puts the calls that wait into batches, each worked on by one of the threads that called.

    A batch begins when it is full, or no call has come for a moment or is about to.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Call] = []
        self._at_work = 0
        self._came = 0.0

    def call(
        self,
        work: Callable[[Sequence[Any]], Iterator[Any]],
        thing: Any,
        *,
        kind: int,
        nbytes: int,
        most_nbytes: int,
        at_once: int,
        more: Callable[[], bool],
    ) -> Any:
        """What `work` gives for `thing`.

        Parameters
        ----------
        work : callable
            From the things of a batch to an answer for each, in their order.
        thing : Any
        kind : int
            Only calls of one kind share a batch; their `work` does the same.
        nbytes : int
            Of `thing`.
        most_nbytes : int
            Of a batch; a single thing may have more.
        at_once : int
            Batches at work at once: with two, one is prepared while another waits for answers.
        more : callable
            Whether other threads may be about to call.

        Raises
        ------
        Exception
            What `work` raised for a batch. One that has run out of memory is tried again by the
            calls that are not answered, each alone.
        """
        own = Call(kind, thing, nbytes)
        with self._changed:
            self._waiting.append(own)
            self._came = time.monotonic()
            self._changed.notify_all()
        while True:
            with self._changed:
                try:
                    batch = self._next_batch(own, most_nbytes, at_once, more)
                except BaseException:
                    # Others wait for the first one to go.
                    if not own.taken:
                        self._waiting.remove(own)
                    self._changed.notify_all()
                    raise
            if batch is None:
                break
            self._work_on(batch, work)
        if own.error is not None:
            raise own.error
        return own.answer

    def _next_batch(
        self, own: Call, most_nbytes: int, at_once: int, more: Callable[[], bool]
    ) -> list[Call] | None:
        """A batch that begins with `own`, once it is to be worked on; None when it is answered."""
        while not own.answered:
            if own.taken or self._waiting[0] is not own or self._at_work >= at_once:
                self._changed.wait()
                continue
            batch, full = self._batch(own, most_nbytes)
            pause = self._came + PAUSE - time.monotonic()
            if not full and pause > 0 and more():
                self._changed.wait(min(pause, LOOK))
                continue
            for call in batch:
                call.taken = True
                self._waiting.remove(call)
            self._at_work += 1
            self._changed.notify_all()
            return batch
        return None

    def _batch(self, own: Call, most_nbytes: int) -> tuple[list[Call], bool]:
        """The calls that wait and go with `own`, and whether no more would."""
        batch, nbytes = [own], own.nbytes
        if own.alone:
            return batch, True
        for call in self._waiting[1:]:
            if call.kind == own.kind and not call.alone:
                if nbytes + call.nbytes > most_nbytes:
                    return batch, True
                batch.append(call)
                nbytes += call.nbytes
        return batch, nbytes >= most_nbytes

    def _work_on(self, batch: list[Call], work: Callable[[Sequence[Any]], Iterator[Any]]) -> None:
        try:
            answers = work([call.thing for call in batch])
            for call, answer in zip(batch, answers, strict=True):
                call.answer = answer
                self._tell(call)
        except BaseException as error:
            left = [call for call in batch if not call.answered]
            again = len(batch) > 1 and ran_out(error)
            with self._changed:
                for call in left:
                    call.alone, call.taken = again, not again
                    call.error = None if again else error
                    call.answered = not again
                self._waiting += left if again else []
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _tell(self, call: Call) -> None:
        with self._changed:
            call.answered = True
            self._changed.notify_all()
