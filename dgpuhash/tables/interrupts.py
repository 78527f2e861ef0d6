"""Ctrl-C in the middle of what must be done whole."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["uninterrupted"]

Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")


def uninterrupted(work: Callable[Rest, Answer]) -> Callable[Rest, Answer]:
    """Let Ctrl-C wait for the end of `work`: between two of its kernels it would leave half done.

    Work of one kernel needs none of it, and the calls of the system take as long as a small one.
    """

    @functools.wraps(work)
    def whole(*args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler) or threading.current_thread() is not threading.main_thread():
            return work(*args, **kwargs)
        caught: list[Any] = []
        try:
            # Inside, as another signal's handler may raise as soon as this one is set.
            signal.signal(signal.SIGINT, lambda *interrupt: caught.append(interrupt))
            return work(*args, **kwargs)
        finally:
            signal.signal(signal.SIGINT, handler)
            if caught:
                handler(*caught[-1])

    return whole
