"""Raise a task's user errors without writing tracebacks into the worker's log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from distributed import get_worker

from dgpuhash.errors import DgpuhashError

# Tasks remembered at most: Dask never reports one that was cancelled since.
REMEMBERED = 1024

_refused: deque[Hashable] = deque(maxlen=REMEMBERED)


@contextmanager
def raise_without_traceback() -> Iterator[None]:
    """Raise this library's errors in a block without traceback and report.

    Dask's log entry for the failed task is left out as well. Errors of memory, and all errors of
    other libraries, are reported as usual.
    """
    try:
        yield
    except DgpuhashError as error:
        if isinstance(error, MemoryError):
            raise
        try:
            _refused.append(get_worker().get_current_task())
        except (ValueError, AttributeError):
            # This does not run in a task.
            raise error from None
        # Tasks of one coalesced request may raise the same error object: each gets a copy.
        raise type(error)(*error.args) from None


def install_log_filter() -> None:
    """Install the log filter of `raise_without_traceback` on this process's workers.

    A second call changes nothing.
    """
    logging.getLogger("distributed.worker").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    args = record.args
    if not (isinstance(record.msg, str) and record.msg.startswith("Compute Failed")):
        return True
    if not isinstance(args, tuple) or not args or args[0] not in _refused:
        return True
    _refused.remove(args[0])
    return False
