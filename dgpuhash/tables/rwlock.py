"""Threads that share a table: those that read take part together, one that changes it is alone.

A thread may come back while it is inside: by a signal handler, by a finaliser that the collector
runs, by an argument that is made an array. It may come at any place of what stands here, so there
is no lock that such a thread would wait for: entering and leaving are one operation of a dictionary
each, which nothing interrupts.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Concatenate, ParamSpec, TypeVar

from dgpuhash.errors import ReentranceError, TableBroken

__all__ = ["Turns", "changes", "reads"]

Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")

# What a thread's number is multiplied by.
_READS, _CHANGES = 1, -1
# Seconds between two looks of one who waits whether those before are there, and get on.
_LOOK = 0.05

# What each thread waits for: a table's turns, its own place there, and what it wants to do.
_waits: dict[int, tuple[Turns, object, int]] = {}
_all: set[weakref.ref[Turns]] = set()


class Turns:
    """Who may work on one table, in the order in which they came.

    Whoever reads it may read again. Whoever changes it may enter again until the change has begun.

    Parameters
    ----------
    guard : callable, optional
        Called by whoever enters; raises where the table's memory cannot be worked on.
    """

    def __init__(self, guard: Callable[[], None] | None = None) -> None:
        self.guard = guard
        # Those at work and those that wait, as they came: an object for each, and its thread's
        # number, which is negative for a change. No mark says who is at work: those that have
        # nobody before them whom they must not meet.
        self.entered: dict[object, int] = {}
        # What wakes those that wait.
        self._waiting: dict[LockType, None] = {}
        # Who changed the table last, or does so now, and whose change has begun.
        self._changer: object = None
        self._begun: object = self
        # All that this calls is one operation, too.
        _all.add(weakref.ref(self, _all.discard))

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        if self.guard is _refuse_half_changed:
            self.guard()
        # Nobody is at work on a copy yet.
        return Turns, ()

    def begin(self) -> None:
        """From now on a change that is at work may be half done; without one this means nothing."""
        self._begun = self._changer

    def again(self, kind: int, table: Any, verb: str) -> object | None:
        """The place of this thread where it is inside already, when it may go on in it; else None.

        Raises
        ------
        ReentranceError
            When it reads and wants to change, or is in the middle of a change.
        """
        me = get_ident()
        for own in list(self.entered):
            inside = self.entered.get(own, 0)
            if abs(inside) != me:
                continue
            # The caller's caller, as what called this is no proof.
            if not self._is_in(sys._getframe(1).f_back):
                self.entered.pop(own, None)
                continue
            name = f"{type(table).__name__}.{verb}"
            if kind == _CHANGES and inside > 0:
                raise ReentranceError(
                    f"{name} was called by a thread that is reading the table (in a signal "
                    "handler, a finaliser, or an argument that is made an array): keep what is to "
                    "be changed, and change the table when the read has returned"
                )
            # The thread itself may wait yet, and whoever came after it waits for it.
            self.wait(own, kind, name)
            if self._begun is own:
                raise ReentranceError(
                    f"{name} was called by a thread that is in the middle of a change of the table "
                    "(in a signal handler, or a finaliser): call it when the change has returned"
                )
            return own
        return None

    def wait(self, own: object, kind: int, name: str) -> None:
        """Until nobody before `own` is inside whom it must not meet.

        Raises
        ------
        ReentranceError
            When that is for ever, as one of them waits for this thread.
        """
        if not any(self._before(own, kind)):
            return
        me, bell, circle = get_ident(), allocate_lock(), None
        outer = _waits.get(me)
        bell.acquire()
        try:
            _waits[me] = self, own, kind
            while True:
                # Before the look: who leaves after it rings.
                self._waiting[bell] = None
                if not any(self._before(own, kind)):
                    return
                # Who leaves may be interrupted before it rings.
                if not bell.acquire(timeout=_LOOK):
                    self._forget_the_gone()
                    last, circle = circle, self._circle(me)
                    # The same twice: all of them stood at one time.
                    if circle is not None and circle == last:
                        raise ReentranceError(
                            f"{name} would wait for ever: this thread is at work on another table, "
                            "and a thread at work on this one waits for that; use one table in a "
                            "signal handler, finaliser or argument of a call only where no other "
                            "thread does so the other way round"
                        )
        finally:
            self._waiting.pop(bell, None)
            if outer is None:
                _waits.pop(me, None)
            else:
                _waits[me] = outer

    def ring(self) -> None:
        """Wake those that wait."""
        for bell in list(self._waiting):
            # Its owner puts it back, if it waits on; two may be here at once.
            if self._waiting.pop(bell, bell) is None:
                bell.release()

    def after_fork(self) -> None:
        """In a forked child: only the thread that forked is inside, if it was."""
        me = get_ident()
        for each in list(self.entered):
            if abs(self.entered[each]) != me:
                if each is self._changer:
                    self.guard = _refuse_half_changed
                del self.entered[each]

    def _before(self, own: object, kind: int) -> Iterator[int]:
        """The threads before `own` whom it must not meet. These only become fewer."""
        entered = self.entered
        # The list is made in one operation.
        for each in list(entered) if own in entered else ():
            if each is own:
                return
            inside = entered.get(each, 0)
            if inside < 0 or (inside > 0 and kind == _CHANGES):
                yield abs(inside)

    def _circle(self, me: int) -> list[object] | None:
        """The places in which threads wait that this thread waits for, if one waits for it."""
        seen: dict[object, None] = {}
        left = [_waits[me]]
        found = False
        while left:
            turns, own, kind = left.pop()
            if own in seen:
                continue
            seen[own] = None
            for thread in turns._before(own, kind):
                found = found or thread == me
                if thread != me and (wait := _waits.get(thread)) is not None:
                    left.append(wait)
        return list(seen) if found else None

    def _forget_the_gone(self) -> None:
        """Take out whom no thread has inside: one that an exception struck between two steps."""
        # In this order: who is in the list has been inside before the look at the threads.
        there = list(self.entered)
        frames = sys._current_frames()
        for each in there:
            inside = self.entered.get(each, 0)
            if inside and not self._is_in(frames.get(abs(inside))):
                self.entered.pop(each, None)

    def _is_in(self, frame: FrameType | None) -> bool:
        """Whether a verb that takes turns here is on the stack."""
        while frame is not None:
            if frame.f_code is _CODE and frame.f_locals.get("turns") is self:
                return True
            frame = frame.f_back
        return False


def _in_turn(
    kind: int, verb: Callable[Concatenate[Any, Rest], Answer]
) -> Callable[Concatenate[Any, Rest], Answer]:
    @functools.wraps(verb)
    def waiting(self: Any, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
        turns = self._turns
        entered = turns.entered
        if entered and (own := turns.again(kind, self, verb.__name__)) is not None:
            begun = turns._begun
            try:
                if kind < 0:
                    turns._changer = own
                return verb(self, *args, **kwargs)
            finally:
                turns._begun = begun
        if turns.guard is not None:
            turns.guard()
        own = object()
        try:
            entered[own] = kind * get_ident()
            if len(entered) > 1:
                turns.wait(own, kind, verb.__name__)
            if kind < 0:
                turns._changer = own
            return verb(self, *args, **kwargs)
        finally:
            # One operation, which does nothing where the first step was not reached.
            entered.pop(own, None)
            if turns._waiting:
                turns.ring()

    return waiting


# All verbs share it.
_CODE = _in_turn(_READS, len).__code__


def reads(
    verb: Callable[Concatenate[Any, Rest], Answer],
) -> Callable[Concatenate[Any, Rest], Answer]:
    """A table's verb that leaves it as it is."""
    return _in_turn(_READS, verb)


def changes(
    verb: Callable[Concatenate[Any, Rest], Answer],
) -> Callable[Concatenate[Any, Rest], Answer]:
    """A table's verb that changes it."""
    return _in_turn(_CHANGES, verb)


def _refuse_half_changed() -> None:
    raise TableBroken(
        "another thread was changing this table when the process was forked, so that the child has "
        "it half changed; load it from a save or build it anew here, and fork while no thread "
        "changes it, or start processes by 'spawn'"
    )


def _after_fork() -> None:
    """Other threads are not there in a forked child, whatever they were at."""
    for thread in list(_waits):
        if thread != get_ident():
            del _waits[thread]
    for each in list(_all):
        if (turns := each()) is not None:
            turns.after_fork()


os.register_at_fork(after_in_child=_after_fork)
