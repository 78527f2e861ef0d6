"""Dispatch Dask's merge and groupby calls to dgpuhash or back to Dask, and count both."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

from distributed import Client

from dgpuhash.dask.report import Answer
from dgpuhash.distributed.cluster.client import computing_client
from dgpuhash.distributed.merge.verb import prepare
from dgpuhash.distributed.runs.rounding import LoggedRounding
from dgpuhash.distributed.runs.run import keep_builds, rounded_columns
from dgpuhash.errors import IndexLost

OURS, DASK = "dgpuhash", "Dask"


class CallNesting(threading.local):
    """Nesting of intercepted calls in one thread.

    Attributes
    ----------
    within : bool
        Whether a verb is being answered: what it calls of Dask is Dask's.
    verb : str
        The verb that was called, where it answers by another one; empty for none.
    """

    within: bool = False
    verb: str = ""


class Answering:
    """Whether Dask's verbs are intercepted, and counts of calls by library and reason.

    Attributes
    ----------
    on : bool
    falls_back : bool
        Whether Dask answers what ours refuses; otherwise the error of ours is raised.
    kept_nbytes : int or None
        The most bytes of builds that stay, None for what the workers' memory allows.
    """

    def __init__(self) -> None:
        self.on = False
        self.falls_back = True
        self.kept_nbytes: int | None = None
        self._calls = CallNesting()
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        # Those whose builds stay, and all that verbs were answered with.
        self._clients: WeakSet[Client] = WeakSet()
        self._callers: WeakSet[Client] = WeakSet()
        self._uid = uuid.uuid4().hex

    def answer(
        self,
        verb: str,
        ours: Callable[[Client], Any],
        theirs: Callable[[], Any],
        *,
        begins: bool = False,
    ) -> Any:
        """Return the result of `ours` for the cluster's client, or else of `theirs`.

        What only begins a verb of ours does not count: groups, whose aggregates do.

        Raises
        ------
        Exception
            What `theirs` raises; what `ours` does where nothing falls back.
        """
        if not self.on or self._calls.within:
            return theirs()
        verb = self._calls.verb or verb
        with self._within():
            try:
                made = ours(self._client())
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if not self.falls_back:
                    raise
            else:
                if not begins:
                    self.note(verb, OURS)
                return made
            made = theirs()
        # Not before: errors of Dask are no answers.
        self.note(verb, DASK, reason)
        return made

    @contextmanager
    def named(self, verb: str) -> Iterator[None]:
        """Count calls of other verbs in the block as calls of this verb."""
        before, self._calls.verb = self._calls.verb, self._calls.verb or verb
        try:
            yield
        finally:
            self._calls.verb = before

    def note(self, verb: str, by: str, reason: str = "") -> None:
        """Count a call."""
        with self._lock:
            self._counts[verb, by, reason] += 1

    def answers(self) -> tuple[Answer, ...]:
        """Return the counts of calls, this library's first, then by frequency."""
        with self._lock:
            found = [
                Answer(verb, by, times, reason)
                for (verb, by, reason), times in self._counts.items()
            ]
        return tuple(sorted(found, key=lambda each: (each.by != OURS, -each.times, each.verb)))

    def clear(self) -> None:
        """Reset all counts."""
        with self._lock:
            self._counts.clear()
            self._callers.clear()
            self._uid = uuid.uuid4().hex

    def rounding_of(self, client: Client) -> LoggedRounding:
        """Return a callback that records columns rounded by the merges of a client."""
        return LoggedRounding(f"{self._uid}-{client.id}")

    def rounded(self) -> Counter[str]:
        """Return for each column the number of partitions in which merges rounded it."""
        with self._lock:
            callers = [client for client in self._callers if client.status == "running"]
        found = Counter[str]()
        for client in callers:
            with suppress(IndexLost):
                found += rounded_columns(client, self.rounding_of(client).uid)
        return found

    def clients(self) -> list[Client]:
        """Return the connected clients whose workers cache builds."""
        with self._lock:
            return [client for client in self._clients if client.status == "running"]

    def forget_clients(self) -> None:
        """Forget all clients."""
        with self._lock:
            self._clients.clear()

    @contextmanager
    def _within(self) -> Iterator[None]:
        self._calls.within = True
        try:
            yield
        finally:
            self._calls.within = False

    def _client(self) -> Client:
        """Return the client that Dask computes with, and cache its builds from now on."""
        client = computing_client()
        if client not in self._clients:
            prepare(client)
            keep_builds(client, self.kept_nbytes)
            with self._lock:
                self._clients.add(client)
                self._callers.add(client)
        return client


answering: Answering = Answering()
