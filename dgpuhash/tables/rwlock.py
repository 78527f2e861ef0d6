"""Fair read-write lock of a table, with detection of re-entrance and deadlock.

Readers share the lock, a writer has it alone. A thread may re-enter while it holds the lock: in a
signal handler, in a finaliser that the garbage collector runs, or while an argument is converted to
an array. That can happen at any instruction of this module, so no mutex may protect the state:
entering and leaving are one dictionary operation each, which nothing interrupts.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from _thread import LockType, allocate_lock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, cast

from dgpuhash.errors import ReentranceError, TableBroken

Verb = TypeVar("Verb", bound=Callable[..., Any])

# Sign of the thread id in a ticket.
_READS, _CHANGES = 1, -1
# Seconds after which a waiting thread looks again for leftover tickets and for a deadlock.
_LOOK = 0.05

# By waiting thread: the lock, the thread's ticket there, and its kind.
_waits: dict[int, tuple[ReadWriteLock, object, int]] = {}
_all: set[weakref.ref[ReadWriteLock]] = set()


class ReadWriteLock:
    """Read-write lock of one table, fair in order of arrival.

    A reader may read again. A writer may re-enter until its change has begun.

    Parameters
    ----------
    guard : callable, optional
        Called by each thread that enters; raises where the table's memory cannot be used.
    """

    def __init__(self, guard: Callable[[], None] | None = None) -> None:
        self.check_device = guard
        # Tickets of holders and waiters in order of arrival, each with its thread's id, negative
        # for a writer. A ticket holds the lock if no conflicting ticket precedes it.
        self.entered: dict[object, int] = {}
        # Mutexes that waiting threads block on.
        self._waiting: dict[LockType, None] = {}
        # Ticket of the latest writer, and of the writer whose change has begun.
        self._changer: object = None
        self._begun: object = self
        # Tickets of `hold`, whose threads need not be in a verb.
        self._held: dict[object, None] = {}
        # The callback is one operation, too.
        _all.add(weakref.ref(self, _all.discard))

    def __reduce__(self) -> tuple[type[ReadWriteLock], tuple[()]]:
        if self.check_device is _refuse_half_changed:
            self.check_device()
        # A copy has no holders yet.
        return ReadWriteLock, ()

    def begin(self) -> None:
        """Mark the running change as begun: from now on it may be half done.

        Without a running change this has no effect.
        """
        self._begun = self._changer

    @contextmanager
    def hold(self, table: Any, verb: str, *, write: bool) -> Iterator[None]:
        """Hold the lock in a block, as a reader or a writer.

        In the block the thread may read a table that it reads, and use no table that it changes.

        Raises
        ------
        ReentranceError
            As `again`.
        """
        kind, name = (_CHANGES if write else _READS), f"{type(table).__name__}.{verb}"
        if self.entered and self.again(kind, table, verb) is not None:
            yield
            return
        if self.check_device is not None:
            self.check_device()
        own = object()
        try:
            self._held[own] = None
            self.entered[own] = kind * get_ident()
            self.wait(own, kind, name)
            if write:
                self._changer = self._begun = own
            yield
        finally:
            self.entered.pop(own, None)
            self._held.pop(own, None)
            self.wake_waiters()

    def again(self, kind: int, table: Any, verb: str) -> object | None:
        """Return this thread's ticket if it holds the lock already, else None.

        With a ticket the thread may run the nested verb.

        Raises
        ------
        ReentranceError
            When the thread reads and wants to write, or is in the middle of a change.
        """
        me = get_ident()
        for own in list(self.entered):
            inside = self.entered.get(own, 0)
            if abs(inside) != me:
                continue
            # Look from the caller's caller on: the direct caller is a verb in any case.
            if own not in self._held and not self._is_in(sys._getframe(1).f_back):
                self.entered.pop(own, None)
                continue
            name = f"{type(table).__name__}.{verb}"
            if kind == _CHANGES and inside > 0:
                raise ReentranceError(
                    f"{name} was called by a thread that is reading the table (in a signal "
                    "handler, a finaliser, a device view, or an argument that is made an array): "
                    "change the table after the read has returned"
                )
            # The ticket may still be waiting, and later tickets wait for it.
            self.wait(own, kind, name)
            if self._begun is own:
                raise ReentranceError(
                    f"{name} was called by a thread that is in the middle of a change of the table "
                    "(in a signal handler, a finaliser, or a device view): call it when the change "
                    "has returned"
                )
            return own
        return None

    def wait(self, own: object, kind: int, name: str) -> None:
        """Wait until no conflicting ticket precedes `own`.

        Raises
        ------
        ReentranceError
            When the wait would deadlock, because a preceding thread waits for this one.
        """
        if not any(self._before(own, kind)):
            return
        me, bell, circle = get_ident(), allocate_lock(), None
        outer = _waits.get(me)
        bell.acquire()
        try:
            _waits[me] = self, own, kind
            while True:
                # Registered before the check: a thread that leaves after it rings the bell.
                self._waiting[bell] = None
                if not any(self._before(own, kind)):
                    return
                # A leaving thread may be interrupted before it rings, hence the timeout.
                if not bell.acquire(timeout=_LOOK):
                    self._drop_leftovers()
                    last, circle = circle, self._deadlock(me)
                    # Seen twice, so all of these waits existed at the same time.
                    if circle is not None and circle == last:
                        raise ReentranceError(
                            f"{name} would deadlock: this thread is using another table, for "
                            f"which a thread that uses this table is waiting; use a second table "
                            f"in a signal handler, finaliser or argument only if no other thread "
                            f"uses the two in the opposite order"
                        )
        finally:
            self._waiting.pop(bell, None)
            if outer is None:
                _waits.pop(me, None)
            else:
                _waits[me] = outer

    def wake_waiters(self) -> None:
        """Wake the waiting threads."""
        for bell in list(self._waiting):
            # The owner re-registers a bell if it still waits; two threads may ring at once.
            if self._waiting.pop(bell, bell) is None:
                bell.release()

    def after_fork(self) -> None:
        """Release the tickets of other threads in a forked child.

        Only the thread that forked exists there.
        """
        me = get_ident()
        for each in list(self.entered):
            if abs(self.entered[each]) != me:
                if each is self._changer:
                    self.check_device = _refuse_half_changed
                del self.entered[each]

    def _before(self, own: object, kind: int) -> Iterator[int]:
        """Yield the threads whose tickets conflict and precede `own`.

        Their number only decreases.
        """
        entered = self.entered
        # Copying the dictionary's keys is one operation.
        for each in list(entered) if own in entered else ():
            if each is own:
                return
            inside = entered.get(each, 0)
            if inside < 0 or (inside > 0 and kind == _CHANGES):
                yield abs(inside)

    def _deadlock(self, me: int) -> list[object] | None:
        """Return the waiting tickets in a deadlock with this thread, if any.

        None if none of those threads waits for this thread.
        """
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

    def _drop_leftovers(self) -> None:
        """Remove tickets whose threads have left the verb.

        An exception between two steps can leave a ticket behind.
        """
        # In this order: every listed ticket was entered before the frames are read.
        there = list(self.entered)
        frames = sys._current_frames()
        for each in there:
            inside = self.entered.get(each, 0)
            if inside and each not in self._held and not self._is_in(frames.get(abs(inside))):
                self.entered.pop(each, None)

    def _is_in(self, frame: FrameType | None) -> bool:
        """Return whether a verb with this lock is on the stack."""
        while frame is not None:
            if frame.f_code is _CODE and frame.f_locals.get("turns") is self:
                return True
            frame = frame.f_back
        return False


def _locked(kind: int, verb: Verb) -> Verb:
    @functools.wraps(verb)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
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
        if turns.check_device is not None:
            turns.check_device()
        own = object()
        try:
            entered[own] = kind * get_ident()
            if len(entered) > 1:
                turns.wait(own, kind, verb.__name__)
            if kind < 0:
                turns._changer = own
            return verb(self, *args, **kwargs)
        finally:
            # One operation, which has no effect if the ticket was not entered.
            entered.pop(own, None)
            if turns._waiting:
                turns.wake_waiters()

    return cast(Verb, waiting)


# All verbs share the code object.
_CODE = _locked(_READS, len).__code__


def read_locked(verb: Verb) -> Verb:
    """Decorate a reading verb of a table: it shares the lock."""
    return _locked(_READS, verb)


def write_locked(verb: Verb) -> Verb:
    """Decorate a writing verb of a table: it takes the lock exclusively."""
    return _locked(_CHANGES, verb)


def _refuse_half_changed() -> None:
    raise TableBroken(
        "another thread was changing this table when the process was forked, so that the child has "
        "it half changed; load it from a save or build it anew here, and fork while no thread "
        "changes it, or start processes by 'spawn'"
    )


def _after_fork() -> None:
    """Drop the waits and the tickets of other threads in a forked child."""
    for thread in list(_waits):
        if thread != get_ident():
            del _waits[thread]
    for each in list(_all):
        if (turns := each()) is not None:
            turns.after_fork()


os.register_at_fork(after_in_child=_after_fork)
