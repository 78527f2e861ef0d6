"""Exceptions at a chosen or random moment, as signal handlers raise them."""

from __future__ import annotations

import ctypes
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dgpuhash

__all__ = ["Interrupted", "events", "raise_at", "raise_from_thread", "raise_on_signal"]

HOME = str(Path(dgpuhash.__file__).parent)


class Interrupted(Exception):
    """Exception that a handler raises."""


def raise_at(event: int, kind: str, work: Callable[[], Any]) -> int:
    """Raise at the given line or opcode of the library while `work` runs.

    Return how many more events were needed, 0 if the exception was raised.
    """
    left = event

    def trace(frame: Any, what: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        frame.f_trace_opcodes = kind == "opcode"
        if what == kind:
            left -= 1
            if left == 0:
                raise Interrupted
        return trace

    # Perhaps of what sees which lines are tested.
    own = sys.gettrace()
    try:
        sys.settrace(trace)
        work()
    except Interrupted:
        pass
    finally:
        sys.settrace(own)
    return left


def events(kind: str, work: Callable[[], Any], number: int) -> range:
    """Return the numbers of about `number` lines or opcodes of some work."""
    # Once before, as some is worked out only once.
    work()
    there = sys.maxsize - raise_at(sys.maxsize, kind, work)
    stride = max(1, there // number)
    return range(1 + random.Random(number).randrange(stride), there + 1, stride)


@contextmanager
def raise_on_signal(error: type[BaseException] = Interrupted) -> Iterator[Callable[..., bool]]:
    """Return a function that runs work and interrupts it after some seconds.

    The function returns whether the work was interrupted.
    """
    armed = False

    def handler(*_: Any) -> None:
        if armed:
            raise error

    def during(work: Callable[[], Any], seconds: float) -> bool:
        nonlocal armed
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            work()
            armed = False
        except error:
            armed = False
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield during
    finally:
        signal.signal(signal.SIGALRM, before)


def raise_from_thread(work: Callable[[], Any], seconds: float) -> bool:
    """Run work in another thread, and raise in it after some seconds."""
    begun, struck = threading.Event(), threading.Event()
    cut = []

    def run() -> None:
        try:
            begun.set()
            work()
            # Long enough for the exception to come, if it is late.
            struck.wait(20)
            for _ in range(100):
                pass
        except Interrupted:
            cut.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait(20)
    threading.Event().wait(seconds)
    assert thread.ident is not None
    raising = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raising(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted))
    struck.set()
    thread.join(20)
    assert not thread.is_alive()
    return bool(cut)
