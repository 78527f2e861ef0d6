"""Commits of a table's changes: an interrupt of the caller waits for their end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

Result = TypeVar("Result")


class Commits:
    """Commits of a table, one after another, each in a thread that no interrupt reaches.

    Signal handlers run in the main thread, between any two instructions. So a change that workers
    have begun, and what the handle notes of it, is carried out by another thread.

    Examples
    --------
    >>> commits = Commits()
    >>> commits.run(lambda: 7)
    7
    >>> commits.finish()
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, commit: Callable[[], Result]) -> Result:
        """Return the result of `commit`, or raise its error.

        An interrupt that comes meanwhile is raised when the commit has ended, or before it has
        begun. A second interrupt is raised at once, and the commit goes on: see `finish`. Other
        threads than the main one, such as those of tasks, are not interrupted.
        """
        if threading.current_thread() is not threading.main_thread():
            with self._lock:
                return commit()
        done = Future[Result]()
        thread = threading.Thread(
            target=copy_context().run, args=(_carry_out, self._lock, commit, done),
            name="dgpuhash-commit", daemon=True,
        )  # fmt: skip
        try:
            try:
                thread.start()
                wait([done])
            except BaseException:
                # An interrupt as `wait` takes the condition leaves it to this thread for good.
                while done._condition._is_owned():  # type: ignore[attr-defined]
                    done._condition.release()
                if not done.cancel():
                    wait([done])
                raise
            return done.result()
        finally:
            # The error's frames refer to it.
            del done

    def finish(self) -> None:
        """Wait for a commit whose caller has been interrupted twice."""
        with self._lock:
            pass


def _carry_out(lock: threading.Lock, commit: Callable[[], Result], done: Future[Result]) -> None:
    with lock:
        if not done.set_running_or_notify_cancel():
            return
        try:
            result = commit()
        except BaseException as error:
            done.set_exception(error)
            # What the error's frames refer to would wait for the collector.
            del done, commit
        else:
            done.set_result(result)
