"""End a command soon after Ctrl-C, even while threads or processes block."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Of an interrupted command, to remove what it has not finished.
GRACE_SECONDS = 1.3
_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def end_soon_after_interrupt() -> Iterator[None]:
    """End this process `GRACE_SECONDS` after a Ctrl-C in the block, unless it has ended by itself.

    Python raises KeyboardInterrupt in the main thread alone, and only between two of its steps:
    not while that waits for a lock or a long call, and the error is lost where a finaliser or an
    import of an extension module swallows it. A thread of its own is told of the signal at once.

    Examples
    --------
    >>> with end_soon_after_interrupt():
    ...     pass
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        # Only the main thread sets signals; and who ignores or handles Ctrl-C goes on doing so.
        yield
        return
    told, tell = socket.socketpair()
    tell.setblocking(False)
    before = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    is_left = threading.Event()
    threading.Thread(
        target=_end_after_interrupt, args=(told, is_left), name="dgpuhash-interrupt", daemon=True
    ).start()
    try:
        yield
    finally:
        is_left.set()
        signal.set_wakeup_fd(before)
        tell.close()


def _end_after_interrupt(told: socket.socket, is_left: threading.Event) -> None:
    """Wait for Ctrl-C, or the end of the block; then end the process."""
    with told:
        while (numbers := told.recv(64)) and signal.SIGINT not in numbers:
            pass
    if not numbers:
        return
    # Behind the block threads may still keep the process.
    threading.Event().wait(GRACE_SECONDS)
    if not is_left.is_set():
        cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
        os.write(2, f"{cursor}\nAborted!\n".encode())
    os._exit(1)
