"""Errors of tasks that are for who computes them, and not for the worker's log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from distributed import get_worker

from dgpuhash.errors import DgpuhashError

__all__ = ["leave_out_refusals", "refusing"]

# Tasks that are remembered: what Dask has cancelled meanwhile it does not report.
REMEMBERED = 1024

_refused: deque[Hashable] = deque(maxlen=REMEMBERED)


@contextmanager
def refusing() -> Iterator[None]:
    """A block of a task in which errors of ours say all that there is to say.

    They are told without the way that they came, and Dask's report of the failed task, with its
    traceback, is left out. What memory ran out for, and errors of others, are reported as ever.
    """
    try:
        yield
    except DgpuhashError as error:
        if isinstance(error, MemoryError):
            raise
        try:
            _refused.append(get_worker().get_current_task())
        except (ValueError, AttributeError):
            # No worker carries this out.
            raise error from None
        # Tasks that ask together may raise one error at the same time.
        raise type(error)(*error.args) from None


def leave_out_refusals() -> None:
    """Have the log of this process's workers leave out what `refusing` told; twice is once."""
    logging.getLogger("distributed.worker").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    args = record.args
    if not (isinstance(record.msg, str) and record.msg.startswith("Compute Failed")):
        return True
    if not isinstance(args, tuple) or not args or args[0] not in _refused:
        return True
    _refused.remove(args[0])
    return False
